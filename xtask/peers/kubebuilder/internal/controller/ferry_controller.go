// Package controller gives each ferry a berth: a ConfigMap that it owns.
package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "setpoint/peers/kubebuilder/api/v1"
)

type FerryReconciler struct {
	client.Client
	Scheme   *runtime.Scheme
	Recorder events.EventRecorder
}

func (r *FerryReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var ferry v1.Ferry
	if err := r.Get(ctx, request.NamespacedName, &ferry); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	berth := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ferry.Namespace, Name: ferry.Name + "-berth"}}
	if !ferry.DeletionTimestamp.IsZero() {
		if err := r.Delete(ctx, berth); client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, err
		}
		controllerutil.RemoveFinalizer(&ferry, v1.Finalizer)
		return ctrl.Result{}, client.IgnoreNotFound(r.Update(ctx, &ferry))
	}
	if controllerutil.AddFinalizer(&ferry, v1.Finalizer) {
		return ctrl.Result{}, r.Update(ctx, &ferry)
	}
	done, err := controllerutil.CreateOrUpdate(ctx, r.Client, berth, func() error {
		berth.Data = map[string]string{"line": ferry.Spec.Line, "passengers": fmt.Sprint(ferry.Spec.Passengers)}
		return controllerutil.SetControllerReference(&ferry, berth, r.Scheme)
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	if done == controllerutil.OperationResultCreated {
		r.Recorder.Eventf(&ferry, berth, corev1.EventTypeNormal, "Moored", "Moor", "berth %s", berth.Name)
	}
	before := ferry.DeepCopyObject().(*v1.Ferry)
	ferry.Status.Berth = berth.Name
	ferry.Status.ObservedGeneration = ferry.Generation
	meta.SetStatusCondition(&ferry.Status.Conditions, metav1.Condition{
		Type: "Moored", Status: metav1.ConditionTrue, Reason: "BerthFound", ObservedGeneration: ferry.Generation,
	})
	return ctrl.Result{}, r.Status().Patch(ctx, &ferry, client.MergeFrom(before))
}

func (r *FerryReconciler) SetupWithManager(manager ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(manager).For(&v1.Ferry{}).Owns(&corev1.ConfigMap{}).Named("ferry").Complete(r)
}
