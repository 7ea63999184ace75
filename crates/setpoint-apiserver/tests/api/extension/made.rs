//! Objects that the author of an extension server keeps.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use setpoint_apiserver::User;
use tokio::io::AsyncWriteExt;

use super::Stage;
use super::logbook::KEPT;
use crate::aggregation::Upgrading;
use crate::support::{Api, version};

const ENTRIES: &str = "/apis/wardle.example.com/v1/namespaces/default/entries";
const OLD_ENTRIES: &str = "/apis/wardle.example.com/v1beta1/namespaces/default/entries";

fn entry(name: &str, what: &str) -> Value {
    json!({"apiVersion": "wardle.example.com/v1", "kind": "Entry", "metadata": {"name": name}, "spec": {"what": what}})
}

#[tokio::test]
async fn what_the_author_keeps_can_be_written_in_every_way() {
    let stage = Stage::new().await;
    let api = &stage.api;
    let created = api.post(ENTRIES, &entry("one", "a whale")).await.ok();
    assert_eq!(created["spec"], json!({"what": "a whale", "knots": 7}), "defaulted");
    assert!(created["metadata"]["uid"].is_string());
    assert_eq!(version(&created), 2);
    let taken = api.post(ENTRIES, &entry("one", "a whale")).await;
    assert_eq!((taken.code, taken.reason()), (409, "AlreadyExists"));
    let path = format!("{ENTRIES}/one");
    let patched = api.merge(&path, &json!({"spec": {"knots": 9}})).await.ok();
    assert_eq!((version(&patched), &patched["spec"]["knots"]), (3, &json!(9)));
    assert_eq!(patched["metadata"]["uid"], created["metadata"]["uid"]);
    let same = api.merge(&path, &json!({"spec": {"knots": 9}})).await.ok();
    assert_eq!(version(&same), 3, "nothing changes, so nobody is told");
    let stale = api.put(&path, &created).await;
    assert_eq!((stale.code, stale.reason()), (409, "Conflict"));
    let wish = json!({"apiVersion": "wardle.example.com/v1", "kind": "Entry", "metadata": {"name": "one", "labels": {"a": "b"}}});
    let apply = |manager: &str| format!("{path}?fieldManager={manager}");
    let media = "application/apply-patch+yaml";
    let applied = api.call("PATCH", &apply("me"), media, wish.to_string()).await.ok();
    assert_eq!(applied["metadata"]["labels"], json!({"a": "b"}));
    let other = json!({"apiVersion": "wardle.example.com/v1", "kind": "Entry", "metadata": {"name": "one", "labels": {"a": "c"}}});
    let conflict = api.call("PATCH", &apply("you"), media, other.to_string()).await;
    assert!(conflict.message().contains("conflict with \"me\""), "{}", conflict.message());
    let new = json!({"apiVersion": "wardle.example.com/v1", "kind": "Entry", "metadata": {"name": "two"}, "spec": {"what": "a ship"}});
    let made = api.call("PATCH", &format!("{ENTRIES}/two?fieldManager=me"), media, new.to_string()).await;
    assert_eq!(made.code, 201);
    api.delete(&path, &Value::Null).await.ok();
    assert_eq!(api.get(&path).await.code, 404);
    api.delete(ENTRIES, &Value::Null).await.ok();
    assert!(api.get(ENTRIES).await.names().is_empty());
}

#[tokio::test]
async fn what_the_author_refuses_is_refused_in_the_authors_words() {
    let stage = Stage::new().await;
    let api = &stage.api;
    api.post(ENTRIES, &entry("x", "nothing")).await.refused(503, "no ink");
    let silent = api.post(ENTRIES, &entry("x", "")).await;
    assert_eq!(silent.code, 422);
    assert!(
        silent.message().ends_with("spec.what: Required value: an entry says something"),
        "{}",
        silent.message()
    );
    api.post(ENTRIES, &entry("x", "a whale")).await.ok();
    let changed = api.merge(&format!("{ENTRIES}/x"), &json!({"spec": {"what": "a ship"}})).await;
    assert!(
        changed.message().ends_with("spec.what: Forbidden: what was seen was seen"),
        "{}",
        changed.message()
    );
    let mut wild = entry("y", "a storm");
    wild["spec"]["knots"] = 256.into();
    let wild = api.post(ENTRIES, &wild).await;
    assert_eq!(wild.code, 422, "what the schema lets pass and the type does not: {}", wild.body);
    let dry = api.post(&format!("{ENTRIES}?dryRun=All"), &entry("z", "a gull")).await;
    assert_eq!(dry.code, 201);
    assert_eq!(api.get(&format!("{ENTRIES}/z")).await.code, 404);
}

#[tokio::test]
async fn both_versions_are_one_object() {
    let stage = Stage::new().await;
    let api = &stage.api;
    let old = json!({"apiVersion": "wardle.example.com/v1beta1", "kind": "Entry", "metadata": {"name": "one"}, "line": "a whale@3"});
    let created = api.post(OLD_ENTRIES, &old).await.ok();
    assert_eq!(
        (created["apiVersion"].as_str(), created["line"].as_str()),
        (Some("wardle.example.com/v1beta1"), Some("a whale@3"))
    );
    let new = api.get(&format!("{ENTRIES}/one")).await.ok();
    assert_eq!(
        (new["apiVersion"].as_str(), &new["spec"]),
        (Some("wardle.example.com/v1"), &json!({"what": "a whale", "knots": 3}))
    );
    let patched = api.merge(&format!("{OLD_ENTRIES}/one"), &json!({"line": "a whale@8"})).await.ok();
    assert_eq!(patched["line"], "a whale@8");
    let refused = api.merge(&format!("{OLD_ENTRIES}/one"), &json!({"line": "a ship@8"})).await;
    assert!(
        refused.message().contains("what was seen was seen"),
        "validated as what is kept: {}",
        refused.message()
    );
    let mut watch = api.watch(&format!("{OLD_ENTRIES}?watch=1")).await;
    let event = watch.next().await.unwrap();
    assert_eq!(
        (event["type"].as_str(), event["object"]["line"].as_str()),
        (Some("ADDED"), Some("a whale@8"))
    );
    let list = api.get(OLD_ENTRIES).await.ok();
    assert_eq!(list["items"][0]["line"], "a whale@8");
}

#[tokio::test]
async fn a_watch_follows_the_authors_feed_and_resumes() {
    let stage = Stage::new().await;
    let api = &stage.api;
    api.post(ENTRIES, &entry("one", "a whale")).await.ok();
    let listed = api.get(ENTRIES).await.ok();
    let from = version(&listed);
    let mut watch = api.watch(&format!("{ENTRIES}?watch=1&resourceVersion={from}")).await;
    stage.logbook.meddle("default", "one", 11);
    let event = watch.next().await.unwrap();
    assert_eq!((event["type"].as_str(), &event["object"]["spec"]["knots"]), (Some("MODIFIED"), &json!(11)));
    let seen = version(&event["object"]);
    drop(watch);
    api.post(ENTRIES, &entry("two", "a ship")).await.ok();
    api.delete(&format!("{ENTRIES}/one"), &Value::Null).await.ok();
    let mut watch = api.watch(&format!("{ENTRIES}?watch=1&resourceVersion={seen}")).await;
    assert_eq!(watch.line().await, "ADDED two");
    assert_eq!(watch.line().await, "DELETED one");
    for knots in 0..u8::try_from(KEPT).unwrap() {
        stage.logbook.meddle("default", "two", knots);
    }
    let mut late = api.watch(&format!("{ENTRIES}?watch=1&resourceVersion={seen}")).await;
    let event = late.next().await.unwrap();
    assert_eq!((event["type"].as_str(), event["object"]["code"].as_i64()), (Some("ERROR"), Some(410)));
    assert_eq!(late.next().await, None, "the client lists again");
}

#[tokio::test]
async fn selectors_and_pages_are_derived() {
    let stage = Stage::new().await;
    let api = &stage.api;
    let mut watch = api.watch(&format!("{ENTRIES}?watch=1&labelSelector=sea%3Dnorth")).await;
    for (name, sea) in [("a", "north"), ("b", "south"), ("c", "north")] {
        let mut entry = entry(name, "a whale");
        entry["metadata"]["labels"] = json!({"sea": sea});
        api.post(ENTRIES, &entry).await.ok();
    }
    assert_eq!(watch.line().await, "ADDED a");
    assert_eq!(watch.line().await, "ADDED c");
    api.merge(&format!("{ENTRIES}/a"), &json!({"metadata": {"labels": {"sea": "south"}}})).await.ok();
    assert_eq!(watch.line().await, "DELETED a", "it is not selected any more");
    assert_eq!(api.get(&format!("{ENTRIES}?labelSelector=sea%3Dsouth")).await.names(), ["a", "b"]);
    assert_eq!(api.get(&format!("{ENTRIES}?fieldSelector=spec.what%3Da%20whale")).await.names().len(), 3);
    assert_eq!(api.get(&format!("{ENTRIES}?fieldSelector=spec.what%3Da%20ship")).await.names().len(), 0);
    let first = api.get(&format!("{ENTRIES}?limit=2")).await;
    assert_eq!(first.names(), ["a", "b"]);
    let token = first.body["metadata"]["continue"].as_str().unwrap().to_owned();
    let second = api.get(&format!("{ENTRIES}?limit=2&continue={token}")).await;
    assert_eq!(second.names(), ["c"]);
    api.delete(&format!("{ENTRIES}/c"), &Value::Null).await.ok();
    let gone = api.get(&format!("{ENTRIES}?limit=2&continue={token}")).await;
    assert_eq!((gone.code, gone.reason()), (410, "Expired"), "pages of two moments are no list");
    let go_on = gone.body["metadata"]["continue"].as_str().unwrap();
    assert!(api.get(&format!("{ENTRIES}?limit=2&continue={go_on}")).await.names().is_empty());
}

#[tokio::test]
async fn writers_that_name_no_version_do_not_bother_each_other() {
    let stage = Stage::new().await;
    let api = &stage.api;
    api.post(ENTRIES, &entry("one", "a whale")).await.ok();
    let path = format!("{ENTRIES}/one");
    let writes = (0..8).map(|n| {
        let (path, patch) = (&path, json!({"metadata": {"annotations": {(format!("a{n}")): "x"}}}));
        async move { api.merge(path, &patch).await.ok() }
    });
    futures::future::join_all(writes).await;
    let all = api.get(&path).await.ok();
    assert_eq!(all["metadata"]["annotations"].as_object().unwrap().len(), 8);
}

#[tokio::test]
async fn a_subresource_is_streamed_to_whoever_may_see_it() {
    let stage = Stage::new().await;
    let api = &stage.api;
    let get = || Request::get(format!("{ENTRIES}/one/log")).body(Full::<Bytes>::default()).unwrap();
    let mut body = api.send(get()).await.into_body();
    let first = tokio::time::timeout(Duration::from_secs(5), body.frame()).await.expect("it comes at once");
    let line = first.unwrap().unwrap().into_data().unwrap();
    assert_eq!(line, "one of Some(\"default\") for kubernetes-admin\n");
    let bob = Api::as_user(api.server.clone(), User::new("bob", ["people"]));
    assert_eq!(bob.send(get()).await.status(), 403);
    assert_eq!(api.call("PUT", &format!("{ENTRIES}/one/log"), "text/plain", "x").await.code, 405);
    assert_eq!(api.get(&format!("{ENTRIES}/one/exec")).await.code, 404);
    assert_eq!(api.get(&format!("{ENTRIES}/one/attach")).await.code, 400, "it is no upgrade");
    let list = api.get("/apis/wardle.example.com/v1").await.ok();
    let found = |name: &str| {
        let all = list["resources"].as_array().unwrap().iter();
        all.clone().find(|one| one["name"] == name).cloned().unwrap_or_default()
    };
    assert_eq!(found("entries/log")["verbs"], json!(["get"]));
    assert_eq!(
        (&found("entries/attach")["kind"], &found("entries/attach")["verbs"]),
        (&json!("EntryAttachOptions"), &json!(["create", "get"]))
    );
}

#[tokio::test]
async fn a_subresource_may_speak_something_else_than_http_through_both_servers() {
    let stage = Stage::new().await;
    let path = format!("{ENTRIES}/one/attach");
    let mut client = Upgrading::ask_for(stage.api.server.clone(), &path, "echo").await;
    let head = client.until(b"\r\n\r\n").await;
    assert!(head.starts_with("http/1.1 101 ") && head.contains("upgrade: echo\r\n"), "{head}");
    for said in ["ahoy", "who is there"] {
        client.stream.write_all(said.as_bytes()).await.unwrap();
        assert_eq!(client.until(said.to_uppercase().as_bytes()).await, said);
    }
}

#[tokio::test]
async fn discovery_prefers_the_newer_version_and_tables_have_the_columns_of_each() {
    let stage = Stage::new().await;
    let api = &stage.api;
    api.post(ENTRIES, &entry("one", "a whale")).await.ok();
    for (path, title, cell) in [(ENTRIES, "What", "a whale"), (OLD_ENTRIES, "Line", "a whale@7")] {
        let table = Request::get(path)
            .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
            .body(Full::default())
            .unwrap();
        let table = api.answer(table).await.ok();
        assert_eq!(table["columnDefinitions"][1]["name"], title);
        assert_eq!(table["rows"][0]["cells"], json!(["one", cell]));
    }
}
