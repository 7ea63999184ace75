package main

import (
	"context"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

const finalizer = group + "/tidy"

// reconciler makes a ConfigMap and a Deployment of every garden, and says so in its status.
type reconciler struct {
	client.Client
	events events.EventRecorder
}

func (r *reconciler) setUp(manager ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(manager).
		For(&Garden{}).
		Owns(&corev1.ConfigMap{}).
		Owns(&appsv1.Deployment{}).
		Complete(r)
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	garden := &Garden{}
	if err := r.Get(ctx, request.NamespacedName, garden); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !garden.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.tidy(ctx, garden)
	}
	if controllerutil.AddFinalizer(garden, finalizer) {
		return ctrl.Result{}, r.Update(ctx, garden)
	}
	return ctrl.Result{}, first(r.configMap(ctx, garden), r.deployment(ctx, garden), r.status(ctx, garden))
}

func (r *reconciler) configMap(ctx context.Context, garden *Garden) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: garden.Namespace, Name: garden.Name}}
	result, err := controllerutil.CreateOrUpdate(ctx, r.Client, object, func() error {
		object.Data = map[string]string{"plant": garden.Spec.Plant, "rows": strconv.Itoa(int(*garden.Spec.Rows))}
		return controllerutil.SetControllerReference(garden, object, r.Scheme())
	})
	if err == nil && result == controllerutil.OperationResultCreated {
		r.events.Eventf(garden, object, corev1.EventTypeNormal, "Planted", "Plant", "planted %s", garden.Spec.Plant)
	}
	return err
}

func (r *reconciler) deployment(ctx context.Context, garden *Garden) error {
	object := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: garden.Namespace, Name: garden.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, object, func() error {
		labels := map[string]string{"garden": garden.Name}
		object.Spec.Replicas = garden.Spec.Rows
		object.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		object.Spec.Template.Labels = labels
		if len(object.Spec.Template.Spec.Containers) == 0 {
			object.Spec.Template.Spec.Containers = []corev1.Container{{Name: "plant", Image: "example.org/plant:1"}}
		}
		return controllerutil.SetControllerReference(garden, object, r.Scheme())
	})
	return err
}

func (r *reconciler) status(ctx context.Context, garden *Garden) error {
	changed := meta.SetStatusCondition(&garden.Status.Conditions, metav1.Condition{
		Type: "Planted", Status: metav1.ConditionTrue, Reason: "Planted", ObservedGeneration: garden.Generation,
	})
	if !changed && garden.Status.ObservedGeneration == garden.Generation {
		return nil
	}
	garden.Status.ObservedGeneration = garden.Generation
	garden.Status.ConfigMap = garden.Name
	return r.Status().Update(ctx, garden)
}

// tidy is the finalizer's work: here is no garbage collector to rely on.
func (r *reconciler) tidy(ctx context.Context, garden *Garden) error {
	if !controllerutil.ContainsFinalizer(garden, finalizer) {
		return nil
	}
	in := metav1.ObjectMeta{Namespace: garden.Namespace, Name: garden.Name}
	for _, owned := range []client.Object{&corev1.ConfigMap{ObjectMeta: in}, &appsv1.Deployment{ObjectMeta: in}} {
		if err := client.IgnoreNotFound(r.Delete(ctx, owned)); err != nil {
			return err
		}
	}
	controllerutil.RemoveFinalizer(garden, finalizer)
	return r.Update(ctx, garden)
}
