// Package webhook fills in what a ferry leaves out, and refuses what it must not be.
package webhook

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "setpoint/peers/kubebuilder/api/v1"
)

const Seats = 40

func SetupWithManager(manager ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(manager, &v1.Ferry{}).WithDefaulter(defaulter{}).WithValidator(validator{}).Complete()
}

type defaulter struct{}

func (defaulter) Default(_ context.Context, ferry *v1.Ferry) error {
	if ferry.Spec.Passengers == 0 {
		ferry.Spec.Passengers = Seats
	}
	if ferry.Spec.Captain == "" {
		ferry.Spec.Captain = "nobody"
	}
	return nil
}

type validator struct{}

func (validator) ValidateCreate(_ context.Context, ferry *v1.Ferry) (admission.Warnings, error) {
	var warnings admission.Warnings
	if ferry.Spec.Captain == "nobody" {
		warnings = append(warnings, "a ferry without a captain stays in the harbour")
	}
	return warnings, check(ferry)
}

func (validator) ValidateUpdate(_ context.Context, before, after *v1.Ferry) (admission.Warnings, error) {
	if before.Spec.Line != after.Spec.Line {
		return nil, apierrors.NewForbidden(v1.GroupVersion.WithResource("ferries").GroupResource(), after.Name,
			fmt.Errorf("it stays on its line %s", before.Spec.Line))
	}
	return nil, check(after)
}

func (validator) ValidateDelete(_ context.Context, ferry *v1.Ferry) (admission.Warnings, error) {
	if ferry.Annotations["harbour.example.com/keep"] == "true" {
		return nil, fmt.Errorf("%s is kept", ferry.Name)
	}
	return nil, nil
}

func check(ferry *v1.Ferry) error {
	if ferry.Spec.Passengers <= 400 {
		return nil
	}
	path := field.NewPath("spec", "passengers")
	errors := field.ErrorList{field.Invalid(path, ferry.Spec.Passengers, "more than 400 do not fit")}
	return apierrors.NewInvalid(v1.GroupVersion.WithKind("Ferry").GroupKind(), ferry.Name, errors)
}
