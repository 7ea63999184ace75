package main

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	defaultRows = 3
	keep        = group + "/keep"
)

// gardener holds the admission rules of gardens.
type gardener struct{}

func (gardener) Default(_ context.Context, garden *Garden) error {
	if garden.Spec.Rows == nil {
		garden.Spec.Rows = pointer(int32(defaultRows))
	}
	return nil
}

func (gardener) ValidateCreate(_ context.Context, garden *Garden) (admission.Warnings, error) {
	switch garden.Spec.Plant {
	case "":
		return nil, apierrors.NewInvalid(stored.WithKind("Garden").GroupKind(), garden.Name, field.ErrorList{
			field.Required(field.NewPath("spec", "plant"), "a garden needs a plant"),
		})
	case "knotweed":
		return nil, errors.New("knotweed is never planted")
	case "mint":
		return admission.Warnings{"mint spreads"}, nil
	}
	return nil, nil
}

func (g gardener) ValidateUpdate(ctx context.Context, before, after *Garden) (admission.Warnings, error) {
	// What removes the last finalizer of something that is being deleted must pass.
	if after.DeletionTimestamp.IsZero() && before.Spec.Plant != after.Spec.Plant {
		return nil, errors.New("a garden keeps its plant")
	}
	return g.ValidateCreate(ctx, after)
}

func (gardener) ValidateDelete(_ context.Context, garden *Garden) (admission.Warnings, error) {
	if garden.Annotations[keep] != "" {
		return nil, errors.New("this garden is kept")
	}
	return nil, nil
}
