// Command clientgo asks an API server what a Go controller asks: typed
// clients that speak protobuf, watches, and informers that sync by streaming
// list. Each check prints one line, `ok NAME (N ms)` or `FAIL NAME (N ms): why`;
// the exit code is 1 if any failed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// A check gets its own deadline, so that a server that never answers is a
// failure and not a hang.
const checkTimeout = 30 * time.Second

type check struct {
	name string
	run  func(ctx context.Context, w *world) error
}

// world is what every check shares: one namespace and one client of each kind.
type world struct {
	config    *rest.Config
	requests  *recorder
	typed     kubernetes.Interface
	dynamic   dynamic.Interface
	metadata  metadata.Interface
	namespace string
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path of the kubeconfig of the server under test")
	aggregated := flag.Bool("aggregated", false, "ask for what examples/extension-server serves, and nothing else")
	flag.Parse()
	w, err := newWorld(*kubeconfig)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	checks := []check{{"namespace is created", createNamespace}}
	for _, group := range [][]check{podChecks, deploymentChecks, kindChecks, clientChecks, openapiChecks, informerChecks} {
		checks = append(checks, group...)
	}
	if *aggregated {
		checks = aggregatedChecks
	}
	failed := false
	for _, c := range checks {
		begun := time.Now()
		err := runOne(w, c)
		took := time.Since(begun).Milliseconds()
		if err != nil {
			failed = true
			fmt.Printf("FAIL %s (%d ms): %s\n", c.name, took, strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Printf("ok %s (%d ms)\n", c.name, took)
		}
	}
	if failed {
		os.Exit(1)
	}
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

func newWorld(kubeconfig string) (*world, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	requests := &recorder{}
	config.Wrap(requests.wrap)
	config.QPS = -1

	protobuf := rest.CopyConfig(config)
	protobuf.ContentType = runtime.ContentTypeProtobuf
	protobuf.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	typed, err := kubernetes.NewForConfig(protobuf)
	if err != nil {
		return nil, err
	}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	namespace := fmt.Sprintf("clientgo-%d", time.Now().UnixNano())
	return &world{config, requests, typed, dyn, meta, namespace}, nil
}
