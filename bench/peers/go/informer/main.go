// Command informer is client-go's side of the informer benchmark: a shared informer of Pods without their
// managedFields, as JSON or protobuf. It prints what bench/src/measure.rs prints for ours.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// listVersion is the version before the first event (see bench/src/replay.rs).
const listVersion = 200_000_000

func main() {
	handlers := flag.Int("handlers", 1, "how many handlers there are")
	lookups := flag.Bool("lookups", false, "look objects up after the events")
	content := flag.String("content", "json", "json or protobuf")
	flag.Parse()
	if err := run(flag.Arg(0), flag.Arg(1), *content, *handlers, *lookups); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(port, count, content string, handlers int, lookups bool) error {
	events, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	url := "http://127.0.0.1:" + port
	config := &rest.Config{Host: url, QPS: -1}
	if content == "protobuf" {
		config.ContentType = runtime.ContentTypeProtobuf
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	start := time.Now()
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(dropManagedFields))
	informer := factory.Core().V1().Pods().Informer()
	last := strconv.Itoa(listVersion + events)
	var told atomic.Int64
	var done sync.WaitGroup
	for range handlers {
		done.Add(1)
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, new any) {
			told.Add(1)
			if new.(*corev1.Pod).ResourceVersion == last {
				done.Done()
			}
		}})
		if err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	synced, syncedCPU, syncedRSS := time.Since(start), cpu(), status("VmRSS")
	if _, err := http.Get(url + "/go?events=" + count); err != nil {
		return err
	}
	done.Wait()
	end, endCPU := time.Since(start), cpu()
	seconds := (end - synced).Seconds()
	result := map[string]any{
		"objects": len(informer.GetStore().ListKeys()), "sync_seconds": synced.Seconds(),
		"sync_cpu_seconds": syncedCPU.Seconds(), "sync_rss_mb": syncedRSS / 1024,
		"events_per_second": float64(events) / seconds, "events_seconds": seconds,
		"events_cpu_seconds": (endCPU - syncedCPU).Seconds(), "told": told.Load(),
		"rss_mb": status("VmRSS") / 1024, "peak_rss_mb": status("VmHWM") / 1024,
	}
	if lookups {
		// Only now, as ours does: an index would be paid for with each event.
		if err := informer.AddIndexers(cache.Indexers{"twenty": byTwenty}); err != nil {
			return err
		}
		result["lookups"] = measureLookups(informer.GetIndexer())
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

func dropManagedFields(object any) (any, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		pod.ManagedFields = nil
	}
	return object, nil
}

func byNode(object any) ([]string, error) {
	return []string{object.(*corev1.Pod).Spec.NodeName}, nil
}

func byPhase(object any) ([]string, error) {
	return []string{string(object.(*corev1.Pod).Status.Phase)}, nil
}

// byTwenty gives the node of a Pod and a fifth of the names, as bench/src/lookups.rs does.
func byTwenty(object any) ([]string, error) {
	pod := object.(*corev1.Pod)
	return []string{fmt.Sprintf("%s/%d", pod.Spec.NodeName, pod.Name[len(pod.Name)-1]%5)}, nil
}

func measureLookups(indexer cache.Indexer) map[string]float64 {
	keys, values := indexer.ListKeys(), indexer.ListIndexFuncValues("twenty")
	spread := func(n, of int) int { return n * 7919 % of }
	return map[string]float64{
		"get_us": each(func(n int) { indexer.GetByKey(keys[spread(n, len(keys))]) }),
		"get_and_read_us": each(func(n int) {
			object, _, _ := indexer.GetByKey(keys[spread(n, len(keys))])
			read += len(object.(*corev1.Pod).Spec.NodeName)
		}),
		"by_index_us": each(func(n int) { indexer.ByIndex("twenty", values[spread(n, len(values))]) }),
		"namespace_us": each(func(n int) {
			indexer.ByIndex(cache.NamespaceIndex, fmt.Sprintf("team-%03d", n%50))
		}),
		"update_us": measureUpdate(indexer, keys),
	}
}

// read is what lookups found, so that they are not optimised away.
var read int

// measureUpdate replaces objects in a cache with two indices besides that of namespaces, by others with the
// same values. The keys are made before, as ours are.
func measureUpdate(indexer cache.Indexer, keys []string) float64 {
	indexers := cache.Indexers{
		cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, "node": byNode, "phase": byPhase,
	}
	store := cache.NewThreadSafeStore(indexers, cache.Indices{})
	pods := make([]any, len(keys))
	for n, key := range keys {
		pods[n], _, _ = indexer.GetByKey(key)
		store.Add(key, pods[n])
	}
	return each(func(n int) {
		at := n * 7919 % len(keys)
		store.Update(keys[at], pods[at])
	})
}

// each gives the microseconds a call.
func each(call func(int)) float64 {
	start, calls := time.Now(), 0
	for time.Since(start) < 300*time.Millisecond {
		for range 16 {
			call(calls)
			calls++
		}
	}
	return float64(time.Since(start).Microseconds()) / float64(calls)
}

// cpu is the user and system time of this process.
func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// status is a line of /proc/self/status, in kB.
func status(name string) int {
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); fields[0] == name+":" {
			kB, _ := strconv.Atoi(fields[1])
			return kB
		}
	}
	return 0
}
