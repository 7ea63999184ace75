//! Deletes objects whose owners are gone, and sees to what deletions in the foreground and with orphans ask for.
//!
//! [`monitors`] watch the metadata of every kind that there is and feed the [`graph`] of owners; what may have to
//! be done about an object goes through a queue to workers, which look at the server before they act: [`collect`].

mod collect;
mod graph;
mod monitors;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint::discovery::ServedResource;
use setpoint::kube::Client;
use setpoint::{Manager, Recorder, WorkQueue, run_workers};
use setpoint_env::Env;
use tokio_util::sync::CancellationToken;

use self::graph::{Graph, Uid};
use self::monitors::Monitors;
use crate::controllers::Setup;

/// What its events are from.
const NAME: &str = "garbage-collector-controller";
/// How many objects are looked at at the same time.
const WORKERS: usize = 8;
/// The finalizers by which the server asks for the collector's work.
const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";
/// How long one object may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// How long events may take that were recorded just before the end.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);

/// What may have to be done.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Work {
    /// Delete the object if no owner of it is left, or finish its deletion in the foreground.
    Delete(Uid),
    /// Take its dependents away from the object, which is being deleted without them.
    Orphan(Uid),
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Delete(uid) => write!(f, "delete/{uid}"),
            Work::Orphan(uid) => write!(f, "orphan/{uid}"),
        }
    }
}

/// Clones are the same collector.
#[derive(Clone)]
struct Collector {
    client: Client,
    env: Env,
    graph: Arc<Mutex<Graph>>,
    /// The kinds that the server had when it was asked last.
    kinds: Arc<Mutex<Vec<Arc<ServedResource>>>>,
    queue: WorkQueue<Work>,
    recorder: Recorder,
}

/// Adds the garbage collector to a manager.
pub(crate) fn add_to(manager: Manager, setup: &Setup) -> Manager {
    let (client, env, metrics) = (setup.client.clone(), setup.env.clone(), manager.metrics().clone());
    let facts = manager.facts().clone();
    manager.runnable(NAME, move |cx| async move {
        let recorder = Recorder::builder(client.clone(), NAME).env(env.clone()).metrics(&metrics).build();
        let queue = WorkQueue::builder().metrics(NAME, &metrics).facts(NAME, &facts).build();
        let (graph, kinds) = Default::default();
        Collector { client, env, graph, kinds, queue, recorder }.run(cx.stopping().clone()).await;
        Ok(())
    })
}

impl Collector {
    async fn run(self, shutdown: CancellationToken) {
        let mut monitors = Monitors::new(self.clone());
        let work = async {
            monitors.sync().await;
            let follow = monitors.follow();
            let workers = run_workers(WORKERS, &self.queue, |work| self.work(work));
            futures::join!(follow, workers);
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = work => {}
        }
        self.queue.shut_down();
        self.recorder.flush(FLUSH_LIMIT).await;
    }
}
