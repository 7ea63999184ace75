// Command load writes ConfigMaps with client-go, as fast as a number of connections can, and prints one line of
// JSON: how many operations were done, in how many seconds, and their times in milliseconds.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	applyv1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

var text = strings.Repeat("x", 256)

// An operation is done again and again by one worker; n counts its calls.
type operation func(ctx context.Context, maps typedv1.ConfigMapInterface, worker, n int) error

var operations = map[string]operation{
	"create": create,
	"update": update,
	"patch":  patch,
	"apply":  apply,
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path of the kubeconfig of the server")
	connections := flag.Int("connections", 1, "how many connections, each with one request at a time")
	seconds := flag.Float64("seconds", 10, "how long")
	name := flag.String("operation", "create", "create, update, patch or apply")
	content := flag.String("content", "protobuf", "protobuf or json")
	flag.Parse()
	if err := run(*kubeconfig, *connections, *seconds, *name, *content); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig string, connections int, seconds float64, name, content string) error {
	do, known := operations[name]
	if !known {
		return fmt.Errorf("there is no operation %q", name)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	if content == "protobuf" {
		config.ContentType = runtime.ContentTypeProtobuf
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	ctx := context.Background()
	var ready, working sync.WaitGroup
	start := make(chan struct{})
	times := make([][]float64, connections)
	failures := make([]error, connections)
	stamp := time.Now().UnixNano()
	for worker := range connections {
		maps, err := connect(config)
		if err != nil {
			return err
		}
		ready.Add(1)
		working.Add(1)
		go func() {
			defer working.Done()
			failures[worker] = prepare(ctx, maps, name, worker)
			ready.Done()
			<-start
			end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
			for n := 0; failures[worker] == nil && time.Now().Before(end); n++ {
				begun := time.Now()
				failures[worker] = do(context.WithValue(ctx, stampKey{}, stamp), maps, worker, n)
				times[worker] = append(times[worker], time.Since(begun).Seconds()*1e3)
			}
		}()
	}
	ready.Wait()
	begun := time.Now()
	close(start)
	working.Wait()
	return report(times, failures, time.Since(begun).Seconds())
}

type stampKey struct{}

// connect makes a client with a connection of its own: client-go shares those of equal configurations.
func connect(shared *rest.Config) (typedv1.ConfigMapInterface, error) {
	config := rest.CopyConfig(shared)
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, address)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return client.CoreV1().ConfigMaps("default"), nil
}

// prepare opens the connection, and makes the object that the other operations change.
func prepare(ctx context.Context, maps typedv1.ConfigMapInterface, name string, worker int) error {
	if name == "create" {
		_, err := maps.List(ctx, metav1.ListOptions{Limit: 1})
		return err
	}
	_ = maps.Delete(ctx, target(worker), metav1.DeleteOptions{})
	_, err := maps.Create(ctx, object(target(worker), 0), metav1.CreateOptions{})
	return err
}

func target(worker int) string { return fmt.Sprintf("target-%04d", worker) }

func object(name string, n int) *v1.ConfigMap {
	return &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "load"}},
		Data:       map[string]string{"text": text, "n": fmt.Sprint(n)},
	}
}

func create(ctx context.Context, maps typedv1.ConfigMapInterface, worker, n int) error {
	name := fmt.Sprintf("load-%d-%04d-%08d", ctx.Value(stampKey{}), worker, n)
	_, err := maps.Create(ctx, object(name, n), metav1.CreateOptions{})
	return err
}

func update(ctx context.Context, maps typedv1.ConfigMapInterface, worker, n int) error {
	_, err := maps.Update(ctx, object(target(worker), n+1), metav1.UpdateOptions{})
	return err
}

func patch(ctx context.Context, maps typedv1.ConfigMapInterface, worker, n int) error {
	body := fmt.Appendf(nil, `{"data":{"n":"%d"}}`, n+1)
	_, err := maps.Patch(ctx, target(worker), types.MergePatchType, body, metav1.PatchOptions{})
	return err
}

func apply(ctx context.Context, maps typedv1.ConfigMapInterface, worker, n int) error {
	config := applyv1.ConfigMap(target(worker), "default").
		WithData(map[string]string{"text": text, "n": fmt.Sprint(n + 1)})
	_, err := maps.Apply(ctx, config, metav1.ApplyOptions{FieldManager: "load", Force: true})
	return err
}

func report(times [][]float64, failures []error, seconds float64) error {
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	var all []float64
	for _, some := range times {
		all = append(all, some...)
	}
	if len(all) == 0 {
		return fmt.Errorf("nothing was done in %.1f s", seconds)
	}
	sort.Float64s(all)
	at := func(share float64) float64 { return all[int(float64(len(all)-1)*share)] }
	return json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"count": float64(len(all)), "seconds": seconds, "p50": at(0.5), "p99": at(0.99),
	})
}
