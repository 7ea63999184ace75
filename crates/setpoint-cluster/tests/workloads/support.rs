//! A world with the workload controllers in it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use setpoint_cluster::{Cluster, Controllers};
use setpoint_env::Task;
use setpoint_sim::World;
use tokio::time::sleep;

use crate::kubelet;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// The controllers that these tests are about.
const TESTED: &str = "deployment,replicaset,statefulset,job,cronjob,ttl-after-finished";

/// Starts the controllers; drop them to crash them.
pub(crate) fn start(world: &World) -> Cluster {
    let controllers = Controllers::parse(TESTED).unwrap();
    Cluster::builder(world.client_named("controllers"))
        .env(world.env().clone())
        .controllers(controllers)
        .nodes(0)
        .start()
}

/// A world with its controllers and its kubelet.
pub(crate) struct Running {
    pub(crate) world: World,
    pub(crate) cluster: Option<Cluster>,
    _kubelet: Task<()>,
}

impl Running {
    pub(crate) fn new(world: &World) -> Running {
        let (_kubelet, cluster) = (kubelet::run(world), Some(start(world)));
        Running { world: world.clone(), cluster, _kubelet }
    }

    /// Ends the controllers where they stand.
    pub(crate) fn crash(&mut self) {
        self.cluster = None;
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.world.direct(), "default")
    }

    pub(crate) async fn create<K>(&self, value: Value) -> K
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Serialize
            + DeserializeOwned
            + Clone
            + Debug,
    {
        let object: K = serde_json::from_value(value).unwrap();
        self.api::<K>().create(&PostParams::default(), &object).await.unwrap()
    }

    pub(crate) async fn get<K>(&self, name: &str) -> K
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + DeserializeOwned + Clone + Debug,
    {
        self.api::<K>().get(name).await.unwrap()
    }

    pub(crate) async fn list<K>(&self) -> Vec<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + DeserializeOwned + Clone + Debug,
    {
        self.api::<K>().list(&ListParams::default()).await.unwrap().items
    }

    pub(crate) async fn patch<K>(&self, name: &str, patch: Value) -> K
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + DeserializeOwned + Clone + Debug,
    {
        self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap()
    }

    /// `kubectl set image`.
    pub(crate) async fn set_image(&self, name: &str, image: &str) {
        let containers = json!([{"name": "web", "image": image}]);
        self.patch::<Deployment>(name, json!({"spec": {"template": {"spec": {"containers": containers}}}}))
            .await;
    }

    /// What `kubectl rollout status` waits for.
    pub(crate) async fn roll_out(&self, name: &str) -> Deployment {
        for _ in 0..1200 {
            let deployment: Deployment = self.get(name).await;
            if is_rolled_out(&deployment) {
                return deployment;
            }
            sleep(SECOND).await;
        }
        panic!("{name} is not rolled out: {:#?}", self.get::<Deployment>(name).await.status);
    }

    /// The ReplicaSets that want pods, with their images and sizes.
    pub(crate) async fn sizes(&self) -> Vec<(String, i32)> {
        let mut sets: Vec<_> = self.list::<ReplicaSet>().await;
        sets.retain(|set| set.spec.replicas != Some(0));
        let mut sizes: Vec<_> = sets.iter().map(|set| (image(set), set.spec.replicas.unwrap())).collect();
        sizes.sort();
        sizes
    }

    pub(crate) async fn active_pods(&self) -> Vec<Pod> {
        let mut pods = self.list::<Pod>().await;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        pods
    }

    /// The reasons and notes of the events about an object.
    pub(crate) async fn events(&self, name: &str) -> Vec<(String, String)> {
        let about = |event: &Event| event.involved_object.name.as_deref() == Some(name);
        let mut events: Vec<_> = self.list::<Event>().await.into_iter().filter(about).collect();
        events.sort_by_key(|event| event.metadata.resource_version.clone().unwrap().parse::<u64>().unwrap());
        events.into_iter().map(|event| (event.reason.unwrap(), event.message.unwrap())).collect()
    }
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

pub(crate) fn is_rolled_out(deployment: &Deployment) -> bool {
    let replicas = deployment.spec.replicas;
    let status = deployment.status.clone().unwrap_or_default();
    status.observed_generation >= deployment.metadata.generation
        && status.updated_replicas.or(Some(0)) == replicas
        && status.replicas.or(Some(0)) == replicas
        && status.available_replicas.or(Some(0)) == replicas
}

pub(crate) fn image(set: &ReplicaSet) -> String {
    let spec = set.spec.template.as_ref().unwrap().spec.as_ref().unwrap();
    spec.containers[0].image.clone().unwrap()
}

pub(crate) fn deployment(name: &str, replicas: i32) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "web", "image": "v1"}]},
            },
        },
    })
}

/// The condition of a Deployment: status and reason.
pub(crate) fn condition(deployment: &Deployment, type_: &str) -> Option<(String, String, String)> {
    let status = deployment.status.as_ref()?;
    let found = status.conditions.iter().flatten().find(|found| found.type_.as_deref() == Some(type_))?;
    Some((found.status.clone()?, found.reason.clone()?, found.message.clone()?))
}

pub(crate) fn revision<K: Resource>(object: &K) -> &str {
    object.annotations().get("deployment.kubernetes.io/revision").map_or("", String::as_str)
}

/// Looks at all objects of a kind at every event of a watch. Nothing that lasts a moment only is missed.
pub(crate) fn watch_all<K>(
    world: &World,
    mut look: impl FnMut(&BTreeMap<String, K>) + Send + 'static,
) -> Task<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + DeserializeOwned
        + Clone
        + Debug
        + Send
        + Sync
        + 'static,
{
    let objects: Api<K> = Api::namespaced(world.direct(), "default");
    world.env().spawn(async move {
        let (mut known, mut version) = (BTreeMap::new(), "0".to_owned());
        loop {
            let mut events = objects.watch(&WatchParams::default(), &version).await.unwrap().boxed();
            while let Some(event) = events.next().await {
                match event.unwrap() {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                        version = object.resource_version().unwrap();
                        known.insert(object.name_any(), object);
                    }
                    WatchEvent::Deleted(object) => {
                        version = object.resource_version().unwrap();
                        known.remove(&object.name_any());
                    }
                    WatchEvent::Bookmark(mark) => version = mark.metadata.resource_version,
                    WatchEvent::Error(error) => panic!("{error:?}"),
                }
                look(&known);
            }
        }
    })
}

/// Crashes the controllers again and again: after random pauses, for random times.
pub(crate) async fn crash_often(running: &mut Running, times: usize, longest: Duration) {
    let pause = |world: &World| {
        let most = u64::try_from(longest.as_millis()).unwrap();
        sleep(Duration::from_millis(world.env().random_range(1..=most)))
    };
    for _ in 0..times {
        pause(&running.world).await;
        running.crash();
        pause(&running.world).await;
        running.cluster = Some(start(&running.world));
    }
}
