//! What becomes of a server whose own tasks panic.

mod lanes;
mod older;

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use http_body_util::Full;
use jiff::Timestamp;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;
use crate::storage::{
    Change, CommitError, Found, Freshness, Key, ListQuery, ReadError, Record, Revision, Scan, Snapshot,
    Stats, Watch,
};

/// A store that panics so often when it shall remove what has expired.
struct Brittle {
    inner: Memory,
    panics: AtomicUsize,
}

impl Storage for Brittle {
    fn get<'a>(&'a self, key: &'a Key, fresh: Freshness) -> BoxFuture<'a, Result<Found, ReadError>> {
        self.inner.get(key, fresh)
    }

    fn scan<'a>(&'a self, query: &'a ListQuery) -> BoxFuture<'a, Result<Box<dyn Scan>, ReadError>> {
        self.inner.scan(query)
    }

    fn reached(&self, revision: Revision) -> BoxFuture<'_, ()> {
        self.inner.reached(revision)
    }

    fn commit(&self, change: Change) -> BoxFuture<'_, Result<Arc<Record>, CommitError>> {
        self.inner.commit(change)
    }

    fn watch(&self, collection: &Arc<str>, after: Revision) -> Result<Watch, ReadError> {
        self.inner.watch(collection, after)
    }

    fn revision(&self) -> Revision {
        self.inner.revision()
    }

    fn expire(&self, now: Timestamp) -> BoxFuture<'_, usize> {
        let left = self.panics.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        assert!(left.is_err(), "as the test wants it");
        self.inner.expire(now)
    }

    fn compact(&self, up_to: Revision) {
        self.inner.compact(up_to);
    }

    fn age(&self, up_to: Revision) {
        self.inner.age(up_to);
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }

    fn snapshot(&self) -> Snapshot {
        self.inner.snapshot()
    }
}

async fn send(server: &ApiServer, method: &str, path: &str, body: &Value) -> (u16, String) {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
    let response = server.as_user(User::admin()).oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8_lossy(&bytes).into_owned())
}

#[tokio::test(start_paused = true)]
async fn a_task_that_panics_is_restarted_and_stops_nobody() {
    let env = Env::seeded(1);
    let inner = Memory::new(Limits::default()).timed(env.clone());
    let storage = Brittle { inner, panics: AtomicUsize::new(1) };
    let builder = ApiServer::builder().env(env);
    let server = builder.start(Box::new(storage)).await.unwrap();
    let event = json!({"metadata": {"name": "a"}, "involvedObject": {"namespace": "default"}});
    let events = "/api/v1/namespaces/default/events";
    assert_eq!(send(&server, "POST", events, &event).await.0, 201);
    assert_eq!(send(&server, "GET", "/readyz", &Value::Null).await, (200, "ok".to_owned()));

    tokio::time::sleep(EXPIRY_INTERVAL + Duration::from_millis(100)).await;
    let (code, page) = send(&server, "GET", "/readyz", &Value::Null).await;
    assert_eq!(code, 500);
    assert!(page.contains("[-]tasks failed"), "{page}");
    let (_, why) = send(&server, "GET", "/readyz/tasks", &Value::Null).await;
    assert_eq!(why, "internal server error: restarting after a panic: expiry\n");
    assert_eq!(send(&server, "GET", "/livez", &Value::Null).await.0, 200, "a restart would not help");
    let map = json!({"metadata": {"name": "a"}});
    assert_eq!(send(&server, "POST", "/api/v1/namespaces/default/configmaps", &map).await.0, 201);

    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(send(&server, "GET", "/readyz", &Value::Null).await.0, 200);
    let (_, metrics) = send(&server, "GET", "/metrics", &Value::Null).await;
    assert!(metrics.contains("setpoint_task_panics_total{task=\"expiry\"} 1\n"), "{metrics}");
    assert!(metrics.contains("setpoint_task_panics_total{task=\"definitions\"} 0\n"), "{metrics}");
    // The task does its work again.
    tokio::time::sleep(Duration::from_secs(2 * 60 * 60)).await;
    assert_eq!(send(&server, "GET", &format!("{events}/a"), &Value::Null).await.0, 404);
}
