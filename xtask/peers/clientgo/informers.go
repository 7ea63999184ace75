package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

var informerChecks = []check{
	{"shared informers sync by streaming list", syncInformers},
	{"shared informer delivers add, update, delete", informerEvents},
	{"metadata informer syncs by streaming list", syncMetadataInformer},
}

// typedFor makes a protobuf client whose requests can be told apart by agent.
func typedFor(w *world, agent string) (kubernetes.Interface, error) {
	config := rest.CopyConfig(w.config)
	config.UserAgent = agent
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return kubernetes.NewForConfig(config)
}

func syncInformers(ctx context.Context, w *world) error {
	client, err := typedFor(w, "sync-informers")
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(w.namespace))
	pods := factory.Core().V1().Pods()
	deployments := factory.Apps().V1().Deployments()
	synced := []cache.InformerSynced{pods.Informer().HasSynced, deployments.Informer().HasSynced}
	stop, cancel := context.WithCancel(ctx)
	defer factory.Shutdown()
	defer cancel()
	factory.Start(stop.Done())
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return fmt.Errorf("not synced in time; asked: %v", questions(w.requests.by("sync-informers")))
	}
	cached, err := pods.Lister().Pods(w.namespace).List(labels.Everything())
	if err != nil {
		return err
	}
	web, err := deployments.Lister().Deployments(w.namespace).Get("web")
	if err != nil {
		return err
	}
	return first(
		equal("cached pods", len(cached), 3),
		equal("cached deployment", web.Name, "web"),
		streamed(w, "sync-informers", 2),
	)
}

// streamed says whether these informers asked for a streaming list and for
// nothing else: client-go falls back to a plain list without telling anybody.
func streamed(w *world, agent string, count int) error {
	requests := w.requests.by(agent)
	streams := 0
	for _, r := range requests {
		if r.query.Get("sendInitialEvents") == "true" && r.query.Get("watch") == "true" {
			streams++
		} else if r.query.Get("watch") == "" {
			return fmt.Errorf("fell back to a list; asked: %v", questions(requests))
		}
	}
	if streams != count {
		return fmt.Errorf("%d streaming lists, want %d; asked: %v", streams, count, questions(requests))
	}
	return nil
}

func questions(requests []seen) []string {
	var asked []string
	for _, r := range requests {
		asked = append(asked, fmt.Sprintf("%s %s?%s", r.method, r.path, r.query.Encode()))
	}
	return asked
}

// journal collects what a handler was told.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (j *journal) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, " ")
}

func informerEvents(ctx context.Context, w *world) error {
	client, err := typedFor(w, "informer-events")
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithNamespace(w.namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "app=told" }))
	informer := factory.Core().V1().Pods().Informer()
	told := &journal{}
	name := func(object any) string {
		key, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
		return strings.TrimPrefix(key, w.namespace+"/")
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { told.add("+" + name(object)) },
		UpdateFunc: func(_, object any) { told.add("~" + name(object)) },
		DeleteFunc: func(object any) { told.add("-" + name(object)) },
	})
	if err != nil {
		return err
	}
	stop, cancel := context.WithCancel(ctx)
	defer factory.Shutdown()
	defer cancel()
	factory.Start(stop.Done())
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return fmt.Errorf("not synced in time")
	}
	if err := changeToldPods(ctx, w); err != nil {
		return err
	}
	// A pod first gets its deletionTimestamp, which is an update.
	want := "+one ~one +two -two ~one -one"
	for told.text() != want {
		select {
		case <-ctx.Done():
			return fmt.Errorf("told %q, want %q", told.text(), want)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// changeToldPods also takes a pod out of the selector: a watch calls that a
// deletion.
func changeToldPods(ctx context.Context, w *world) error {
	pods := w.typed.CoreV1().Pods(w.namespace)
	for _, name := range []string{"one", "two"} {
		pod := examplePod(name)
		pod.Labels["app"] = "told"
		if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return err
		}
		change := `{"metadata":{"annotations":{"n":"1"}}}`
		if name == "two" {
			change = `{"metadata":{"labels":{"app":"left"}}}`
		}
		if _, err := pods.Patch(ctx, name, types.MergePatchType, []byte(change), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return first(
		pods.Delete(ctx, "two", metav1.DeleteOptions{}),
		pods.Delete(ctx, "one", metav1.DeleteOptions{}),
	)
}

func syncMetadataInformer(ctx context.Context, w *world) error {
	config := rest.CopyConfig(w.config)
	config.UserAgent = "metadata-informer"
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := metadatainformer.NewFilteredSharedInformerFactory(client, 0, w.namespace, nil)
	informer := factory.ForResource(podResource).Informer()
	stop, cancel := context.WithCancel(ctx)
	defer factory.Shutdown()
	defer cancel()
	factory.Start(stop.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return fmt.Errorf("not synced in time; asked: %v", questions(w.requests.by("metadata-informer")))
	}
	return first(
		equal("cached pods", len(informer.GetStore().ListKeys()), 3),
		streamed(w, "metadata-informer", 1),
	)
}
