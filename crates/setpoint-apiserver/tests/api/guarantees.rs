//! The guarantees of watch, each as a property over random writers.
//!
//! Several writers create, change and delete a few objects at once while watchers run; what each watcher was
//! told is then held against what the writers did.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::join_all;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{Api, MAPS, map, version};

/// One writer's plan: (which object, what to do).
type Plan = Vec<(u8, u8)>;

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    prop::collection::vec(prop::collection::vec((0..5u8, 0..3u8), 1..25), 1..5)
}

#[derive(Clone, Debug, PartialEq)]
struct Told {
    kind: String,
    name: String,
    version: u64,
    value: Value,
}

async fn run_writer(api: &Api, plan: &Plan, committed: &parking_lot::Mutex<Vec<u64>>) {
    for (step, (object, action)) in plan.iter().enumerate() {
        let name = format!("o{object}");
        let path = format!("{MAPS}/{name}");
        let answer = match action {
            0 => api.post(MAPS, &map(&name, &step.to_string())).await,
            1 => api.merge(&path, &json!({"data": {"key": format!("{step}")}})).await,
            _ => api.delete(&path, &Value::Null).await,
        };
        if answer.code < 300 && *action != 2 {
            committed.lock().push(version(&answer.body));
        }
        tokio::task::yield_now().await;
    }
}

fn told(event: &Value) -> Told {
    let object = &event["object"];
    Told {
        kind: event["type"].as_str().unwrap().to_owned(),
        name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        version: version(object),
        value: object["data"]["key"].clone(),
    }
}

/// What a watch tells until `last`, the version of a final write.
async fn collect(api: &Api, path: String, last: u64) -> Vec<Told> {
    let mut watch = api.watch(&path).await;
    let mut events = Vec::new();
    while let Some(event) = watch.next().await {
        let event = told(&event);
        let end = event.version >= last;
        events.push(event);
        if end {
            break;
        }
    }
    events
}

/// Runs the writers while watchers run; gives what a live watcher and a later one from the start were told.
fn run<T>(plans: Vec<Plan>, check: impl AsyncFn(Arc<Api>, u64, Vec<u64>, Vec<Told>) -> T) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let api = Arc::new(Api::new());
        let start = version(&api.get(MAPS).await.ok());
        let mut live = api.watch(&format!("{MAPS}?watch=true&resourceVersion={start}")).await;
        let committed = parking_lot::Mutex::new(Vec::new());
        join_all(plans.iter().map(|plan| run_writer(&api, plan, &committed))).await;
        let last = version(&api.post(MAPS, &map("last", "")).await.ok());
        committed.lock().push(last);
        let mut events = Vec::new();
        loop {
            let event = told(&live.next().await.unwrap());
            let end = event.version == last;
            events.push(event);
            if end {
                break;
            }
        }
        let committed = committed.into_inner();
        check(api, start, committed, events).await
    })
}

fn from(start: u64) -> String {
    format!("{MAPS}?watch=true&resourceVersion={start}")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn ordered_versions_never_go_back(plans in plans()) {
        run(plans, async |_, _, _, events| {
            prop_assert!(events.windows(2).all(|pair| pair[0].version < pair[1].version), "{events:?}");
            Ok(())
        })?;
    }

    #[test]
    fn unique_no_event_is_told_twice(plans in plans()) {
        run(plans, async |api, start, committed, mut live| {
            let again = collect(&api, from(start), *committed.last().unwrap()).await;
            prop_assert_eq!(&again, &live, "a second watcher is told the same");
            let all = live.len();
            live.dedup_by_key(|event| event.version);
            prop_assert_eq!(live.len(), all);
            Ok(())
        })?;
    }

    #[test]
    fn reliable_every_write_is_told(plans in plans()) {
        run(plans, async |_, _, committed, events| {
            let versions: std::collections::BTreeSet<u64> = events.iter().map(|event| event.version).collect();
            for version in committed {
                prop_assert!(versions.contains(&version), "{} is missing in {:?}", version, events);
            }
            Ok(())
        })?;
    }

    #[test]
    fn atomic_what_is_told_adds_up_to_the_list(plans in plans()) {
        run(plans, async |api, _, _, events| {
            let mut view: BTreeMap<String, (u64, Value)> = BTreeMap::new();
            for event in events {
                let known = view.contains_key(&event.name);
                prop_assert_eq!(event.kind == "ADDED", !known, "{:?}", event);
                if event.kind == "DELETED" {
                    view.remove(&event.name);
                } else {
                    view.insert(event.name, (event.version, event.value));
                }
            }
            let list = api.get(MAPS).await.ok();
            let items = list["items"].as_array().unwrap().iter();
            let state: BTreeMap<String, (u64, Value)> = items
                .map(|item| {
                    let name = item["metadata"]["name"].as_str().unwrap().to_owned();
                    (name, (version(item), item["data"]["key"].clone()))
                })
                .collect();
            prop_assert_eq!(view, state);
            Ok(())
        })?;
    }

    #[test]
    fn resumable_from_any_version_the_rest_is_told(plans in plans()) {
        run(plans, async |api, _, _, events| {
            let last = events.last().unwrap().version;
            for (at, event) in events.iter().enumerate().take(events.len() - 1) {
                let rest = collect(&api, from(event.version), last).await;
                prop_assert_eq!(&rest[..], &events[at + 1..]);
            }
            Ok(())
        })?;
    }

    #[test]
    fn bookmarkable_a_bookmark_can_be_resumed_from(plans in plans()) {
        run(plans, async |api, start, _, events| {
            let mut watch = api.watch(&format!("{}&allowWatchBookmarks=true", from(start))).await;
            let mut seen = 0;
            let bookmark = loop {
                let event = watch.next().await.unwrap();
                if event["type"] == "BOOKMARK" {
                    break version(&event["object"]);
                }
                seen = version(&event["object"]);
            };
            prop_assert!(bookmark >= seen);
            prop_assert_eq!(seen, events.last().unwrap().version, "nothing is held back by a bookmark");
            let next = version(&api.post(MAPS, &map("next", "")).await.ok());
            let rest = collect(&api, from(bookmark), next).await;
            prop_assert_eq!(rest.len(), 1, "{:?}", rest);
            Ok(())
        })?;
    }
}
