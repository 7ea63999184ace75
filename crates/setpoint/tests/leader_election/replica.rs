//! A replica that a test can pause and kill.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::task::AtomicWaker;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{Api, Client};
use parking_lot::Mutex;
use setpoint::leader_election::{LeaderElection, LeaseConfig, Term};
use setpoint_env::Task;
use setpoint_sim::World;
use tokio_util::sync::CancellationToken;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn config(identity: &str) -> LeaseConfig {
    LeaseConfig { identity: identity.to_owned(), ..LeaseConfig::new("default", "foo") }
}

pub(crate) fn election(world: &World, identity: &str) -> LeaderElection {
    let election = LeaderElection::new(world.client_named(identity), config(identity)).unwrap();
    election.env(world.env().clone())
}

pub(crate) async fn lease(world: &World) -> Option<LeaseSpec> {
    let leases: Api<Lease> = Api::default_namespaced(world.direct());
    leases.get_opt("foo").await.unwrap().map(|lease| lease.spec.unwrap())
}

/// Who holds the lease; empty if nobody does.
pub(crate) async fn holder(world: &World) -> String {
    lease(world).await.and_then(|spec| spec.holder_identity).unwrap_or_default()
}

/// A process with an election in it.
pub(crate) struct Replica {
    pub(crate) shutdown: CancellationToken,
    pub(crate) task: Task<Option<()>>,
    pause: Arc<Pause>,
}

impl Replica {
    /// Starts a replica that does `work` when it is elected.
    pub(crate) fn start<F>(
        world: &World,
        election: LeaderElection,
        work: impl Fn(Term) -> F + Send + Sync + 'static,
    ) -> Replica
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (shutdown, pause) = (CancellationToken::new(), Arc::<Pause>::default());
        let token = shutdown.clone();
        let process = async move { election.run(token, work).await };
        let task = world.env().spawn(Pausable { process: Box::pin(process), pause: pause.clone() });
        Replica { shutdown, task, pause }
    }

    /// Starts a replica that only waits for the end of its term.
    pub(crate) fn idle(world: &World, identity: &str) -> Replica {
        Replica::start(
            world,
            election(world, identity),
            |term| async move { term.ending().cancelled().await },
        )
    }

    /// Stops the process where it is, as SIGSTOP does.
    pub(crate) fn pause(&self) {
        self.pause.paused.store(true, Ordering::Relaxed);
    }

    pub(crate) fn resume(&self) {
        self.pause.paused.store(false, Ordering::Relaxed);
        self.pause.waker.wake();
    }
}

#[derive(Default)]
struct Pause {
    paused: AtomicBool,
    waker: AtomicWaker,
}

struct Pausable<F> {
    process: Pin<Box<F>>,
    pause: Arc<Pause>,
}

impl<F: Future> Future for Pausable<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.pause.waker.register(cx.waker());
        if self.pause.paused.load(Ordering::Relaxed) { Poll::Pending } else { self.process.as_mut().poll(cx) }
    }
}

/// Requests on their way to the server.
pub(crate) type Network = Arc<Mutex<Vec<Task<()>>>>;

/// A client whose requests go on their way, and are served, whatever becomes of who sent them.
pub(crate) fn detached(world: &World, network: &Network, client: Client) -> Client {
    let (env, network) = (world.env().clone(), network.clone());
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request| {
        let client = client.clone();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let task = env.spawn(async move { drop(sender.send(client.send(request).await)) });
        let mut network = network.lock();
        network.retain(|task| !task.is_finished());
        network.push(task);
        async move { receiver.await.expect("the task answers").map_err(tower::BoxError::from) }
    });
    Client::new(service, namespace)
}
