//! StatefulSets: order, identity, claims, rollouts.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::DeleteParams;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_env::Task;
use setpoint_sim::{Match, Refusal, Swarm, World};
use tokio::time::sleep;

use crate::kubelet::BROKEN;
use crate::support::{MINUTE, Running, SECOND, is_ready, start, watch_all};

fn run(scenario: impl AsyncFnOnce(Running)) {
    World::run(21, async |world| scenario(Running::new(&world)).await);
}

fn set(replicas: i32, spec: Value) -> Value {
    let mut set = json!({
        "metadata": {"name": "db"},
        "spec": {
            "replicas": replicas,
            "serviceName": "db",
            "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [{"name": "web", "image": "v1"}]},
            },
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        set["spec"][key] = value.clone();
    }
    set
}

fn claims() -> Value {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    json!([{"metadata": {"name": "data"}, "spec": spec}])
}

fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "image": image}]}}}})
}

fn image_of(pod: &Pod) -> &str {
    pod.spec.as_ref().unwrap().containers[0].image.as_deref().unwrap()
}

async fn pods(running: &Running) -> Vec<(String, String)> {
    running.list::<Pod>().await.iter().map(|pod| (pod.name_any(), image_of(pod).to_owned())).collect()
}

async fn names<K>(running: &Running) -> Vec<String>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + serde::de::DeserializeOwned
        + Clone
        + std::fmt::Debug,
{
    running.list::<K>().await.iter().map(|object| object.name_any()).collect()
}

/// Waits until the set is as its spec says.
async fn settle(running: &Running) -> StatefulSet {
    for _ in 0..1200 {
        let set: StatefulSet = running.get("db").await;
        let (replicas, status) = (set.spec.replicas.unwrap(), set.status.clone().unwrap_or_default());
        let is_settled = status.observed_generation == set.metadata.generation
            && status.replicas == replicas
            && status.available_replicas == Some(replicas)
            && (status.updated_replicas.unwrap_or(0) == replicas || replicas == 0);
        if is_settled {
            return set;
        }
        sleep(SECOND).await;
    }
    panic!("it does not settle: {:#?}", running.get::<StatefulSet>("db").await.status);
}

/// What was seen of the order of pods at every change.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Pods in the order of their first appearance, and those that went, in the order of their end.
    came: Vec<String>,
    going: Vec<String>,
    /// The most pods that were not ready at a time, once all were.
    was_up: bool,
    most_unready: usize,
    /// A pod that came while one in an earlier place was not ready, or went while one in a later place was there.
    out_of_order: Vec<String>,
}

fn place(name: &str) -> usize {
    name.rsplit_once('-').unwrap().1.parse().unwrap()
}

impl Seen {
    fn note(&mut self, pods: &BTreeMap<String, Pod>, replicas: usize) {
        for (name, pod) in pods {
            if !self.came.contains(&pod.uid().unwrap()) {
                self.came.push(pod.uid().unwrap());
                let is_behind = |earlier: usize| {
                    let earlier = pods.get(&format!("db-{earlier}"));
                    earlier.is_none_or(|pod| !is_ready(pod) || pod.metadata.deletion_timestamp.is_some())
                };
                if (0..place(name)).any(is_behind) {
                    self.out_of_order.push(format!("{name} came too early"));
                }
            }
            if pod.metadata.deletion_timestamp.is_some() && !self.going.contains(&pod.uid().unwrap()) {
                self.going.push(pod.uid().unwrap());
            }
        }
        let ready = pods.values().filter(|pod| is_ready(pod) && pod.metadata.deletion_timestamp.is_none());
        let ready = ready.count();
        self.was_up |= ready >= replicas;
        if self.was_up {
            self.most_unready = self.most_unready.max(replicas.saturating_sub(ready));
        }
    }
}

fn watch(world: &World, replicas: usize) -> (Arc<Mutex<Seen>>, Task<()>) {
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let inner = seen.clone();
    let task = watch_all::<Pod>(world, move |pods| inner.lock().note(pods, replicas));
    (seen, task)
}

#[test]
fn pods_come_in_order_with_names_labels_and_claims() {
    run(async |running| {
        let (seen, _watch) = watch(&running.world, 3);
        running.create::<StatefulSet>(set(3, json!({"volumeClaimTemplates": claims()}))).await;
        let settled = settle(&running).await;
        assert_eq!(names::<Pod>(&running).await, ["db-0", "db-1", "db-2"]);
        assert_eq!(names::<PersistentVolumeClaim>(&running).await, ["data-db-0", "data-db-1", "data-db-2"]);
        assert_eq!(seen.lock().out_of_order, Vec::<String>::new());
        let pod: Pod = running.get("db-1").await;
        let status = settled.status.unwrap();
        let revision = status.update_revision.clone().unwrap();
        assert_eq!(pod.labels()["statefulset.kubernetes.io/pod-name"], "db-1");
        assert_eq!(pod.labels()["apps.kubernetes.io/pod-index"], "1");
        assert_eq!(pod.labels()["controller-revision-hash"], revision);
        let spec = pod.spec.unwrap();
        assert_eq!((spec.hostname.as_deref(), spec.subdomain.as_deref()), (Some("db-1"), Some("db")));
        let claim = spec.volumes.unwrap()[0].persistent_volume_claim.clone().unwrap();
        assert_eq!(claim.claim_name, "data-db-1");
        assert_eq!(status.current_revision, status.update_revision);
        assert_eq!((status.current_replicas, status.collision_count), (Some(3), Some(0)));
        let claim: PersistentVolumeClaim = running.get("data-db-0").await;
        assert_eq!(claim.labels()["app"], "db");
        assert!(claim.metadata.owner_references.is_none());
        let events = running.events("db").await;
        let created = |note: &str| events.contains(&("SuccessfulCreate".to_owned(), note.to_owned()));
        assert!(created("Create Pod db-0 in StatefulSet db successful"), "{events:?}");
        assert!(created("Create Claim data-db-0 Pod db-0 in StatefulSet db success"), "{events:?}");
    });
}

#[test]
fn a_pod_that_is_not_ready_holds_those_after_it() {
    run(async |running| {
        let mut broken = set(3, json!({}));
        broken["spec"]["template"]["metadata"]["annotations"] = json!({BROKEN: "yes"});
        running.create::<StatefulSet>(broken).await;
        sleep(5 * MINUTE).await;
        assert_eq!(names::<Pod>(&running).await, ["db-0"]);
        running
            .create::<StatefulSet>({
                let mut other = set(3, json!({"podManagementPolicy": "Parallel"}));
                other["metadata"]["name"] = json!("cache");
                other["spec"]["selector"]["matchLabels"]["app"] = json!("cache");
                other["spec"]["template"]["metadata"] =
                    json!({"labels": {"app": "cache"}, "annotations": {BROKEN: "yes"}});
                other
            })
            .await;
        sleep(MINUTE).await;
        assert_eq!(names::<Pod>(&running).await, ["cache-0", "cache-1", "cache-2", "db-0"]);
    });
}

#[test]
fn scaling_down_takes_the_last_and_keeps_the_claims() {
    run(async |running| {
        running.create::<StatefulSet>(set(3, json!({"volumeClaimTemplates": claims()}))).await;
        settle(&running).await;
        running.patch::<StatefulSet>("db", json!({"spec": {"replicas": 1}})).await;
        settle(&running).await;
        assert_eq!(names::<Pod>(&running).await, ["db-0"]);
        assert_eq!(names::<PersistentVolumeClaim>(&running).await.len(), 3);
        let events = running.events("db").await;
        let deleted: Vec<_> = events.iter().filter(|(reason, _)| reason == "SuccessfulDelete").collect();
        assert_eq!(deleted[0].1, "Delete Pod db-2 in StatefulSet db successful");
        assert_eq!(deleted[1].1, "Delete Pod db-1 in StatefulSet db successful");
    });
}

#[test]
fn claims_go_with_what_the_policy_says() {
    run(async |running| {
        let policy = json!({"whenScaled": "Delete", "whenDeleted": "Delete"});
        let spec = json!({"volumeClaimTemplates": claims(), "persistentVolumeClaimRetentionPolicy": policy});
        running.create::<StatefulSet>(set(2, spec)).await;
        settle(&running).await;
        let owner = async |name: &str| {
            let claim: PersistentVolumeClaim = running.get(name).await;
            claim
                .owner_references()
                .iter()
                .map(|owner| (owner.kind.clone(), owner.name.clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(owner("data-db-1").await, [("StatefulSet".to_owned(), "db".to_owned())]);
        running.patch::<StatefulSet>("db", json!({"spec": {"replicas": 1}})).await;
        settle(&running).await;
        // The garbage collector, which does not run here, deletes it with its pod.
        assert_eq!(owner("data-db-1").await, [("Pod".to_owned(), "db-1".to_owned())]);
        assert_eq!(owner("data-db-0").await, [("StatefulSet".to_owned(), "db".to_owned())]);
        running.patch::<StatefulSet>("db", json!({"spec": {"replicas": 2}})).await;
        sleep(MINUTE).await;
        // As long as the claim is that of the earlier pod, there is no other one.
        assert_eq!(names::<Pod>(&running).await, ["db-0"]);
        // Nobody sees to the protection of claims here, either.
        running.patch::<PersistentVolumeClaim>("data-db-1", json!({"metadata": {"finalizers": null}})).await;
        running.api::<PersistentVolumeClaim>().delete("data-db-1", &DeleteParams::default()).await.unwrap();
        settle(&running).await;
        assert_eq!(owner("data-db-1").await, [("StatefulSet".to_owned(), "db".to_owned())]);
        let keep = json!({"spec": {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Retain", "whenDeleted": "Retain"}}});
        running.patch::<StatefulSet>("db", keep).await;
        sleep(10 * SECOND).await;
        assert_eq!(owner("data-db-1").await, []);
        let events = running.events("db").await;
        let told = |reason: &str, note: &str| events.contains(&(reason.to_owned(), note.to_owned()));
        for pod in ["db-0", "db-1"] {
            assert!(
                told("SuccessfulCreate", &format!("Create Pod {pod} in StatefulSet db successful")),
                "{events:?}"
            );
            assert!(
                told("SuccessfulUpdate", &format!("Update Pod {pod} in StatefulSet db successful")),
                "{events:?}"
            );
        }
    });
}

#[test]
fn a_pod_is_told_of_though_its_claims_cannot_get_their_owner_at_once() {
    run(async |running| {
        let policy = json!({"whenScaled": "Delete", "whenDeleted": "Delete"});
        let spec = json!({"volumeClaimTemplates": claims(), "persistentVolumeClaimRetentionPolicy": policy});
        let mut claim = claims()[0].clone();
        claim["metadata"]["name"] = json!("data-db-0");
        running.create::<PersistentVolumeClaim>(claim).await;
        sleep(SECOND).await;
        // Whoever binds the claim is quicker.
        let patches = Match::patch("persistentvolumeclaims").client("controllers");
        running.world.faults().on(patches).refuse(Refusal::Conflict).times(1);
        running.create::<StatefulSet>(set(1, spec)).await;
        settle(&running).await;
        sleep(MINUTE).await;
        let claim: PersistentVolumeClaim = running.get("data-db-0").await;
        assert_eq!(claim.owner_references().len(), 1);
        let events = running.events("db").await;
        let told = ("SuccessfulCreate".to_owned(), "Create Pod db-0 in StatefulSet db successful".to_owned());
        assert!(events.contains(&told), "{events:?}");
        running.world.faults().assert_all_fired();
    });
}

#[test]
fn a_rollout_goes_from_the_last_to_the_first_and_stops_at_the_partition() {
    run(async |running| {
        let (seen, _watch) = watch(&running.world, 4);
        let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}});
        running.create::<StatefulSet>(set(4, json!({"updateStrategy": rolling}))).await;
        settle(&running).await;
        running.patch::<StatefulSet>("db", image("v2")).await;
        sleep(MINUTE).await;
        let images = pods(&running).await.into_iter().map(|(_, image)| image).collect::<Vec<_>>();
        assert_eq!(images, ["v1", "v1", "v2", "v2"]);
        let status = running.get::<StatefulSet>("db").await.status.unwrap();
        assert_ne!(status.current_revision, status.update_revision);
        assert_eq!((status.current_replicas, status.updated_replicas), (Some(2), Some(2)));
        // A pod below the partition comes back as it was.
        running.api::<Pod>().delete("db-0", &DeleteParams::default()).await.unwrap();
        sleep(MINUTE).await;
        assert_eq!(pods(&running).await[0], ("db-0".to_owned(), "v1".to_owned()));
        running
            .patch::<StatefulSet>(
                "db",
                json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}}),
            )
            .await;
        let status = settle(&running).await.status.unwrap();
        assert_eq!(status.current_revision, status.update_revision);
        assert_eq!(seen.lock().most_unready, 1);
        // Back again: the revision of old is the newest one now.
        running.patch::<StatefulSet>("db", image("v1")).await;
        settle(&running).await;
        let revisions: Vec<_> = running.list::<ControllerRevision>().await;
        let mut numbers: Vec<_> = revisions.iter().map(|revision| revision.revision.unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [2, 3]);
    });
}

#[test]
fn several_pods_roll_at_a_time_if_they_may() {
    run(async |running| {
        let (seen, _watch) = watch(&running.world, 6);
        let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "50%"}});
        let spec =
            json!({"updateStrategy": rolling, "podManagementPolicy": "Parallel", "minReadySeconds": 5});
        running.create::<StatefulSet>(set(6, spec)).await;
        settle(&running).await;
        running.patch::<StatefulSet>("db", image("v2")).await;
        settle(&running).await;
        assert_eq!(seen.lock().most_unready, 3);
        assert!(pods(&running).await.iter().all(|(_, image)| image == "v2"));
    });
}

#[test]
fn on_delete_leaves_pods_as_they_are() {
    run(async |running| {
        let spec = json!({"updateStrategy": {"type": "OnDelete"}, "ordinals": {"start": 5}, "revisionHistoryLimit": 1});
        running.create::<StatefulSet>(set(2, spec)).await;
        settle(&running).await;
        assert_eq!(names::<Pod>(&running).await, ["db-5", "db-6"]);
        for image in ["v2", "v3", "v4"].map(image) {
            running.patch::<StatefulSet>("db", image).await;
            sleep(10 * SECOND).await;
        }
        assert!(pods(&running).await.iter().all(|(_, image)| image == "v1"));
        // The one of the pods, the newest, and one of history.
        assert_eq!(running.list::<ControllerRevision>().await.len(), 3);
        running.api::<Pod>().delete("db-5", &DeleteParams::default()).await.unwrap();
        sleep(10 * SECOND).await;
        let images = pods(&running).await.into_iter().map(|(_, image)| image).collect::<Vec<_>>();
        assert_eq!(images, ["v4", "v1"]);
    });
}

/// Up, to another template, down and up again, while the controller dies and the network fails.
async fn scenario(world: World, has_faults: bool) -> (Vec<(String, String)>, Seen) {
    let mut running = Running::new(&world);
    let (seen, _watch) = watch(&world, 3);
    running.create::<StatefulSet>(set(3, json!({"volumeClaimTemplates": claims()}))).await;
    settle(&running).await;
    if has_faults {
        world.faults().swarm(Swarm::every(0.03));
    }
    running.patch::<StatefulSet>("db", image("v2")).await;
    for step in 0..8 {
        sleep(std::time::Duration::from_millis(world.env().random_range(1..=3_000))).await;
        if has_faults {
            running.crash();
            sleep(std::time::Duration::from_millis(world.env().random_range(0..=2_000))).await;
            running.cluster = Some(start(&world));
        }
        match step {
            3 => drop(running.patch::<StatefulSet>("db", json!({"spec": {"replicas": 1}})).await),
            5 => drop(running.patch::<StatefulSet>("db", json!({"spec": {"replicas": 3}})).await),
            _ => {}
        }
    }
    world.faults().heal();
    settle(&running).await;
    sleep(MINUTE).await;
    let seen = seen.lock().clone();
    (pods(&running).await, seen)
}

#[test]
fn the_order_holds_when_the_controller_dies_anywhere() {
    let (expected, _) = World::run(0, async |world| scenario(world, false).await);
    for seed in 0..30 {
        let (pods, seen) = World::run(seed, async |world| scenario(world, true).await);
        assert_eq!(pods, expected, "seed {seed}");
        assert_eq!(seen.out_of_order, Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn a_set_at_rest_writes_nothing() {
    run(async |running| {
        running
            .create::<StatefulSet>(set(3, json!({"volumeClaimTemplates": claims(), "minReadySeconds": 3})))
            .await;
        settle(&running).await;
        sleep(MINUTE).await;
        let writes = || running.world.trace().requests(&Match::writes().client("controllers")).count();
        let before = writes();
        sleep(10 * MINUTE).await;
        assert_eq!(writes(), before);
    });
}
