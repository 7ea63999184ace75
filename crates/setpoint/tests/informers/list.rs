//! How a reflector lists.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use setpoint::{ReflectorConfig, Scope};
use tokio::time::Instant;

use super::script::{builder, cached, list, object, plain, server, settle, start, start_plain};

const AT_ONCE: Duration = Duration::ZERO;

#[tokio::test(start_paused = true)]
async fn the_first_list_is_a_streaming_one_without_a_version_and_goes_on_as_a_watch() {
    let (client, mut server) = server();
    let (informer, _) = start(client);
    let asked = server.next().await;
    assert!(asked.is_streaming_list());
    assert_eq!(asked.param("resourceVersion"), None);
    assert_eq!(asked.param("resourceVersionMatch"), Some("NotOlderThan"));
    assert_eq!(asked.param("allowWatchBookmarks"), Some("true"));
    let watch = asked.stream_list("10", &[object("a", 3), object("b", 7)]);
    informer.wait_for_sync().await;
    assert_eq!(cached(&informer), ["a@3", "b@7"]);
    assert_eq!(informer.watermark(&Scope::Cluster), Some("10".into()));
    watch.event("ADDED", &object("c", 11));
    settle().await;
    assert_eq!(cached(&informer), ["a@3", "b@7", "c@11"]);
    server.quiet_for(Duration::from_secs(60)).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_of_a_streaming_list_is_visible_before_its_end() {
    let (client, mut server) = server();
    let (informer, _) = start(client);
    let watch = server.next().await.watch();
    watch.event("ADDED", &object("a", 3));
    watch.event("ADDED", &object("b", 4));
    watch.event("MODIFIED", &object("a", 5));
    watch.event("DELETED", &object("b", 6));
    watch.bookmark("6");
    settle().await;
    assert!(!informer.has_synced() && informer.lister().is_empty());
    assert_eq!(informer.watermark(&Scope::Cluster), None);
    watch.end_of_list("6");
    settle().await;
    assert!(informer.has_synced());
    assert_eq!(cached(&informer), ["a@5"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_to_stream_is_listed_from_at_once() {
    let (client, mut server) = server();
    let (informer, _) = start(client);
    let start = Instant::now();
    server.next().await.fail(422, "Invalid", "sendInitialEvents is forbidden for watch");
    let asked = server.next().await;
    assert_eq!((asked.is_watch(), asked.at - start), (false, AT_ONCE));
    asked.list("10", &[object("a", 3)]);
    let watch = server.next().await;
    assert_eq!(watch.param("resourceVersion"), Some("10"));
    assert_eq!(watch.param("sendInitialEvents"), None);
    assert_eq!(cached(&informer), ["a@3"]);
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_does_not_end_is_given_up_for_a_list() {
    let (client, mut server) = server();
    let (informer, metrics) = start(client);
    let watch = server.next().await.watch();
    // A server that ignores sendInitialEvents.
    watch.event("ADDED", &object("a", 3));
    let asked = server.next().await;
    assert!(!asked.is_watch());
    assert!(!watch.is_open());
    asked.list("10", &[object("a", 3)]);
    informer.wait_for_sync().await;
    let labels = [("name", "configmaps"), ("namespace", "")];
    assert_eq!(metrics.value("informer_failures_total", &labels), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_sends_live_events_for_ever_is_given_up_too() {
    let (client, mut server) = server();
    let (_informer, _) = start(client);
    let watch = server.next().await.watch();
    for version in 1..100_000 {
        watch.event("MODIFIED", &object("a", version));
        tokio::time::sleep(Duration::from_secs(1)).await;
        if !watch.is_open() {
            break;
        }
    }
    assert!(!server.next().await.is_watch());
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_closes_early_is_given_up_for_a_list() {
    let (client, mut server) = server();
    let (_informer, _) = start(client);
    server.next().await.watch().close();
    assert!(!server.next().await.is_watch());
}

#[tokio::test(start_paused = true)]
async fn the_first_plain_list_comes_in_pages_of_500_without_a_version() {
    let (client, mut server) = server();
    let informer = start_plain(client);
    let asked = server.next().await;
    assert_eq!((asked.param("limit"), asked.param("resourceVersion")), (Some("500"), None));
    let mut page = list("10", &[object("a", 3)]);
    page["metadata"]["continue"] = json!("next page");
    asked.object(&page);
    let asked = server.next().await;
    assert_eq!((asked.param("limit"), asked.param("continue")), (Some("500"), Some("next page")));
    assert!(!informer.has_synced());
    asked.list("10", &[object("b", 4)]);
    assert_eq!(server.next().await.param("resourceVersion"), Some("10"));
    assert_eq!(cached(&informer), ["a@3", "b@4"]);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_gone_makes_it_one_whole_list() {
    let (client, mut server) = server();
    let informer = start_plain(client);
    let mut page = list("10", &[object("a", 3), object("gone", 4)]);
    page["metadata"]["continue"] = json!("x");
    server.next().await.object(&page);
    server.next().await.fail(410, "Expired", "the provided continue parameter is too old");
    let asked = server.next().await;
    assert_eq!((asked.param("limit"), asked.param("continue")), (None, None));
    asked.list("20", &[object("a", 3)]);
    server.next().await;
    assert_eq!(cached(&informer), ["a@3"]);
}

#[tokio::test(start_paused = true)]
async fn the_first_list_may_come_from_the_servers_cache_if_asked_for() {
    let (client, mut server) = server();
    let config = ReflectorConfig { list_from_cache: true, ..plain() };
    let informer = builder(client).config(config).build();
    informer.start();
    let asked = server.next().await;
    assert_eq!((asked.param("resourceVersion"), asked.param("limit")), (Some("0"), None));
}

#[tokio::test(start_paused = true)]
async fn a_relist_asks_for_at_least_the_last_version_and_no_pages() {
    let (client, mut server) = server();
    let _informer = start_plain(client);
    server.next().await.list("10", &[object("a", 3)]);
    let watch = server.next().await.watch();
    watch.event("MODIFIED", &object("a", 12));
    watch.error(410, "Expired", "too old resource version");
    let asked = server.next().await;
    assert_eq!(
        (asked.is_watch(), asked.param("resourceVersion"), asked.param("limit")),
        (false, Some("12"), None)
    );
}

#[tokio::test(start_paused = true)]
async fn a_streaming_relist_asks_for_at_least_the_last_version() {
    let (client, mut server) = server();
    let (_informer, _) = start(client);
    let watch = server.next().await.stream_list("10", &[]);
    watch.error(410, "Expired", "too old resource version");
    let asked = server.next().await;
    assert!(asked.is_streaming_list());
    assert_eq!(asked.param("resourceVersion"), Some("10"));
}

/// After a list that fails as told, the next one has no version and comes at once; the one after a success
/// has one again.
async fn check_list_without_version(fail: impl Fn(super::script::Asked)) {
    let (client, mut server) = server();
    let _informer = start_plain(client);
    server.next().await.list("10", &[]);
    server.next().await.watch().error(410, "Expired", "too old");
    let start = Instant::now();
    let asked = server.next().await;
    assert_eq!(asked.param("resourceVersion"), Some("10"));
    fail(asked);
    let asked = server.next().await;
    assert_eq!((asked.param("resourceVersion"), asked.param("limit")), (None, Some("500")));
    assert_eq!(asked.at - start, AT_ONCE);
    asked.list("20", &[]);
    server.next().await.watch().error(410, "Expired", "too old");
    assert_eq!(server.next().await.param("resourceVersion"), Some("20"));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_answered_expired_is_repeated_at_once_without_a_version() {
    check_list_without_version(|asked| asked.fail(410, "Expired", "too old")).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_version_is_too_large_is_repeated_at_once_without_a_version() {
    check_list_without_version(|asked| {
        let causes = json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]);
        let body = json!({"kind": "Status", "code": 504, "reason": "Timeout", "details": {"causes": causes}});
        asked.answer(504, &[], body.to_string());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_backs_off_and_honours_retry_after() {
    let (client, mut server) = server();
    let informer = start_plain(client);
    server.next().await.fail(500, "InternalError", "etcd is down");
    let failed = Instant::now();
    let asked = server.next().await;
    let wait = asked.at - failed;
    assert!(Duration::from_millis(800) <= wait && wait <= Duration::from_millis(1600), "{wait:?}");
    assert_eq!(informer.trouble(), ["configmaps: the server answered 500 InternalError: etcd is down"]);
    asked.answer(429, &[("retry-after", "20")], "slow down");
    let failed = Instant::now();
    let asked = server.next().await;
    assert!(asked.at - failed >= Duration::from_secs(20));
    asked.list("1", &[]);
    informer.wait_for_sync().await;
    assert!(informer.trouble().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_relist_keeps_the_objects_that_did_not_change() {
    let (client, mut server) = server();
    let informer = start_plain(client);
    server.next().await.list("10", &[object("same", 1), object("changed", 2), object("gone", 3)]);
    let watch = server.next().await.watch();
    let lister = informer.lister();
    let get = |name: &str| lister.namespace("default").get(name);
    let (same, changed) = (get("same").unwrap(), get("changed").unwrap());
    watch.error(410, "Expired", "too old");
    server.next().await.list("20", &[object("same", 1), object("changed", 12)]);
    server.next().await;
    assert!(Arc::ptr_eq(&same, &get("same").unwrap()));
    assert!(!Arc::ptr_eq(&changed, &get("changed").unwrap()));
    assert!(get("gone").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_large_list_in_small_chunks_is_decoded_in_order() {
    let (client, mut server) = server();
    let (informer, _) = start(client);
    let watch = server.next().await.watch();
    let padding = "x".repeat(500);
    for n in 0..3000 {
        let mut item = object(&format!("o{n:05}"), n + 1);
        item["data"] = json!({"padding": padding});
        watch.event("ADDED", &item);
    }
    watch.end_of_list("5000");
    for n in 0..3000 {
        watch.event("MODIFIED", &object(&format!("o{n:05}"), 5001 + n));
    }
    informer.wait_for_version(&Scope::Cluster, &"8000".into()).await;
    assert_eq!(informer.lister().len(), 3000);
    assert_eq!(cached(&informer)[2999], "o02999@8000");
}
