package webhook

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	v1 "setpoint/peers/kubebuilder/api/v1"
	v2 "setpoint/peers/kubebuilder/api/v2"
)

var (
	ctx         context.Context
	cancel      context.CancelFunc
	environment *envtest.Environment
	k8sClient   client.Client
	warnings    *recorder
	ended       chan error
)

// recorder keeps the warnings that the server sends.
type recorder struct{ seen chan string }

func (r *recorder) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	r.seen <- text
}

func TestWebhooks(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Webhook Suite")
}

var _ = BeforeSuite(func() {
	logf.SetLogger(zap.New(zap.WriteTo(GinkgoWriter), zap.UseDevMode(true)))
	ctx, cancel = context.WithCancel(context.Background())
	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(v1.AddToScheme(scheme)).To(Succeed())
	Expect(v2.AddToScheme(scheme)).To(Succeed())
	environment = &envtest.Environment{
		Scheme:                scheme,
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
		CRDInstallOptions:     envtest.CRDInstallOptions{Scheme: scheme},
		WebhookInstallOptions: envtest.WebhookInstallOptions{
			Paths: []string{filepath.Join("..", "..", "config", "webhook")},
		},
	}
	config, err := environment.Start()
	Expect(err).NotTo(HaveOccurred())
	warnings = &recorder{seen: make(chan string, 100)}
	config.WarningHandlerWithContext = warnings
	k8sClient, err = client.New(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())

	options := &environment.WebhookInstallOptions
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: options.LocalServingHost, Port: options.LocalServingPort, CertDir: options.LocalServingCertDir,
		}),
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(SetupWithManager(manager)).To(Succeed())
	ended = make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()

	address := net.JoinHostPort(options.LocalServingHost, fmt.Sprint(options.LocalServingPort))
	Eventually(func() error {
		dialer := &net.Dialer{Timeout: time.Second}
		connection, err := tls.DialWithDialer(dialer, "tcp", address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return err
		}
		return connection.Close()
	}, "10s").Should(Succeed())
})

var _ = AfterSuite(func() {
	cancel()
	Eventually(ended, "10s").Should(Receive(BeNil()))
	Expect(environment.Stop()).To(Succeed())
})
