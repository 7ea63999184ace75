package main

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

var admissionChecks = []check{
	{"mutating webhook sets defaults", defaults},
	{"validating webhook refuses with its words", refuses},
	{"validating webhook refuses a field as invalid", refusesField},
	{"validating webhook warns", warns},
	{"validating webhook sees old and new", seesBoth},
	{"schema is checked after the mutating webhook", schemaStillCounts},
}

var reconcileChecks = []check{
	{"reconciler creates what it owns", creates},
	{"status is written and leaves the generation", status},
	{"reconciler follows a change", follows},
	{"what was removed by hand comes back", comesBack},
	{"server-side apply starts a reconciliation", applies},
	{"event is recorded", recorded},
	{"validating webhook refuses a deletion", keeps},
	{"finalizer runs on deletion", finalizes},
}

var versionChecks = []check{
	{"stored version is read in the other", readsBeta},
	{"other version is written, defaulted and reconciled", writesBeta},
	{"conversion that fails is an error", failsToConvert},
	{"cache of the other version syncs and follows", cachesBeta},
}

func (w *world) garden(name, plant string) *Garden {
	return &Garden{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: GardenSpec{Plant: plant}}
}

func (w *world) gone(ctx context.Context, object client.Object) error {
	return eventually(ctx, func() error {
		err := w.Get(ctx, client.ObjectKeyFromObject(object), object)
		if err == nil {
			return errors.New("it is still there")
		}
		return client.IgnoreNotFound(err)
	})
}

// change reads, changes and writes, as often as somebody else was quicker.
func (w *world) change(ctx context.Context, name string, how func(*Garden)) error {
	return eventually(ctx, func() error {
		garden := w.garden(name, "")
		if err := w.Get(ctx, client.ObjectKeyFromObject(garden), garden); err != nil {
			return err
		}
		how(garden)
		return w.Update(ctx, garden)
	})
}

func defaults(ctx context.Context, w *world) error {
	garden := w.garden("roses", "rose")
	if err := w.Create(ctx, garden); err != nil {
		return err
	}
	if garden.Spec.Rows == nil {
		return errors.New("nothing was defaulted")
	}
	return equal("rows", *garden.Spec.Rows, defaultRows)
}

func refuses(ctx context.Context, w *world) error {
	err := w.Create(ctx, w.garden("knotweed", "knotweed"))
	if err == nil {
		return errors.New("it was created")
	}
	return first(
		equal("reason", apierrors.ReasonForError(err), metav1.StatusReasonForbidden),
		equal("message", err.Error(),
			`admission webhook "validate.gardens.example.org" denied the request: knotweed is never planted`),
	)
}

func refusesField(ctx context.Context, w *world) error {
	err := w.Create(ctx, w.garden("nothing", ""))
	var refusal apierrors.APIStatus
	if !errors.As(err, &refusal) {
		return fmt.Errorf("no refusal: %v", err)
	}
	details := refusal.Status().Details
	if details == nil || len(details.Causes) != 1 {
		return fmt.Errorf("no cause: %v", details)
	}
	return first(
		equal("invalid", apierrors.IsInvalid(err), true),
		equal("name", details.Name, "nothing"),
		equal("kind", details.Group+"/"+details.Kind, "gardens.example.org/Garden"),
		equal("field", details.Causes[0].Field, "spec.plant"),
		equal("cause", details.Causes[0].Type, metav1.CauseTypeFieldValueRequired),
		equal("message", fmt.Sprint(err), `admission webhook "validate.gardens.example.org" denied the request: `+
			`Garden.gardens.example.org "nothing" is invalid: spec.plant: Required value: a garden needs a plant`),
	)
}

func warns(ctx context.Context, w *world) error {
	if err := w.Create(ctx, w.garden("mint", "mint"), client.DryRunAll); err != nil {
		return err
	}
	return equal("warned", w.warnings.heard("mint spreads"), true)
}

func seesBoth(ctx context.Context, w *world) error {
	garden := w.garden("roses", "")
	before := garden.DeepCopyObject().(*Garden)
	garden.Spec.Plant = "tulip"
	err := w.Patch(ctx, garden, client.MergeFrom(before))
	return equal("message", fmt.Sprint(err),
		`admission webhook "validate.gardens.example.org" denied the request: a garden keeps its plant`)
}

func schemaStillCounts(ctx context.Context, w *world) error {
	garden := w.garden("endless", "rose")
	garden.Spec.Rows = pointer(int32(1000))
	err := w.Create(ctx, garden)
	return equal("message", fmt.Sprint(err), `Garden.gardens.example.org "endless" is invalid: `+
		`spec.rows: Invalid value: 1000: spec.rows in body should be less than or equal to 100`)
}

// owned waits until what belongs to a garden has so many rows.
func (w *world) owned(ctx context.Context, name string, rows int32) error {
	return eventually(ctx, func() error {
		garden := w.garden(name, "")
		config, deployment := &corev1.ConfigMap{}, &appsv1.Deployment{}
		at := client.ObjectKeyFromObject(garden)
		if err := first(w.Get(ctx, at, garden), w.Get(ctx, at, config), w.Get(ctx, at, deployment)); err != nil {
			return err
		}
		return first(
			equal("owner of the config map", metav1.IsControlledBy(config, garden), true),
			equal("owner of the deployment", metav1.IsControlledBy(deployment, garden), true),
			equal("rows in the config map", config.Data["rows"], fmt.Sprint(rows)),
			equal("replicas", *deployment.Spec.Replicas, rows),
		)
	})
}

func creates(ctx context.Context, w *world) error {
	return w.owned(ctx, "roses", defaultRows)
}

func status(ctx context.Context, w *world) error {
	return eventually(ctx, func() error {
		garden := w.garden("roses", "")
		if err := w.Get(ctx, client.ObjectKeyFromObject(garden), garden); err != nil {
			return err
		}
		return first(
			equal("generation", garden.Generation, 1),
			equal("observed generation", garden.Status.ObservedGeneration, 1),
			equal("config map", garden.Status.ConfigMap, "roses"),
			equal("planted", meta.IsStatusConditionTrue(garden.Status.Conditions, "Planted"), true),
			equal("finalizer", controllerutil.ContainsFinalizer(garden, finalizer), true),
		)
	})
}

func follows(ctx context.Context, w *world) error {
	if err := w.change(ctx, "roses", func(g *Garden) { g.Spec.Rows = pointer(int32(5)) }); err != nil {
		return err
	}
	return w.owned(ctx, "roses", 5)
}

func comesBack(ctx context.Context, w *world) error {
	config := &corev1.ConfigMap{}
	if err := w.Get(ctx, key(w.namespace, "roses"), config); err != nil {
		return err
	}
	removed := config.UID
	if err := w.Delete(ctx, config); err != nil {
		return err
	}
	return eventually(ctx, func() error {
		if err := w.Get(ctx, key(w.namespace, "roses"), config); err != nil {
			return err
		}
		return equal("still the removed one", config.UID == removed, false)
	})
}

func applies(ctx context.Context, w *world) error {
	object := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "herbs", "namespace": w.namespace},
		"spec":     map[string]any{"plant": "thyme", "rows": int64(2)},
	}}
	object.SetGroupVersionKind(stored.WithKind("Garden"))
	apply := client.ApplyConfigurationFromUnstructured(object)
	if err := w.Apply(ctx, apply, client.FieldOwner("checker")); err != nil {
		return err
	}
	return w.owned(ctx, "herbs", 2)
}

func recorded(ctx context.Context, w *world) error {
	return eventually(ctx, func() error {
		list := &eventsv1.EventList{}
		if err := w.List(ctx, list, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		for _, event := range list.Items {
			if event.Regarding.Name == "herbs" && event.Note == "planted thyme" && event.Reason == "Planted" {
				return equal("reporter", event.ReportingController, "gardener")
			}
		}
		return fmt.Errorf("%d other events", len(list.Items))
	})
}

func keeps(ctx context.Context, w *world) error {
	err := w.change(ctx, "roses", func(g *Garden) { metav1.SetMetaDataAnnotation(&g.ObjectMeta, keep, "yes") })
	if err != nil {
		return err
	}
	err = w.Delete(ctx, w.garden("roses", ""))
	message := equal("message", fmt.Sprint(err),
		`admission webhook "validate.gardens.example.org" denied the request: this garden is kept`)
	return first(message, w.change(ctx, "roses", func(g *Garden) { delete(g.Annotations, keep) }))
}

func finalizes(ctx context.Context, w *world) error {
	garden := w.garden("roses", "")
	if err := w.Delete(ctx, garden); err != nil {
		return err
	}
	in := metav1.ObjectMeta{Namespace: w.namespace, Name: "roses"}
	return first(
		w.gone(ctx, garden),
		w.gone(ctx, &corev1.ConfigMap{ObjectMeta: in}),
		w.gone(ctx, &appsv1.Deployment{ObjectMeta: in}),
	)
}

func readsBeta(ctx context.Context, w *world) error {
	list := &BetaGardenList{}
	one := &BetaGarden{}
	if err := first(w.List(ctx, list, client.InNamespace(w.namespace)), w.Get(ctx, key(w.namespace, "herbs"), one)); err != nil {
		return err
	}
	if len(list.Items) != 1 {
		return fmt.Errorf("%d objects", len(list.Items))
	}
	return first(
		equal("rows", one.Spec.RowCount, "2"),
		equal("rows in the list", list.Items[0].Spec.RowCount, "2"),
		equal("version in the list", list.Items[0].APIVersion, beta.String()),
	)
}

func writesBeta(ctx context.Context, w *world) error {
	created := &BetaGarden{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "beds"},
		Spec:       BetaGardenSpec{Plant: "leek"},
	}
	if err := w.Create(ctx, created); err != nil {
		return err
	}
	if err := equal("defaulted", created.Spec.RowCount, fmt.Sprint(defaultRows)); err != nil {
		return err
	}
	if err := w.Patch(ctx, created, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"rowCount":"7"}}`))); err != nil {
		return err
	}
	garden := w.garden("beds", "")
	if err := w.Get(ctx, client.ObjectKeyFromObject(garden), garden); err != nil {
		return err
	}
	return first(equal("rows", *garden.Spec.Rows, 7), w.owned(ctx, "beds", 7))
}

func failsToConvert(ctx context.Context, w *world) error {
	err := w.Create(ctx, &BetaGarden{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "many"},
		Spec:       BetaGardenSpec{Plant: "leek", RowCount: "many"},
	})
	if err == nil {
		return errors.New("it was created")
	}
	return first(
		equal("internal error", apierrors.IsInternalError(err), true),
		equal("message", err.Error(), `Internal error occurred: Internal error occurred: conversion webhook for `+
			`gardens.example.org/v1beta1, Kind=Garden failed: rowCount "many" is not a number`),
	)
}

func cachesBeta(ctx context.Context, w *world) error {
	cached := w.leader.GetClient()
	list := &BetaGardenList{}
	if err := cached.List(ctx, list, client.InNamespace(w.namespace)); err != nil {
		return err
	}
	if err := equal("objects", len(list.Items), 2); err != nil {
		return err
	}
	if err := w.change(ctx, "beds", func(g *Garden) { g.Spec.Rows = pointer(int32(8)) }); err != nil {
		return err
	}
	return eventually(ctx, func() error {
		one := &BetaGarden{}
		if err := cached.Get(ctx, key(w.namespace, "beds"), one); err != nil {
			return err
		}
		return equal("rows", one.Spec.RowCount, "8")
	})
}
