// Command controllerruntime is an operator as kubebuilder would lay it out: a
// manager on sigs.k8s.io/controller-runtime with a custom resource, a
// reconciler, leader election, and defaulting, validating and conversion
// webhooks. It is also its own user and checks what happens. Each check prints
// one line, `ok NAME (N ms)` or `FAIL NAME (N ms): why`; the exit code is 1 if
// any failed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// A check gets its own deadline, so that a server that never answers is a
// failure and not a hang.
const checkTimeout = 30 * time.Second

type check struct {
	name string
	run  func(ctx context.Context, w *world) error
}

// world is what every check shares. Its client reads from the server; the
// managers read from their caches.
type world struct {
	client.Client
	config    *rest.Config
	scheme    *runtime.Scheme
	warnings  *warnings
	namespace string
	endpoint  *endpoint
	leader    *running
	follower  *running
}

func main() {
	// controller-runtime has a flag --kubeconfig of its own.
	flag.Parse()
	log.SetLogger(logr.Discard())
	os.Exit(run())
}

func run() int {
	folder, err := os.MkdirTemp("", "controllerruntime")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer func() { _ = os.RemoveAll(folder) }()
	w, err := newWorld(folder)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	code := 0
	for _, group := range [][]check{setupChecks, admissionChecks, reconcileChecks, versionChecks, endChecks} {
		for _, c := range group {
			if !report(w, c) {
				code = 1
			}
		}
	}
	return code
}

func report(w *world, c check) bool {
	begun := time.Now()
	err := runOne(w, c)
	took := time.Since(begun).Milliseconds()
	if err != nil {
		fmt.Printf("FAIL %s (%d ms): %s\n", c.name, took, strings.ReplaceAll(err.Error(), "\n", " "))
		return false
	}
	fmt.Printf("ok %s (%d ms)\n", c.name, took)
	return true
}

func runOne(w *world, c check) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return c.run(ctx, w)
}

func newWorld(folder string) (*world, error) {
	connection, err := config.GetConfig()
	if err != nil {
		return nil, err
	}
	heard := &warnings{}
	connection.WarningHandler = heard
	scheme := runtime.NewScheme()
	if err := first(clientgoscheme.AddToScheme(scheme), extensions.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	addToScheme(scheme)
	direct, err := client.New(connection, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	at, err := newEndpoint(folder)
	if err != nil {
		return nil, err
	}
	return &world{
		Client: direct, config: connection, scheme: scheme, warnings: heard, endpoint: at,
		namespace: fmt.Sprintf("gardens-%d", time.Now().UnixNano()),
	}, nil
}

func createNamespace(ctx context.Context, w *world) error {
	return w.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}})
}

// warnings remembers what the server warned of.
type warnings struct {
	mu   sync.Mutex
	list []string
}

func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, text)
}

func (w *warnings) heard(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.list {
		if one == text {
			return true
		}
	}
	return false
}

func equal[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s: got %v, want %v", what, got, want)
	}
	return nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// eventually asks until there is no error, or says the last one.
func eventually(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it never came: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
