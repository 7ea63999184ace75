//! A replica of the controller: a process that is started, paused, killed, stopped and started again; and the network
//! between it and the server.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use setpoint::controller::Runtime;
use setpoint::manager::ManagerError;
use setpoint::{LeaseConfig, Manager, Metrics};
use setpoint_env::{Process, Task};
use setpoint_sim::World;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Layer};

use crate::controller::controller;
use crate::judge::{Judge, Witnessing};

/// A replica, which has been several processes by the end.
pub(crate) struct Replica {
    pub(crate) name: &'static str,
    processes: u32,
    running: Option<Running>,
    thinks: Vec<Duration>,
    world: World,
    judge: Judge,
    network: Network,
}

struct Running {
    who: String,
    process: Process,
    shutdown: CancellationToken,
    metrics: Metrics,
    task: Task<Result<(), ManagerError>>,
}

/// Requests on their way: they arrive whatever becomes of who sent them.
type Network = Arc<Mutex<Vec<Task<()>>>>;

impl Replica {
    pub(crate) fn new(name: &'static str, world: &World, judge: &Judge, thinks: Vec<Duration>) -> Replica {
        let (world, judge, network) = (world.clone(), judge.clone(), Network::default());
        Replica { name, processes: 0, running: None, thinks, world, judge, network }
    }

    pub(crate) fn start(&mut self) {
        if self.running.is_some() {
            return;
        }
        self.processes += 1;
        // No two processes have the same identity.
        let who = format!("{}-{}", self.name, self.processes);
        let (env, process) = self.world.env().process();
        let metrics = Metrics::default();
        let runtime = Runtime::with(self.client(&who), env.clone(), metrics.clone());
        let lease = LeaseConfig { identity: who.clone(), ..LeaseConfig::new("default", "swarm") };
        let (judge, thinks) = (self.judge.clone(), self.thinks.clone());
        let witness = Witnessing { judge, who: who.clone(), thinks, next: Mutex::default() };
        // What is promised is promised within these limits, and no fault here lasts so long.
        let hour = Duration::from_secs(3600);
        // Of two replicas, one has a cache with a selector.
        let controller = controller(Arc::new(witness), self.name == "a");
        let controller = controller.sync_limit(hour).catch_up_limit(hour);
        let manager = Manager::with(runtime).leader_election(lease).controller(controller);
        let shutdown = manager.shutdown().clone();
        let task = env.spawn(manager.run());
        self.running = Some(Running { who, process, shutdown, metrics, task });
    }

    /// A client whose requests the judge sees when they are sent, and when they arrive.
    fn client(&self, who: &str) -> Client {
        let layer = self.world.faults().layer(self.name);
        let inner = Client::new(layer.layer(self.judge.server(who)), "default");
        let (world, judge, network) = (self.world.clone(), self.judge.clone(), self.network.clone());
        let who: Arc<str> = who.into();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (inner, judge, who, sent) = (inner.clone(), judge.clone(), who.clone(), world.now());
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            judge.sends(&who, &method, &path);
            let (sender, receiver) = tokio::sync::oneshot::channel();
            let task = world.env().spawn(async move { drop(sender.send(inner.send(request).await)) });
            let mut network = network.lock();
            network.retain(|task| !task.is_finished());
            network.push(task);
            async move {
                let answer = receiver.await.expect("the task answers").map_err(BoxError::from)?;
                if answer.status().is_success() {
                    judge.confirms(&who, &method, &path, sent);
                }
                Ok::<_, BoxError>(answer)
            }
        });
        Client::new(service, "default")
    }

    /// Stops the process where it is, as SIGSTOP does.
    pub(crate) fn pause(&self) {
        self.running.iter().for_each(|running| running.process.pause());
    }

    pub(crate) fn resume(&self) {
        self.running.iter().for_each(|running| running.process.resume());
    }

    /// Ends the process where it is, as SIGKILL does.
    pub(crate) fn kill(&mut self) {
        self.look();
        if let Some(running) = self.running.take() {
            running.process.kill();
        }
    }

    /// Asks the process to end, as SIGTERM does.
    pub(crate) fn stop(&self) {
        self.running.iter().for_each(|running| running.shutdown.cancel());
    }

    /// What its queue and its caches say of themselves.
    pub(crate) fn state(&self) -> Vec<String> {
        let Some(running) = &self.running else { return vec![format!("{}: it does not run", self.name)] };
        let text = running.metrics.render();
        let lines = text.lines().filter(|line| {
            ["workqueue_depth", "informer_store", "active_workers", "catch_up", "leader_"]
                .iter()
                .any(|start| line.contains(start))
        });
        let lines = lines.filter(|line| !line.starts_with('#'));
        let mut lines: Vec<String> = lines.map(|line| format!("{}: {line}", running.who)).collect();
        // Series of a name come in no order.
        lines.sort_unstable();
        lines
    }

    /// Accuses a process that has panicked, or has ended without being told to.
    pub(crate) fn look(&mut self) {
        let Some(running) = &self.running else { return };
        let panics =
            running.metrics.value("controller_runtime_reconcile_panics_total", &[("controller", "swarm")]);
        if panics.unwrap_or(0) > 0 {
            self.judge.accuse(format!("{}: a reconcile panicked", running.who));
        }
        if running.task.is_finished() {
            if !running.shutdown.is_cancelled() {
                self.judge.accuse(format!("{}: it ended by itself", running.who));
            }
            self.running = None;
        }
    }
}
