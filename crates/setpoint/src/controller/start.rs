//! How a controller starts: it watches, waits for its caches, and is ready to work.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use setpoint_env::TaskHealth;
use tokio_util::sync::CancellationToken;

use super::caches::Caches;
use super::context::Shared;
use super::detector::Detector;
use super::intake::Intake;
use super::listers::Listers;
use super::metrics::ControllerMetrics;
use super::numbers::Numbers;
use super::prepared::Ready;
use super::sources::{Attached, Sources};
use super::worker::{self, Work};
use super::{Controller, ControllerError, Key, Prepared, Runtime, Shift, Watches};
use crate::Recorder;
use crate::ensure::memory::Memory;
use crate::facts::{ControllerProbe, Name};
use crate::mutants::{Promise, is_kept};
use crate::workqueue::SourceNames;

/// As many events are written at the same time as a controller has workers, within these bounds: those who work side by side
/// tell side by side.
const LEAST_WRITERS: usize = 8;
const MOST_WRITERS: usize = 32;

impl<Q: Key> Controller<Q> {
    /// Runs until the runtime is shut down: waits for the caches, then works. After the shutdown, the reconciles that
    /// run are finished, and what is queued is left; drop the future to end at once.
    pub async fn run(self, runtime: &Runtime) -> Result<(), ControllerError> {
        if let Some(prepared) = self.prepare(runtime).await? {
            let (client, ending) = (runtime.client.clone(), runtime.shutdown.clone());
            prepared.work(Shift { client, fence: None, ending, is_term: false, grace: None }).await;
        }
        Ok(())
    }

    /// Watches, and waits for the caches. None if the runtime is shut down before.
    pub(crate) async fn prepare(self, runtime: &Runtime) -> Result<Option<Prepared>, ControllerError> {
        if self.owns_something && self.primary.is_none() {
            return Err(ControllerError::NoKind { controller: self.name });
        }
        if let Some(source) = self.without_index {
            return Err(ControllerError::Index { controller: self.name, source });
        }
        let metrics = ControllerMetrics::new(&runtime.metrics, &self.name, self.workers);
        let (name, measured, called) = (self.name.clone(), metrics.clone(), self.called);
        let on_release = move |released| worker::released(&measured, &name, called, &released);
        let (queue_name, source_names) = (Name::from(self.name.as_str()), SourceNames::default());
        let queue = self
            .queue
            .on_release(on_release)
            .metrics(self.name.clone(), &runtime.metrics)
            .telling(queue_name.clone(), &runtime.facts, source_names.clone(), called)
            .build();
        let intake = Arc::new(Intake::new(queue.clone(), self.debounce));
        let sources = Arc::new(Sources {
            controller: self.name.clone(),
            factory: runtime.factory.clone(),
            queue: queue.clone(),
            intake: intake.clone(),
            resync: self.resync,
            sync_limit: self.sync_limit,
            caches: Arc::new(Caches::default()),
            listers: Arc::new(Listers::default()),
            names: source_names,
            numbers: Numbers::default(),
            attached: Mutex::default(),
            added: Mutex::default(),
        });
        let attached: Result<Vec<_>, _> =
            self.sources.into_iter().map(|source| source.attach(&sources)).collect();
        let attached =
            attached.map_err(|source| ControllerError::Index { controller: self.name.clone(), source })?;
        attached.iter().for_each(|attached| sources.publish(attached));
        if !wait_for_caches(&sources, &attached, &runtime.shutdown).await? {
            return Ok(None);
        }
        let watches = Watches::new(self.running.subscribe(), self.primary);
        self.running.send_replace(Arc::downgrade(&sources));
        let feed = |keys| {
            // The stream is the user's, and may panic. One that cannot go on after a panic will panic again.
            let (intake, keys) = (intake.clone(), Arc::new(tokio::sync::Mutex::new(keys)));
            let health = TaskHealth::new("the trigger of a controller");
            runtime.env.supervise(&health, move || intake.clone().feed(keys.clone()))
        };
        let triggers = self.triggers.into_iter().map(feed).collect();
        let recorder = Recorder::builder(runtime.client.clone(), self.name.clone())
            .env(runtime.env.clone())
            .metrics(&runtime.metrics)
            .writers(self.workers.clamp(LEAST_WRITERS, MOST_WRITERS))
            .build();
        let context = Shared {
            name: self.name,
            recorder,
            listers: sources.listers.clone(),
            watches: Box::new(watches),
            state: self.state,
            env: runtime.env.clone(),
            stopping: runtime.shutdown.clone(),
            memory: Memory::default(),
        };
        let work = Arc::new(Work {
            queue,
            called,
            name: queue_name,
            facts: runtime.facts.clone(),
            detector: Detector::default(),
            reconciler: self.reconciler,
            caches: sources.caches.clone(),
            context: Arc::new(context),
            time_limit: self.time_limit,
            catch_up_limit: self.catch_up_limit,
            workers: self.workers,
            metrics,
        });
        let weak: Weak<dyn ControllerProbe> = Arc::downgrade(&(work.clone() as Arc<dyn ControllerProbe>));
        runtime.facts.add_controller(weak);
        let env = runtime.env.clone();
        let ready = Ready { work, intake, sources, env, _triggers: triggers, _running: self.running };
        Ok(Some(Prepared::new(ready)))
    }
}

/// Whether they have synced, before the shutdown.
async fn wait_for_caches<Q: Key>(
    sources: &Sources<Q>,
    attached: &[Arc<Attached<Q>>],
    shutdown: &CancellationToken,
) -> Result<bool, ControllerError> {
    if !is_kept(Promise::CacheSync) {
        return Ok(true);
    }
    let synced = tokio::select! {
        biased;
        () = shutdown.cancelled() => return Ok(false),
        synced = sources.sync(attached, sources.sync_limit) => synced,
    };
    let controller = sources.controller.clone();
    synced.map(|()| true).map_err(|source| ControllerError::CacheSync { controller, source })
}
