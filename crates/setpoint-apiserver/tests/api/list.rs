use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use setpoint_apiserver::ApiServer;
use setpoint_env::Env;

use crate::support::{Api, MAPS, PODS, labelled, map, pod, version};

async fn filled() -> Api {
    let api = Api::new();
    for (name, app) in [("a", "web"), ("b", "db"), ("c", "web"), ("d", "cache"), ("e", "web")] {
        api.post(MAPS, &labelled(name, app)).await.ok();
    }
    api
}

#[tokio::test]
async fn a_list_is_of_one_kind_at_one_version() {
    let api = filled().await;
    let answer = api.get(MAPS).await;
    assert_eq!(answer.names(), ["a", "b", "c", "d", "e"]);
    let list = answer.ok();
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    assert_eq!(version(&list), version(&list["items"][4]), "the version of the newest write");
    assert!(list["items"][0].get("kind").is_none(), "items of built-in kinds do not repeat it");
    api.post("/api/v1/namespaces/kube-system/configmaps", &map("z", "x")).await.ok();
    assert_eq!(api.get("/api/v1/configmaps").await.names(), ["a", "b", "c", "d", "e", "z"]);
    assert_eq!(api.get("/api/v1/namespaces/nowhere/configmaps").await.names(), [""; 0]);
}

#[tokio::test]
async fn label_selectors_select() {
    let api = filled().await;
    for (selector, expect) in [
        ("app=web", "a c e"),
        ("app==web", "a c e"),
        ("app!=web", "b d"),
        ("app in (db,cache)", "b d"),
        ("app notin (db,cache)", "a c e"),
        ("app", "a b c d e"),
        ("!app", ""),
        ("app=web,app!=web", ""),
    ] {
        let query: String = form_urlencoded::byte_serialize(selector.as_bytes()).collect();
        let answer = api.get(&format!("{MAPS}?labelSelector={query}")).await;
        assert_eq!(answer.names().join(" "), expect, "{selector}");
    }
    assert_eq!(api.get(&format!("{MAPS}?labelSelector=a%20b")).await.code, 400);
}

#[tokio::test]
async fn field_selectors_are_those_of_the_kind() {
    let api = filled().await;
    assert_eq!(api.get(&format!("{MAPS}?fieldSelector=metadata.name%3Db")).await.names(), ["b"]);
    assert_eq!(
        api.get(&format!("{MAPS}?fieldSelector=metadata.name!%3Db")).await.names(),
        ["a", "c", "d", "e"]
    );
    assert_eq!(api.get("/api/v1/configmaps?fieldSelector=metadata.name%3Db").await.names(), ["b"]);
    let mut placed = pod("placed");
    placed["spec"]["nodeName"] = "node-1".into();
    api.post(PODS, &placed).await.ok();
    api.post(PODS, &pod("unplaced")).await.ok();
    assert_eq!(api.get(&format!("{PODS}?fieldSelector=spec.nodeName%3Dnode-1")).await.names(), ["placed"]);
    assert_eq!(api.get(&format!("{PODS}?fieldSelector=spec.nodeName%3D")).await.names(), ["unplaced"]);
    assert_eq!(
        api.get(&format!("{PODS}?fieldSelector=status.phase%3DPending")).await.names(),
        ["placed", "unplaced"]
    );
    let unknown = api.get(&format!("{PODS}?fieldSelector=spec.color%3Dred")).await;
    unknown.refused(400, "field label not supported: spec.color");
}

#[tokio::test]
async fn pages_are_one_consistent_list() {
    let api = filled().await;
    let first = api.get(&format!("{MAPS}?limit=2")).await;
    assert_eq!(first.names(), ["a", "b"]);
    let first = first.ok();
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    api.delete(&format!("{MAPS}/c"), &Value::Null).await.ok();
    api.post(MAPS, &map("bb", "new")).await.ok();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = api.get(&format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!(second.names(), ["c", "d"], "as it was at the first page");
    let second = second.ok();
    assert_eq!(version(&second), version(&first));
    let token = second["metadata"]["continue"].as_str().unwrap();
    let third = api.get(&format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!(third.names(), ["e"]);
    let third = third.ok();
    assert!(third["metadata"].get("continue").is_none());
    assert!(third["metadata"].get("remainingItemCount").is_none());
}

#[tokio::test]
async fn a_page_with_a_selector_is_full_and_has_no_count() {
    let api = filled().await;
    let first = api.get(&format!("{MAPS}?limit=2&labelSelector=app%3Dweb")).await;
    assert_eq!(first.names(), ["a", "c"]);
    assert!(first.body["metadata"].get("remainingItemCount").is_none());
    let token = first.body["metadata"]["continue"].as_str().unwrap();
    let second = api.get(&format!("{MAPS}?limit=2&labelSelector=app%3Dweb&continue={token}")).await;
    assert_eq!(second.names(), ["e"]);
    assert!(second.body["metadata"].get("continue").is_none());
}

#[tokio::test]
async fn a_page_of_a_compacted_list_expires_with_a_way_on() {
    let api = filled().await;
    let first = api.get(&format!("{MAPS}?limit=2")).await.ok();
    api.post(MAPS, &map("bb", "new")).await.ok();
    api.server.compact();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let expired = api.get(&format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!((expired.code, expired.reason()), (410, "Expired"));
    let token = expired.body["metadata"]["continue"].as_str().expect("an inconsistent token");
    let rest = api.get(&format!("{MAPS}?limit=9&continue={token}")).await;
    assert_eq!(rest.names(), ["bb", "c", "d", "e"], "what is there now");
}

#[tokio::test(start_paused = true)]
async fn history_older_than_five_to_ten_minutes_is_forgotten() {
    forgets(Api::new(), Duration::from_secs(5 * 60)).await;
}

#[tokio::test]
async fn history_on_a_disk_is_forgotten_likewise() {
    let folder = tempfile::tempdir().unwrap();
    // A disk takes its own time, so this is real time.
    let interval = Duration::from_secs(2);
    let builder = ApiServer::builder().env(Env::seeded(1)).unsynced().compaction_interval(interval);
    forgets(Api::with(builder.open(&folder).await.unwrap()), interval).await;
}

/// Looks what a server forgets that keeps history for between one and two intervals.
async fn forgets(api: Api, interval: Duration) {
    for name in ["a", "b", "c"] {
        api.post(MAPS, &map(name, "x")).await.ok();
    }
    let first = api.get(&format!("{MAPS}?limit=1")).await.ok();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let next = format!("{MAPS}?limit=1&continue={token}");
    // Of a list that nothing has changed in since, too.
    let secrets = "/api/v1/namespaces/default/secrets";
    api.post(secrets, &json!({"metadata": {"name": "s"}})).await.ok();
    tokio::time::sleep(interval / 2).await;
    assert_eq!(api.get(&next).await.names(), ["b"]);
    tokio::time::sleep(interval * 2).await;
    let expired = api.get(&next).await;
    assert_eq!((expired.code, expired.reason()), (410, "Expired"));
    let token = expired.body["metadata"]["continue"].as_str().expect("an inconsistent token");
    assert_eq!(api.get(&format!("{MAPS}?continue={token}")).await.names(), ["b", "c"]);
    let old = api.get(&format!("{secrets}?watch=1&resourceVersion={}", version(&first))).await;
    assert_eq!((old.code, old.reason()), (410, "Expired"), "the secret came later");
    let mut watch = api.watch(&format!("{MAPS}?watch=1&resourceVersion={}", version(&first))).await;
    api.post(MAPS, &map("d", "x")).await.ok();
    assert_eq!(watch.line().await, "ADDED d", "it has missed nothing");
}

#[tokio::test(start_paused = true)]
async fn resource_versions_of_lists_are_honoured() {
    let api = filled().await;
    let list = api.get(MAPS).await.ok();
    let at = version(&list);
    api.post(MAPS, &map("f", "x")).await.ok();
    let exact = api.get(&format!("{MAPS}?resourceVersion={at}&resourceVersionMatch=Exact")).await;
    assert_eq!(exact.names(), ["a", "b", "c", "d", "e"]);
    assert_eq!(version(&exact.body), at);
    for query in ["resourceVersion=0", &format!("resourceVersion={at}&resourceVersionMatch=NotOlderThan")] {
        assert_eq!(api.get(&format!("{MAPS}?{query}")).await.names().len(), 6, "{query}");
    }
    let future = api.get(&format!("{MAPS}?resourceVersion=999999")).await;
    assert_eq!((future.code, future.reason()), (504, "Timeout"));
    assert_eq!(future.body["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    api.server.compact();
    let old = api.get(&format!("{MAPS}?resourceVersion={at}&resourceVersionMatch=Exact")).await;
    assert_eq!((old.code, old.reason()), (410, "Expired"));
}

#[tokio::test]
async fn bad_tokens_and_options_are_refused() {
    let api = filled().await;
    for query in [
        "continue=rubbish&limit=1",
        "limit=many",
        "resourceVersion=new",
        "labelSelector=%3D%3D",
        "fieldSelector=x",
    ] {
        let answer = api.get(&format!("{MAPS}?{query}")).await;
        assert_eq!((answer.code, answer.reason()), (400, "BadRequest"), "{query}: {}", answer.body);
    }
    let answer = api.get(&format!("{MAPS}?resourceVersionMatch=Exact")).await;
    assert_eq!(answer.code, 422, "{}", answer.body);
}

#[tokio::test]
async fn a_long_list_comes_in_pieces_that_add_up() {
    let api = Api::new();
    let value = "x".repeat(10_000);
    for n in 0..100 {
        api.post(MAPS, &map(&format!("m{n:03}"), &value)).await.ok();
    }
    let answer = api.get(MAPS).await;
    assert!(answer.headers.get("content-length").is_none());
    let names: Vec<String> = (0..100).map(|n| format!("m{n:03}")).collect();
    assert_eq!(answer.names(), names);
    assert!(
        answer.body["items"].as_array().unwrap().iter().all(|item| item["data"]["key"] == value.as_str())
    );
}

#[tokio::test]
async fn a_version_with_a_limit_and_no_match_is_exact() {
    let api = filled().await;
    let at = version(&api.get(MAPS).await.ok());
    api.post(MAPS, &map("aa", "new")).await.ok();
    let page = api.get(&format!("{MAPS}?resourceVersion={at}&limit=2")).await;
    assert_eq!(page.names(), ["a", "b"], "as it was at that version");
    assert_eq!(version(&page.body), at);
    let token = page.body["metadata"]["continue"].as_str().unwrap();
    let rest = api.get(&format!("{MAPS}?limit=9&continue={token}")).await;
    assert_eq!(rest.names(), ["c", "d", "e"]);
    let fresh = api.get(&format!("{MAPS}?resourceVersion={at}")).await;
    assert_eq!(fresh.names().len(), 6, "without a limit it is the oldest that will do");
    let any = api.get(&format!("{MAPS}?resourceVersion=0&limit=2")).await;
    assert_eq!(any.names(), ["a", "aa"], "0 is any version, with a limit too");
}

/// How many records and changes the lists of config maps have looked at so far.
async fn fetched(api: &Api) -> u64 {
    let page = api.get("/metrics").await;
    let name = "apiserver_storage_list_fetched_objects_total{group=\"\",resource=\"configmaps\",";
    let line = page.body.as_str().expect("text").lines().find(|line| line.starts_with(name));
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn a_list_is_one_pass_whatever_its_limit_and_selectors_are() {
    let api = Api::new();
    for n in 0..1_200 {
        api.post(MAPS, &labelled(&format!("m{n:04}"), if n % 2 == 0 { "even" } else { "odd" })).await.ok();
    }
    // The labels, the limit, how many are found, and how many are looked at.
    for (query, found, most) in [
        ("", 1_200, 1_200),
        ("limit=1", 1, 1),
        ("limit=500", 500, 500),
        ("limit=1&labelSelector=app%3Dnone", 0, 1_200),
        ("limit=500&labelSelector=app%3Dnone", 0, 1_200),
        ("labelSelector=app%3Deven", 600, 1_200),
        ("limit=1&labelSelector=app%3Dodd", 1, 3),
        ("limit=100&labelSelector=app%3Deven", 100, 512),
        ("fieldSelector=metadata.name%3Dm0007", 1, 1),
    ] {
        let before = fetched(&api).await;
        let answer = api.get(&format!("{MAPS}?{query}")).await;
        assert_eq!(answer.names().len(), found, "{query}");
        let visited = fetched(&api).await - before;
        assert!(visited >= 1 && visited <= most, "{query}: {visited}");
    }
}

#[tokio::test]
async fn a_page_looks_at_its_own_objects_and_at_what_has_changed_since() {
    let api = Api::new();
    for n in 0..600 {
        api.post(MAPS, &map(&format!("m{n:04}"), "x")).await.ok();
    }
    let (mut path, mut names, mut changes) = (format!("{MAPS}?limit=50"), Vec::new(), 0);
    loop {
        let before = fetched(&api).await;
        let page = api.get(&path).await;
        names.extend(page.names().into_iter().map(str::to_owned));
        let visited = fetched(&api).await - before;
        assert!((1..=50 + 2 * changes).contains(&visited), "{visited} after {changes} changes");
        let left = page.body["metadata"].get("remainingItemCount").map(|count| count.as_u64().unwrap());
        assert_eq!(left.unwrap_or(0), 600 - names.len() as u64);
        let Some(token) = page.body["metadata"]["continue"].as_str() else { break };
        path = format!("{MAPS}?limit=50&continue={token}");
        api.post(MAPS, &map(&format!("m{:04}-new", names.len() + 7), "x")).await.ok();
        api.delete(&format!("{MAPS}/m{:04}", names.len() + 3), &Value::Null).await.ok();
        changes += 2;
    }
    assert_eq!(names, (0..600).map(|n| format!("m{n:04}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_long_list_obeys_the_time_limit_of_its_request() {
    let api = Api::new();
    for n in 0..1_500 {
        api.post(MAPS, &labelled(&format!("m{n:04}"), "web")).await.ok();
    }
    let late = api.get(&format!("{MAPS}?labelSelector=app%3Dnone&timeout=1ns")).await;
    assert_eq!((late.code, late.reason()), (504, "Timeout"), "{}", late.body);
}

#[tokio::test]
async fn a_count_in_a_token_that_is_wrong_does_no_harm() {
    let api = filled().await;
    for before in ["0", "1000", "18446744073709551615"] {
        let token = format!(r#"{{"v":"meta.k8s.io/v1","rv":-1,"start":"a\u0000","before":{before}}}"#);
        let token = URL_SAFE_NO_PAD.encode(token);
        let page = api.get(&format!("{MAPS}?limit=1&continue={token}")).await;
        assert_eq!(page.names(), ["b"]);
        let left = page.body["metadata"]["remainingItemCount"].as_u64().unwrap();
        assert!((1..=5).contains(&left), "{left}");
    }
    for before in ["-1", "18446744073709551616", "\"x\""] {
        let token = format!(r#"{{"v":"meta.k8s.io/v1","rv":-1,"start":"a\u0000","before":{before}}}"#);
        let page = api.get(&format!("{MAPS}?limit=1&continue={}", URL_SAFE_NO_PAD.encode(token))).await;
        assert_eq!(page.code, 400);
    }
}

#[tokio::test]
async fn a_long_list_comes_in_pieces_in_every_layout() {
    let api = Api::new();
    let value = "x".repeat(10_000);
    for n in 0..100 {
        api.post(MAPS, &map(&format!("m{n:03}"), &value)).await.ok();
    }
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    for (query, accept) in [
        ("", "application/json"),
        ("?pretty=true", "application/json"),
        ("", "application/yaml"),
        ("", "application/vnd.kubernetes.protobuf"),
        ("?includeObject=Object", table),
    ] {
        let request = Request::builder().uri(format!("{MAPS}{query}")).header("accept", accept);
        let mut body = api.send(request.body(Full::default()).unwrap()).await.into_body();
        let (mut text, mut longest) = (Vec::new(), 0);
        while let Some(frame) = body.frame().await {
            let frame = frame.unwrap().into_data().unwrap();
            longest = longest.max(frame.len());
            text.extend_from_slice(&frame);
        }
        assert!(text.len() > 1_000_000 && longest < 400_000, "{accept} {query}: {longest} of {}", text.len());
        let names = match accept {
            "application/vnd.kubernetes.protobuf" => continue,
            "application/yaml" => {
                serde_saphyr::from_str::<Value>(std::str::from_utf8(&text).unwrap()).unwrap()
            }
            _ => serde_json::from_slice(&text).unwrap(),
        };
        let items = names["items"].as_array().or(names["rows"].as_array()).unwrap();
        assert_eq!(items.len(), 100, "{accept} {query}");
    }
}

#[tokio::test]
async fn pods_are_found_by_their_node_whatever_happens_to_them() {
    let api = Api::new();
    let on = |name: &str, node: &str| {
        let mut pod = pod(name);
        pod["spec"]["nodeName"] = node.into();
        pod
    };
    for n in 0..100 {
        api.post(PODS, &on(&format!("p{n:02}"), &format!("node-{}", n % 10))).await.ok();
    }
    let other = "/api/v1/namespaces/kube-system/pods";
    let by_node = "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-3";
    let first = api.get(by_node).await;
    assert_eq!(first.names(), ["p03", "p13", "p23", "p33", "p43", "p53", "p63", "p73", "p83", "p93"]);
    let at = version(&first.body);
    api.delete(&format!("{PODS}/p13"), &json!({"gracePeriodSeconds": 0})).await.ok();
    api.post(PODS, &on("p13", "node-4")).await.ok();
    api.post(PODS, &pod("p14-unplaced")).await.ok();
    api.post(other, &on("agent", "node-3")).await.ok();
    let left = ["p03", "p23", "p33", "p43", "p53", "p63", "p73", "p83", "p93", "agent"];
    assert_eq!(api.get(by_node).await.names(), left);
    let then = api.get(&format!("{by_node}&resourceVersion={at}&resourceVersionMatch=Exact")).await;
    assert_eq!(then.names(), first.names(), "as it was then");
    let both = api.get(&format!("{by_node},status.phase!%3DPending")).await;
    assert_eq!(both.names(), [""; 0], "other terms count, too");
    assert_eq!(api.get("/api/v1/pods?fieldSelector=spec.nodeName%3D").await.names(), ["p14-unplaced"]);
    let mut watch = api.watch(&format!("{by_node}&watch=true")).await;
    for name in left {
        assert_eq!(watch.line().await, format!("ADDED {name}"));
    }
    let page = api.get(&format!("{by_node}&limit=4")).await;
    assert_eq!(page.names(), left[..4]);
    let token = page.body["metadata"]["continue"].as_str().unwrap();
    assert_eq!(api.get(&format!("{by_node}&limit=9&continue={token}")).await.names(), left[4..]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_read_slowly_ends_with_the_time_of_its_request() {
    let api = Api::new();
    for name in ["a", "b", "c", "d"] {
        api.post(MAPS, &map(name, &"x".repeat(300_000))).await.ok();
    }
    let get = |query: &str| {
        http::Request::get(format!("{MAPS}?{query}")).body(http_body_util::Full::default()).unwrap()
    };
    // Whoever is fast enough gets all of it.
    let whole = api.send(get("timeout=5s")).await.into_body().collect().await.unwrap().to_bytes();
    assert!(whole.len() > 1_200_000);
    for (query, seconds) in [("timeout=5s", 5), ("", 60)] {
        let mut body = api.send(get(query)).await.into_body();
        body.frame().await.unwrap().unwrap();
        tokio::time::sleep(Duration::from_secs(seconds - 1)).await;
        body.frame().await.unwrap().unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let cut = body.frame().await.unwrap().unwrap_err();
        assert_eq!(cut.kind(), std::io::ErrorKind::TimedOut, "what is there must not pass for the whole");
        assert!(body.frame().await.is_none());
    }
}
