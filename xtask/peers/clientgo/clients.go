package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// clientChecks are the other clients of client-go.
var clientChecks = []check{
	{"rest client reads pods by path", restClient},
	{"dynamic client creates, lists and deletes", dynamicClient},
	{"metadata client lists without specs", metadataClient},
	{"discovery client finds deployments", discoveryClient},
	{"server version", serverVersion},
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
var podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

func restClient(ctx context.Context, w *world) error {
	config := rest.CopyConfig(w.config)
	config.APIPath = "api"
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return err
	}
	list := &corev1.PodList{}
	err = client.Get().Namespace(w.namespace).Resource("pods").
		VersionedParams(&metav1.ListOptions{Limit: 500}, scheme.ParameterCodec).Do(ctx).Into(list)
	if err != nil {
		return err
	}
	return equal("pods", fmt.Sprint(names(list)), "[first second third]")
}

func dynamicClient(ctx context.Context, w *world) error {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "dynamic"},
		"data":     map[string]any{"key": "value"},
	}}
	client := w.dynamic.Resource(configMaps).Namespace(w.namespace)
	if _, err := client.Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return err
	}
	list, err := client.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=dynamic"})
	if err != nil {
		return err
	}
	if len(list.Items) != 1 {
		return fmt.Errorf("%d objects", len(list.Items))
	}
	value, _, _ := unstructured.NestedString(list.Items[0].Object, "data", "key")
	return first(
		equal("list kind", list.GetKind(), "ConfigMapList"),
		equal("value", value, "value"),
		client.Delete(ctx, "dynamic", metav1.DeleteOptions{}),
	)
}

func metadataClient(ctx context.Context, w *world) error {
	list, err := w.metadata.Resource(podResource).Namespace(w.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(list.Items) != 3 {
		return fmt.Errorf("%d objects", len(list.Items))
	}
	return first(
		equal("name", list.Items[0].Name, "first"),
		equal("label", list.Items[0].Labels["app"], "web"),
	)
}

func discoveryClient(_ context.Context, w *world) error {
	resources, err := w.typed.Discovery().ServerResourcesForGroupVersion("apps/v1")
	if err != nil {
		return err
	}
	found := map[string]metav1.APIResource{}
	for _, r := range resources.APIResources {
		found[r.Name] = r
	}
	preferred, err := w.typed.Discovery().ServerPreferredResources()
	if err != nil {
		return err
	}
	return first(
		equal("kind", found["deployments"].Kind, "Deployment"),
		equal("short name", fmt.Sprint(found["deployments"].ShortNames), "[deploy]"),
		equal("scale kind", found["deployments/scale"].Kind, "Scale"),
		equal("many groups", len(preferred) > 10, true),
	)
}

func serverVersion(_ context.Context, w *world) error {
	version, err := w.typed.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	return first(equal("major", version.Major, "1"), equal("minor", version.Minor, "37"))
}
