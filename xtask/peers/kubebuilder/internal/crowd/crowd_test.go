// Package crowd starts many environments at once: none may meet another.
package crowd

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

func count(t *testing.T) int {
	text, found := os.LookupEnv("ENVIRONMENTS")
	if !found {
		return 2
	}
	number, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// each does something for all environments at once, and says how long one takes.
func each(t *testing.T, what string, environments []*envtest.Environment, do func(int, *envtest.Environment) error) {
	t.Helper()
	took := make([]time.Duration, len(environments))
	begun := time.Now()
	var group sync.WaitGroup
	for i, environment := range environments {
		group.Go(func() {
			begun := time.Now()
			if err := do(i, environment); err != nil {
				t.Errorf("environment %d: %s: %v", i, what, err)
			}
			took[i] = time.Since(begun)
		})
	}
	group.Wait()
	all := time.Since(begun)
	slices.Sort(took)
	t.Logf("%s: %d at once in %v; median %v, longest %v", what, len(took), all.Round(time.Millisecond),
		took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
}

func TestManyEnvironmentsAtOnce(t *testing.T) {
	environments := make([]*envtest.Environment, count(t))
	configs := make([]*rest.Config, len(environments))
	for i := range environments {
		environments[i] = &envtest.Environment{}
	}
	each(t, "start", environments, func(i int, environment *envtest.Environment) (err error) {
		configs[i], err = environment.Start()
		return err
	})
	if !t.Failed() {
		each(t, "use", environments, func(i int, _ *envtest.Environment) error { return use(configs[i], i) })
	}
	each(t, "stop", environments, func(_ int, environment *envtest.Environment) error { return environment.Stop() })
}

// use leaves an object in an environment, and finds no other.
func use(config *rest.Config, i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	api, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	name := fmt.Sprintf("own-%d", i)
	own := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	if err := api.Create(ctx, own); err != nil {
		return err
	}
	time.Sleep(time.Second)
	var all corev1.SecretList
	if err := api.List(ctx, &all, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return err
	}
	if len(all.Items) != 1 || all.Items[0].Name != name {
		return fmt.Errorf("found %d secrets", len(all.Items))
	}
	return nil
}
