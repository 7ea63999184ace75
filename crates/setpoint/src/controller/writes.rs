//! What a reconcile has written, found out on the way: a client that takes notes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::{BoxFuture, ready};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use tower::{BoxError, Service};

use super::caches::{Before, Caches, concerned};
use crate::ensure::memory::{Memory, Recall};
use crate::facts::{Facts, LoopEvent, Name, WriteResult};
use crate::mutants::{Promise, is_kept};
use crate::{ObjectKey, ResourceVersion};

/// One write, as far as caches are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write {
    /// What was written to, like `deployments.apps`.
    pub(super) resource: String,
    pub(super) outcome: Outcome,
    /// The field manager that the request named.
    pub(super) manager: Option<Name>,
    /// Whether the object has the version that it had before.
    pub(super) is_unchanged: bool,
    /// The labels that the object has now, if the answer says so.
    pub(super) labels: Option<Labels>,
}

pub(super) type Labels = BTreeMap<String, String>;

impl Write {
    pub(super) fn new(resource: impl Into<String>, outcome: Outcome) -> Write {
        Write { resource: resource.into(), outcome, manager: None, is_unchanged: false, labels: None }
    }
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
#[derive(Clone)]
pub(super) struct Notes {
    caches: Arc<Caches>,
    facts: Facts,
    controller: Name,
    noted: Arc<Mutex<Noted>>,
}

#[derive(Default)]
struct Noted {
    writes: Vec<Write>,
    /// What the key that is being reconciled is called, and the number of the reconcile.
    reconcile: Option<(ObjectKey, u64)>,
}

impl Notes {
    pub(super) fn new(caches: Arc<Caches>, facts: Facts, controller: Name) -> Notes {
        Notes { caches, facts, controller, noted: Arc::default() }
    }

    /// From now on, what is written is written by this reconcile.
    pub(super) fn begin(&self, key: &ObjectKey, id: u64) {
        self.noted.lock().reconcile = Some((key.clone(), id));
    }

    /// What was written since the last call.
    pub(super) fn take(&self) -> Vec<Write> {
        std::mem::take(&mut self.noted.lock().writes)
    }

    /// A client like `client` whose writes are noted here, and which knows what came of earlier ones.
    pub(super) fn client(&self, client: &Client, memory: &Memory) -> Client {
        let namespace = client.default_namespace().to_owned();
        let service = NotedService { client: client.clone(), notes: self.clone(), memory: memory.clone() };
        Client::new(service, namespace)
    }

    /// What the caches and the notes have of an object before it is written.
    fn before(&self, target: &Target) -> Option<Before> {
        let key = target.key()?;
        concerned(&self.caches.now(), &target.resource).find_map(|cache| cache.before(&key))
    }

    /// Whether the reconcile itself has written an object in this version already.
    fn has(&self, write: &Write) -> bool {
        let noted = self.noted.lock();
        noted.writes.iter().any(|other| other.resource == write.resource && other.outcome == write.outcome)
    }

    fn push(&self, write: Write) {
        self.noted.lock().writes.push(write);
    }

    fn tell(&self, event: impl FnOnce(Name, ObjectKey, u64) -> LoopEvent) {
        if self.facts.is_heard() {
            let reconcile = self.noted.lock().reconcile.clone();
            if let Some((key, id)) = reconcile {
                self.facts.tell(|| event(self.controller.clone(), key, id));
            }
        }
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
            let before = notes.before(&target);
            let mut pending = Pending { target: Some(target), before, notes };
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
    /// The object as it was cached when the write was sent.
    before: Option<Before>,
    notes: Notes,
}

impl Pending {
    fn finish(&mut self, status: http::StatusCode, body: &[u8]) {
        let Some(target) = self.target.take() else { return };
        if status.is_success() {
            if let Some(mut write) = target.written(body) {
                write.is_unchanged = self.is_unchanged(&target, &write);
                self.tell(&target, Some(&write), body, None);
                self.notes.push(write);
            }
        } else if status.is_server_error() && is_kept(Promise::ServerErrors) {
            // The server itself does not know; or it is a proxy's answer, which knows even less.
            let write = target.unknown();
            self.tell(&target, Some(&write), body, None);
            self.notes.push(write);
        } else {
            self.tell(&target, None, body, Some(status));
        }
    }

    /// Whether the object has the version that it had before: as it was cached when the write was sent, or as this
    /// reconcile left it.
    fn is_unchanged(&self, target: &Target, write: &Write) -> bool {
        let Outcome::Version { version, .. } = &write.outcome else { return false };
        let before = self.before.as_ref().and_then(|before| before.version.as_ref());
        target.name.is_some() && (before == Some(version) || self.notes.has(write))
    }

    /// Tells the write: what became of it, or the status with which it was refused.
    fn tell(
        &mut self,
        target: &Target,
        write: Option<&Write>,
        body: &[u8],
        refused: Option<http::StatusCode>,
    ) {
        let before = self.before.take();
        self.notes.tell(|controller, key, id| {
            let (object, result) = match write.map(|write| (&write.outcome, write.is_unchanged)) {
                Some((Outcome::Version { key, version }, is_unchanged)) => {
                    (Some(key.clone()), WriteResult::Written { version: version.clone(), is_unchanged })
                }
                Some((Outcome::Gone { key, .. }, _)) => (Some(key.clone()), WriteResult::Gone),
                Some((Outcome::Unknown(_), _)) => (target.key(), WriteResult::Unknown),
                None => (target.key(), refusal(refused, body)),
            };
            let is_written = matches!(result, WriteResult::Written { .. });
            let version = before.as_ref().and_then(|before| before.version.clone());
            LoopEvent::Write {
                controller,
                key,
                id,
                method: target.method.as_str().into(),
                resource: target.resource.as_str().into(),
                subresource: target.subresource.as_deref().map(Name::from),
                object,
                manager: target.manager.clone(),
                result,
                before: version,
                changed: before.filter(|_| is_written).and_then(|before| (before.compare)(body)),
            }
        });
    }
}

fn refusal(status: Option<http::StatusCode>, body: &[u8]) -> WriteResult {
    #[derive(Default, Deserialize)]
    struct Refusal {
        #[serde(default)]
        reason: String,
    }
    let Refusal { reason } = serde_json::from_slice(body).unwrap_or_default();
    WriteResult::Refused { code: status.map_or(0, |status| status.as_u16()), reason }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(target) = self.target.take()
            && is_kept(Promise::LostAnswers)
        {
            let write = target.unknown();
            self.tell(&target, Some(&write), &[], None);
            self.notes.push(write);
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
    subresource: Option<String>,
    method: Method,
    manager: Option<Name>,
}

impl Target {
    fn of(request: &Request<Body>) -> Option<Target> {
        if !matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH | Method::DELETE) {
            return None;
        }
        if request.uri().query().is_some_and(|query| query.contains("dryRun=All")) {
            return None;
        }
        let method = request.method().clone();
        let manager = request.uri().query().and_then(manager_in);
        Target::parse(request.uri().path()).map(|target| Target { method, manager, ..target })
    }

    /// What is written, if it has a name yet.
    fn key(&self) -> Option<ObjectKey> {
        self.name.as_deref().map(|name| self.key_of(name))
    }

    fn key_of(&self, name: &str) -> ObjectKey {
        match &self.namespace {
            Some(namespace) => ObjectKey::namespaced(namespace, name),
            None => ObjectKey::cluster(name),
        }
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
            subresource: subresource.map(|subresource| (*subresource).to_owned()),
            method: Method::GET,
            manager: None,
        })
    }

    fn unknown(&self) -> Write {
        let Target { collection, namespace, name, .. } = self;
        let (collection, namespace, name) = (collection.clone(), namespace.clone(), name.clone());
        Write::new(&self.resource, Outcome::Unknown(Unknown { collection, namespace, name }))
    }

    /// What the answer says about the object; none if it says nothing that a cache could be held against.
    fn written(&self, body: &[u8]) -> Option<Write> {
        if self.method == Method::DELETE && self.name.is_none() {
            // Which objects of the collection have gone, and which only got a deletion time, it does not say.
            return is_kept(Promise::DeleteCollection).then(|| self.unknown());
        }
        let answer: Answer = serde_json::from_slice(body).ok()?;
        let mut labels = None;
        let outcome = if answer.kind.as_deref() == Some("Status") {
            let details = answer.details?;
            let name = details.name.as_deref().or(self.name.as_deref())?;
            Outcome::Gone { key: self.key_of(name), uid: details.uid? }
        } else {
            let metadata = answer.metadata?;
            // The answer of another part, as of a scale, has not those of the object.
            let is_whole = self.subresource.as_deref().is_none_or(|part| part == "status");
            labels = is_whole.then(|| metadata.labels.unwrap_or_default());
            Outcome::Version {
                key: self.key_of(metadata.name.as_deref()?),
                version: metadata.resource_version.as_deref()?.into(),
            }
        };
        Some(Write { manager: self.manager.clone(), labels, ..Write::new(&self.resource, outcome) })
    }
}

/// The field manager that a query names.
fn manager_in(query: &str) -> Option<Name> {
    let manager = query.split('&').find_map(|pair| pair.strip_prefix("fieldManager="))?;
    percent_decode_str(manager).decode_utf8().ok().map(|manager| Name::from(&*manager))
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
    labels: Option<Labels>,
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
