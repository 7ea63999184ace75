//! The order in which StatefulSets and DaemonSets make and delete their pods, with a crash at every write.
//!
//! The rules are checked after every single write of anybody. What they say needs the moment before: a pod that comes or
//! is deleted is compared with the pods that are there then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_sim::{Explorer, ObjectId, PointKind, Scenario, View, World, explore};

use super::{named, object, scenario};

/// How long nothing may be written in the end.
const REST: Duration = Duration::from_secs(30);

const CRASHES: [PointKind; 3] =
    [PointKind::CrashBefore, PointKind::CrashAfterCommit, PointKind::CrashAfterAnswer];
/// What lets the controller see old states alone.
const STALE: [PointKind; 3] = [PointKind::WatchLags, PointKind::WatchHeld, PointKind::StatesHidden];

/// A scenario with these faults alone.
fn only(kinds: &[PointKind], scenario: Scenario) -> Scenario {
    PointKind::ALL.into_iter().filter(|kind| !kinds.contains(kind)).fold(scenario, Scenario::without)
}

/// A scenario in which the controller crashes, and nothing else happens. What it does long after is another test's.
fn only_crashes(scenario: Scenario) -> Scenario {
    only(&CRASHES, scenario.rest(REST))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready" && condition.status == "True");
    ready.next().is_some()
}

fn is_going(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

fn revision(pod: &Pod) -> &str {
    pod.labels().get("controller-revision-hash").map(String::as_str).unwrap_or_default()
}

fn is_of(pod: &Pod, uid: Option<&String>) -> bool {
    pod.owner_references().iter().any(|owner| Some(&owner.uid) == uid)
}

/// How many revisions there were, and which numbers they got, depends on the way.
fn without_history(_: &ObjectId, object: &mut Value) {
    if object["kind"] == "ControllerRevision" {
        *object = Value::Null;
    }
}

/// The pods that were there at the moment before, by uid, and whether they were going.
#[derive(Default)]
struct Before(BTreeMap<String, bool>);

impl Before {
    /// The pods that have come since, and those that have been deleted since; a pod that is deleted at once is both.
    fn compare<'a>(&mut self, pods: &'a [Pod]) -> (Vec<&'a Pod>, Vec<&'a Pod>) {
        let uid = |pod: &Pod| pod.uid().unwrap_or_default();
        let came = pods.iter().filter(|pod| !self.0.contains_key(&uid(pod))).collect();
        let was_going = |pod: &Pod| self.0.get(&uid(pod)).copied().unwrap_or(false);
        let deleted = pods.iter().filter(|pod| is_going(pod) && !was_going(pod)).collect();
        self.0 = pods.iter().map(|pod| (uid(pod), is_going(pod))).collect();
        (came, deleted)
    }
}

fn place(pod: &Pod) -> i32 {
    let name = pod.name_any();
    name.rsplit_once('-').and_then(|(_, place)| place.parse().ok()).expect("a name with a place")
}

/// What an ordered StatefulSet promises: a pod comes when all before it are ready, and goes when all after it are gone;
/// one of an old template goes when all others are ready, and those after it are of the new one.
fn ordered(before: &mut Before, view: &View) -> Result<(), String> {
    let pods = view.all::<Pod>();
    let (came, deleted) = before.compare(&pods);
    let Some(set) = view.get::<StatefulSet>(Some("default"), "db") else { return Ok(()) };
    let replicas = set.spec.replicas.unwrap_or(1);
    let is_own = |pod: &&&Pod| is_of(pod, set.metadata.uid.as_ref());
    let at = |wanted: i32| pods.iter().find(|pod| place(pod) == wanted);
    let is_well = |wanted: i32| at(wanted).is_some_and(|pod| is_ready(pod) && !is_going(pod));
    for pod in came.iter().filter(is_own) {
        if let Some(behind) = (0..place(pod)).find(|place| !is_well(*place)) {
            return Err(format!("{} came while db-{behind} was not ready", pod.name_any()));
        }
    }
    let newest = set.status.as_ref().and_then(|status| status.update_revision.as_deref()).unwrap_or_default();
    let observed = set.status.as_ref().and_then(|status| status.observed_generation);
    let is_observed = observed >= set.metadata.generation;
    // Who has not heard of the last change goes on with the one before.
    let is_replaced = |pod: &Pod| {
        let mut others = pods.iter().filter(|other| place(other) != place(pod));
        let is_next =
            |other: &Pod| is_well(place(other)) && (place(other) < place(pod) || revision(other) == newest);
        !is_observed && revision(pod) != newest && others.all(is_next)
    };
    for pod in deleted.iter().filter(is_own) {
        let (name, place) = (pod.name_any(), place(pod));
        if place >= replicas {
            let after = pods.iter().find(|other| self::place(other) > place);
            if let Some(after) = after.filter(|_| !is_replaced(pod)) {
                return Err(format!("{name} went while {} was there", after.name_any()));
            }
        } else if revision(pod) != newest {
            if let Some(other) = (0..replicas).find(|other| *other != place && !is_well(*other)) {
                return Err(format!("{name} went to be replaced while db-{other} was not ready"));
            }
            let is_old = |other: &&Pod| self::place(other) > place && revision(other) != newest;
            if let Some(old) = pods.iter().find(is_old) {
                return Err(format!("{name} went to be replaced before {}", old.name_any()));
            }
        }
    }
    Ok(())
}

fn stateful_set(replicas: i32, image: &str) -> StatefulSet {
    let template = json!({
        "metadata": {"labels": {"app": "db"}},
        "spec": {"containers": [{"name": "main", "image": image}]},
    });
    let selector = json!({"matchLabels": {"app": "db"}});
    let spec = json!({"replicas": replicas, "serviceName": "db", "selector": selector, "template": template});
    object(json!({"metadata": named("db"), "spec": spec}))
}

/// Up, to another template, and down.
fn of_stateful_set() -> Scenario {
    let before: Mutex<Before> = Mutex::default();
    scenario("statefulset", "scheduler,node-lifecycle", 1)
        .apply(&stateful_set(3, "a"))
        .apply(&stateful_set(3, "b"))
        .apply(&stateful_set(1, "b"))
        .always("pods come and go in their order", move |view| ordered(&mut before.lock(), view))
        .with_history()
        .mask(without_history)
}

#[test]
#[ignore = "takes minutes"]
fn statefulset_order_when_the_controller_crashes_at_any_write() {
    explore(|_| only_crashes(of_stateful_set()));
}

#[test]
#[ignore = "takes minutes"]
fn statefulset_controller() {
    // A pod that is made anew by somebody's hand comes back; a set that is made anew gets other revisions.
    explore(|_| of_stateful_set().without(PointKind::Recreated).without(PointKind::ChildReverted));
}

/// The claims of a set that gives them up with its pods.
#[test]
#[ignore = "takes minutes"]
fn statefulset_claims() {
    explore(|_| {
        let claimed = |replicas| {
            let mut set = stateful_set(replicas, "a");
            let spec =
                json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
            set.spec.volume_claim_templates =
                Some(object(json!([{"metadata": {"name": "data"}, "spec": spec}])));
            set.spec.persistent_volume_claim_retention_policy =
                Some(object(json!({"whenScaled": "Delete", "whenDeleted": "Delete"})));
            set
        };
        let before: Mutex<Before> = Mutex::default();
        let beside = "scheduler,node-lifecycle,persistentvolume-binder,persistentvolumeclaim-protection,\
                      persistentvolume-protection";
        let scenario = scenario("statefulset", beside, 1)
            .apply(&claimed(2))
            .apply(&claimed(1))
            .apply(&claimed(2))
            .always("pods come and go in their order", move |view| ordered(&mut before.lock(), view))
            .with_history()
            .mask(without_history);
        only_crashes(scenario)
    });
}

/// The node that a pod of a DaemonSet is made for.
fn node(pod: &Pod) -> String {
    let pod = serde_json::to_value(pod).expect("an object is JSON");
    let terms =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let name = pod.pointer(&format!("{terms}/0/matchFields/0/values/0"));
    name.and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The nodes on which all is well, and those that have more than one living pod.
fn served(pods: &[Pod]) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut ready, mut known, mut crowded) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for pod in pods.iter().filter(|pod| !is_going(pod)) {
        let node = node(pod);
        if is_ready(pod) {
            ready.insert(node.clone());
        }
        if !known.insert(node.clone()) {
            crowded.insert(node);
        }
    }
    (ready, crowded)
}

const NODES: usize = 2;

/// Once every node is served: how many are not at a time, and on how many there are two pods.
fn within(is_up: &mut bool, view: &View, unserved: usize, surge: usize) -> Result<(), String> {
    let (ready, crowded) = served(&view.all::<Pod>());
    *is_up |= ready.len() == NODES;
    if *is_up && ready.len() + unserved < NODES {
        return Err(format!("only {ready:?} are served"));
    }
    if crowded.len() > surge {
        return Err(format!("there are two pods on {crowded:?}"));
    }
    Ok(())
}

fn daemon_set(image: &str, surges: bool) -> DaemonSet {
    let template = json!({
        "metadata": {"labels": {"app": "agent"}},
        "spec": {"containers": [{"name": "main", "image": image}]},
    });
    let rolling = if surges {
        json!({"maxSurge": 1, "maxUnavailable": 0})
    } else {
        json!({"maxUnavailable": 1, "maxSurge": 0})
    };
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
    let selector = json!({"matchLabels": {"app": "agent"}});
    let spec = json!({"selector": selector, "template": template, "updateStrategy": strategy});
    object(json!({"metadata": named("agent"), "spec": spec}))
}

fn rolled_out(surges: bool) -> Scenario {
    scenario("daemonset", "scheduler,node-lifecycle", NODES)
        .apply(&daemon_set("a", surges))
        .apply(&daemon_set("b", surges))
        .with_history()
        .mask(without_history)
}

fn of_daemon_set(surges: bool) -> Scenario {
    let is_up: Arc<Mutex<bool>> = Arc::default();
    let (unserved, surge) = if surges { (0, 1) } else { (1, 0) };
    rolled_out(surges).always("a rollout stays within its bounds", move |view| {
        within(&mut is_up.lock(), view, unserved, surge)
    })
}

#[test]
#[ignore = "takes minutes"]
fn daemonset_bounds_when_the_controller_crashes_at_any_write() {
    explore(|_| only_crashes(of_daemon_set(false)));
}

#[test]
#[ignore = "takes minutes"]
fn daemonset_surge_when_the_controller_crashes_at_any_write() {
    explore(|_| only_crashes(of_daemon_set(true)));
}

#[test]
#[ignore = "takes minutes"]
fn daemonset_controller() {
    // A set that is made anew loses its pods, whatever its bounds are; so does one whose pod somebody deletes.
    let hands = [PointKind::Recreated, PointKind::ChildDeleted, PointKind::ChildReverted];
    explore(move |_| hands.into_iter().chain(STALE).fold(of_daemon_set(false), Scenario::without));
}

/// Who sees old states takes pods that serve for pods that do not yet, and those are replaced beyond all bounds: so does
/// Kubernetes' own. It ends where it should nevertheless.
#[test]
#[ignore = "takes minutes"]
fn daemonset_when_its_view_is_stale() {
    explore(|_| only(&STALE, rolled_out(false)));
}

/// The rules see what breaks them: a set without an order, and a rollout beyond other bounds.
#[test]
fn the_rules_can_be_broken() {
    let parallel = |_: &World| {
        let mut set = stateful_set(2, "a");
        set.spec.pod_management_policy = Some("Parallel".to_owned());
        let before: Mutex<Before> = Mutex::default();
        scenario("statefulset", "scheduler,node-lifecycle", 1)
            .apply(&set)
            .always("pods come and go in their order", move |view| ordered(&mut before.lock(), view))
    };
    let found = Explorer::new("parallel", parallel).run().findings;
    assert!(found[0].report.contains("db-1 came while db-0 was not ready"), "{}", found[0].report);
    let strict = |_: &World| {
        let is_up: Mutex<bool> = Mutex::default();
        scenario("daemonset", "scheduler,node-lifecycle", NODES)
            .apply(&daemon_set("a", false))
            .apply(&daemon_set("b", false))
            .always("every node is served", move |view| within(&mut is_up.lock(), view, 0, 0))
            .with_history()
    };
    let found = Explorer::new("strict", strict).run().findings;
    assert!(found[0].report.contains("are served"), "{}", found[0].report);
}
