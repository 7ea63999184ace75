//! Clients that go away in the middle of a request: a write that was started ends, with its line in the audit log.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::{Value, json};
use setpoint_apiserver::audit::{AuditLog, Policy};
use setpoint_apiserver::{ApiServer, Body, User};
use tempfile::TempDir;
use tower::ServiceExt;

use crate::support::{Api, MAPS, map};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

/// A server that takes its time: it has a disk.
struct World {
    api: Api,
    /// Who leaves.
    user: User,
    folder: TempDir,
}

impl World {
    async fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let policy = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}";
        let log = AuditLog::new(folder.path().join("audit.log")).policy(Policy::parse(policy).unwrap());
        let server = ApiServer::builder().audit(log).unwrap().open(folder.path().join("data")).await.unwrap();
        World { api: Api::with(server), user: User::admin(), folder }
    }

    /// Sends a request, and goes away after it was polled so often; true if that was late enough for an answer.
    async fn leave_after(&self, polls: usize, id: &str, method: &str, path: &str, body: &Value) -> bool {
        // A body in two pieces, so that reading it is a place to leave at as well.
        let text = Bytes::from(body.to_string());
        let (first, second) = (text.slice(..text.len() / 2), text.slice(text.len() / 2..));
        let pieces = futures::stream::unfold(vec![second, first], |mut left| async {
            tokio::task::yield_now().await;
            let piece = left.pop()?;
            Some((Ok::<_, std::io::Error>(http_body::Frame::data(piece)), left))
        });
        let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, media)
            .header("audit-id", id)
            .body(StreamBody::new(pieces))
            .unwrap();
        let answer = self.api.server.as_user(self.user.clone()).oneshot(request);
        polled(polls, Box::pin(answer)).await.is_some()
    }

    /// The stages of each request, by its id, once the server has closed.
    async fn stages(&self) -> Vec<(String, String, u64)> {
        self.api.server.close().await;
        let text = std::fs::read_to_string(self.folder.path().join("audit.log")).unwrap();
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let told = |event: Value| {
            let text = |field: &str| event[field].as_str().unwrap().to_owned();
            (text("auditID"), text("stage"), event["responseStatus"]["code"].as_u64().unwrap_or(0))
        };
        events.map(told).collect()
    }
}

/// Polls a future so often at most, each time when it asks for it, and drops it then.
async fn polled<F: Future>(polls: usize, mut future: Pin<Box<F>>) -> Option<F::Output> {
    let mut left = polls;
    poll_fn(move |cx| {
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Sends a request again and again, each time leaving one poll later, until it is answered.
async fn leave_everywhere(
    world: &World,
    request: impl Fn(usize) -> (&'static str, String, Value),
) -> Vec<String> {
    let mut ids = Vec::new();
    for polls in 1.. {
        assert!(polls < 200, "no answer comes");
        let (method, path, body) = request(polls);
        let id = format!("{method} {polls}");
        ids.push(id.clone());
        if world.leave_after(polls, &id, method, &path, &body).await {
            break;
        }
    }
    assert!(ids.len() > 3, "there is nowhere to leave at: {ids:?}");
    ids
}

#[tokio::test]
async fn a_write_whose_client_leaves_is_done_and_told_or_neither() {
    done_and_told_or_neither(World::new().await).await;
}

#[tokio::test]
async fn the_same_holds_for_whoever_shares_processors_and_places() {
    let mut world = World::new().await;
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let role =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
    let jane = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]);
    let binding = json!({"metadata": {"name": "jane"}, "roleRef": role, "subjects": jane});
    world.api.post(bindings, &binding).await.ok();
    world.user = User::new("jane", [""; 0]);
    done_and_told_or_neither(world).await;
}

async fn done_and_told_or_neither(world: World) {
    for name in ["put", "patch", "delete"] {
        for n in 1..200 {
            world.api.post(MAPS, &map(&format!("{name}-{n}"), "old")).await.ok();
        }
    }
    leave_everywhere(&world, |n| ("POST", MAPS.to_owned(), map(&format!("post-{n}"), "new"))).await;
    leave_everywhere(&world, |n| ("PUT", format!("{MAPS}/put-{n}"), map(&format!("put-{n}"), "new"))).await;
    let patch = json!({"data": {"key": "new"}});
    leave_everywhere(&world, |n| ("PATCH", format!("{MAPS}/patch-{n}"), patch.clone())).await;
    leave_everywhere(&world, |n| ("DELETE", format!("{MAPS}/delete-{n}"), json!({}))).await;

    let stages = world.stages().await;
    let told: BTreeSet<&str> =
        stages.iter().filter(|event| event.1 == "ResponseComplete").map(|event| event.0.as_str()).collect();
    let found = world.api.get(MAPS).await.ok();
    let value = |name: &str| {
        let items = found["items"].as_array().unwrap();
        let object = items.iter().find(|item| item["metadata"]["name"] == name);
        object.map(|object| object["data"]["key"].as_str().unwrap().to_owned())
    };
    let mut done = 0;
    for n in 1..200 {
        for (method, is_done) in [
            ("POST", value(&format!("post-{n}")).is_some()),
            ("PUT", value(&format!("put-{n}")).as_deref() == Some("new")),
            ("PATCH", value(&format!("patch-{n}")).as_deref() == Some("new")),
            ("DELETE", value(&format!("delete-{n}")).is_none()),
        ] {
            done += usize::from(is_done);
            let is_told = told.contains(format!("{method} {n}").as_str());
            assert_eq!(is_done, is_told, "{method} after {n} polls: done {is_done}, told {is_told}");
        }
    }
    assert!(done > 4, "of each kind more than the last one is done: {done}");
    // The stages of one request are in order, and there is one end.
    for id in told {
        let own: Vec<&str> =
            stages.iter().filter(|event| event.0 == id).map(|event| event.1.as_str()).collect();
        assert_eq!(own, ["RequestReceived", "ResponseComplete"], "{id}");
    }
}

#[tokio::test]
async fn aggregated_roles_follow_a_role_whose_client_has_left() {
    let selector = json!([{"matchLabels": {"part": "yes"}}]);
    let whole = json!({"metadata": {"name": "whole"}, "aggregationRule": {"clusterRoleSelectors": selector}});
    let rule = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]});
    let part = json!({"metadata": {"name": "part", "labels": {"part": "yes"}}, "rules": [rule]});
    let mut done = 0;
    for polls in 1..200 {
        // A server of its own: any later write of a role would put the others right.
        let world = World::new().await;
        world.api.post(ROLES, &whole).await.ok();
        let is_answered = world.leave_after(polls, "role", "POST", ROLES, &part).await;
        world.stages().await;
        if world.api.get(&format!("{ROLES}/part")).await.code == 200 {
            done += 1;
            let rules = world.api.get(&format!("{ROLES}/whole")).await.ok()["rules"].clone();
            assert_eq!(rules, json!([rule]), "after {polls} polls");
        }
        if is_answered {
            break;
        }
    }
    assert!(done > 2, "{done}");
}

#[tokio::test]
async fn a_write_whose_client_has_left_before_it_was_read_does_not_happen() {
    let world = World::new().await;
    let never =
        StreamBody::new(futures::stream::pending::<Result<http_body::Frame<Bytes>, std::io::Error>>());
    let request = Request::post(MAPS).header("audit-id", "unread").body(never).unwrap();
    let answer = world.api.server.as_user(User::admin()).oneshot(request);
    let gone = tokio::time::timeout(Duration::from_millis(50), answer).await;
    assert!(gone.is_err());
    let stages = world.stages().await;
    assert_eq!(stages, [("unread".to_owned(), "RequestReceived".to_owned(), 0)]);
}

/// What a response says, and its code.
async fn read(response: Response<Body>) -> (u16, String) {
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8_lossy(&bytes).into_owned())
}

#[tokio::test]
async fn a_read_whose_client_leaves_is_cancelled() {
    let world = World::new().await;
    let version = 1_000_000;
    let request = Request::get(format!("{MAPS}?resourceVersion={version}&resourceVersionMatch=NotOlderThan"));
    let answer = world.api.send(request.body(Full::default()).unwrap());
    assert!(polled(2, Box::pin(answer)).await.is_none(), "that version is not there yet");
    let metrics = world.api.send(Request::get("/metrics").body(Full::default()).unwrap()).await;
    let (_, text) = read(metrics).await;
    assert!(text.contains("apiserver_current_inflight_requests{request_kind=\"readOnly\"} 1\n"), "{text}");
}
