package main

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
)

var podChecks = []check{
	{"pod create in protobuf", createPod},
	{"pod create sent protobuf", podCreateWasProtobuf},
	{"pod get returns what was created", getPod},
	{"pod list by label and by field", listPods},
	{"pod list in pages is one snapshot", listPodsInPages},
	{"pod watch sees added, modified, deleted in order", watchPods},
	{"pod patch: merge and json", patchPod},
	{"pod status update leaves the spec alone", updatePodStatus},
	{"pod binding sets the node once", bindPod},
	{"pod eviction deletes", evictPod},
	{"pod errors: already exists, not found, invalid, conflict", podErrors},
	{"pod delete collection by label", deletePodCollection},
}

func createNamespace(ctx context.Context, w *world) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	made, err := w.typed.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return first(
		equal("phase", made.Status.Phase, corev1.NamespaceActive),
		equal("label kubernetes.io/metadata.name", made.Labels[corev1.LabelMetadataName], w.namespace),
		equal("finalizers", fmt.Sprint(made.Spec.Finalizers), "[kubernetes]"),
	)
}

// examplePod uses every type whose protobuf form differs from its JSON form:
// quantities, int-or-string in both shapes, times, maps and nested messages.
func examplePod(name string) *corev1.Pod {
	grace := int64(0)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web", "pod": name}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			NodeSelector:                  map[string]string{"disk": "ssd"},
			Containers: []corev1.Container{{
				Name:  "main",
				Image: "nginx:1.29",
				Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}},
				Env:   []corev1.EnvVar{{Name: "GREETING", Value: "grüß dich"}},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{
						corev1.ResourceCPU:    resource.MustParse("250m"),
						corev1.ResourceMemory: resource.MustParse("64Mi"),
					},
				},
				LivenessProbe:  httpProbe(intstr.FromString("http")),
				ReadinessProbe: httpProbe(intstr.FromInt32(80)),
			}},
		},
	}
}

func httpProbe(port intstr.IntOrString) *corev1.Probe {
	return &corev1.Probe{
		PeriodSeconds: 7,
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: port}},
	}
}

func createPod(ctx context.Context, w *world) error {
	made, err := w.typed.CoreV1().Pods(w.namespace).Create(ctx, examplePod("first"), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return first(
		equal("has a uid", made.UID != "", true),
		equal("has a resourceVersion", made.ResourceVersion != "", true),
		equal("has a creationTimestamp", made.CreationTimestamp.IsZero(), false),
		equal("generation", made.Generation, int64(1)),
		equal("phase", made.Status.Phase, corev1.PodPending),
		samePod(made),
	)
}

func podCreateWasProtobuf(_ context.Context, w *world) error {
	for _, r := range w.requests.of("POST", "/pods") {
		if r.contentType != runtime.ContentTypeProtobuf {
			return fmt.Errorf("content type %q", r.contentType)
		}
		return nil
	}
	return fmt.Errorf("no POST of pods was seen")
}

func getPod(ctx context.Context, w *world) error {
	pod, err := w.typed.CoreV1().Pods(w.namespace).Get(ctx, "first", metav1.GetOptions{})
	if err != nil {
		return err
	}
	return samePod(pod)
}

func samePod(pod *corev1.Pod) error {
	if len(pod.Spec.Containers) != 1 {
		return fmt.Errorf("%d containers", len(pod.Spec.Containers))
	}
	c := pod.Spec.Containers[0]
	return first(
		equal("image", c.Image, "nginx:1.29"),
		equal("cpu", c.Resources.Requests.Cpu().String(), "250m"),
		equal("memory", c.Resources.Requests.Memory().Value(), int64(64<<20)),
		equal("env", c.Env[0].Value, "grüß dich"),
		equal("named probe port", c.LivenessProbe.HTTPGet.Port, intstr.FromString("http")),
		equal("numbered probe port", c.ReadinessProbe.HTTPGet.Port, intstr.FromInt32(80)),
		equal("probe period", c.LivenessProbe.PeriodSeconds, int32(7)),
		equal("node selector", pod.Spec.NodeSelector["disk"], "ssd"),
		equal("label", pod.Labels["app"], "web"),
		equal("grace period", *pod.Spec.TerminationGracePeriodSeconds, int64(0)),
	)
}

func listPods(ctx context.Context, w *world) error {
	pods := w.typed.CoreV1().Pods(w.namespace)
	for _, name := range []string{"second", "third"} {
		if _, err := pods.Create(ctx, examplePod(name), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	wanted := map[string]metav1.ListOptions{
		"[first second third]": {},
		"[first third]":        {LabelSelector: "app=web,pod notin (second)"},
		"[second]":             {FieldSelector: "metadata.name=second,status.phase=Pending"},
		"[]":                   {LabelSelector: "!app"},
	}
	for want, options := range wanted {
		list, err := pods.List(ctx, options)
		if err != nil {
			return err
		}
		if err := equal(options.LabelSelector+options.FieldSelector, fmt.Sprint(names(list)), want); err != nil {
			return err
		}
	}
	return nil
}

func listPodsInPages(ctx context.Context, w *world) error {
	pods := w.typed.CoreV1().Pods(w.namespace)
	page, err := pods.List(ctx, metav1.ListOptions{Limit: 2})
	if err != nil {
		return err
	}
	if page.Continue == "" || page.RemainingItemCount == nil {
		return fmt.Errorf("continue %q, remaining %v", page.Continue, page.RemainingItemCount)
	}
	// An object written between two pages is not part of the snapshot.
	if _, err := pods.Create(ctx, examplePod("zz-late"), metav1.CreateOptions{}); err != nil {
		return err
	}
	last, err := pods.List(ctx, metav1.ListOptions{Limit: 2, Continue: page.Continue})
	if err != nil {
		return err
	}
	return first(
		equal("first page", fmt.Sprint(names(page)), "[first second]"),
		equal("remaining", *page.RemainingItemCount, int64(1)),
		equal("last page", fmt.Sprint(names(last)), "[third]"),
		equal("continue", last.Continue, ""),
		equal("resourceVersion", last.ResourceVersion, page.ResourceVersion),
		pods.Delete(ctx, "zz-late", metav1.DeleteOptions{}),
	)
}

func watchPods(ctx context.Context, w *world) error {
	pods := w.typed.CoreV1().Pods(w.namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	stream, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return err
	}
	defer stream.Stop()
	patch := []byte(`{"metadata":{"annotations":{"seen":"yes"}}}`)
	if _, err := pods.Create(ctx, examplePod("watched"), metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := pods.Patch(ctx, "watched", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	if err := pods.Delete(ctx, "watched", metav1.DeleteOptions{}); err != nil {
		return err
	}
	last, _ := strconv.ParseInt(list.ResourceVersion, 10, 64)
	// Pods are deleted gracefully: the first step is a deletionTimestamp, even
	// when no time is granted.
	wanted := []watch.EventType{watch.Added, watch.Modified, watch.Modified, watch.Deleted}
	for i, want := range wanted {
		event, err := next(ctx, stream)
		if err != nil {
			return err
		}
		pod, ok := event.Object.(*corev1.Pod)
		if !ok || event.Type != want || pod.Name != "watched" {
			return fmt.Errorf("event %d: got %s of %T, want %s of the pod", i, event.Type, event.Object, want)
		}
		if err := equal("terminating", pod.DeletionTimestamp != nil, i >= 2); err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
		rv, _ := strconv.ParseInt(pod.ResourceVersion, 10, 64)
		if rv <= last {
			return fmt.Errorf("%s at resourceVersion %d, after %d", event.Type, rv, last)
		}
		last = rv
	}
	return nil
}

func patchPod(ctx context.Context, w *world) error {
	pods := w.typed.CoreV1().Pods(w.namespace)
	merge := []byte(`{"metadata":{"labels":{"tier":"front","pod":null}},"spec":{"activeDeadlineSeconds":600}}`)
	pod, err := pods.Patch(ctx, "first", types.MergePatchType, merge, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	_, kept := pod.Labels["pod"]
	json := []byte(`[{"op":"test","path":"/metadata/labels/tier","value":"front"},
		{"op":"replace","path":"/spec/containers/0/image","value":"nginx:1.30"}]`)
	second, err := pods.Patch(ctx, "first", types.JSONPatchType, json, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	// The same patch again changes nothing, so nothing is written.
	third, err := pods.Patch(ctx, "first", types.JSONPatchType, json, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	return first(
		equal("label", pod.Labels["tier"], "front"),
		equal("removed label is there", kept, false),
		equal("deadline", *pod.Spec.ActiveDeadlineSeconds, int64(600)),
		equal("generation", pod.Generation, int64(2)),
		equal("image", second.Spec.Containers[0].Image, "nginx:1.30"),
		equal("resourceVersion after a no-op", third.ResourceVersion, second.ResourceVersion),
	)
}

func updatePodStatus(ctx context.Context, w *world) error {
	pods := w.typed.CoreV1().Pods(w.namespace)
	pod, err := pods.Get(ctx, "second", metav1.GetOptions{})
	if err != nil {
		return err
	}
	generation := pod.Generation
	pod.Status.Phase = corev1.PodRunning
	pod.Status.StartTime = new(metav1.Now())
	pod.Spec.Containers[0].Image = "ignored:1"
	pod, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	return first(
		equal("phase", pod.Status.Phase, corev1.PodRunning),
		equal("image", pod.Spec.Containers[0].Image, "nginx:1.29"),
		equal("generation", pod.Generation, generation),
	)
}

func bindPod(ctx context.Context, w *world) error {
	pods := w.typed.CoreV1().Pods(w.namespace)
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "third"},
		Target:     corev1.ObjectReference{Kind: "Node", Name: "node-1"},
	}
	if err := pods.Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
		return err
	}
	pod, err := pods.Get(ctx, "third", metav1.GetOptions{})
	if err != nil {
		return err
	}
	again := pods.Bind(ctx, binding, metav1.CreateOptions{})
	return first(
		equal("node", pod.Spec.NodeName, "node-1"),
		equal("binding twice is a conflict", apierrors.IsConflict(again), true),
	)
}

func evictPod(ctx context.Context, w *world) error {
	pods := w.typed.CoreV1().Pods(w.namespace)
	if _, err := pods.Create(ctx, examplePod("evicted"), metav1.CreateOptions{}); err != nil {
		return err
	}
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "evicted", Namespace: w.namespace}}
	if err := pods.EvictV1(ctx, eviction); err != nil {
		return err
	}
	_, err := pods.Get(ctx, "evicted", metav1.GetOptions{})
	return equal("it is gone", apierrors.IsNotFound(err), true)
}

func podErrors(ctx context.Context, w *world) error {
	pods := w.typed.CoreV1().Pods(w.namespace)
	_, exists := pods.Create(ctx, examplePod("first"), metav1.CreateOptions{})
	_, missing := pods.Get(ctx, "nobody", metav1.GetOptions{})
	_, invalid := pods.Create(ctx, examplePod("Not_A_Name"), metav1.CreateOptions{})
	_, homeless := w.typed.CoreV1().Pods("no-such-namespace").Create(ctx, examplePod("first"), metav1.CreateOptions{})
	stale, err := pods.Get(ctx, "second", metav1.GetOptions{})
	if err != nil {
		return err
	}
	stale.ResourceVersion = "1"
	stale.Labels["app"] = "other"
	_, conflict := pods.Update(ctx, stale, metav1.UpdateOptions{})
	wrongUID := types.UID("00000000-0000-0000-0000-000000000000")
	precondition := pods.Delete(ctx, "second", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &wrongUID}})
	return first(
		equal("already exists", apierrors.IsAlreadyExists(exists), true),
		equal("not found", apierrors.IsNotFound(missing), true),
		equal("invalid", apierrors.IsInvalid(invalid), true),
		equal("namespace not found", apierrors.IsNotFound(homeless), true),
		equal("stale update", apierrors.IsConflict(conflict), true),
		equal("uid precondition", apierrors.IsConflict(precondition), true),
	)
}

func deletePodCollection(ctx context.Context, w *world) error {
	pods := w.typed.CoreV1().Pods(w.namespace)
	doomed := examplePod("doomed")
	doomed.Labels["app"] = "doomed"
	if _, err := pods.Create(ctx, doomed, metav1.CreateOptions{}); err != nil {
		return err
	}
	err := pods.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app=doomed"})
	if err != nil {
		return err
	}
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return equal("left", fmt.Sprint(names(list)), "[first second third]")
}

func names(list *corev1.PodList) []string {
	found := []string{}
	for _, pod := range list.Items {
		found = append(found, pod.Name)
	}
	return found
}

// next waits for one event that is not a bookmark.
func next(ctx context.Context, stream watch.Interface) (watch.Event, error) {
	for {
		select {
		case <-ctx.Done():
			return watch.Event{}, fmt.Errorf("no event came: %w", ctx.Err())
		case event, open := <-stream.ResultChan():
			if !open {
				return event, fmt.Errorf("the watch ended")
			}
			if event.Type != watch.Bookmark {
				return event, nil
			}
		}
	}
}

func equal[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s: got %v, want %v", what, got, want)
	}
	return nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
