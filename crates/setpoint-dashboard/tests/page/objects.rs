//! Objects: owners, lives, events, caches.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use setpoint::SharedInformerFactory;

use crate::Page;

async fn map(page: &Page, name: &str, owner: Option<&ConfigMap>) -> ConfigMap {
    let maps: Api<ConfigMap> = Api::default_namespaced(page.server.client());
    let owners: Vec<Value> = owner
        .iter()
        .map(|owner| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner.metadata.name, "uid": owner.metadata.uid}))
        .collect();
    let map = json!({"metadata": {"name": name, "ownerReferences": owners}, "data": {"a": "1"}});
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap()
}

#[tokio::test]
async fn a_tree_goes_up_to_the_first_owner_and_down_to_all_that_is_owned() {
    let page = Page::with(|config| config.all_kinds()).await;
    let root = map(&page, "root", None).await;
    let child = map(&page, "child", Some(&root)).await;
    map(&page, "grandchild", Some(&child)).await;
    map(&page, "other", None).await;
    let mut tree = Value::Null;
    for _ in 0..100 {
        tree = page.browser.get("/api/tree?resource=configmaps&key=default%2Fchild").await.json();
        if tree["nodes"].as_array().is_some_and(|nodes| nodes.len() == 3) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let shown: Vec<_> = tree["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| (node["key"].as_str().unwrap(), node["depth"].as_u64().unwrap(), node["isAsked"] == true))
        .collect();
    assert_eq!(
        shown,
        [("default/root", 0, false), ("default/child", 1, true), ("default/grandchild", 2, false)]
    );
    let none = page.browser.get("/api/tree?resource=configmaps&key=default%2Fnone").await.json();
    assert_eq!(none, json!({"nodes": [], "why": "There is no such object, or not any more."}));
    assert_eq!(page.browser.get("/api/tree?resource=nonsense&key=x").await.code, 404);
}

#[tokio::test]
async fn the_life_of_an_object_has_each_state_with_its_field_managers() {
    let page = Page::with(|config| config.all_kinds()).await;
    map(&page, "web", None).await;
    let mut life = page.browser.events("/api/life?resource=configmaps&key=default%2Fweb", "").await;
    let first = life.of("object").await.data;
    assert_eq!((&first["what"], &first["object"]["data"]["a"]), (&json!("added"), &json!("1")));
    let maps: Api<ConfigMap> = Api::default_namespaced(page.server.client());
    let params = PatchParams { field_manager: Some("me".into()), ..PatchParams::default() };
    maps.patch("web", &params, &Patch::Merge(json!({"data": {"a": "2"}}))).await.unwrap();
    let second = life.of("object").await.data;
    assert_eq!((&second["what"], &second["object"]["data"]["a"]), (&json!("updated"), &json!("2")));
    let managers = second["object"]["metadata"]["managedFields"].as_array().unwrap();
    assert!(managers.iter().any(|entry| entry["manager"] == "me"), "{managers:?}");
}

#[tokio::test]
async fn what_a_secret_contains_is_shown_nowhere() {
    let page = Page::with(|config| config.all_kinds()).await;
    let secrets: Api<Secret> = Api::default_namespaced(page.server.client());
    let secret = json!({"metadata": {"name": "key"}, "stringData": {"password": "hunter2"}});
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    let mut life = page.browser.events("/api/life?resource=secrets&key=default%2Fkey", "").await;
    let state = life.of("object").await.data.to_string();
    assert!(state.contains("password") && state.contains("(hidden)"), "{state}");
    assert!(!state.contains("hunter2") && !state.contains("aHVudGVyMg"), "{state}");
}

#[tokio::test]
async fn a_cache_is_shown_in_windows_and_searched() {
    let page = Page::open().await;
    for n in 0..30 {
        map(&page, &format!("map-{n:02}"), None).await;
    }
    let factory = SharedInformerFactory::new(page.server.client()).with_facts(&page.facts);
    let maps = factory.informer::<ConfigMap>();
    factory.start();
    maps.wait_for_sync().await;
    let state = page.browser.get("/api/state").await.json();
    let cache = &state["caches"][0];
    assert_eq!((&cache["resource"], &cache["hasSynced"]), (&json!("configmaps"), &json!(true)));
    let id = cache["id"].as_u64().unwrap();
    let window = page.browser.get(&format!("/api/cache?id={id}&q=map-&offset=10&limit=5")).await.json();
    assert_eq!(window["matches"], 30);
    let keys: Vec<_> =
        window["rows"].as_array().unwrap().iter().map(|row| row["key"].as_str().unwrap()).collect();
    assert_eq!(
        keys,
        ["default/map-10", "default/map-11", "default/map-12", "default/map-13", "default/map-14"]
    );
    assert!(window["rows"][0]["version"].is_string(), "{window}");
    let beyond =
        page.browser.get(&format!("/api/cache?id={id}&offset=99999999999&limit=999999")).await.json();
    assert_eq!(beyond["rows"], json!([]));
    assert_eq!(page.browser.get("/api/cache?id=999").await.code, 404);
    // Kinds that this process caches are those that it shows, unless it is told to show all.
    let kinds = page.browser.get("/api/kinds").await.json();
    let kinds: Vec<_> =
        kinds["kinds"].as_array().unwrap().iter().map(|kind| kind["resource"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["configmaps"]);
    factory.shutdown().await;
}

#[tokio::test]
async fn events_are_asked_for_by_uid_and_nothing_else() {
    let page = Page::with(|config| config.all_kinds()).await;
    assert_eq!(page.browser.get("/api/events?namespace=default&uid=a,b%3Dc").await.code, 400);
    let map = map(&page, "web", None).await;
    let uid = map.metadata.uid.unwrap();
    assert_eq!(
        page.browser.get(&format!("/api/events?namespace=default&uid={uid}")).await.json(),
        json!({"events": []})
    );
}
