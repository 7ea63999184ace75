// Command queue measures client-go's work queue, case by case as bench/src/queue.rs measures ours.
// It prints one line a case: its name and nanoseconds an operation, the median of several runs.
package main

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

const n = 100_000

// runs is how often each case is run; an argument changes it.
var runs = 31

type queue = workqueue.TypedRateLimitingInterface[string]

func newQueue() queue {
	return workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
}

func keys() []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("default/object-%06d", i)
	}
	return keys
}

// measure prints the median time an operation of body, which does n operations.
func measure(name string, body func(q queue, keys []string)) {
	keys := keys()
	times := make([]float64, runs)
	for i := range times {
		q := newQueue()
		start := time.Now()
		body(q, keys)
		times[i] = float64(time.Since(start).Nanoseconds()) / n
		q.ShutDown()
	}
	sort.Float64s(times)
	fmt.Printf("%s %.1f\n", name, times[runs/2])
}

// serial goes one after the other, with a thousand keys that stay in the processor's cache.
func serial(q queue, keys []string) {
	for i := range keys {
		q.Add(keys[i%1000])
		got, _ := q.Get()
		q.Done(got)
	}
}

// across lets producers add and consumers get and finish every key once.
func across(producers, consumers int) func(queue, []string) {
	return func(q queue, keys []string) {
		var adding, working sync.WaitGroup
		for c := 0; c < consumers; c++ {
			working.Add(1)
			go func() {
				defer working.Done()
				for {
					key, shutdown := q.Get()
					if shutdown {
						return
					}
					q.Done(key)
				}
			}()
		}
		for p := 0; p < producers; p++ {
			adding.Add(1)
			go func() {
				defer adding.Done()
				for i := p; i < len(keys); i += producers {
					q.Add(keys[i])
				}
			}()
		}
		adding.Wait()
		q.ShutDown()
		working.Wait()
	}
}

// duplicates adds each of a thousand keys a hundred times, then drains.
func duplicates(q queue, keys []string) {
	for i := range keys {
		q.Add(keys[i%1000])
	}
	drain(q)
}

func fill(q queue, keys []string) {
	for _, key := range keys {
		q.Add(key)
	}
	drain(q)
}

func drain(q queue) {
	for q.Len() > 0 {
		key, _ := q.Get()
		q.Done(key)
	}
}

func addAfter(q queue, keys []string) {
	for i, key := range keys {
		q.AddAfter(key, time.Hour+time.Duration(i*7919%n)*time.Microsecond)
	}
}

func rateLimited(q queue, keys []string) {
	for _, key := range keys {
		q.AddRateLimited(key)
		q.Forget(key)
	}
}

func main() {
	if len(os.Args) > 1 {
		count, err := strconv.Atoi(os.Args[1])
		if err != nil || count < 1 {
			fmt.Fprintln(os.Stderr, "usage: queue [RUNS]")
			os.Exit(2)
		}
		runs = count
	}
	measure("serial", serial)
	measure("1x1", across(1, 1))
	measure("4x4", across(4, 4))
	measure("duplicates", duplicates)
	measure("fill_drain", fill)
	measure("add_after", addAfter)
	measure("rate_limited", rateLimited)
}
