//! `kill -9` under load, again and again: nothing acknowledged is lost, and a client that resumes its watch
//! sees every change once.
//!
//! `cargo xtask load kill --rounds 1000` does more rounds, on a release build, and shows figures.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::TryStreamExt;
use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};
use setpoint_env::Env;

use crate::server::{Server, create_config_map};

const CONNECTIONS: usize = 8;
const HANG: Duration = Duration::from_secs(30);

/// An object and what became of it: its text, or none if it is deleted.
type Fact = (String, Option<String>);

/// What all clients know together.
#[derive(Default)]
struct Knowledge {
    /// What is there, by all that has been checked.
    settled: BTreeMap<String, String>,
    /// The newest revision that has been checked.
    settled_to: u64,
    changes: usize,
    /// Creates and updates that were answered, by the revision in the answer.
    written: BTreeMap<u64, Fact>,
    /// Deletes that were answered; the answer has no revision.
    deleted: BTreeSet<String>,
    /// What was asked for when the server died.
    open: Vec<Fact>,
    /// What watchers were told.
    told: BTreeMap<u64, Fact>,
}

impl Knowledge {
    fn last_told(&self) -> u64 {
        self.told.last_key_value().map_or(self.settled_to, |(revision, _)| *revision)
    }
}

type Shared = Arc<Mutex<Knowledge>>;

fn fact(map: &ConfigMap) -> (u64, Fact) {
    let text = map.data.as_ref().and_then(|data| data.get("text").cloned()).unwrap_or_default();
    (map.resource_version().unwrap().parse().unwrap(), (map.name_any(), Some(text)))
}

/// Creates, changes and (most of them) deletes objects until the server is gone.
async fn write(client: Client, prefix: String, shared: Shared) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    for number in 0.. {
        let name = format!("{prefix}-{number}");
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.clone());
        for (text, exists) in [("one", false), ("two", true)] {
            map.data = Some(BTreeMap::from([("text".to_owned(), text.to_owned())]));
            let options = PostParams::default();
            let answer = if exists {
                maps.replace(&name, &options, &map).await
            } else {
                maps.create(&options, &map).await
            };
            let mut knowledge = shared.lock().unwrap();
            let Ok(answer) = answer else {
                return knowledge.open.push((name, Some(text.to_owned())));
            };
            let (revision, fact) = fact(&answer);
            assert!(revision > knowledge.settled_to, "revision {revision} is used again");
            assert!(knowledge.written.insert(revision, fact).is_none(), "revision {revision} twice");
            map = answer;
        }
        if number % 64 != 0 {
            let answer = maps.delete(&name, &DeleteParams::default()).await;
            let mut knowledge = shared.lock().unwrap();
            if answer.is_err() {
                return knowledge.open.push((name, None));
            }
            knowledge.deleted.insert(name);
        }
    }
}

/// Goes on watching where the last watch has ended, until the server is gone.
async fn watch(client: Client, shared: Shared) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let after = shared.lock().unwrap().last_told().max(1);
    let mut events = Box::pin(maps.watch(&WatchParams::default(), &after.to_string()).await.unwrap());
    while let Ok(Some(event)) = events.try_next().await {
        let (revision, fact) = match event {
            WatchEvent::Added(map) | WatchEvent::Modified(map) => fact(&map),
            WatchEvent::Deleted(map) => {
                let (revision, (name, _)) = fact(&map);
                (revision, (name, None))
            }
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) => panic!("a watch after {after}: {status:?}"),
        };
        let mut knowledge = shared.lock().unwrap();
        assert!(knowledge.last_told() < revision, "{revision} is a repeat");
        knowledge.told.insert(revision, fact);
    }
}

/// Waits until the watch has told everything that happened so far, and gives what is there.
async fn settle(client: &Client, marker: &str, shared: &Shared) -> BTreeMap<String, String> {
    create_config_map(client, marker).await;
    let told = async {
        let is_marker = |(name, _): &Fact| name == marker;
        while !shared.lock().unwrap().told.values().next_back().is_some_and(is_marker) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(HANG, told).await.expect("the watch goes on");
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let list = maps.list(&ListParams::default()).await.unwrap();
    list.iter().map(fact).map(|(_, (name, text))| (name, text.unwrap())).collect()
}

/// How many of the writes that were open have come through. What is checked is settled, and not looked at again.
fn check(knowledge: &mut Knowledge, objects: &BTreeMap<String, String>) -> usize {
    for (revision, fact) in &knowledge.written {
        assert_eq!(knowledge.told.get(revision), Some(fact), "{revision} was acknowledged");
    }
    let open = std::mem::take(&mut knowledge.open);
    let told = std::mem::take(&mut knowledge.told);
    let mut came_through = 0;
    let mut gone = BTreeSet::new();
    for (revision, fact) in &told {
        let known = knowledge.written.contains_key(revision)
            || (fact.1.is_none() && knowledge.deleted.contains(&fact.0))
            || fact.0.starts_with("marker-");
        if !known {
            assert!(open.contains(fact), "{revision} {fact:?} is a phantom");
            came_through += 1;
        }
        match fact.1.clone() {
            Some(text) => knowledge.settled.insert(fact.0.clone(), text),
            None => {
                assert!(gone.insert(&fact.0), "{} was deleted twice", fact.0);
                knowledge.settled.remove(&fact.0)
            }
        };
    }
    assert!(knowledge.deleted.iter().all(|name| gone.contains(name)), "a delete was lost");
    assert_eq!(objects, &knowledge.settled, "the list and the watch tell the same");
    knowledge.settled_to = told.last_key_value().map_or(knowledge.settled_to, |(revision, _)| *revision);
    knowledge.changes += told.len();
    knowledge.written.clear();
    knowledge.deleted.clear();
    came_through
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::print_stdout, reason = "figures are for people")]
async fn nothing_acknowledged_is_lost_and_watches_resume_without_gap_or_repeat() {
    let rounds = std::env::var("SETPOINT_CRASH_ROUNDS").map_or(4, |text| text.parse().unwrap());
    let env = Env::system();
    let folder = tempfile::tempdir().unwrap();
    let shared = Shared::default();
    let (mut starts, mut open, mut came_through) = (Vec::new(), 0, 0);
    for round in 0..=rounds {
        let mut server = Server::start(folder.path()).await;
        starts.push(server.started_in);
        let watching = env.spawn(watch(server.client().await, Arc::clone(&shared)));
        let objects = settle(&server.client().await, &format!("marker-{round}"), &shared).await;
        {
            let mut knowledge = shared.lock().unwrap();
            open += knowledge.open.len();
            came_through += check(&mut knowledge, &objects);
        }
        let clients = join_all((0..CONNECTIONS).map(|_| server.client())).await;
        let writing = clients.into_iter().enumerate().map(|(number, client)| {
            env.spawn(write(client, format!("w{number}-{round}"), Arc::clone(&shared)))
        });
        let writing: Vec<_> = writing.collect();
        tokio::time::sleep(Duration::from_millis(env.random_range(20..=200))).await;
        server.kill().await;
        for ended in join_all(writing).await {
            ended.unwrap();
        }
        tokio::time::timeout(HANG, watching).await.unwrap().unwrap();
    }
    starts.sort_unstable();
    let knowledge = shared.lock().unwrap();
    println!(
        "{rounds} kills: {} changes, each watched once; {open} were not answered, {came_through} of them \
         came through; start {:?} median, {:?} worst",
        knowledge.changes,
        starts[starts.len() / 2],
        starts[starts.len() - 1],
    );
}
