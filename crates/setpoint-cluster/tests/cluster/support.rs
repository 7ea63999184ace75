//! What the tests of the cluster share.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use setpoint::k8s_openapi::api::core::v1::{Event, Pod};
use setpoint::kube::api::{Api, ListParams, PostParams};
use setpoint::kube::{Client, Resource};
use setpoint_cluster::Cluster;

/// Builds an object from JSON.
pub(crate) fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("the test's object is one")
}

/// A pod with one container; `spec` and `annotations` are added.
pub(crate) fn pod(name: &str, annotations: Value, spec: Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [{"name": "web", "image": "nginx"}]},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    object(pod)
}

pub(crate) fn pods(client: Client) -> Api<Pod> {
    Api::namespaced(client, "default")
}

pub(crate) async fn create<K>(api: &Api<K>, object: &K) -> K
where
    K: Resource<DynamicType = ()> + Clone + serde::Serialize + DeserializeOwned + std::fmt::Debug,
{
    api.create(&PostParams::default(), object).await.expect("it can be created")
}

/// Looks at an object again and again until it is as wanted; virtual time passes meanwhile.
pub(crate) async fn until<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    for _ in 0..6000 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("after ten minutes still not: {what}");
}

/// Waits until a pod is as wanted.
pub(crate) async fn pod_until(cluster: &Cluster, name: &str, is_it: impl Fn(&Pod) -> bool) -> Pod {
    let api = pods(cluster.client());
    until(name, async || api.get_opt(name).await.expect("the server answers").filter(&is_it)).await
}

/// Waits until a pod has this reason for waiting.
pub(crate) async fn waiting(cluster: &Cluster, name: &str, reason: &str) -> Pod {
    pod_until(cluster, name, |pod| field(pod, "/status/containerStatuses/0/state/waiting/reason") == reason)
        .await
}

pub(crate) async fn phase(cluster: &Cluster, name: &str, phase: &str) -> Pod {
    pod_until(cluster, name, |pod| field(pod, "/status/phase") == phase).await
}

/// A field of an object, by its JSON pointer.
pub(crate) fn field<K: serde::Serialize>(object: &K, pointer: &str) -> Value {
    serde_json::to_value(object).expect("objects are JSON").pointer(pointer).cloned().unwrap_or(Value::Null)
}

/// The status of one of a pod's conditions, with its reason and message.
pub(crate) fn condition(pod: &Pod, type_: &str) -> (String, String, String) {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let found =
        conditions.into_iter().find(|condition| condition.type_ == type_).expect("it has the condition");
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (found.status.clone(), text(&found.reason), text(&found.message))
}

/// The reasons and messages of the events about an object.
pub(crate) async fn events(cluster: &Cluster, name: &str) -> Vec<(String, String)> {
    tokio::time::sleep(Duration::from_secs(2)).await;
    let api: Api<Event> = Api::all(cluster.client());
    let list = api.list(&ListParams::default()).await.expect("the server answers");
    let about = list.items.into_iter().filter(|event| event.involved_object.name.as_deref() == Some(name));
    about.map(|event| (event.reason.unwrap_or_default(), event.message.unwrap_or_default())).collect()
}
