//! A client of plain HTTP for the tests.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use setpoint_apiserver::{ApiServer, AsUser, Body, User};
use setpoint_env::Env;
use tower::ServiceExt;

#[cfg(feature = "etcd")]
mod over_etcd;

pub(crate) struct Api {
    pub(crate) server: ApiServer,
    service: AsUser,
}

/// An answer: its code and its JSON.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) headers: http::HeaderMap,
}

impl Answer {
    /// The message of a Status.
    pub(crate) fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    pub(crate) fn reason(&self) -> &str {
        self.body["reason"].as_str().unwrap_or_default()
    }

    /// The body of a request that worked.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!(self.code < 300, "{}: {}", self.code, self.body);
        self.body
    }

    #[track_caller]
    pub(crate) fn refused(self, code: u16, message: &str) {
        assert_eq!((self.code, self.message()), (code, message), "{}", self.body);
    }

    /// The names of a list's items.
    pub(crate) fn names(&self) -> Vec<&str> {
        let items = self.body["items"].as_array().expect("a list");
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
    }
}

impl Api {
    pub(crate) fn new() -> Api {
        #[cfg(feature = "etcd")]
        if let Some(server) = over_etcd::server() {
            return Api::with(server);
        }
        Api::with(ApiServer::builder().env(Env::seeded(1)).build())
    }

    pub(crate) fn with(server: ApiServer) -> Api {
        Api::as_user(server, User::admin())
    }

    pub(crate) fn as_user(server: ApiServer, user: User) -> Api {
        let service = server.as_user(user);
        Api { server, service }
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Response<Body> {
        self.service.clone().oneshot(request).await.expect("the service never fails")
    }

    pub(crate) async fn answer(&self, request: Request<Full<Bytes>>) -> Answer {
        let response = self.send(request).await;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("bodies never fail").to_bytes();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Answer { code: parts.status.as_u16(), body, headers: parts.headers }
    }

    pub(crate) async fn call(&self, method: &str, path: &str, media: &str, body: impl Into<Bytes>) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, media)
            .body(Full::new(body.into()))
            .unwrap();
        self.answer(request).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, "application/json", "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path, "application/json", body.to_string()).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.call("PUT", path, "application/json", body.to_string()).await
    }

    pub(crate) async fn merge(&self, path: &str, body: &Value) -> Answer {
        self.call("PATCH", path, "application/merge-patch+json", body.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str, options: &Value) -> Answer {
        let body = if options.is_null() { String::new() } else { options.to_string() };
        self.call("DELETE", path, "application/json", body).await
    }

    pub(crate) async fn watch(&self, path: &str) -> Watch {
        self.watch_as(path, "application/json").await
    }

    pub(crate) async fn watch_as(&self, path: &str, accept: &str) -> Watch {
        let request =
            Request::builder().uri(path).header(header::ACCEPT, accept).body(Full::default()).unwrap();
        let response = self.send(request).await;
        assert_eq!(response.status(), 200, "{:?}", response.into_body().collect().await);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
        Watch { body: response.into_body(), pending: BytesMut::new() }
    }
}

/// A running watch.
pub(crate) struct Watch {
    body: Body,
    pending: BytesMut,
}

impl Watch {
    /// The next event, or none when the watch has ended.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line = self.pending.split_to(end + 1);
                return Some(serde_json::from_slice(&line).expect("each line is JSON"));
            }
            let frame = self.body.frame().await?.expect("bodies never fail");
            self.pending.extend_from_slice(&frame.into_data().expect("there are no trailers"));
        }
    }

    /// The next event as `TYPE name resourceVersion`.
    pub(crate) async fn line(&mut self) -> String {
        let event = self.next().await.expect("the watch goes on");
        let metadata = &event["object"]["metadata"];
        let name = metadata["name"].as_str().unwrap_or("-");
        format!("{} {name}", event["type"].as_str().unwrap())
    }

    /// Asserts that nothing comes for a while (of virtual time).
    pub(crate) async fn silent(&mut self, time: Duration) {
        if let Ok(event) = tokio::time::timeout(time, self.next()).await {
            panic!("nothing was expected, but: {event:?}");
        }
    }
}

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

pub(crate) fn map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": value}})
}

pub(crate) fn labelled(name: &str, app: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": app}}})
}

pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "web", "image": "nginx"}]}
    })
}

pub(crate) fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "web", "image": "nginx"}]}
            }
        }
    })
}

/// The resourceVersion of an object or list.
pub(crate) fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().expect("a version").parse().expect("a number")
}
