package controller

import (
	"context"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "setpoint/peers/kubebuilder/api/v1"
)

var (
	ctx         context.Context
	cancel      context.CancelFunc
	environment *envtest.Environment
	k8sClient   client.Client
	ended       chan error
)

func TestControllers(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Controller Suite")
}

var _ = BeforeSuite(func() {
	logf.SetLogger(zap.New(zap.WriteTo(GinkgoWriter), zap.UseDevMode(true)))
	ctx, cancel = context.WithCancel(context.Background())
	Expect(v1.AddToScheme(scheme.Scheme)).To(Succeed())
	environment = &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}
	config, err := environment.Start()
	Expect(err).NotTo(HaveOccurred())
	k8sClient, err = client.New(config, client.Options{Scheme: scheme.Scheme})
	Expect(err).NotTo(HaveOccurred())

	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme.Scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	Expect(err).NotTo(HaveOccurred())
	reconciler := &FerryReconciler{
		Client: manager.GetClient(), Scheme: manager.GetScheme(), Recorder: manager.GetEventRecorder("ferry"),
	}
	Expect(reconciler.SetupWithManager(manager)).To(Succeed())
	ended = make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
})

var _ = AfterSuite(func() {
	cancel()
	Eventually(ended, "10s").Should(Receive(BeNil()))
	Expect(environment.Stop()).To(Succeed())
})
