//! How a reflector watches.

use std::time::Duration;

use setpoint::{Scope, SharedInformer};
use tokio::time::Instant;

use super::script::{Asked, Server, Watch, cached, object, server, settle, start, start_plain};

type Informer = SharedInformer<k8s_openapi::api::core::v1::ConfigMap>;

/// An informer whose cache is at version 10 with the object `a`, and its next watch request.
async fn at_watch() -> (Informer, Server, Asked) {
    let (client, mut server) = server();
    let informer = start_plain(client);
    server.next().await.list("10", &[object("a", 3)]);
    let asked = server.next().await;
    assert!(asked.is_watch());
    (informer, server, asked)
}

async fn watching() -> (Informer, Server, Watch) {
    let (informer, server, asked) = at_watch().await;
    (informer, server, asked.watch())
}

fn is_first_backoff(wait: Duration) -> bool {
    Duration::from_millis(800) <= wait && wait <= Duration::from_millis(1600)
}

#[tokio::test(start_paused = true)]
async fn a_watch_starts_at_the_version_of_the_list_and_asks_for_bookmarks() {
    let (_informer, _server, asked) = at_watch().await;
    assert_eq!(asked.path, "/api/v1/configmaps");
    assert_eq!(asked.param("resourceVersion"), Some("10"));
    assert_eq!(asked.param("allowWatchBookmarks"), Some("true"));
    assert_eq!(asked.headers["accept-encoding"], "identity");
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_asked_for_5_to_10_minutes_at_random() {
    let (_informer, mut server, mut asked) = at_watch().await;
    let mut timeouts = Vec::new();
    for version in 11..31 {
        timeouts.push(asked.param("timeoutSeconds").unwrap().parse::<u64>().unwrap());
        let watch = asked.watch();
        watch.bookmark(&version.to_string());
        watch.close();
        asked = server.next().await;
    }
    assert!(timeouts.iter().all(|timeout| (300..=600).contains(timeout)), "{timeouts:?}");
    timeouts.sort_unstable();
    timeouts.dedup();
    assert!(timeouts.len() > 10, "{timeouts:?}");
}

#[tokio::test(start_paused = true)]
async fn every_event_and_bookmark_advances_the_version() {
    let (informer, mut server, watch) = watching().await;
    for (kind, version) in [("ADDED", 11), ("MODIFIED", 12), ("DELETED", 13)] {
        watch.event(kind, &object("b", version));
        settle().await;
        assert_eq!(informer.watermark(&Scope::Cluster), Some(version.to_string().as_str().into()));
    }
    watch.bookmark("20");
    settle().await;
    assert_eq!(informer.watermark(&Scope::Cluster), Some("20".into()));
    watch.close();
    assert_eq!(server.next().await.param("resourceVersion"), Some("20"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_as_too_old_at_its_start_leads_to_a_list_at_once() {
    let (informer, mut server, asked) = at_watch().await;
    let start = Instant::now();
    asked.fail(410, "Expired", "too old resource version: 10 (100)");
    let asked = server.next().await;
    assert_eq!((asked.is_watch(), asked.at), (false, start));
    asked.list("100", &[object("b", 50)]);
    assert_eq!(server.next().await.param("resourceVersion"), Some("100"));
    assert_eq!(cached(&informer), ["b@50"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_says_too_old_in_the_stream_leads_to_a_list_at_once() {
    let (_informer, mut server, watch) = watching().await;
    let start = Instant::now();
    watch.error(410, "Expired", "too old resource version");
    let asked = server.next().await;
    assert_eq!((asked.is_watch(), asked.at), (false, start));
}

#[tokio::test(start_paused = true)]
async fn too_many_requests_at_the_start_of_a_watch_wait_as_asked_and_watch_again() {
    let (_informer, mut server, asked) = at_watch().await;
    let start = Instant::now();
    asked.answer(429, &[("retry-after", "7")], "slow down");
    let asked = server.next().await;
    assert!(asked.is_watch());
    assert_eq!(asked.at - start, Duration::from_secs(7));
}

#[tokio::test(start_paused = true)]
async fn too_many_requests_in_the_stream_back_off_and_watch_again() {
    let (_informer, mut server, watch) = watching().await;
    let start = Instant::now();
    watch.error(429, "TooManyRequests", "slow down");
    let asked = server.next().await;
    assert!(asked.is_watch() && is_first_backoff(asked.at - start));
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_backs_off_longer_and_longer_and_watches_again() {
    let (informer, mut server, mut asked) = at_watch().await;
    let mut bound = Duration::from_millis(800);
    for _ in 0..8 {
        let start = Instant::now();
        asked.refuse();
        asked = server.next().await;
        let wait = asked.at - start;
        assert!(asked.is_watch() && bound <= wait && wait <= bound * 2, "{wait:?}");
        bound = (bound * 2).min(Duration::from_secs(30));
    }
    assert_eq!(cached(&informer), ["a@3"]);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_breaks_backs_off_and_watches_again_from_where_it_was() {
    let (_informer, mut server, watch) = watching().await;
    watch.event("ADDED", &object("b", 11));
    let start = Instant::now();
    watch.reset();
    let asked = server.next().await;
    assert!(is_first_backoff(asked.at - start));
    assert_eq!((asked.is_watch(), asked.param("resourceVersion")), (true, Some("11")));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_in_good_order_is_made_again_at_once() {
    let (_informer, mut server, watch) = watching().await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    let start = Instant::now();
    watch.close();
    let asked = server.next().await;
    assert_eq!((asked.is_watch(), asked.at), (true, start));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_within_a_second_without_an_event_counts_as_a_failure() {
    let (informer, mut server, watch) = watching().await;
    let start = Instant::now();
    watch.close();
    let asked = server.next().await;
    assert!(asked.is_watch() && is_first_backoff(asked.at - start));
    assert_eq!(informer.trouble(), ["configmaps: the watch ended at once without an event"]);
    let watch = asked.watch();
    watch.event("ADDED", &object("b", 11));
    watch.close();
    let start = Instant::now();
    assert_eq!(server.next().await.at, start);
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_dropped_and_made_again() {
    let (_informer, mut server, asked) = at_watch().await;
    let timeout: u64 = asked.param("timeoutSeconds").unwrap().parse().unwrap();
    let watch = asked.watch();
    tokio::time::sleep(Duration::from_secs(200)).await;
    watch.bookmark("11");
    let start = Instant::now();
    let asked = server.next().await;
    assert!(!watch.is_open());
    assert!(asked.at - start >= Duration::from_secs(timeout + 30));
    assert!(asked.at - start <= Duration::from_secs(timeout + 32));
    assert_eq!((asked.is_watch(), asked.param("resourceVersion")), (true, Some("11")));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_asked_again() {
    let (_informer, mut server, asked) = at_watch().await;
    let start = Instant::now();
    asked.hang();
    let asked = server.next().await;
    assert!(asked.is_watch());
    assert!(asked.at - start >= Duration::from_secs(65));
}

#[tokio::test(start_paused = true)]
async fn the_back_off_starts_again_after_two_healthy_minutes() {
    let (_informer, mut server, mut asked) = at_watch().await;
    for _ in 0..5 {
        asked.refuse();
        asked = server.next().await;
    }
    let watch = asked.watch();
    tokio::time::sleep(Duration::from_secs(121)).await;
    let start = Instant::now();
    watch.reset();
    assert!(is_first_backoff(server.next().await.at - start));
}

#[tokio::test(start_paused = true)]
async fn another_refusal_at_the_start_of_a_watch_leads_to_a_list_after_a_while() {
    let (_informer, mut server, asked) = at_watch().await;
    let start = Instant::now();
    asked.fail(400, "BadRequest", "invalid resource version");
    let asked = server.next().await;
    assert!(!asked.is_watch() && is_first_backoff(asked.at - start));
}

#[tokio::test(start_paused = true)]
async fn the_stream_of_a_streaming_list_is_made_again_as_a_plain_watch() {
    let (client, mut server) = server();
    let (_informer, _) = start(client);
    let watch = server.next().await.stream_list("10", &[]);
    tokio::time::sleep(Duration::from_secs(300)).await;
    watch.close();
    let asked = server.next().await;
    assert!(asked.is_watch() && !asked.is_streaming_list());
    assert_eq!(asked.param("resourceVersion"), Some("10"));
}
