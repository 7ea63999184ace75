//! Servers that send what they should not: reported, counted, retried; the last good cache stays.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;
use setpoint::{Metrics, ReflectorFailure, SharedInformer};

use super::script::{Asked, Server, builder, cached, json_server, list, object, plain, settle};

struct Bad {
    informer: SharedInformer<k8s_openapi::api::core::v1::ConfigMap>,
    server: Server,
    reports: Arc<Mutex<Vec<String>>>,
    metrics: Metrics,
}

impl Bad {
    /// An informer that has the object `a` and is about to list again.
    async fn at_relist() -> (Bad, Asked) {
        let (mut bad, asked) = Bad::at_watch().await;
        asked.watch().error(410, "Expired", "too old");
        let asked = bad.server.next().await;
        (bad, asked)
    }

    async fn at_watch() -> (Bad, Asked) {
        let (client, mut server) = json_server();
        let reports = Arc::new(Mutex::new(Vec::new()));
        let (told, metrics) = (reports.clone(), Metrics::default());
        let informer = builder(client).config(plain()).metrics(metrics.clone());
        let informer = informer.on_error(move |error| told.lock().push(error.to_string())).build();
        informer.start();
        server.next().await.list("10", &[object("a", 3)]);
        let asked = server.next().await;
        (Bad { informer, server, reports, metrics }, asked)
    }

    /// The failure is reported once, with these words, and the cache is as it was.
    fn check(&self, words: &[&str]) {
        let reports = self.reports.lock();
        assert_eq!(reports.len(), 1, "{reports:?}");
        for words in words {
            assert!(reports[0].contains(words), "{reports:?}");
        }
        assert!(reports[0].starts_with("configmaps: "), "{reports:?}");
        assert_eq!(cached(&self.informer), ["a@3"]);
    }

    fn counted(&self, name: &str) -> Option<u64> {
        self.metrics.value(name, &[("name", "configmaps"), ("namespace", "")])
    }
}

const HTML: &str = "<html><body>Please log in</body></html>";

/// A relist that is answered like this is reported in these words and tried again.
async fn check_list(answer: impl FnOnce(Asked), words: &[&str]) {
    let (mut bad, asked) = Bad::at_relist().await;
    answer(asked);
    let asked = bad.server.next().await;
    assert!(!asked.is_watch());
    bad.check(words);
    assert_eq!(bad.counted("informer_failures_total"), Some(1));
    asked.list("30", &[object("b", 4)]);
    bad.server.next().await;
    assert_eq!(cached(&bad.informer), ["b@4"]);
    assert!(bad.informer.trouble().is_empty());
}

#[tokio::test(start_paused = true)]
async fn html_instead_of_a_list() {
    check_list(|asked| asked.answer(200, &[], HTML), &["not a list", "Please log in"]).await;
}

#[tokio::test(start_paused = true)]
async fn html_with_an_error_code() {
    check_list(|asked| asked.answer(502, &[], HTML), &["502", "Please log in"]).await;
}

#[tokio::test(start_paused = true)]
async fn half_a_list() {
    check_list(
        |asked| {
            let text = list("20", &[object("a", 3), object("c", 4)]).to_string();
            asked.answer(200, &[], &text[..text.len() - 20]);
        },
        &["in the middle of a list"],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_list_of_another_kind() {
    let mut body = list("20", &[]);
    body["kind"] = json!("SecretList");
    check_list(|asked| asked.object(&body), &["v1 SecretList", "v1 ConfigMapList"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_without_a_version() {
    let mut body = list("20", &[]);
    body["metadata"] = json!({});
    check_list(|asked| asked.object(&body), &["without a resourceVersion"]).await;
}

#[tokio::test(start_paused = true)]
async fn html_instead_of_a_watch() {
    let (mut bad, asked) = Bad::at_watch().await;
    asked.answer(200, &[], format!("{HTML}\n"));
    assert!(bad.server.next().await.is_watch());
    bad.check(&["not a watch event", "Please log in"]);
}

#[tokio::test(start_paused = true)]
async fn half_a_line() {
    let (mut bad, asked) = Bad::at_watch().await;
    asked.watch().raw(r#"{"type":"ADDED","object":{"metadata":{"name":"b""#);
    let asked = bad.server.next().await;
    assert_eq!(asked.param("resourceVersion"), Some("10"));
    bad.check(&["in the middle of a line"]);
}

#[tokio::test(start_paused = true)]
async fn a_line_that_is_no_event_does_not_cost_the_events_before_it() {
    let (mut bad, asked) = Bad::at_watch().await;
    let watch = asked.watch();
    watch.raw(format!("{}\nnot json\n", json!({"type": "ADDED", "object": object("b", 11)})));
    let asked = bad.server.next().await;
    assert_eq!((asked.is_watch(), asked.param("resourceVersion")), (true, Some("11")));
    assert_eq!(cached(&bad.informer), ["a@3", "b@11"]);
}

/// A watch event of an object like this is skipped, reported in these words and counted; the watch goes on.
async fn check_event(object_json: serde_json::Value, words: &[&str]) {
    let (bad, asked) = Bad::at_watch().await;
    let watch = asked.watch();
    watch.event("ADDED", &object_json);
    settle().await;
    bad.check(words);
    assert_eq!(bad.counted("informer_decode_errors_total"), Some(1));
    watch.event("ADDED", &object("b", 12));
    settle().await;
    assert_eq!(cached(&bad.informer), ["a@3", "b@12"]);
    assert!(watch.is_open());
}

#[tokio::test(start_paused = true)]
async fn an_event_of_another_kind() {
    let mut event = object("x", 11);
    event["kind"] = json!("Secret");
    check_event(event, &["skipped default/x", "Secret"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_object_does_not_decode() {
    let mut event = object("x", 11);
    event["data"] = json!([1, 2]);
    check_event(event, &["skipped default/x", "invalid type"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_object_has_no_name() {
    check_event(json!({"metadata": {"resourceVersion": "11"}}), &["skipped an object", "no name"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_of_an_object_that_does_not_decode_deletes_it_all_the_same() {
    let (bad, asked) = Bad::at_watch().await;
    let mut event = object("a", 11);
    event["data"] = json!(7);
    let watch = asked.watch();
    watch.event("DELETED", &event);
    settle().await;
    assert!(cached(&bad.informer).is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_item_of_a_list_that_does_not_decode_stays_as_it_was() {
    let (mut bad, asked) = Bad::at_relist().await;
    let mut broken = object("a", 15);
    broken["data"] = json!(7);
    asked.list("20", &[broken, object("b", 16)]);
    bad.server.next().await;
    assert_eq!(cached(&bad.informer), ["a@3", "b@16"]);
    assert_eq!(bad.counted("informer_decode_errors_total"), Some(1));
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_version_goes_back_leads_to_an_up_to_date_list() {
    let (mut bad, asked) = Bad::at_watch().await;
    let watch = asked.watch();
    watch.event("ADDED", &object("b", 5));
    let asked = bad.server.next().await;
    bad.check(&["went back from 10 to 5"]);
    assert_eq!((asked.is_watch(), asked.param("resourceVersion")), (false, None));
    // The server was restored from a backup: its newest state is older than what we saw.
    asked.list("6", &[object("b", 5)]);
    assert_eq!(bad.server.next().await.param("resourceVersion"), Some("6"));
    assert_eq!(cached(&bad.informer), ["b@5"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_version_goes_back_is_asked_for_again_up_to_date() {
    let (mut bad, asked) = Bad::at_relist().await;
    asked.list("4", &[]);
    let asked = bad.server.next().await;
    assert_eq!((asked.is_watch(), asked.param("resourceVersion")), (false, None));
    assert_eq!(cached(&bad.informer), ["a@3"]);
    asked.list("20", &[object("c", 15)]);
    assert_eq!(bad.server.next().await.param("resourceVersion"), Some("20"));
    assert_eq!(cached(&bad.informer), ["c@15"]);
}

#[test]
fn a_failure_says_what_to_do_about_it() {
    let failure = ReflectorFailure::WrongKind { expected: "v1 PodList".into(), found: "v1 NodeList".into() };
    assert!(failure.to_string().contains("check the resource"));
}
