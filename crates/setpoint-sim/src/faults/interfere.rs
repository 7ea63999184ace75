//! The hand of somebody else, who writes to objects that a controller is about to write.

use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use setpoint_apiserver::AsUser;
use tower::ServiceExt;

use super::{Act, Interference};
use crate::request::{RequestInfo, Verb};

/// The annotation that [`Act::Touch`] writes.
pub(crate) const TOUCHED: &str = "sim.setpoint.dev/touched";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const JSON: &str = "application/json";

/// Does to objects what somebody else might do.
#[derive(Clone, Debug)]
pub(crate) struct Hand {
    server: AsUser,
}

impl Hand {
    pub(crate) fn new(server: AsUser) -> Hand {
        Hand { server }
    }

    pub(crate) async fn interfere(&self, interference: &Interference, request: &RequestInfo) {
        let path = match &interference.object {
            Some(path) => path.clone(),
            None if request.verb == Verb::Create => return,
            None => request.object_path(),
        };
        self.act(interference.act, &path).await;
    }

    /// Does it, if the object is there.
    pub(crate) async fn act(&self, act: Act, path: &str) {
        match act {
            Act::Touch => {
                let version =
                    self.get(path).await.map(|object| object["metadata"]["resourceVersion"].clone());
                let patch = json!({"metadata": {"annotations": {TOUCHED: version}}});
                self.send(Method::PATCH, path, MERGE, Some(&patch)).await;
            }
            Act::Delete => self.delete(path, json!({})).await,
            Act::Recreate => {
                let Some(mut object) = self.get(path).await else { return };
                // Finalizers would keep the old one; whoever deletes by force removes them.
                let free = json!({"metadata": {"finalizers": null}});
                self.send(Method::PATCH, path, MERGE, Some(&free)).await;
                self.delete(path, json!({"gracePeriodSeconds": 0})).await;
                if let Some(metadata) = object["metadata"].as_object_mut() {
                    metadata.retain(|key, _| {
                        ["name", "namespace", "labels", "annotations"].contains(&key.as_str())
                    });
                }
                if let Some(object) = object.as_object_mut() {
                    object.remove("status");
                }
                // By the one who applies it in the scenario, so that it stays theirs.
                let path = format!("{path}?fieldManager=user&force=true");
                self.send(Method::PATCH, &path, APPLY, Some(&object)).await;
            }
        }
    }

    /// Deletes as kubectl does: what hangs on the object goes, too.
    pub(crate) async fn delete(&self, path: &str, mut options: Value) {
        options["propagationPolicy"] = "Background".into();
        self.send(Method::DELETE, path, JSON, Some(&options)).await;
    }

    pub(crate) async fn get(&self, path: &str) -> Option<Value> {
        self.send(Method::GET, path, JSON, None).await
    }

    /// The answer, if it is a good one.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        media: &str,
        body: Option<&Value>,
    ) -> Option<Value> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, media);
        let request = request.body(Full::new(body.into())).ok()?;
        let response = self.server.clone().oneshot(request).await.ok()?;
        let is_success = response.status().is_success();
        let body = response.into_body().collect().await.ok()?.to_bytes();
        serde_json::from_slice(&body).ok().filter(|_| is_success)
    }
}
