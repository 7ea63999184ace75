//! One APIService that leads to another server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::RwLock;
use serde_json::Value;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::documents::{OpenApi, Resources};
use crate::upstream::Trusted;

/// Watches and tunnels of one backend at the same time. Each has a connection of its own.
const MOST_LONG: usize = 1024;
/// And other requests: a third of all that the server takes, so that a backend that keeps them waiting does not keep those of
/// others waiting, too.
pub(super) const MOST_SHORT: usize = 200;

/// Who answers for a group-version, and what is known about it.
#[derive(Debug)]
pub(crate) struct Backend {
    /// What the APIService says.
    pub(crate) spec: Spec,
    pub(super) room: Room,
    is_available: AtomicBool,
    /// Told when its service has changed, or when it did not answer.
    pub(super) wake: Notify,
    /// Told when its schemas are to be read.
    pub(super) schemas_due: Notify,
    /// Cancelled when the APIService says something else, and another one has taken its place.
    pub(super) replaced: CancellationToken,
    /// Cancelled when nobody shall talk to this service any more; shared with those that have taken its place. As with
    /// kube-apiserver, new priorities and authorities do not cut off who is connected.
    pub(super) ended: CancellationToken,
    pub(super) resources: RwLock<Resources>,
    pub(super) open_api: RwLock<Option<Arc<OpenApi>>>,
}

/// How many more requests a backend takes.
#[derive(Clone, Debug)]
pub(super) struct Room {
    pub(super) long: Arc<Semaphore>,
    pub(super) short: Arc<Semaphore>,
}

impl Default for Room {
    fn default() -> Room {
        Room { long: Arc::new(Semaphore::new(MOST_LONG)), short: Arc::new(Semaphore::new(MOST_SHORT)) }
    }
}

/// The spec of an APIService with a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    /// The name of the APIService.
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: String,
    pub(crate) service: String,
    pub(crate) port: u16,
    pub(crate) trusted: Trusted,
    pub(crate) group_priority: u64,
    pub(crate) version_priority: u64,
}

impl Spec {
    /// Reads an APIService; none if this server answers itself.
    pub(super) fn read(object: &Value) -> Option<Spec> {
        let spec = &object["spec"];
        let service = spec["service"].as_object()?;
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let port = service.get("port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
        let trusted = match spec["insecureSkipTLSVerify"] == true {
            true => Trusted::Anybody,
            // It was looked at when it was written.
            false => Trusted::Bundle(STANDARD.decode(text(spec.get("caBundle"))).unwrap_or_default()),
        };
        Some(Spec {
            name: text(object["metadata"].get("name")),
            group: text(spec.get("group")),
            version: text(spec.get("version")),
            namespace: text(service.get("namespace")),
            service: text(service.get("name")),
            port: port.unwrap_or(443),
            trusted,
            group_priority: spec["groupPriorityMinimum"].as_u64().unwrap_or(0),
            version_priority: spec["versionPriority"].as_u64().unwrap_or(0),
        })
    }

    /// What the certificate of the backend must be for.
    pub(super) fn host(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }

    /// Where its discovery is: `/apis/GROUP/VERSION`.
    pub(super) fn path(&self) -> String {
        match self.group.as_str() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        }
    }

    /// Whether the same service answers.
    pub(super) fn leads_to_the_same(&self, other: &Spec) -> bool {
        (&self.namespace, &self.service, self.port) == (&other.namespace, &other.service, other.port)
    }
}

impl Backend {
    /// What an APIService says; `old` is what it said before.
    pub(super) fn new(spec: Spec, is_available: bool, old: Option<&Backend>) -> Backend {
        let old = old.filter(|old| old.spec.leads_to_the_same(&spec));
        Backend {
            room: old.map_or_else(Room::default, |old| old.room.clone()),
            is_available: AtomicBool::new(is_available),
            wake: Notify::new(),
            schemas_due: Notify::new(),
            replaced: CancellationToken::new(),
            ended: old.map(|old| old.ended.clone()).unwrap_or_default(),
            resources: RwLock::new(old.map(|old| old.resources.read().clone()).unwrap_or_default()),
            open_api: RwLock::new(old.and_then(|old| old.open_api.read().clone())),
            spec,
        }
    }

    /// Whether it answered when it was last asked.
    pub(crate) fn is_available(&self) -> bool {
        self.is_available.load(Ordering::Relaxed)
    }

    /// Says whether it answers; returns what was said before.
    pub(super) fn set_available(&self, is_available: bool) -> bool {
        self.is_available.swap(is_available, Ordering::Relaxed)
    }

    /// Whether it answers for its schemas itself.
    pub(crate) fn has_own_document(&self) -> bool {
        self.open_api.read().as_ref().is_none_or(|known| known.converted.is_none())
    }

    /// What is known of its schemas.
    pub(crate) fn open_api(&self) -> Option<Arc<OpenApi>> {
        self.open_api.read().clone()
    }
}
