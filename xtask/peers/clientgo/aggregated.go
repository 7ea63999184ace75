package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// What examples/extension-server serves. The pod and the node `measured` are there.
var aggregatedChecks = []check{
	{"informer of an aggregated kind syncs by streaming list and follows", followPeaks},
	{"metrics of pods are selected by labels", selectMetrics},
}

var (
	peaks      = schema.GroupVersionResource{Group: "peaks.example.com", Version: "v1", Resource: "peaks"}
	podMetrics = schema.GroupVersionResource{Group: "metrics.k8s.io", Version: "v1beta1", Resource: "pods"}
)

func followPeaks(ctx context.Context, w *world) error {
	config := rest.CopyConfig(w.config)
	config.UserAgent = "follow-peaks"
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	informer := factory.ForResource(peaks).Informer()
	seen := make(chan string, 64)
	tell := func(object any) {
		if peak, ok := object.(*unstructured.Unstructured); ok && peak.GetName() == "measured" {
			cpu, _, _ := unstructured.NestedString(peak.Object, "cpu")
			seen <- cpu
		}
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    tell,
		UpdateFunc: func(_, object any) { tell(object) },
	})
	if err != nil {
		return err
	}
	stop, cancel := context.WithCancel(ctx)
	defer factory.Shutdown()
	defer cancel()
	factory.Start(stop.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return fmt.Errorf("not synced in time; asked: %v", questions(w.requests.by("follow-peaks")))
	}
	if err := streamed(w, "follow-peaks", 1); err != nil {
		return err
	}
	patch := []byte(`{"metadata":{"annotations":{"metrics.example.com/millicpu":"1500"}}}`)
	if _, err := w.typed.CoreV1().Pods("default").Patch(ctx, "measured", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	for {
		select {
		case cpu := <-seen:
			if cpu == "1550m" {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("the new peak was not delivered; asked: %v", questions(w.requests.by("follow-peaks")))
		}
	}
}

func selectMetrics(ctx context.Context, w *world) error {
	patch := []byte(`{"metadata":{"labels":{"app":"measured"}}}`)
	if _, err := w.typed.CoreV1().Pods("default").Patch(ctx, "measured", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	found, err := w.dynamic.Resource(podMetrics).Namespace("default").List(ctx, metav1.ListOptions{LabelSelector: "app=measured"})
	if err != nil {
		return err
	}
	none, err := w.dynamic.Resource(podMetrics).Namespace("default").List(ctx, metav1.ListOptions{LabelSelector: "app!=measured"})
	if err != nil {
		return err
	}
	return first(
		equal("kind", found.GetKind(), "PodMetricsList"),
		equal("selected", len(found.Items), 1),
		equal("others", len(none.Items), 0),
	)
}
