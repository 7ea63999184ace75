//! What the objects are, and how requests write them.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::object::{Key, Mark, Version};
use crate::operation::Call;
use crate::select::Select;
use crate::wire::Request;

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// What the objects of a history are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resource {
    /// The mark is in their data.
    #[default]
    ConfigMaps,
    /// The mark is an annotation; they have a node, or none, and a phase. They are patched, since no update may leave out
    /// what the server has set.
    Pods,
}

impl Resource {
    /// Whether a delete marks the object before it removes it. Who deletes a marked one is answered, though it is another's
    /// delete that removes it, perhaps later.
    pub(crate) fn ends_gracefully(self) -> bool {
        self == Resource::Pods
    }

    /// The path of the objects of a namespace.
    pub(crate) fn collection(self, namespace: &str) -> Arc<str> {
        let plural = match self {
            Resource::ConfigMaps => "configmaps",
            Resource::Pods => "pods",
        };
        format!("/api/v1/namespaces/{namespace}/{plural}").into()
    }

    /// The path that a watch of a selection is opened on. Pods of a node are watched in all namespaces, as kubelets do:
    /// servers have ways of their own for these watches.
    pub(crate) fn watched(self, namespace: &str, select: Select) -> Arc<str> {
        match (self, select) {
            (Resource::Pods, Select::Node(_) | Select::NodeAndTeam(..)) => "/api/v1/pods".into(),
            _ => self.collection(namespace),
        }
    }

    /// What a watcher takes, by its number: every third is of everything.
    pub(crate) fn select(self, watcher: u16, key: Key) -> Select {
        let odd = u8::from(watcher % 12 >= 6);
        match (self, watcher % 6) {
            (_, 2) => Select::Name(key),
            (Resource::ConfigMaps, 3) => Select::Team(odd),
            (Resource::ConfigMaps, 4) => Select::NotTeam(odd),
            (Resource::Pods, 3) => Select::Node((odd == 0).then_some(0)),
            (Resource::Pods, 4) => Select::Running(odd == 0),
            (Resource::Pods, 5) => Select::NodeAndTeam(Some(1), odd),
            _ => Select::All,
        }
    }

    /// The request of a write: its mark is in what it sends.
    pub(crate) fn write(self, collection: &str, call: &Call, mark: Mark) -> Option<Request> {
        let one = |key: &Key| format!("{collection}/{key}");
        let send = |method, path, media, body: Value| Request { method, path, media, body: body.to_string() };
        let patch = |key, media, body| send("PATCH", one(key), media, body);
        Some(match call {
            Call::Create { key } => {
                send("POST", collection.to_owned(), JSON, self.object(*key, None, mark, mark.node()))
            }
            Call::Update { key, expect } => {
                send("PUT", one(key), JSON, self.object(*key, *expect, mark, None))
            }
            Call::MergePatch { key } => patch(key, MERGE, self.changed(mark)),
            Call::StrategicPatch { key } => patch(key, STRATEGIC, self.changed(mark)),
            Call::JsonPatch { key } => patch(key, JSON_PATCH, self.moved(mark)),
            Call::Apply { key } => {
                let path = one(key) + "?fieldManager=histories&force=true";
                send("PATCH", path, APPLY, self.object(*key, None, mark, None))
            }
            Call::StatusPatch { key } => {
                let mut body = self.changed(mark);
                body["status"] = json!({"phase": if mark.is_running() { "Running" } else { "Pending" }});
                send("PATCH", one(key) + "/status", MERGE, body)
            }
            Call::Delete { key, expect } => send("DELETE", one(key), JSON, self.options(*expect)),
            Call::DeleteCollection { limit } => {
                let query = limit.map(|limit| format!("?limit={limit}")).unwrap_or_default();
                send("DELETE", format!("{collection}{query}"), JSON, self.options(None))
            }
            Call::Get { .. } | Call::List { .. } => return None,
        })
    }

    fn object(self, key: Key, expect: Option<Version>, mark: Mark, node: Option<u8>) -> Value {
        let mut object = self.changed(mark);
        object["apiVersion"] = "v1".into();
        object["metadata"]["name"] = key.to_string().into();
        if let Some(version) = expect {
            object["metadata"]["resourceVersion"] = version.to_string().into();
        }
        match self {
            Resource::ConfigMaps => object["kind"] = "ConfigMap".into(),
            Resource::Pods => {
                object["kind"] = "Pod".into();
                let container = json!({"name": "c", "image": "i"});
                object["spec"] = json!({"containers": [container], "automountServiceAccountToken": false});
                if let Some(node) = node {
                    object["spec"]["nodeName"] = format!("n{node}").into();
                }
            }
        }
        object
    }

    /// What every write leaves.
    fn changed(self, mark: Mark) -> Value {
        let mut metadata = json!({"labels": {"team": format!("t{}", mark.team())}});
        let mark = json!({"mark": mark.to_string()});
        match self {
            Resource::ConfigMaps => json!({"metadata": metadata, "data": mark}),
            Resource::Pods => {
                metadata["annotations"] = mark;
                json!({"metadata": metadata})
            }
        }
    }

    /// A JSON patch that keeps the mark that it finds.
    fn moved(self, mark: Mark) -> Value {
        let place = match self {
            Resource::ConfigMaps => "/data",
            Resource::Pods => "/metadata/annotations",
        };
        json!([
            {"op": "copy", "from": format!("{place}/mark"), "path": format!("{place}/previous")},
            {"op": "replace", "path": format!("{place}/mark"), "value": mark.to_string()},
            {"op": "replace", "path": "/metadata/labels/team", "value": format!("t{}", mark.team())},
        ])
    }

    fn options(self, expect: Option<Version>) -> Value {
        let version = expect.map(|version| json!({"resourceVersion": version.to_string()}));
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": version});
        if self == Resource::Pods {
            // There is no kubelet that would end them.
            options["gracePeriodSeconds"] = 0.into();
        }
        options
    }
}
