//! `/healthz` and `/readyz`: what the manager checks, and what a program adds.

use std::fmt::{Display, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, join_all};
use http::{Response, StatusCode, Uri, header};
use http_body_util::Full;

use crate::SharedInformerFactory;
use crate::leader_election::LeaderElection;

/// A leader that is this far past its lease and has not noticed is stuck, and should be restarted.
const LEASE_TOLERANCE: Duration = Duration::from_secs(20);
/// A check that takes longer has failed: kubelet waits for one second unless told otherwise.
const CHECK_TIME: Duration = Duration::from_secs(5);

type Check = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Checks by name, in the order in which they were added.
#[derive(Clone, Default)]
pub(super) struct Checks(Vec<(String, Check)>);

impl Checks {
    pub(super) fn add<Fut, E>(
        &mut self,
        name: impl Into<String>,
        check: impl Fn() -> Fut + Send + Sync + 'static,
    ) where
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Display,
    {
        let check: Check = Arc::new(move || {
            let checked = check();
            Box::pin(async move { checked.await.map_err(|error| error.to_string()) })
        });
        self.0.push((name.into(), check));
    }

    /// The answer to `/PAGE`, `/PAGE?verbose`, `/PAGE?exclude=NAME` or `/PAGE/NAME`. Everybody may ask, so what is wrong, which
    /// may name addresses and credentials of others, is logged and not told.
    async fn answer(&self, page: &str, rest: &str, query: &str, failed: StatusCode) -> Response<Full<Bytes>> {
        let words: Vec<&str> = query.split('&').collect();
        let is_left_out = |name: &str| words.iter().any(|word| word.strip_prefix("exclude=") == Some(name));
        let is_asked = |name: &str| if rest.is_empty() { !is_left_out(name) } else { name == rest };
        let asked: Vec<_> = self.0.iter().filter(|(name, _)| is_asked(name)).collect();
        if asked.is_empty() && !rest.is_empty() {
            return text(StatusCode::NOT_FOUND, format!("there is no check {rest:?}\n"));
        }
        let outcomes = join_all(asked.iter().map(|(_, check)| run(check))).await;
        let mut told = String::new();
        for ((name, _), outcome) in asked.iter().zip(&outcomes) {
            // Writing to a string does not fail.
            let _ = match outcome {
                Ok(()) => writeln!(told, "[+]{name} ok"),
                Err(why) => {
                    tracing::warn!(check = name, %why, "a health check failed");
                    writeln!(told, "[-]{name} failed: reason withheld")
                }
            };
        }
        let is_verbose = words.iter().any(|word| matches!(*word, "verbose" | "verbose=true" | "verbose=1"));
        match outcomes.iter().all(Result::is_ok) {
            true if is_verbose => text(StatusCode::OK, format!("{told}{page} check passed\n")),
            true => text(StatusCode::OK, "ok"),
            false => text(failed, format!("{told}{page} check failed\n")),
        }
    }
}

async fn run(check: &Check) -> Result<(), String> {
    match tokio::time::timeout(CHECK_TIME, check()).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("no answer within {CHECK_TIME:?}")),
    }
}

/// What the probes of a kubelet ask.
#[derive(Clone, Default)]
pub(super) struct Health {
    pub(super) live: Checks,
    pub(super) ready: Checks,
}

impl Health {
    /// Adds what a manager checks itself.
    pub(super) fn of_manager(
        &mut self,
        is_ready: Arc<AtomicBool>,
        informers: SharedInformerFactory,
        election: Option<Arc<LeaderElection>>,
    ) {
        if let Some(election) = election {
            self.live
                .add("leader-election", move || std::future::ready(election.check_health(LEASE_TOLERANCE)));
        }
        self.ready.add("caches", move || {
            let unhealthy = informers.unhealthy();
            std::future::ready(if !is_ready.load(Ordering::Relaxed) {
                Err("the caches have not synced yet".to_owned())
            } else if unhealthy.is_empty() {
                Ok(())
            } else {
                Err(format!("these caches are restarting after a panic: {}", unhealthy.join(", ")))
            })
        });
    }

    /// The answer to a request; none if it is about something else.
    pub(super) async fn answer(&self, uri: &Uri) -> Option<Response<Full<Bytes>>> {
        let path = uri.path().trim_start_matches('/').trim_end_matches('/');
        let (page, rest) = path.split_once('/').unwrap_or((path, ""));
        let query = uri.query().unwrap_or_default();
        match page {
            "healthz" | "livez" => {
                Some(self.live.answer(page, rest, query, StatusCode::INTERNAL_SERVER_ERROR).await)
            }
            "readyz" => Some(self.ready.answer(page, rest, query, StatusCode::SERVICE_UNAVAILABLE).await),
            _ => None,
        }
    }
}

pub(super) fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = code;
    let plain = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use http_body_util::BodyExt;
    use k8s_openapi::api::core::v1::ConfigMap;
    use setpoint_env::Env;

    use super::*;
    use crate::store::testing::Trapped;
    use crate::{InformerBuilder, MapStore};

    async fn get(health: &Health, path: &str) -> (u16, String) {
        let answer = health.answer(&path.parse().unwrap()).await.unwrap();
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn checks_have_names_and_one_that_hangs_has_failed() {
        let mut health = Health::default();
        health.live.add("disk", || std::future::ready(Ok::<_, String>(())));
        health.ready.add("disk", || std::future::ready(Ok::<_, String>(())));
        health.ready.add("upstream", || async {
            std::future::pending::<()>().await;
            Ok::<_, String>(())
        });
        let ok = |text: &str| (200, text.to_owned());
        assert_eq!(get(&health, "/healthz").await, ok("ok"));
        assert_eq!(get(&health, "/livez?verbose").await, ok("[+]disk ok\nlivez check passed\n"));
        assert_eq!(get(&health, "/readyz/disk").await, ok("ok"));
        assert_eq!(get(&health, "/readyz?exclude=upstream").await, ok("ok"));
        let failed = "[+]disk ok\n[-]upstream failed: reason withheld\nreadyz check failed\n";
        assert_eq!(get(&health, "/readyz").await, (503, failed.to_owned()));
        assert_eq!(get(&health, "/readyz/other").await.0, 404);
    }

    #[tokio::test(start_paused = true)]
    async fn readyz_shows_a_cache_that_restarts_after_a_panic() {
        let client = setpoint_apiserver::ApiServer::builder().build().client();
        let informers = SharedInformerFactory::new(client.clone()).env(Env::seeded(1));
        let trap = Arc::new(AtomicUsize::new(0));
        let store = Trapped(MapStore::default(), trap.clone());
        let maps = informers.informer_with(|builder: InformerBuilder<ConfigMap>| builder.store(store));
        let mut health = Health::default();
        health.of_manager(Arc::new(AtomicBool::new(true)), informers.clone(), None);
        informers.start();
        maps.wait_for_sync().await;
        assert_eq!(get(&health, "/readyz").await.0, 200);
        trap.store(1, Ordering::Relaxed);
        let map: ConfigMap = serde_json::from_str(r#"{"metadata": {"name": "a"}}"#).unwrap();
        kube::Api::namespaced(client, "default")
            .create(&kube::api::PostParams::default(), &map)
            .await
            .unwrap();
        while maps.is_healthy() {
            tokio::task::yield_now().await;
        }
        assert_eq!(informers.unhealthy(), ["configmaps"]);
        let (code, told) = get(&health, "/readyz").await;
        assert!(code == 503 && told.contains("[-]caches failed: reason withheld"), "{told}");
        maps.wait_for_sync().await;
        assert_eq!(get(&health, "/readyz").await.0, 200);
        assert!(maps.lister().namespace("default").get("a").is_some());
    }
}
