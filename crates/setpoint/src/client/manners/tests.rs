use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, EvictParams, ListParams, PostParams, WatchParams};
use setpoint_sim::{Match, Refusal, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};

use super::*;
use crate::ClientConfig;

const SECOND: Duration = Duration::from_secs(1);

fn asked(seconds: u64) -> Refusal {
    Refusal::TooManyRequests { retry_after: Duration::from_secs(seconds) }
}

fn maps(world: &World) -> Api<ConfigMap> {
    Api::default_namespaced(Manners::new(world.env().clone()).around(world.client()))
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(serde_json::json!({"metadata": {"name": name}, "data": {"k": "v"}})).unwrap()
}

/// The code of a refusal, and how many seconds it took.
fn code<T: std::fmt::Debug>(answer: Result<T, kube::Error>) -> u16 {
    match answer.unwrap_err() {
        kube::Error::Api(status) => status.code,
        error => panic!("{error}"),
    }
}

#[test]
fn a_server_that_asks_to_wait_is_left_alone_for_so_long() {
    World::run(1, async |world| {
        let maps = maps(&world);
        world.faults().on(Match::any()).refuse(asked(3)).times(2);
        // A write too, with its body.
        let made = maps.create(&PostParams::default(), &map("a")).await.unwrap();
        assert_eq!(made.data.unwrap()["k"], "v");
        assert_eq!(world.now(), 6 * SECOND);
        world.faults().on(Match::any()).refuse(asked(1));
        maps.delete("a", &DeleteParams::default()).await.unwrap();
        world.faults().on(Match::any()).refuse(asked(2));
        maps.watch(&WatchParams::default(), "0").await.map(drop).unwrap();
        assert_eq!(world.now(), 9 * SECOND);
    });
}

#[test]
fn ten_tries_again_are_enough() {
    World::run(1, async |world| {
        let rule = world.faults().on(Match::any()).refuse(asked(1)).always();
        assert_eq!(code(maps(&world).get("a").await), 429);
        assert_eq!((rule.fired(), world.now()), (11, 10 * SECOND));
        let never = Manners::new(world.env().clone()).retries(0).around(world.client());
        assert_eq!(code(Api::<ConfigMap>::default_namespaced(never).get("a").await), 429);
        assert_eq!(rule.fired(), 12);
    });
}

#[test]
fn a_caller_that_gives_up_ends_the_waiting() {
    World::run(1, async |world| {
        let rule = world.faults().on(Match::any()).refuse(asked(3)).always();
        assert!(timeout(4 * SECOND, maps(&world).get("a")).await.is_err());
        tokio::time::sleep(60 * SECOND).await;
        assert_eq!(rule.fired(), 2);
    });
}

#[test]
fn who_asks_for_too_much_time_or_for_none_is_not_tried_again() {
    World::run(1, async |world| {
        let maps = maps(&world);
        for refusal in [asked(61), Refusal::ServiceUnavailable, Refusal::InternalError, Refusal::Conflict] {
            let rule = world.faults().on(Match::any()).refuse(refusal);
            assert_eq!(code(maps.get("a").await), refusal.code());
            assert_eq!((rule.fired(), world.now()), (1, Duration::ZERO));
        }
    });
}

/// A budget that allows no disruption answers 429 as well: that is for the caller to see.
#[test]
fn a_refused_eviction_is_the_callers() {
    World::run(1, async |world| {
        let rule = world.faults().on(Match::any()).answer(429, "application/json", "{}").always();
        let pods: Api<Pod> =
            Api::default_namespaced(Manners::new(world.env().clone()).around(world.client()));
        assert!(pods.evict("a", &EvictParams::default()).await.is_err());
        assert_eq!(rule.fired(), 1);
    });
}

#[test]
fn reads_are_tried_again_when_the_connection_fails_and_writes_are_not() {
    World::run(1, async |world| {
        let maps = maps(&world);
        maps.create(&PostParams::default(), &map("a")).await.unwrap();
        world.faults().on(Match::any()).refuse_connection().times(2);
        maps.get("a").await.unwrap();
        world.faults().on(Match::any()).lose_response();
        assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 1);
        // 0.1 + 0.2 + 0.1 seconds, and up to twice as much.
        assert!(world.now() >= SECOND * 2 / 5 && world.now() <= SECOND * 4 / 5, "{:?}", world.now());
        for write in 0..2 {
            let rule = world.faults().on(Match::writes()).lose_response();
            let answer = match write {
                0 => maps.create(&PostParams::default(), &map("b")).await.map(drop),
                _ => maps.delete("a", &DeleteParams::default()).await.map(drop),
            };
            assert!(answer.is_err());
            assert_eq!(rule.fired(), 1);
        }
        let rule = world.faults().on(Match::watch("configmaps")).refuse_connection();
        assert!(maps.watch(&WatchParams::default(), "0").await.is_err());
        assert_eq!(rule.fired(), 1);
    });
}

#[test]
fn a_server_that_is_gone_is_an_error_soon() {
    World::run(1, async |world| {
        world.stop_server();
        assert!(maps(&world).get("a").await.is_err());
        assert!(world.now() >= SECOND * 3 / 2 && world.now() <= 3 * SECOND, "{:?}", world.now());
    });
}

#[test]
fn requests_stand_in_line_for_the_limit() {
    World::run(1, async |world| {
        let metrics = Metrics::default();
        let manners = Manners::new(world.env().clone()).rate_limit(10.0, 5).metrics(&metrics);
        // Two clients share it.
        let clients = [manners.around(world.client()), manners.clone().around(world.client())];
        let get = |n: usize| {
            let maps: Api<ConfigMap> = Api::default_namespaced(clients[n % 2].clone());
            let world = world.clone();
            async move {
                maps.get_opt("a").await.unwrap();
                world.now().as_millis()
            }
        };
        let times = futures::future::join_all((0..10).map(get)).await;
        assert_eq!(times, [0, 0, 0, 0, 0, 100, 200, 300, 400, 500]);
        assert_eq!(metrics.value("rest_client_rate_limiter_duration_seconds", &[]), Some(10));
        // Leases do not wait, and the bucket fills up to its burst, not more.
        let leases: Api<Lease> = Api::default_namespaced(clients[0].clone());
        leases.get_opt("a").await.unwrap();
        assert_eq!(world.now().as_millis(), 500);
        tokio::time::sleep(60 * SECOND).await;
        let times = futures::future::join_all((0..7).map(get)).await;
        assert_eq!(times.iter().map(|at| at - 60_500).collect::<Vec<_>>(), [0, 0, 0, 0, 0, 100, 200]);
    });
}

#[test]
fn who_leaves_the_line_takes_nothing() {
    World::run(1, async |world| {
        let bucket = Bucket::new(1.0, 1).unwrap();
        bucket.take(world.env()).await;
        let leaving = (0..100).map(|_| timeout(SECOND / 2, bucket.take(world.env())));
        assert!(futures::future::join_all(leaving).await.iter().all(Result::is_err));
        let started = Instant::now();
        bucket.take(world.env()).await;
        assert_eq!(started.elapsed(), SECOND / 2);
    });
}

#[test]
fn no_limit_is_none() {
    for qps in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
        assert!(Bucket::new(qps, 1).is_none());
    }
    assert!(Bucket::new(f64::INFINITY, 0).is_some());
    assert!(Bucket::new(f64::MIN_POSITIVE, u32::MAX).is_some());
}

#[test]
fn tries_are_counted() {
    World::run(1, async |world| {
        let metrics = Metrics::default();
        let client = Manners::new(world.env().clone()).metrics(&metrics).around(world.client());
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        world.faults().on(Match::any()).refuse(asked(1)).times(3);
        maps.get_opt("a").await.unwrap();
        world.faults().on(Match::any()).refuse_connection();
        maps.get_opt("a").await.unwrap();
        let labels = |code, verb| [("code", code), (verb, "GET"), ("host", "")];
        let count = |code| metrics.value("rest_client_request_retries_total", &labels(code, "verb"));
        assert_eq!((count("429"), count("<error>")), (Some(3), Some(1)));
        let count = |code| metrics.value("rest_client_requests_total", &labels(code, "method"));
        assert_eq!((count("429"), count("<error>"), count("404")), (Some(3), Some(1), Some(2)));
        let durations = [("verb", "GET"), ("host", "")];
        assert_eq!(metrics.value("rest_client_request_duration_seconds", &durations), Some(6));
    });
}

/// A server on a socket that gives one of these answers to each connection; an empty one breaks it.
async fn socket(answers: &'static [&'static str]) -> (ClientConfig, tokio::task::JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = ClientConfig::new().master(format!("http://{}", listener.local_addr().unwrap()));
    #[expect(clippy::disallowed_methods, reason = "a real server, outside of any world")]
    let server = tokio::spawn(async move {
        let mut served = 0;
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            served += 1;
            if !answer.is_empty() {
                let mut request = [0; 4096];
                assert!(stream.read(&mut request).await.unwrap() > 0);
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        }
        served
    });
    (config, server)
}

const VERSION: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: 144\r\n\r\n\
{\"major\":\"1\",\"minor\":\"37\",\"gitVersion\":\"v1\",\"gitCommit\":\"\",\"gitTreeState\":\"\",\"buildDate\":\"\",\"goVersion\":\"\",\"compiler\":\"\",\"platform\":\"linux/x64\"}";
const TOO_MANY: &str = "HTTP/1.1 429 Too Many Requests\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
const WAIT: &str =
    "HTTP/1.1 503 Service Unavailable\r\nretry-after: 0\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";

#[tokio::test]
async fn a_connection_that_is_reset_is_made_again() {
    let (config, server) = socket(&["", "", WAIT, VERSION]).await;
    let client = config.connect().await.unwrap();
    assert_eq!(client.apiserver_version().await.unwrap().major, "1");
    assert_eq!(server.await.unwrap(), 4);
}

/// Not by kube's own retries either.
#[tokio::test]
async fn an_answer_without_a_time_to_wait_is_the_callers_on_a_real_connection() {
    let (config, server) = socket(&[TOO_MANY]).await;
    let client = config.connect().await.unwrap();
    assert!(client.apiserver_version().await.is_err());
    assert_eq!(server.await.unwrap(), 1);
}
