// Package main has the operator of docs/from-controller-runtime.md, so that it is compiled, and tells which items
// controller-runtime exports, so that the guide has a row for each.
package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// Greeting gives each namespace that is annotated with a greeting a ConfigMap with it.
type Greeting struct {
	client.Client
	Scheme *runtime.Scheme
}

func (r *Greeting) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var ns corev1.Namespace
	if err := r.Get(ctx, req.NamespacedName, &ns); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	greeting, ok := ns.Annotations["example.com/greeting"]
	if !ok {
		return ctrl.Result{}, nil
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "greeting"}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, cm, func() error {
		cm.Data = map[string]string{"text": greeting}
		return controllerutil.SetControllerReference(&ns, cm, r.Scheme)
	})
	return ctrl.Result{}, err
}

func (r *Greeting) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&corev1.Namespace{}).Owns(&corev1.ConfigMap{}).Complete(r)
}
