package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kindChecks are kinds whose fields need care in protobuf.
var kindChecks = []check{
	{"secret and configmap keep bytes", keepBytes},
	{"lease keeps microseconds", keepMicroseconds},
	{"an event is one object in core/v1 and events.k8s.io/v1", oneEventTwoVersions},
	{"cluster role and binding", clusterRole},
	{"service gets what it was given", createService},
	{"watch ends at its timeout and not before", watchWithTimeout},
}

func keepBytes(ctx context.Context, w *world) error {
	raw := []byte{0, 1, 2, 0xfe, 0xff}
	secret, err := w.typed.CoreV1().Secrets(w.namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "bytes-"},
		Data:       map[string][]byte{"raw": raw, "empty": {}},
		StringData: map[string]string{"text": "plain"},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	configMap, err := w.typed.CoreV1().ConfigMaps(w.namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "bytes"},
		Data:       map[string]string{"text": "zwei\nZeilen"},
		BinaryData: map[string][]byte{"raw": raw},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return first(
		equal("generated name", len(secret.Name), len("bytes-")+5),
		equal("type", secret.Type, corev1.SecretTypeOpaque),
		equal("secret bytes", bytes.Equal(secret.Data["raw"], raw), true),
		equal("stringData becomes data", string(secret.Data["text"]), "plain"),
		equal("binaryData", bytes.Equal(configMap.BinaryData["raw"], raw), true),
		equal("data", configMap.Data["text"], "zwei\nZeilen"),
		equal("generation of a configmap", configMap.Generation, int64(0)),
	)
}

func keepMicroseconds(ctx context.Context, w *world) error {
	leases := w.typed.CoordinationV1().Leases(w.namespace)
	when := metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC))
	holder, seconds := "me", int32(15)
	lease, err := leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "leader"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &when, RenewTime: &when,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	later := metav1.NewMicroTime(when.Add(1500 * time.Microsecond))
	lease.Spec.RenewTime = &later
	lease, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	return first(
		equal("acquired", lease.Spec.AcquireTime.UnixMicro(), when.UnixMicro()),
		equal("renewed", lease.Spec.RenewTime.UnixMicro(), later.UnixMicro()),
	)
}

func oneEventTwoVersions(ctx context.Context, w *world) error {
	now := metav1.Now()
	_, err := w.typed.CoreV1().Events(w.namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "first.1"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: w.namespace, Name: "first"},
		Reason:         "Tested", Message: "it was tested", Type: corev1.EventTypeNormal,
		Source: corev1.EventSource{Component: "clientgo"}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	byField, err := w.typed.CoreV1().Events(w.namespace).
		List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=first,reason=Tested"})
	if err != nil {
		return err
	}
	event, err := w.typed.EventsV1().Events(w.namespace).Get(ctx, "first.1", metav1.GetOptions{})
	if err != nil {
		return err
	}
	return first(
		equal("found by field", len(byField.Items), 1),
		equal("note", event.Note, "it was tested"),
		equal("regarding", event.Regarding.Name, "first"),
		equal("deprecatedSource", event.DeprecatedSource.Component, "clientgo"),
		equal("deprecatedCount", event.DeprecatedCount, int32(1)),
	)
}

func clusterRole(ctx context.Context, w *world) error {
	name := w.namespace + "-reader"
	rbac := w.typed.RbacV1()
	role, err := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: w.namespace, Name: "default"}},
	}, metav1.CreateOptions{})
	return first(
		err,
		equal("rules", fmt.Sprint(role.Rules[0].Verbs), "[get list]"),
		rbac.ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{}),
		rbac.ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{}),
	)
}

func createService(ctx context.Context, w *world) error {
	service, err := w.typed.CoreV1().Services(w.namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone,
			Selector:  map[string]string{"app": "web"},
			Ports:     []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return first(
		equal("ports", len(service.Spec.Ports), 2),
		equal("cluster ip", service.Spec.ClusterIP, corev1.ClusterIPNone),
		equal("protocol", service.Spec.Ports[1].Protocol, corev1.ProtocolUDP),
	)
}

// watchWithTimeout asks the server to end the watch: it ends, and not before.
func watchWithTimeout(ctx context.Context, w *world) error {
	seconds := int64(1)
	begun := time.Now()
	stream, err := w.typed.CoreV1().Nodes().Watch(ctx,
		metav1.ListOptions{TimeoutSeconds: &seconds, AllowWatchBookmarks: true})
	if err != nil {
		return err
	}
	defer stream.Stop()
	for range stream.ResultChan() {
	}
	if took := time.Since(begun); took < 900*time.Millisecond || took > 5*time.Second {
		return fmt.Errorf("a watch of one second took %v", took)
	}
	return nil
}
