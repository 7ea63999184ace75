//! What happens when several writers change one record: whoever loses makes the change again from the newer state, until
//! the request's time is up, as kube-apiserver does.
//!
//! A commit compares and swaps, so nothing here is needed for correctness. It is needed for fairness: if everybody who
//! has lost tried again at once, one of n would win each round, n² changes would be made for n commits, and somebody
//! unlucky would lose for ever. So those who have lost queue up, first come first served, and while there is a queue,
//! newcomers join it before their first attempt. Only whoever depends on a version goes ahead at once: at the end of a
//! queue that version would always be an old one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint_env::Env;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::handlers::get::read;
use crate::request::ResourceRequest;
use crate::server::Core;
use crate::status::{Result, Status};
use crate::storage::{Action, Change, Expect, Key, Record};

/// How long somebody waits for their turn; then they try without. Whoever has the turn may be waiting for a webhook, and
/// the webhook may itself want to write this very record.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the server keeps trying what no request waits for.
const OWN_LIMIT: Duration = Duration::from_secs(60);

/// When a write gives up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn after(env: &Env, limit: Duration) -> Deadline {
        let now = env.instant();
        Deadline(now.checked_add(limit).unwrap_or(now))
    }

    /// The deadline of what the server does by itself.
    pub(crate) fn of_server(env: &Env) -> Deadline {
        Deadline::after(env, OWN_LIMIT)
    }

    /// When that is.
    pub(crate) fn instant(self) -> Instant {
        self.0
    }

    /// 504 once it has passed.
    pub(crate) fn check(self, env: &Env) -> Result<()> {
        if env.instant() < self.0 {
            return Ok(());
        }
        Err(Status::timeout("the request did not complete within the allotted timeout"))
    }
}

/// The attempts to change one record.
#[derive(Debug)]
pub(crate) struct Attempts<'a> {
    core: &'a Core,
    key: Key,
    deadline: Deadline,
    /// The request that may depend on a version; none once it turns out that it does not.
    request: Option<&'a ResourceRequest>,
    /// Held from the first loss until the change is stored or given up.
    turn: Option<Turn<'a>>,
}

impl<'a> Attempts<'a> {
    /// Those of a request.
    pub(crate) fn of(core: &'a Core, key: Key, request: &'a ResourceRequest) -> Attempts<'a> {
        Attempts { core, key, deadline: request.deadline, request: Some(request), turn: None }
    }

    /// Those of the server itself.
    pub(crate) fn of_server(core: &'a Core, key: Key) -> Attempts<'a> {
        Attempts { core, key, deadline: Deadline::of_server(&core.env), request: None, turn: None }
    }

    /// The record that the first attempt is made from.
    pub(crate) async fn first(&mut self) -> Result<Option<Arc<Record>>> {
        if self.core.queues.has(&self.key) && !self.may_name_version() {
            self.queue().await;
        }
        read(self.core, &self.key).await
    }

    /// The record that the next attempt is made from, after one that has lost; 504 if there is no time for another.
    pub(crate) async fn next(&mut self) -> Result<Option<Arc<Record>>> {
        self.lost().await;
        self.deadline.check(&self.core.env)?;
        read(self.core, &self.key).await
    }

    /// Waits for the turn after an attempt that has lost, unless this has it already.
    pub(crate) async fn lost(&mut self) {
        if self.turn.is_some() {
            return;
        }
        if self.may_name_version() {
            // It is refused now, or did not mean it so.
            self.request = None;
        } else {
            self.queue().await;
        }
    }

    fn may_name_version(&self) -> bool {
        self.request.is_some_and(ResourceRequest::may_name_version)
    }

    async fn queue(&mut self) {
        let left = self.deadline.0.saturating_duration_since(self.core.env.instant());
        let turn = self.core.queues.join(&self.key).turn();
        self.turn = tokio::time::timeout(left.min(PATIENCE), turn).await.ok();
    }
}

/// Makes a change of the server's own to a record, again and again until it is stored. `change` is asked with each newer
/// state, and says if there is nothing to do any more.
pub(crate) async fn swap(
    core: &Core,
    key: Key,
    mut change: impl FnMut(&Record) -> Option<Action>,
) -> Result<()> {
    let mut attempts = Attempts::of_server(core, key.clone());
    let mut current = attempts.first().await?;
    while let Some(record) = current {
        let Some(action) = change(&record) else { return Ok(()) };
        let change = Change { key: key.clone(), expect: Expect::Revision(record.revision), action };
        match core.storage.commit(change).await {
            Ok(_) => return Ok(()),
            Err(error) => error.into_current()?,
        };
        current = attempts.next().await?;
    }
    Ok(())
}

/// The queues of those who want to change a record, for as long as somebody is in them.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    by_key: Mutex<BTreeMap<Key, Queue>>,
}

#[derive(Debug)]
struct Queue {
    /// One permit: who has it, has the turn. It is fair.
    turn: Arc<Semaphore>,
    members: usize,
}

impl Queues {
    fn has(&self, key: &Key) -> bool {
        self.by_key.lock().contains_key(key)
    }

    fn join(&self, key: &Key) -> Member<'_> {
        let mut by_key = self.by_key.lock();
        let new = || Queue { turn: Arc::new(Semaphore::new(1)), members: 0 };
        let queue = by_key.entry(key.clone()).or_insert_with(new);
        queue.members += 1;
        Member { queues: self, key: key.clone(), turn: Arc::clone(&queue.turn) }
    }
}

/// Somebody in a queue; leaves it when dropped.
#[derive(Debug)]
struct Member<'a> {
    queues: &'a Queues,
    key: Key,
    turn: Arc<Semaphore>,
}

impl<'a> Member<'a> {
    /// Waits until it is this member's turn.
    async fn turn(self) -> Turn<'a> {
        let permit = Arc::clone(&self.turn).acquire_owned().await.expect("nobody closes it");
        Turn { _permit: permit, _member: self }
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        let mut by_key = self.queues.by_key.lock();
        let queue = by_key.get_mut(&self.key).expect("a queue is there while it has members");
        queue.members -= 1;
        if queue.members == 0 {
            by_key.remove(&self.key);
        }
    }
}

/// The turn, which passes on to the next member when it is dropped.
#[derive(Debug)]
struct Turn<'a> {
    // Given back before its member leaves.
    _permit: OwnedSemaphorePermit,
    _member: Member<'a>,
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use futures::FutureExt;
    use futures::future::{BoxFuture, join_all};
    use http::{Request, StatusCode};
    use http_body_util::Full;
    use jiff::Timestamp;
    use serde_json::{Value, json};
    use tower::ServiceExt;

    use super::*;
    use crate::resource::Registry;
    use crate::storage::{
        CommitError, Found, Freshness, Limits, ListQuery, Memory, ReadError, Revision, Scan, Snapshot, Stats,
        Storage, Watch,
    };
    use crate::{ApiServer, User};

    /// How long a commit takes.
    const COMMIT: Duration = Duration::from_millis(1);
    /// More often than anybody should have to try.
    const OFTEN: usize = 30;
    const MAP: &str = "/api/v1/namespaces/default/configmaps/shared";

    /// A store whose commits take time, so that writers lose.
    struct Slow {
        memory: Memory,
        /// How many commits were tried.
        commits: Arc<AtomicUsize>,
        beaten: Arc<Beaten>,
    }

    /// How often somebody else still writes first, by collection.
    type Beaten = Mutex<BTreeMap<Arc<str>, usize>>;

    impl Slow {
        fn is_beaten(&self, key: &Key) -> bool {
            let mut beaten = self.beaten.lock();
            let Some(left) = beaten.get_mut(&key.collection).filter(|left| **left > 0) else { return false };
            *left -= 1;
            true
        }
    }

    impl Storage for Slow {
        fn get<'a>(&'a self, key: &'a Key, fresh: Freshness) -> BoxFuture<'a, Result<Found, ReadError>> {
            self.memory.get(key, fresh)
        }
        fn scan<'a>(&'a self, query: &'a ListQuery) -> BoxFuture<'a, Result<Box<dyn Scan>, ReadError>> {
            self.memory.scan(query)
        }
        fn reached(&self, revision: Revision) -> BoxFuture<'_, ()> {
            self.memory.reached(revision)
        }
        fn commit(&self, change: Change) -> BoxFuture<'_, Result<Arc<Record>, CommitError>> {
            async move {
                self.commits.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(COMMIT).await;
                if let Expect::Revision(_) = change.expect
                    && self.is_beaten(&change.key)
                    && let Ok(Found { record: Some(record) }) =
                        self.memory.get(&change.key, Freshness::Latest).await
                {
                    let action = Action::Put { value: record.value.clone(), ttl: None };
                    self.memory.commit(Change { action, ..change.clone() }).await?;
                }
                self.memory.commit(change).await
            }
            .boxed()
        }
        fn watch(&self, collection: &Arc<str>, after: Revision) -> Result<Watch, ReadError> {
            self.memory.watch(collection, after)
        }
        fn revision(&self) -> Revision {
            self.memory.revision()
        }
        fn expire(&self, now: Timestamp) -> BoxFuture<'_, usize> {
            self.memory.expire(now)
        }
        fn compact(&self, up_to: Revision) {
            self.memory.compact(up_to);
        }
        fn age(&self, up_to: Revision) {
            self.memory.age(up_to);
        }
        fn stats(&self) -> Stats {
            self.memory.stats()
        }
        fn snapshot(&self) -> Snapshot {
            self.memory.snapshot()
        }
    }

    struct Fixture {
        server: ApiServer,
        commits: Arc<AtomicUsize>,
        beaten: Arc<Beaten>,
    }

    impl Fixture {
        /// Somebody else is faster so often from now on.
        fn beat(&self, (group, plural): (&str, &str), often: usize) {
            let resource = Registry::built_in().expect(group, "v1", plural);
            self.beaten.lock().insert(Arc::clone(resource.collection()), often);
        }
    }

    async fn fixture() -> Fixture {
        let commits = Arc::new(AtomicUsize::new(0));
        let beaten = Arc::new(Beaten::default());
        let storage = Slow {
            memory: Memory::new(Limits::default()),
            commits: Arc::clone(&commits),
            beaten: Arc::clone(&beaten),
        };
        let server = ApiServer::builder().env(Env::seeded(1)).start(Box::new(storage)).await.unwrap();
        let shared = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}});
        let path = MAP.strip_suffix("/shared").unwrap();
        assert_eq!(send(&server, "POST", path, "application/json", &shared).await, 201);
        commits.store(0, Ordering::Relaxed);
        Fixture { server, commits, beaten }
    }

    async fn send(server: &ApiServer, method: &str, path: &str, media: &str, body: &Value) -> StatusCode {
        let request = Request::builder().method(method).uri(path).header("content-type", media);
        let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
        server.as_user(User::admin()).oneshot(request).await.unwrap().status()
    }

    async fn patch(server: &ApiServer, path: &str, body: &Value) -> StatusCode {
        send(server, "PATCH", path, "application/merge-patch+json", body).await
    }

    #[tokio::test(start_paused = true)]
    async fn many_writers_of_one_record_all_get_through_with_little_more_work_than_one_after_another() {
        const WRITERS: usize = 24;
        const ROUNDS: usize = 40;
        let Fixture { server, commits, .. } = fixture().await;
        let start = Instant::now();
        let slowest = join_all((0..WRITERS).map(async |writer| {
            let mut slowest = Duration::ZERO;
            for round in 0..ROUNDS {
                let sent = Instant::now();
                let body = json!({"data": {format!("writer-{writer}"): round.to_string()}});
                assert_eq!(patch(&server, MAP, &body).await, 200);
                slowest = slowest.max(sent.elapsed());
            }
            slowest
        }))
        .await
        .into_iter()
        .max()
        .unwrap();
        let all = u32::try_from(WRITERS * ROUNDS).unwrap();
        let tried = commits.load(Ordering::Relaxed);
        assert!(tried <= WRITERS * ROUNDS + 2 * WRITERS, "{tried} commits were tried");
        assert!(start.elapsed() <= COMMIT.saturating_mul(all + 2 * 24), "it took {:?}", start.elapsed());
        assert!(slowest <= COMMIT.saturating_mul(3 * 24), "somebody waited for {slowest:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_always_loses_ends_with_its_time() {
        let fixture = fixture().await;
        fixture.beat(("", "configmaps"), usize::MAX);
        let server = &fixture.server;
        for (method, media) in [
            ("PATCH", "application/merge-patch+json"),
            ("PUT", "application/json"),
            ("DELETE", "application/json"),
        ] {
            let start = Instant::now();
            let body = match method {
                "DELETE" => json!({}),
                _ => json!({"kind": "ConfigMap", "metadata": {"name": "shared"}, "data": {"a": "b"}}),
            };
            let code = send(server, method, &format!("{MAP}?timeout=2s"), media, &body).await;
            assert_eq!((code.as_u16(), start.elapsed().as_secs()), (504, 2), "{method}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_patch_and_a_delete_get_through_when_others_are_faster_for_a_while() {
        let fixture = fixture().await;
        let (server, json) = (&fixture.server, "application/json");
        fixture.beat(("", "configmaps"), OFTEN);
        assert_eq!(patch(server, MAP, &json!({"data": {"a": "b"}})).await, 200);
        fixture.beat(("", "configmaps"), OFTEN);
        assert_eq!(send(server, "DELETE", MAP, json, &json!({})).await, 200);
    }

    #[tokio::test(start_paused = true)]
    async fn a_definition_is_established_and_goes_when_others_are_faster_for_a_while() {
        let fixture = fixture().await;
        let (server, json) = (&fixture.server, "application/json");
        fixture.beat(("apiextensions.k8s.io", "customresourcedefinitions"), OFTEN);
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let definition = json!({
            "metadata": {"name": "foos.example.com"},
            "spec": {
                "group": "example.com", "scope": "Cluster", "names": {"kind": "Foo", "plural": "foos"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}
                }]
            }
        });
        assert_eq!(send(server, "POST", definitions, json, &definition).await, 201);
        assert_eq!(send(server, "GET", "/apis/example.com/v1/foos", json, &Value::Null).await, 200);
        let service = "/apis/apiregistration.k8s.io/v1/apiservices/v1.example.com";
        assert_eq!(send(server, "GET", service, json, &Value::Null).await, 200);
        fixture.beat(("apiregistration.k8s.io", "apiservices"), OFTEN);
        let foos = format!("{definitions}/foos.example.com");
        assert_eq!(send(server, "DELETE", &foos, json, &json!({})).await, 200);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(send(server, "GET", service, json, &Value::Null).await, 404);
    }

    #[tokio::test(start_paused = true)]
    async fn an_aggregated_role_gets_its_rules_when_others_are_faster_for_a_while() {
        let fixture = fixture().await;
        let (server, json) = (&fixture.server, "application/json");
        let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
        let whole = json!({
            "metadata": {"name": "whole"}, "rules": [],
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"part-of": "whole"}}]}
        });
        assert_eq!(send(server, "POST", roles, json, &whole).await, 201);
        fixture.beat(("rbac.authorization.k8s.io", "clusterroles"), OFTEN);
        let part = json!({
            "metadata": {"name": "part", "labels": {"part-of": "whole"}},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
        });
        assert_eq!(send(server, "POST", roles, json, &part).await, 201);
        let key =
            Registry::built_in().expect("rbac.authorization.k8s.io", "v1", "clusterroles").key(None, "whole");
        let record = read(server.core(), &key).await.unwrap().unwrap();
        let whole: Value = serde_json::from_slice(&record.value).unwrap();
        assert_eq!(whole["rules"], part["rules"]);
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_end_by_themselves_when_nobody_waits_for_them() {
        let Fixture { server, .. } = fixture().await;
        let core = server.core();
        let key = Key { collection: "core/configmaps".into(), path: "default/shared".into() };
        let limit = Duration::from_secs(3);
        let mut attempts = Attempts::of_server(core, key.clone());
        attempts.deadline = Deadline::after(&core.env, limit);
        assert!(attempts.first().await.unwrap().is_some());
        assert!(attempts.next().await.unwrap().is_some());
        tokio::time::sleep(limit).await;
        assert_eq!(attempts.next().await.unwrap_err().code, 504);
        drop(attempts);
        assert!(!core.queues.has(&key), "whoever has gone is in no queue");
    }

    #[tokio::test(start_paused = true)]
    async fn somebody_who_never_gives_up_the_turn_does_not_keep_others_from_writing() {
        let Fixture { server, .. } = fixture().await;
        let core = server.core();
        let key = Key { collection: "core/configmaps".into(), path: "default/shared".into() };
        let mut stuck = Attempts::of_server(core, key);
        stuck.lost().await;
        let start = Instant::now();
        assert_eq!(patch(&server, MAP, &json!({"data": {"a": "b"}})).await, 200);
        let waited = start.elapsed();
        assert!((PATIENCE..PATIENCE.saturating_mul(2)).contains(&waited), "it took {waited:?}");
        // Whoever names a version has no time to lose.
        let start = Instant::now();
        let named =
            |version: u64| json!({"metadata": {"resourceVersion": version.to_string()}, "data": {"a": "c"}});
        let current = core.storage.revision();
        assert_eq!(patch(&server, MAP, &named(current - 1)).await, 409);
        assert_eq!(patch(&server, MAP, &named(current)).await, 200);
        assert_eq!(start.elapsed(), COMMIT);
    }
}
