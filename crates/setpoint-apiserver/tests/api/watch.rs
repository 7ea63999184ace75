use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Api, MAPS, PODS, labelled, map, pod, version};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_version_begins_with_what_is_there() {
    let api = Api::new();
    api.post(MAPS, &map("a", "x")).await.ok();
    for query in ["watch=true", "watch=1", "watch=true&resourceVersion=0"] {
        let mut watch = api.watch(&format!("{MAPS}?{query}")).await;
        assert_eq!(watch.line().await, "ADDED a", "{query}");
        watch.silent(MINUTE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_version_tells_what_came_after() {
    let api = Api::new();
    api.post(MAPS, &map("a", "x")).await.ok();
    let from = version(&api.get(MAPS).await.ok());
    api.merge(&format!("{MAPS}/a"), &json!({"data": {"key": "y"}})).await.ok();
    api.post(MAPS, &map("b", "x")).await.ok();
    api.delete(&format!("{MAPS}/a"), &Value::Null).await.ok();
    let mut watch = api.watch(&format!("{MAPS}?watch=true&resourceVersion={from}")).await;
    let mut versions = Vec::new();
    for expect in ["MODIFIED", "ADDED", "DELETED"] {
        let event = watch.next().await.unwrap();
        assert_eq!(event["type"], expect);
        assert_eq!(event["object"]["kind"], "ConfigMap", "objects in a watch say what they are");
        versions.push(version(&event["object"]));
    }
    assert!(versions.is_sorted() && versions[0] > from);
    watch.silent(MINUTE).await;
    api.post(MAPS, &map("c", "x")).await.ok();
    assert_eq!(watch.line().await, "ADDED c");
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_ends_with_a_bookmark_and_goes_on() {
    let api = Api::new();
    for name in ["a", "b"] {
        api.post(MAPS, &map(name, "x")).await.ok();
    }
    let path = format!(
        "{MAPS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let mut watch = api.watch(&path).await;
    assert_eq!(watch.line().await, "ADDED a");
    assert_eq!(watch.line().await, "ADDED b");
    let bookmark = watch.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["metadata"]["annotations"], json!({"k8s.io/initial-events-end": "true"}));
    assert_eq!(version(&bookmark["object"]), version(&api.get(MAPS).await.ok()));
    api.post(MAPS, &map("c", "x")).await.ok();
    assert_eq!(watch.line().await, "ADDED c");
}

#[tokio::test(start_paused = true)]
async fn an_empty_streaming_list_has_its_bookmark_too() {
    let api = Api::new();
    let path = "/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let bookmark = api.watch(path).await.next().await.unwrap();
    assert_eq!(bookmark["object"]["kind"], "Pod");
    assert_eq!(bookmark["type"], "BOOKMARK");
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_each_minute_and_move_on_with_the_server() {
    let api = Api::new();
    let mut watch = api.watch("/api/v1/pods?watch=true&resourceVersion=0&allowWatchBookmarks=true").await;
    let first = watch.next().await.unwrap();
    assert_eq!(first["type"], "BOOKMARK");
    api.post(MAPS, &map("a", "x")).await.ok();
    let second = watch.next().await.unwrap();
    assert!(version(&second["object"]) > version(&first["object"]), "past the changes of other kinds");
    let mut plain = api.watch("/api/v1/pods?watch=true&resourceVersion=0").await;
    plain.silent(5 * MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_enters_and_leaves_a_selection() {
    let api = Api::new();
    let mut watch = api.watch(&format!("{MAPS}?watch=true&labelSelector=app%3Dweb")).await;
    api.post(MAPS, &labelled("a", "db")).await.ok();
    let relabel = |app: &str| json!({"metadata": {"labels": {"app": app}}});
    let path = format!("{MAPS}/a");
    api.merge(&path, &relabel("web")).await.ok();
    assert_eq!(watch.line().await, "ADDED a");
    api.merge(&path, &json!({"data": {"k": "v"}})).await.ok();
    assert_eq!(watch.line().await, "MODIFIED a");
    let left = api.merge(&path, &relabel("db")).await.ok();
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    assert_eq!(event["object"]["metadata"]["labels"]["app"], "web", "as it was when it was last seen");
    assert_eq!(version(&event["object"]), version(&left), "at the version at which it left");
    api.delete(&path, &Value::Null).await.ok();
    watch.silent(MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_hears_of_the_pods_of_its_node_alone_and_how_far_the_server_is() {
    let api = Api::new();
    api.post(PODS, &pod("a")).await.ok();
    let from = version(&api.get(PODS).await.ok());
    let watch = |query: &str| {
        let path = format!("/api/v1/pods?watch=true&fieldSelector=spec.nodeName%3Dnode-1&{query}");
        let api = &api;
        async move { api.watch(&path).await }
    };
    let bind = async |name: &str, node: &str| {
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
        api.post(&format!("{PODS}/{name}/binding"), &binding).await.ok();
    };
    let mut early = watch(&format!("resourceVersion={from}&allowWatchBookmarks=true")).await;
    bind("a", "node-1").await;
    assert_eq!(early.line().await, "ADDED a");
    for number in 0..20 {
        api.post(PODS, &pod(&format!("b{number}"))).await.ok();
        bind(&format!("b{number}"), "node-2").await;
    }
    let newest = version(&api.get(PODS).await.ok());
    let bookmark = early.next().await.unwrap();
    assert_eq!((&bookmark["type"], version(&bookmark["object"])), (&json!("BOOKMARK"), newest));
    api.merge(&format!("{PODS}/a"), &json!({"metadata": {"labels": {"x": "y"}}})).await.ok();
    api.delete(&format!("{PODS}/a"), &json!({"gracePeriodSeconds": 0})).await.ok();
    // One that comes later, from a version of before, hears the same; so does one that the name leads to.
    let mut late = watch(&format!("resourceVersion={from}")).await;
    assert_eq!(late.line().await, "ADDED a");
    let by_name = format!("{PODS}?watch=true&fieldSelector=metadata.name%3Da&resourceVersion={from}");
    let mut named = api.watch(&by_name).await;
    assert_eq!(named.line().await, "MODIFIED a", "the binding");
    loop {
        let expected = named.line().await;
        assert_eq!([early.line().await, late.line().await], [expected.clone(), expected.clone()]);
        if expected == "DELETED a" {
            break;
        }
    }
    late.silent(MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn one_object_can_be_watched_by_name() {
    let api = Api::new();
    api.post(MAPS, &map("a", "x")).await.ok();
    api.post(MAPS, &map("ab", "x")).await.ok();
    for path in [
        format!("{MAPS}?watch=true&resourceVersion=0&fieldSelector=metadata.name%3Da"),
        "/api/v1/watch/namespaces/default/configmaps/a".to_owned(),
    ] {
        let mut watch = api.watch(&path).await;
        assert_eq!(watch.line().await, "ADDED a", "{path}");
        watch.silent(MINUTE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_old_watch_paths_work() {
    let api = Api::new();
    api.post(MAPS, &map("a", "x")).await.ok();
    for path in ["/api/v1/watch/configmaps", "/api/v1/watch/namespaces/default/configmaps"] {
        assert_eq!(api.watch(path).await.line().await, "ADDED a", "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_when_its_time_is_up() {
    let api = Api::new();
    let start = tokio::time::Instant::now();
    let mut watch = api.watch(&format!("{MAPS}?watch=true&timeoutSeconds=7")).await;
    assert_eq!(watch.next().await, None);
    assert_eq!(start.elapsed().as_secs(), 7);
    let mut watch = api.watch(&format!("{MAPS}?watch=true")).await;
    let start = tokio::time::Instant::now();
    assert_eq!(watch.next().await, None);
    assert!((30 * MINUTE..=61 * MINUTE).contains(&start.elapsed()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn history_that_is_gone_is_said_to_be_gone() {
    let api = Api::new();
    let from = version(&api.get(MAPS).await.ok());
    api.post(MAPS, &map("a", "x")).await.ok();
    api.server.compact();
    let expired = api.get(&format!("{MAPS}?watch=true&resourceVersion={from}")).await;
    assert_eq!((expired.code, expired.reason()), (410, "Expired"));
    let future = api.get(&format!("{MAPS}?watch=true&resourceVersion=99999")).await;
    assert_eq!(future.code, 504);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_falls_too_far_behind_is_told_so() {
    let server = setpoint_apiserver::ApiServer::builder().history(10, 1 << 20).build();
    let api = Api::with(server);
    let mut watch = api.watch(&format!("{MAPS}?watch=true")).await;
    for n in 0..30 {
        api.post(MAPS, &map(&format!("m{n}"), "x")).await.ok();
    }
    let event = watch.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(watch.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn watches_end_when_the_server_says_so() {
    let api = Api::new();
    let mut watch = api.watch(&format!("{MAPS}?watch=true")).await;
    api.server.end_watches();
    assert_eq!(watch.next().await, None);
    api.post(MAPS, &map("a", "x")).await.ok();
    assert_eq!(api.watch(&format!("{MAPS}?watch=true")).await.line().await, "ADDED a");
}
