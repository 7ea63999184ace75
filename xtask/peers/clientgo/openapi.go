package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/util/proto"
)

// openapiChecks read the document of OpenAPI v2, as kubectl and typed apply
// configurations do.
var openapiChecks = []check{
	{"openapi v2 has the kinds that discovery has", openapiHasKinds},
	{"openapi v2 makes typed objects with keys of lists", openapiMakesTypes},
	{"openapi v2 has a definition soon after it is served, and loses it", openapiFollowsDefinitions},
}

// soon is how long a change of a definition may take to appear.
const soon = 10 * time.Second

var definitions = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

func openapiModels(w *world) (proto.Models, error) {
	document, err := w.typed.Discovery().OpenAPISchema()
	if err != nil {
		return nil, err
	}
	return proto.NewOpenAPIData(document)
}

// kindsOf finds the models that say which kinds they are.
func kindsOf(models proto.Models) map[schema.GroupVersionKind]proto.Schema {
	found := map[schema.GroupVersionKind]proto.Schema{}
	for _, name := range models.ListModels() {
		model := models.LookupModel(name)
		kinds, _ := model.GetExtensions()["x-kubernetes-group-version-kind"].([]any)
		for _, kind := range kinds {
			text := func(key string) string {
				switch fields := kind.(type) {
				case map[any]any:
					value, _ := fields[key].(string)
					return value
				case map[string]any:
					value, _ := fields[key].(string)
					return value
				}
				return ""
			}
			found[schema.GroupVersionKind{Group: text("group"), Version: text("version"), Kind: text("kind")}] = model
		}
	}
	return found
}

func openapiHasKinds(_ context.Context, w *world) error {
	models, err := openapiModels(w)
	if err != nil {
		return err
	}
	found := kindsOf(models)
	_, lists, err := w.typed.Discovery().ServerGroupsAndResources()
	if err != nil {
		return err
	}
	var missing []string
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for _, resource := range list.APIResources {
			kind := gv.WithKind(resource.Kind)
			if resource.Group != "" || resource.Version != "" {
				kind.Group, kind.Version = resource.Group, resource.Version
			}
			// What connects streams has options and no objects.
			if strings.HasSuffix(kind.Kind, "Options") {
				continue
			}
			if found[kind] == nil {
				missing = append(missing, kind.String())
			}
		}
	}
	return equal("missing kinds", fmt.Sprint(missing), "[]")
}

func openapiMakesTypes(_ context.Context, w *world) error {
	models, err := openapiModels(w)
	if err != nil {
		return err
	}
	parser, err := managedfields.NewGVKParser(models, false)
	if err != nil {
		return err
	}
	pod := parser.Type(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	if pod == nil {
		return fmt.Errorf("there is no type of pods")
	}
	containers := func(image string) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": map[string]any{
			"containers": []any{map[string]any{"name": "a", "image": image}},
		}}
	}
	before, err := pod.FromUnstructured(containers("one"))
	if err != nil {
		return err
	}
	after, err := pod.FromUnstructured(containers("two"))
	if err != nil {
		return err
	}
	difference, err := before.Compare(after)
	if err != nil {
		return err
	}
	wrong := containers("one")
	wrong["spec"].(map[string]any)["nothing"] = true
	_, err = pod.FromUnstructured(wrong)
	return first(
		equal("changed", strings.TrimSpace(difference.Modified.String()), `.spec.containers[name="a"].image`),
		equal("an unknown field is refused", err != nil, true),
	)
}

func openapiFollowsDefinitions(ctx context.Context, w *world) error {
	text := map[string]any{"type": "string", "description": "What it is called."}
	root := map[string]any{"type": "object", "properties": map[string]any{
		"spec": map[string]any{"type": "object", "properties": map[string]any{"title": text}},
	}}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "books.openapi.example.com"},
		"spec": map[string]any{
			"group": "openapi.example.com", "scope": "Namespaced",
			"names": map[string]any{"plural": "books", "singular": "book", "kind": "Book", "listKind": "BookList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": root},
			}},
		},
	}}
	client := w.dynamic.Resource(definitions)
	if _, err := client.Create(ctx, definition, metav1.CreateOptions{}); err != nil {
		return err
	}
	kind := schema.GroupVersionKind{Group: "openapi.example.com", Version: "v1", Kind: "Book"}
	model, err := untilKind(w, kind, true)
	if err == nil {
		err = describesTitle(model)
	}
	if err := first(err, client.Delete(ctx, definition.GetName(), metav1.DeleteOptions{})); err != nil {
		return err
	}
	_, err = untilKind(w, kind, false)
	return err
}

// untilKind waits until a kind is in the document, or is not.
func untilKind(w *world, kind schema.GroupVersionKind, isThere bool) (proto.Schema, error) {
	begun := time.Now()
	for {
		models, err := openapiModels(w)
		if err != nil {
			return nil, err
		}
		model := kindsOf(models)[kind]
		if (model != nil) == isThere {
			return model, nil
		}
		if time.Since(begun) > soon {
			return nil, fmt.Errorf("after %v the presence of %v is %v", soon, kind, !isThere)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func describesTitle(model proto.Schema) error {
	book, ok := model.(*proto.Kind)
	if !ok {
		return fmt.Errorf("it is a %T", model)
	}
	spec, ok := book.Fields["spec"].(*proto.Kind)
	if !ok {
		return fmt.Errorf("spec is a %T", book.Fields["spec"])
	}
	return first(
		equal("description", spec.Fields["title"].GetDescription(), "What it is called."),
		equal("metadata", book.Fields["metadata"] != nil, true),
		equal("kind", book.Fields["kind"] != nil, true),
	)
}
