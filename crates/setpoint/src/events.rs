//! Beside stage 6: tells people what a controller did, as Events.

mod correlate;
mod event;
mod object;
mod sink;
mod spam;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use event::{Event, EventType};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Client, Resource};
pub use object::EventApi;
use parking_lot::Mutex;
use setpoint_env::{Env, Task, TaskHealth};

use self::event::Reporter;
use self::sink::Queue;
use crate::Metrics;

/// Records Events about objects. Clones are the same recorder.
///
/// Recording never waits: events go through a bounded queue to a task that writes them, several at a time, and are
/// dropped, and counted, when it is full. [`Recorder::has_room`] is for those who would rather wait; the workers of a
/// controller do, before each reconcile. The last clone that is dropped ends the task; [`Recorder::flush`] before.
///
/// So that nobody drowns in events:
/// - Identical ones become one Event with a count.
/// - From ten similar ones in ten minutes on (same object, type, reason and action, other notes), they become
///   one Event too: "(combined from similar events): …".
/// - An object gets 25 from one source at once, and then one every five minutes.
///
/// Events are in the namespace of the object that they are about, or in `default`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use setpoint::k8s_openapi::api::core::v1::ConfigMap;
/// use setpoint::kube::Api;
/// use setpoint::{Event, Recorder};
///
/// # let client = setpoint_apiserver::ApiServer::builder().build().client();
/// # let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
/// # let map: ConfigMap = serde_json::from_str(r#"{"metadata": {"name": "settings"}}"#)?;
/// # let map = maps.create(&Default::default(), &map).await?;
/// let recorder = Recorder::new(client, "settings-controller");
/// recorder.event(&map, Event::normal("Synced", "all clients have the new settings"));
/// recorder.event(&map, Event::warning("Unreachable", "client 7 does not answer").action("Notify"));
/// let unsent = recorder.flush(std::time::Duration::from_secs(5)).await;
/// assert_eq!(unsent, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[doc(alias = "EventRecorder")]
pub struct Recorder {
    queue: Arc<Queue>,
    log: Option<EventLog>,
    _task: Arc<Task<()>>,
}

/// What a recorder was given, whatever becomes of it: for unit tests.
#[derive(Clone, Default)]
pub(crate) struct EventLog(Arc<Mutex<Vec<String>>>);

impl EventLog {
    /// All of it, in order.
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    fn add(&self, regarding: &ObjectReference, event: &Event) {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let object = format!("{}/{}", text(&regarding.kind), text(&regarding.name));
        self.0.lock().push(format!("{} {} {object} {}", event.kind, event.reason, event.note));
    }
}

/// Settings of a [`Recorder`].
#[must_use]
pub struct RecorderBuilder {
    client: Client,
    source: Reporter,
    api: EventApi,
    env: Env,
    metrics: Metrics,
    capacity: usize,
    writers: usize,
    log: Option<EventLog>,
}

impl Recorder {
    /// A recorder for the controller of this name. Call it inside a tokio runtime.
    pub fn new(client: Client, controller: impl Into<String>) -> Recorder {
        Recorder::builder(client, controller).build()
    }

    /// A recorder with other settings.
    pub fn builder(client: Client, controller: impl Into<String>) -> RecorderBuilder {
        let controller = controller.into();
        let host = std::env::var("HOSTNAME").ok().filter(|host| !host.is_empty());
        let instance = host.unwrap_or_else(|| controller.clone());
        RecorderBuilder {
            client,
            source: Reporter { controller, instance },
            api: EventApi::default(),
            env: Env::system(),
            metrics: Metrics::default(),
            capacity: 1000,
            writers: sink::WRITERS,
            log: None,
        }
    }

    /// Records an event about an object.
    pub fn event<K>(&self, regarding: &K, event: Event)
    where
        K: Resource<DynamicType: Default>,
    {
        self.event_about(regarding.object_ref(&K::DynamicType::default()), event);
    }

    /// Records an event about an object that only a reference is known of, or whose kind is known at run time
    /// only: `object.object_ref(&resource)`.
    pub fn event_about(&self, regarding: ObjectReference, event: Event) {
        if let Some(log) = &self.log {
            log.add(&regarding, &event);
        }
        self.queue.record(regarding, event);
    }

    /// Waits until at least half of the queue is free, `limit` at most. Whoever records much and calls this now and then
    /// loses nothing as long as the server takes what is written.
    pub async fn has_room(&self, limit: Duration) {
        self.queue.has_room(limit).await;
    }

    /// Waits until everything that was recorded is written, `limit` at most. Says how much is not.
    pub async fn flush(&self, limit: Duration) -> usize {
        self.queue.flush(limit).await
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl RecorderBuilder {
    /// Which of several replicas this is; otherwise the name of the machine or Pod.
    pub fn instance(mut self, instance: impl Into<String>) -> RecorderBuilder {
        self.source.instance = instance.into();
        self
    }

    /// The API to write to. The default is `events.k8s.io/v1`.
    pub fn api(mut self, api: EventApi) -> RecorderBuilder {
        self.api = api;
        self
    }

    /// Takes time, randomness and the task from `env`.
    pub fn env(mut self, env: Env) -> RecorderBuilder {
        self.env = env;
        self
    }

    /// Counts in `metrics` what was written and what was dropped: `event_recorder_written_total` and
    /// `event_recorder_dropped_total`, with the controller's name.
    pub fn metrics(mut self, metrics: &Metrics) -> RecorderBuilder {
        self.metrics = metrics.clone();
        self
    }

    /// How many different events may wait to be written. The default is 1000.
    pub fn capacity(mut self, events: usize) -> RecorderBuilder {
        self.capacity = events;
        self
    }

    /// How many events are written at the same time, at least one. The default is 8. Where each write waits for a disk, more
    /// at a time share the wait.
    pub fn writers(mut self, writers: usize) -> RecorderBuilder {
        self.writers = writers.max(1);
        self
    }

    pub(crate) fn log(mut self, log: &EventLog) -> RecorderBuilder {
        self.log = Some(log.clone());
        self
    }

    /// The recorder. Call it inside a tokio runtime.
    pub fn build(self) -> Recorder {
        let RecorderBuilder { client, source, api, env, metrics, capacity, writers, log } = self;
        let queue = Arc::new(Queue::new(source.clone(), env.clone(), &metrics, capacity));
        let writer = Arc::new(sink::Writer::new(client, api, source, env.clone()));
        let task = env.supervise(&TaskHealth::new("events"), {
            let queue = queue.clone();
            move || sink::run(queue.clone(), writer.clone(), writers)
        });
        Recorder { queue, log, _task: Arc::new(task) }
    }
}

impl fmt::Debug for RecorderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecorderBuilder").field("source", &self.source).finish_non_exhaustive()
    }
}
