// Command controller is controller-runtime's side of the end-to-end benchmark: every ConfigMap that says when it was
// changed gets a Secret with the same data and the time of the reconcile, as bench/src/e2e does it.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// workers is how many reconciles may run at once.
const workers = 16

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig string) error {
	ctrl.SetLogger(logr.Discard())
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	manager, err := ctrl.NewManager(config, ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(manager).
		For(&corev1.ConfigMap{}).
		Owns(&corev1.Secret{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(&reconciler{manager.GetClient()})
	if err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

type reconciler struct{ client.Client }

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	now := strconv.FormatInt(time.Now().UnixNano(), 10)
	var source corev1.ConfigMap
	if err := r.Get(ctx, request.NamespacedName, &source); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	at, known := source.Data["at"]
	if !known {
		return ctrl.Result{}, nil
	}
	var child corev1.Secret
	err := r.Get(ctx, request.NamespacedName, &child)
	if err == nil && string(child.Data["at"]) == at {
		return ctrl.Result{}, nil
	}
	data := map[string][]byte{"at": []byte(at), "reconciled": []byte(now)}
	if apierrors.IsNotFound(err) {
		child = corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: source.Name, Namespace: source.Namespace}, Data: data}
		if err := ctrl.SetControllerReference(&source, &child, r.Scheme()); err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{}, r.Create(ctx, &child)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	child.Data = data
	return ctrl.Result{}, r.Update(ctx, &child)
}
