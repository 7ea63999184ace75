//! Rollouts while the controllers die and the network misbehaves.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use serde_json::json;
use setpoint_env::Task;
use setpoint_sim::{Match, Swarm, World};
use tokio::time::sleep;

use crate::support::{Running, SECOND, deployment, image, is_ready, start, watch_all};

const REPLICAS: usize = 6;
/// The bounds of the default strategy, 25 % each: two more, one less.
const MOST: usize = 8;
const LEAST: usize = 5;

/// The extremes of the numbers of pods.
#[derive(Clone, Copy, Debug, Default)]
struct Bounds {
    /// Whether all replicas have been ready once.
    is_up: bool,
    most: usize,
    least_ready: usize,
}

impl Bounds {
    fn note(&mut self, pods: &BTreeMap<String, Pod>) {
        let active = pods.values().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let ready = active.clone().filter(|pod| is_ready(pod)).count();
        self.most = self.most.max(active.count());
        if !self.is_up && ready == REPLICAS {
            (self.is_up, self.least_ready) = (true, ready);
        }
        self.least_ready = self.least_ready.min(ready);
    }
}

/// Counts pods at every event of a watch.
fn watch(world: &World) -> (Arc<Mutex<Bounds>>, Task<()>) {
    let bounds: Arc<Mutex<Bounds>> = Arc::default();
    let inner = bounds.clone();
    let task = watch_all::<Pod>(world, move |pods| inner.lock().note(pods));
    (bounds, task)
}

/// What is left in the end, without names and times.
async fn end_state(running: &Running) -> String {
    let web: Deployment = running.get("web").await;
    let status = web.status.unwrap();
    let mut sets: Vec<_> = running.list::<ReplicaSet>().await;
    sets.sort_by_key(image);
    let describe = |set: &ReplicaSet| {
        let mut status = set.status.clone().unwrap();
        let is_observed = status.observed_generation.take() == set.metadata.generation;
        format!("{} {:?} {is_observed} {status:?}", image(set), set.spec.replicas)
    };
    let sets: Vec<_> = sets.iter().map(describe).collect();
    let conditions: Vec<_> = status
        .conditions
        .iter()
        .flatten()
        .map(|condition| (condition.type_.clone(), condition.status.clone(), condition.reason.clone()))
        .collect();
    let mut conditions = conditions;
    conditions.sort();
    let pods = running.list::<Pod>().await;
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let numbers =
        (status.replicas, status.updated_replicas, status.available_replicas, status.terminating_replicas);
    format!("{numbers:?} {conditions:?} {sets:#?} pods {} ready {ready}", pods.len())
}

/// Three templates, the last before the second is rolled out; crashes and faults all the time if there are any.
async fn scenario(world: World, has_faults: bool) -> (String, Bounds) {
    let mut running = Running::new(&world);
    let (bounds, _watch) = watch(&world);
    running.create::<Deployment>(deployment("web", REPLICAS as i32)).await;
    running.roll_out("web").await;
    if has_faults {
        world.faults().swarm(Swarm::every(0.03));
    }
    running.set_image("web", "v2").await;
    for step in 0..12 {
        let pause = world.env().random_range(1..=4_000);
        sleep(std::time::Duration::from_millis(pause)).await;
        if has_faults {
            running.crash();
            sleep(std::time::Duration::from_millis(world.env().random_range(0..=3_000))).await;
            running.cluster = Some(start(&world));
        }
        if step == 4 {
            // A template that nobody has seen leaves nothing behind.
            while !running.list::<ReplicaSet>().await.iter().any(|set| image(set) == "v2") {
                sleep(SECOND).await;
            }
            running.set_image("web", "v3").await;
        }
    }
    world.faults().heal();
    running.roll_out("web").await;
    sleep(900 * SECOND).await;
    let bounds = *bounds.lock();
    (end_state(&running).await, bounds)
}

fn check(seeds: std::ops::Range<u64>) {
    let (expected, _) = World::run(0, async |world| scenario(world, false).await);
    assert!(expected.contains("pods 6 ready 6"), "{expected}");
    for seed in seeds {
        let (state, bounds) = World::run(seed, async |world| scenario(world, true).await);
        assert_eq!(state, expected, "seed {seed}");
        assert!(bounds.most <= MOST && bounds.least_ready >= LEAST, "seed {seed}: {bounds:?}");
    }
}

/// 200 seeds, in four tests so that they run beside each other.
mod rollouts_that_crash_anywhere_end_alike_and_stay_within_their_bounds {
    use super::check;

    #[test]
    fn first_seeds() {
        check(0..50);
    }

    #[test]
    fn second_seeds() {
        check(50..100);
    }

    #[test]
    fn third_seeds() {
        check(100..150);
    }

    #[test]
    fn last_seeds() {
        check(150..200);
    }
}

#[test]
fn a_quiet_cluster_writes_nothing() {
    World::run(3, async |world| {
        let running = Running::new(&world);
        running.create::<Deployment>(deployment("web", 20)).await;
        running
            .create::<Deployment>({
                let mut other = deployment("other", 3);
                other["spec"]["minReadySeconds"] = json!(5);
                other
            })
            .await;
        running.roll_out("web").await;
        running.roll_out("other").await;
        sleep(60 * SECOND).await;
        let before = writes(&world);
        sleep(600 * SECOND).await;
        assert_eq!(writes(&world), before);
    });
}

fn writes(world: &World) -> usize {
    world.trace().requests(&Match::writes().client("controllers")).count()
}
