//! A small controller, in which each ConfigMap has a Secret of its own, and what it takes to watch it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, ListParams, PostParams};
use setpoint::controller::Runtime;
use setpoint::{Action, Context, Controller, Metrics, ObjectKey, ReconcileError};
use setpoint_env::Task;
use setpoint_sim::World;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    }
}

/// A Secret that belongs to a ConfigMap.
pub(crate) fn child_of(map: &ConfigMap) -> Secret {
    let owner = OwnerReference {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        name: map.metadata.name.clone().unwrap(),
        uid: map.metadata.uid.clone().unwrap(),
        controller: Some(true),
        ..OwnerReference::default()
    };
    let metadata = ObjectMeta {
        generate_name: Some("child-".into()),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    Secret { metadata, ..Secret::default() }
}

pub(crate) fn maps(world: &World) -> Api<ConfigMap> {
    Api::default_namespaced(world.direct())
}

pub(crate) fn secrets(world: &World) -> Api<Secret> {
    Api::default_namespaced(world.direct())
}

pub(crate) async fn create_map(world: &World, name: &str) {
    maps(world).create(&PostParams::default(), &map(name)).await.unwrap();
}

pub(crate) async fn count_secrets(world: &World) -> usize {
    secrets(world).list(&ListParams::default()).await.unwrap().items.len()
}

/// Creates the Secret of a ConfigMap if it has none.
pub(crate) async fn one_child(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(map) = cx.lister::<ConfigMap>()?.get(&key) else { return Ok(Action::done()) };
    let uid = map.metadata.uid.as_deref();
    let has_child = cx.lister::<Secret>()?.list().iter().any(|secret| {
        secret.metadata.owner_references.iter().flatten().any(|owner| Some(owner.uid.as_str()) == uid)
    });
    if !has_child {
        let secrets: Api<Secret> = Api::default_namespaced(cx.client());
        secrets.create(&PostParams::default(), &child_of(&map)).await?;
    }
    Ok(Action::done())
}

/// A controller that runs in a world.
pub(crate) struct Running {
    pub(crate) runtime: Runtime,
    pub(crate) task: Task<Result<(), setpoint::controller::ControllerError>>,
}

pub(crate) fn run<Q: setpoint::Key>(world: &World, controller: Controller<Q>) -> Running {
    let runtime = Runtime::with(world.client_named("controller"), world.env().clone(), Metrics::default());
    let inner = runtime.clone();
    let task = world.env().spawn(async move { controller.run(&inner).await });
    Running { runtime, task }
}

impl Running {
    pub(crate) fn metric(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        self.runtime.metrics().value(name, labels).unwrap_or(0)
    }
}

/// Counts calls.
#[derive(Clone, Default)]
pub(crate) struct Counter(Arc<AtomicU64>);

impl Counter {
    pub(crate) fn inc(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Waits until there is something, for a minute of virtual time at most.
pub(crate) async fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..60 {
        if let Some(found) = look() {
            return found;
        }
        tokio::time::sleep(SECOND).await;
    }
    panic!("nothing within a minute");
}
