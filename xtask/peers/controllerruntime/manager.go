package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordination "k8s.io/api/coordination/v1"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

const lease = "gardens"

// running is a manager, and what it ended with.
type running struct {
	ctrl.Manager
	stop context.CancelFunc
	done chan error
}

var setupChecks = []check{
	{"namespace is created", createNamespace},
	{"definition with a conversion webhook is established", establish},
	{"manager starts and is elected", elect},
	{"lease names the leader", leaseHeld},
	{"webhooks are registered", register},
}

var endChecks = []check{
	{"finalizers run on deletion of a collection", deleteAll},
	{"second manager waits for the lease", wait},
	{"leader stops and releases the lease", stopLeader},
	{"second manager takes over", takeOver},
	{"definition is deleted", undefine},
}

func establish(ctx context.Context, w *world) error {
	definition := w.endpoint.definition()
	if err := w.Create(ctx, definition); err != nil {
		return err
	}
	return eventually(ctx, func() error {
		if err := w.Get(ctx, client.ObjectKeyFromObject(definition), definition); err != nil {
			return err
		}
		for _, c := range definition.Status.Conditions {
			if c.Type == extensions.Established && c.Status == extensions.ConditionTrue {
				// Established is not yet served by every part of a real server.
				return w.List(ctx, &GardenList{}, client.InNamespace(w.namespace))
			}
		}
		return fmt.Errorf("conditions: %v", definition.Status.Conditions)
	})
}

func (w *world) manager(options ctrl.Options) (ctrl.Manager, error) {
	options.Scheme = w.scheme
	options.Metrics = metricsserver.Options{BindAddress: "0"}
	options.LeaderElection = true
	options.LeaderElectionID = lease
	options.LeaderElectionNamespace = w.namespace
	options.LeaderElectionReleaseOnCancel = true
	options.LeaseDuration = pointer(5 * time.Second)
	options.RenewDeadline = pointer(3 * time.Second)
	options.RetryPeriod = pointer(300 * time.Millisecond)
	return ctrl.NewManager(w.config, options)
}

func start(manager ctrl.Manager) *running {
	ctx, stop := context.WithCancel(context.Background())
	r := &running{manager, stop, make(chan error, 1)}
	go func() { r.done <- manager.Start(ctx) }()
	return r
}

func (r *running) elected(ctx context.Context) error {
	select {
	case <-r.Elected():
		return nil
	case err := <-r.done:
		return fmt.Errorf("the manager ended: %w", err)
	case <-ctx.Done():
		return errors.New("it was never elected")
	}
}

func elect(ctx context.Context, w *world) error {
	manager, err := w.manager(ctrl.Options{WebhookServer: webhook.NewServer(webhook.Options{
		Host: "127.0.0.1", Port: w.endpoint.port, CertDir: w.endpoint.folder,
	})})
	if err != nil {
		return err
	}
	reconciles := &reconciler{manager.GetClient(), manager.GetEventRecorder("gardener")}
	if err := reconciles.setUp(manager); err != nil {
		return err
	}
	err = ctrl.NewWebhookManagedBy(manager, &Garden{}).WithDefaulter(gardener{}).WithValidator(gardener{}).Complete()
	if err != nil {
		return err
	}
	w.leader = start(manager)
	return first(w.leader.elected(ctx), eventually(ctx, func() error {
		return manager.GetWebhookServer().StartedChecker()(nil)
	}))
}

func (w *world) holder(ctx context.Context) (*coordination.Lease, string, error) {
	held := &coordination.Lease{}
	if err := w.Get(ctx, key(w.namespace, lease), held); err != nil {
		return nil, "", err
	}
	if held.Spec.HolderIdentity == nil {
		return held, "", nil
	}
	return held, *held.Spec.HolderIdentity, nil
}

// leaseHeld sees a holder who renews what it holds.
func leaseHeld(ctx context.Context, w *world) error {
	held, holder, err := w.holder(ctx)
	if err != nil {
		return err
	}
	if holder == "" || held.Spec.RenewTime == nil {
		return fmt.Errorf("nobody holds it: %v", held.Spec)
	}
	return eventually(ctx, func() error {
		again, same, err := w.holder(ctx)
		if err != nil {
			return err
		}
		return first(
			equal("holder", same, holder),
			equal("renewed", again.Spec.RenewTime.After(held.Spec.RenewTime.Time), true),
		)
	})
}

// register waits until the server has heard of both webhooks.
func register(ctx context.Context, w *world) error {
	for _, configuration := range w.endpoint.configurations() {
		if err := w.Create(ctx, configuration); err != nil {
			return err
		}
	}
	return eventually(ctx, func() error {
		trial := w.garden("trial", "rose")
		if err := w.Create(ctx, trial, client.DryRunAll); err != nil {
			return err
		}
		if trial.Spec.Rows == nil {
			return errors.New("nothing was defaulted")
		}
		if err := w.Create(ctx, w.garden("trial", "knotweed"), client.DryRunAll); err == nil {
			return errors.New("nothing was refused")
		}
		return nil
	})
}

func deleteAll(ctx context.Context, w *world) error {
	if err := w.DeleteAllOf(ctx, &Garden{}, client.InNamespace(w.namespace)); err != nil {
		return err
	}
	return eventually(ctx, func() error {
		left := &GardenList{}
		if err := w.List(ctx, left, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		return equal("gardens", len(left.Items), 0)
	})
}

func wait(ctx context.Context, w *world) error {
	manager, err := w.manager(ctrl.Options{})
	if err != nil {
		return err
	}
	w.follower = start(manager)
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return equal("elected", w.follower.elected(short) == nil, false)
}

func stopLeader(ctx context.Context, w *world) error {
	_, before, err := w.holder(ctx)
	if err != nil {
		return err
	}
	w.leader.stop()
	select {
	case err := <-w.leader.done:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return errors.New("the manager does not stop")
	}
	_, after, err := w.holder(ctx)
	return first(err, equal("still held", after == before, false))
}

func takeOver(ctx context.Context, w *world) error {
	if err := w.follower.elected(ctx); err != nil {
		return err
	}
	held, _, err := w.holder(ctx)
	w.follower.stop()
	return first(err, equal("transitions", *held.Spec.LeaseTransitions > 0, true))
}

func undefine(ctx context.Context, w *world) error {
	for _, configuration := range w.endpoint.configurations() {
		if err := w.Delete(ctx, configuration); err != nil {
			return err
		}
	}
	definition := w.endpoint.definition()
	if err := w.Delete(ctx, definition); err != nil {
		return err
	}
	return w.gone(ctx, definition)
}
