//! What a reconcile has written, found out on the way: a client that takes notes.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::{BoxFuture, ready};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde::Deserialize;
use tower::{BoxError, Service};

use crate::ensure::memory::{Memory, Recall};
use crate::mutants::{Promise, is_kept};
use crate::{ObjectKey, ResourceVersion};

/// One write, as far as caches are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write {
    /// What was written to, like `deployments.apps`.
    pub(super) resource: String,
    pub(super) outcome: Outcome,
}

/// What a cache will see of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The object of this key at this version or a later one.
    Version { key: ObjectKey, version: ResourceVersion },
    /// No more object of this uid.
    Gone { key: ObjectKey, uid: String },
    /// Nobody knows, but the server.
    Unknown(Unknown),
}

/// A write of which the answer was lost, or does not say what was written. It says where to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unknown {
    pub(super) collection: String,
    pub(super) namespace: Option<String>,
    /// What was written to; none if it was the collection, or got its name from the server.
    pub(super) name: Option<String>,
}

/// The notes of one worker: what the reconcile that it runs now has written.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes(Arc<Mutex<Vec<Write>>>);

impl Notes {
    /// What was written since the last call.
    pub(super) fn take(&self) -> Vec<Write> {
        std::mem::take(&mut self.0.lock())
    }

    /// A client like `client` whose writes are noted here, and which knows what came of earlier ones.
    pub(super) fn client(&self, client: &Client, memory: &Memory) -> Client {
        let namespace = client.default_namespace().to_owned();
        let service = NotedService { client: client.clone(), notes: self.clone(), memory: memory.clone() };
        Client::new(service, namespace)
    }

    fn push(&self, write: Write) {
        self.0.lock().push(write);
    }
}

#[derive(Clone)]
struct NotedService {
    client: Client,
    notes: Notes,
    memory: Memory,
}

impl Service<Request<Body>> for NotedService {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if let Some(recall) = request.extensions().get::<Recall>()
            && let Err(known) = self.memory.hear(recall)
        {
            return Box::pin(ready(Err(known.into())));
        }
        let (client, notes) = (self.client.clone(), self.notes.clone());
        let target = Target::of(&request);
        Box::pin(async move {
            let Some(target) = target else { return Ok(client.send(request).await?) };
            // If the caller gives up in the meantime, the write may have happened all the same.
            let mut pending = Pending { target: Some(target), notes };
            let response = client.send(request).await?;
            let (parts, body) = response.into_parts();
            let bytes = body.collect().await?.to_bytes();
            pending.finish(parts.status, &bytes);
            Ok(Response::from_parts(parts, Body::from(bytes.to_vec())))
        })
    }
}

/// A write under way. Dropped before it is finished, it is noted as unknown.
struct Pending {
    target: Option<Target>,
    notes: Notes,
}

impl Pending {
    fn finish(&mut self, status: http::StatusCode, body: &[u8]) {
        let Some(target) = self.target.take() else { return };
        if status.is_success() {
            if let Some(write) = target.written(body) {
                self.notes.push(write);
            }
        } else if status.is_server_error() && is_kept(Promise::ServerErrors) {
            // The server itself does not know; or it is a proxy's answer, which knows even less.
            self.notes.push(target.unknown());
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(target) = self.target.take()
            && is_kept(Promise::LostAnswers)
        {
            self.notes.push(target.unknown());
        }
    }
}

/// What a write is about, as its path says.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    resource: String,
    collection: String,
    namespace: Option<String>,
    name: Option<String>,
    is_delete: bool,
}

impl Target {
    fn of(request: &Request<Body>) -> Option<Target> {
        if !matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH | Method::DELETE) {
            return None;
        }
        if request.uri().query().is_some_and(|query| query.contains("dryRun=All")) {
            return None;
        }
        let is_delete = *request.method() == Method::DELETE;
        Target::parse(request.uri().path()).map(|target| Target { is_delete, ..target })
    }

    fn parse(path: &str) -> Option<Target> {
        let mut segments = path.split('/').filter(|segment| !segment.is_empty());
        let (prefix, group, version) = match segments.next()? {
            "api" => ("api".to_owned(), "", segments.next()?),
            "apis" => {
                let group = segments.next()?;
                (format!("apis/{group}"), group, segments.next()?)
            }
            _ => return None,
        };
        let rest: Vec<&str> = segments.collect();
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", namespace, rest @ ..] if !matches!(rest, [] | ["status" | "finalize"]) => {
                (Some((*namespace).to_owned()), rest)
            }
            rest => (None, rest),
        };
        let (plural, name, subresource) = (*rest.first()?, rest.get(1), rest.get(2));
        if matches!(subresource, Some(&("eviction" | "binding" | "token"))) {
            // They answer with something else than the object.
            return None;
        }
        let place =
            namespace.as_ref().map(|namespace| format!("namespaces/{namespace}/")).unwrap_or_default();
        Some(Target {
            resource: if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") },
            collection: format!("/{prefix}/{version}/{place}{plural}"),
            namespace,
            name: name.map(|name| (*name).to_owned()),
            is_delete: false,
        })
    }

    fn unknown(self) -> Write {
        let Target { resource, collection, namespace, name, .. } = self;
        Write { resource, outcome: Outcome::Unknown(Unknown { collection, namespace, name }) }
    }

    /// What the answer says about the object; none if it says nothing that a cache could be held against.
    fn written(self, body: &[u8]) -> Option<Write> {
        if self.is_delete && self.name.is_none() {
            // Which objects of the collection have gone, and which only got a deletion time, it does not say.
            return is_kept(Promise::DeleteCollection).then(|| self.unknown());
        }
        let answer: Answer = serde_json::from_slice(body).ok()?;
        let key = |name: &str| match &self.namespace {
            Some(namespace) => ObjectKey::namespaced(namespace, name),
            None => ObjectKey::cluster(name),
        };
        let outcome = if answer.kind.as_deref() == Some("Status") {
            let details = answer.details?;
            Outcome::Gone { key: key(details.name.as_deref().or(self.name.as_deref())?), uid: details.uid? }
        } else {
            let metadata = answer.metadata?;
            Outcome::Version {
                key: key(metadata.name.as_deref()?),
                version: metadata.resource_version.as_deref()?.into(),
            }
        };
        Some(Write { resource: self.resource, outcome })
    }
}

#[derive(Deserialize)]
struct Answer {
    kind: Option<String>,
    metadata: Option<Metadata>,
    details: Option<Details>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    resource_version: Option<String>,
}

#[derive(Deserialize)]
struct Details {
    name: Option<String>,
    uid: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, resource: &str, collection: &str, name: Option<&str>) {
        let target = Target::parse(path).expect("a resource");
        assert_eq!(
            (target.resource.as_str(), target.collection.as_str(), target.name.as_deref()),
            (resource, collection, name)
        );
    }

    #[test]
    fn paths_say_what_is_written_to() {
        let pods = "/api/v1/namespaces/x/pods";
        check(pods, "pods", pods, None);
        check("/api/v1/namespaces/x/pods/a/status", "pods", pods, Some("a"));
        check("/api/v1/namespaces/x", "namespaces", "/api/v1/namespaces", Some("x"));
        check("/api/v1/namespaces/x/finalize", "namespaces", "/api/v1/namespaces", Some("x"));
        let webs = "/apis/apps/v1/namespaces/x/deployments";
        check(&format!("{webs}/web"), "deployments.apps", webs, Some("web"));
        assert_eq!(Target::parse("/version"), None);
        assert_eq!(Target::parse("/api/v1/namespaces/x/pods/a/eviction"), None);
    }

    #[test]
    fn answers_say_what_a_cache_will_see() {
        let target = || Target::parse("/api/v1/namespaces/x/pods/a").unwrap();
        let written =
            target().written(br#"{"kind":"Pod","metadata":{"name":"a","uid":"u","resourceVersion":"7"}}"#);
        let key = ObjectKey::namespaced("x", "a");
        let version = ResourceVersion::from("7");
        assert_eq!(written.unwrap().outcome, Outcome::Version { key: key.clone(), version });
        let gone = target().written(br#"{"kind":"Status","details":{"name":"a","uid":"u"}}"#);
        assert_eq!(gone.unwrap().outcome, Outcome::Gone { key, uid: "u".into() });
        assert_eq!(target().written(b"{}"), None);
    }

    #[test]
    fn the_deletion_of_a_collection_says_nothing_about_versions() {
        let request =
            Request::delete("/api/v1/namespaces/x/pods?labelSelector=a").body(Body::empty()).unwrap();
        let written = Target::of(&request).unwrap().written(br#"{"kind":"PodList","items":[]}"#).unwrap();
        let (collection, namespace) = ("/api/v1/namespaces/x/pods".to_owned(), Some("x".to_owned()));
        assert_eq!(written.outcome, Outcome::Unknown(Unknown { collection, namespace, name: None }));
    }
}
