package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
)

var deploymentChecks = []check{
	{"deployment create in protobuf", createDeployment},
	{"deployment list and get", listDeployments},
	{"deployment watch from nothing starts with what exists", watchDeployments},
	{"deployment patch bumps the generation", patchDeployment},
	{"deployment status update does not bump the generation", updateDeploymentStatus},
	{"deployment scale: get and update", scaleDeployment},
	{"deployment dry run writes nothing", dryRunDeployment},
	{"deployment delete waits for its finalizer", deleteDeployment},
}

func exampleDeployment(name string) *appsv1.Deployment {
	replicas := int32(2)
	surge := intstr.FromString("30%")
	unavailable := intstr.FromInt32(1)
	labels := map[string]string{"app": name}
	pod := examplePod("").Spec
	pod.TerminationGracePeriodSeconds = nil
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Strategy: appsv1.DeploymentStrategy{
				Type: appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{
					MaxSurge: &surge, MaxUnavailable: &unavailable,
				},
			},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		},
	}
}

func createDeployment(ctx context.Context, w *world) error {
	made, err := w.typed.AppsV1().Deployments(w.namespace).
		Create(ctx, exampleDeployment("web"), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	rolling := made.Spec.Strategy.RollingUpdate
	return first(
		equal("generation", made.Generation, int64(1)),
		equal("replicas", *made.Spec.Replicas, int32(2)),
		equal("surge", *rolling.MaxSurge, intstr.FromString("30%")),
		equal("unavailable", *rolling.MaxUnavailable, intstr.FromInt32(1)),
		equal("selector", made.Spec.Selector.MatchLabels["app"], "web"),
		equal("memory", made.Spec.Template.Spec.Containers[0].Resources.Requests.Memory().String(), "64Mi"),
	)
}

func listDeployments(ctx context.Context, w *world) error {
	deployments := w.typed.AppsV1().Deployments(w.namespace)
	got, err := deployments.Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	list, err := deployments.List(ctx, metav1.ListOptions{LabelSelector: "app in (web)"})
	if err != nil {
		return err
	}
	if len(list.Items) != 1 {
		return fmt.Errorf("%d deployments", len(list.Items))
	}
	everywhere, err := w.typed.AppsV1().Deployments("").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=web"})
	if err != nil {
		return err
	}
	found := false
	for _, d := range everywhere.Items {
		found = found || d.UID == got.UID
	}
	return first(
		equal("uid", list.Items[0].UID, got.UID),
		equal("found in all namespaces", found, true),
	)
}

func watchDeployments(ctx context.Context, w *world) error {
	stream, err := w.typed.AppsV1().Deployments(w.namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer stream.Stop()
	event, err := next(ctx, stream)
	if err != nil {
		return err
	}
	d, ok := event.Object.(*appsv1.Deployment)
	if !ok {
		return fmt.Errorf("%s of %T", event.Type, event.Object)
	}
	return first(equal("type", event.Type, watch.Added), equal("name", d.Name, "web"))
}

func patchDeployment(ctx context.Context, w *world) error {
	deployments := w.typed.AppsV1().Deployments(w.namespace)
	labelled, err := deployments.Patch(ctx, "web", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"seen":"yes"}}}`), metav1.PatchOptions{})
	if err != nil {
		return err
	}
	scaled, err := deployments.Patch(ctx, "web", types.JSONPatchType,
		[]byte(`[{"op":"replace","path":"/spec/replicas","value":3}]`), metav1.PatchOptions{})
	if err != nil {
		return err
	}
	return first(
		equal("generation after a label", labelled.Generation, int64(1)),
		equal("generation after a spec change", scaled.Generation, int64(2)),
		equal("replicas", *scaled.Spec.Replicas, int32(3)),
	)
}

func updateDeploymentStatus(ctx context.Context, w *world) error {
	deployments := w.typed.AppsV1().Deployments(w.namespace)
	d, err := deployments.Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	d.Status.ObservedGeneration = d.Generation
	d.Status.Replicas = 3
	d.Status.Conditions = []appsv1.DeploymentCondition{{
		Type: appsv1.DeploymentAvailable, Status: corev1.ConditionFalse, Reason: "Starting",
		LastUpdateTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}}
	updated, err := deployments.UpdateStatus(ctx, d, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	return first(
		equal("generation", updated.Generation, d.Generation),
		equal("status.replicas", updated.Status.Replicas, int32(3)),
		equal("reason", updated.Status.Conditions[0].Reason, "Starting"),
	)
}

func scaleDeployment(ctx context.Context, w *world) error {
	deployments := w.typed.AppsV1().Deployments(w.namespace)
	scale, err := deployments.GetScale(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	before := scale.Spec.Replicas
	scale.Spec.Replicas = 5
	after, err := deployments.UpdateScale(ctx, "web", scale, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	d, err := deployments.Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	return first(
		equal("spec.replicas", before, int32(3)),
		equal("status.replicas", scale.Status.Replicas, int32(3)),
		equal("selector", scale.Status.Selector, "app=web"),
		equal("after", after.Spec.Replicas, int32(5)),
		equal("deployment", *d.Spec.Replicas, int32(5)),
	)
}

func dryRunDeployment(ctx context.Context, w *world) error {
	deployments := w.typed.AppsV1().Deployments(w.namespace)
	made, err := deployments.Create(ctx, exampleDeployment("imagined"),
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return err
	}
	_, missing := deployments.Get(ctx, "imagined", metav1.GetOptions{})
	return first(
		equal("has a uid", made.UID != "", true),
		equal("it is not there", apierrors.IsNotFound(missing), true),
	)
}

func deleteDeployment(ctx context.Context, w *world) error {
	deployments := w.typed.AppsV1().Deployments(w.namespace)
	guarded := exampleDeployment("guarded")
	guarded.Finalizers = []string{"example.com/guard"}
	if _, err := deployments.Create(ctx, guarded, metav1.CreateOptions{}); err != nil {
		return err
	}
	background := metav1.DeletePropagationBackground
	if err := deployments.Delete(ctx, "guarded", metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		return err
	}
	waiting, err := deployments.Get(ctx, "guarded", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if waiting.DeletionTimestamp == nil {
		return fmt.Errorf("no deletionTimestamp")
	}
	waiting.Finalizers = nil
	if _, err := deployments.Update(ctx, waiting, metav1.UpdateOptions{}); err != nil {
		return err
	}
	_, gone := deployments.Get(ctx, "guarded", metav1.GetOptions{})
	return first(
		equal("generation after delete", waiting.Generation, int64(2)),
		equal("it is gone", apierrors.IsNotFound(gone), true),
	)
}
