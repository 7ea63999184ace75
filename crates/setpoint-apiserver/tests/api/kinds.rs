//! What the server fills in and refuses, kind by kind. The differential suite of xtask holds all of this against
//! kube-apiserver; these tests need no kube-apiserver.

mod batch;
mod config;
mod network;
mod pods;
mod policy;
mod services;
mod storage;
mod workloads;

use serde_json::{Value, json};

use crate::support::{Answer, Api};

/// Puts values at places of an object: `/spec/replicas`. Null removes.
pub(crate) fn edited(object: &Value, edits: &[(&str, Value)]) -> Value {
    let mut object = object.clone();
    for (place, value) in edits {
        let (parent, key) = place.rsplit_once('/').expect("places begin with a slash");
        let parent = object.pointer_mut(parent).unwrap_or_else(|| panic!("there is no {parent}"));
        match parent {
            Value::Array(items) => match key.parse::<usize>() {
                Ok(index) if index < items.len() => items[index] = value.clone(),
                _ => items.push(value.clone()),
            },
            parent if value.is_null() => drop(parent.as_object_mut().expect("an object").remove(key)),
            parent => parent[key] = value.clone(),
        }
    }
    object
}

/// What an answer says is wrong, a line a cause.
pub(crate) fn causes(answer: &Answer) -> Vec<String> {
    let causes = answer.body["details"]["causes"].as_array().cloned().unwrap_or_default();
    let text = |cause: &Value, field: &str| cause[field].as_str().unwrap_or_default().to_owned();
    causes.iter().map(|cause| format!("{}: {}", text(cause, "field"), text(cause, "message"))).collect()
}

/// Places of an object, and what to put there.
type Edits<'a> = &'a [(&'a str, Value)];

/// A kind to make objects of.
pub(crate) struct Kind {
    api: Api,
    path: &'static str,
    /// An object that is fine.
    base: Value,
}

impl Kind {
    pub(crate) fn new(path: &'static str, base: Value) -> Kind {
        Kind { api: Api::new(), path, base }
    }

    /// The fields of the base, made with these edits, as the server answers it.
    pub(crate) async fn made(&self, edits: &[(&str, Value)]) -> Value {
        let object = edited(&self.base, edits);
        self.api.post(&format!("{}?dryRun=All", self.path), &object).await.ok()
    }

    /// Edits of the base are refused for exactly these reasons; none: they are fine.
    pub(crate) async fn check(&self, edits: &[(&str, Value)], expect: &[&str]) {
        let object = edited(&self.base, edits);
        let answer = self.api.post(&format!("{}?dryRun=All", self.path), &object).await;
        assert_eq!(causes(&answer), expect, "{edits:?}: {}", answer.body);
        assert_eq!(answer.code, if expect.is_empty() { 201 } else { 422 }, "{edits:?}: {}", answer.body);
    }

    /// The base is created, then updates of it are refused for exactly these reasons; none: they happen.
    pub(crate) async fn check_updates(&self, updates: &[(Edits<'_>, &[&str])]) {
        let name = self.base["metadata"]["name"].as_str().expect("a name");
        let path = format!("{}/{name}", self.path);
        self.api.post(self.path, &self.base).await.ok();
        for (edits, expect) in updates {
            let object = edited(&self.api.get(&path).await.ok(), edits);
            let answer = self.api.put(&path, &object).await;
            assert_eq!(causes(&answer), *expect, "{edits:?}: {}", answer.body);
            assert_eq!(answer.code, if expect.is_empty() { 200 } else { 422 }, "{edits:?}: {}", answer.body);
        }
    }
}

#[tokio::test]
async fn ten_errors_are_reported_at_once_and_in_order() {
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "Bad_"},
        "spec": {
            "replicas": -1, "minReadySeconds": -1, "revisionHistoryLimit": -1, "progressDeadlineSeconds": -2,
            "selector": {"matchLabels": {"app": "x"}},
            "strategy": {"rollingUpdate": {"maxSurge": "lots", "maxUnavailable": "101%"}},
            "template": {
                "metadata": {"labels": {"app": "y"}},
                "spec": {"containers": [{"name": "", "image": ""}], "dnsPolicy": "Odd", "restartPolicy": "Never"}
            }
        }
    });
    let api = Api::new();
    let answer = api.post("/apis/apps/v1/namespaces/default/deployments", &deployment).await;
    let fields: Vec<String> =
        causes(&answer).iter().map(|cause| cause.split(": ").next().unwrap().to_owned()).collect();
    assert_eq!(
        fields,
        [
            "metadata.name",
            "spec.replicas",
            "spec.template.metadata.labels",
            "spec.template.spec.containers[0].name",
            "spec.template.spec.containers[0].image",
            "spec.template.spec.dnsPolicy",
            "spec.template.spec.restartPolicy",
            "spec.strategy.rollingUpdate.maxSurge",
            "spec.strategy.rollingUpdate.maxUnavailable",
            "spec.minReadySeconds",
            "spec.revisionHistoryLimit",
            "spec.progressDeadlineSeconds",
            "spec.progressDeadlineSeconds",
        ]
    );
}
