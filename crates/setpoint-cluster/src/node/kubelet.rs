//! Moves pods through their lives and writes down where they are: one controller for the pods of all nodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use setpoint::k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, PodStatus, Secret};
use setpoint::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use setpoint::kube::api::{DeleteParams, Preconditions};
use setpoint::kube::core::PartialObjectMeta;
use setpoint::kube::{self, Api, Client, Resource};
use setpoint::{
    Action, Change, Context, Controller, Env, Held, Lister, ObjectKey, Predicate, ReconcileError, Watch,
};

use super::annotations::Behaviour;
use super::life::{Life, Moment, Stage, Told};
use super::obstacle::{Need, Obstacle, Waiting};
use super::{Machine, Nodes, obstacle, status};
use crate::{caches, pod, unread};

/// How long one reconcile may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// What events are reported by, as `kubectl describe` shows it.
const NAME: &str = "kubelet";
/// How many pods are written at the same time. Each write waits for the disk; those that wait together share the wait.
const WORKERS: usize = 64;
/// How often a pod looks whether its node is on again.
const OFF: Duration = Duration::from_secs(5);
/// How often a pod looks whether its node is registered.
const UNREGISTERED: Duration = Duration::from_millis(100);

/// The nodes, and the lives of the pods on them.
struct Kubelet {
    nodes: Nodes,
    lives: Mutex<BTreeMap<ObjectKey, Life>>,
    waiting: Arc<Waiting>,
}

/// What pods may need before they start.
struct Needs {
    maps: Lister<PartialObjectMeta<ConfigMap>>,
    secrets: Lister<PartialObjectMeta<Secret>>,
    claims: Lister<PersistentVolumeClaim>,
}

pub(super) fn controller(nodes: Nodes) -> Controller {
    let waiting: Arc<Waiting> = Arc::default();
    let wake = |kind: Need| {
        let waiting = waiting.clone();
        move |meta: &ObjectMeta| waiting.waiting_for(kind, meta.namespace.as_deref(), meta.name.as_deref())
    };
    let (of_map, of_secret, of_claim) = (wake(Need::ConfigMap), wake(Need::Secret), wake(Need::Claim));
    // Pods that have no node are nobody's business here.
    let on_a_node = |pod: &Held<Pod>| !pod::node_name(pod).is_empty();
    let pods = Watch::<Pod>::new().filter(Predicate::new(move |change| match change {
        Change::Added(pod) | Change::Deleted(pod) => on_a_node(pod),
        Change::Updated(old, new) => on_a_node(new) || on_a_node(old),
    }));
    Controller::of(pods, NAME, reconcile)
        .watches(Watch::<ConfigMap>::metadata_only(), move |map| of_map(&map.metadata))
        .watches(Watch::<Secret>::metadata_only(), move |secret| of_secret(&secret.metadata))
        .watches::<PersistentVolumeClaim>(.., move |claim| of_claim(&claim.metadata))
        .workers(WORKERS)
        .time_limit(TIME_LIMIT)
        .state(Kubelet { nodes, lives: Mutex::default(), waiting })
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let kubelet = cx.state::<Kubelet>()?;
    let Some(pod) = cx.lister::<Pod>()?.get(&key) else {
        kubelet.forget(&key);
        return Ok(Action::done());
    };
    let Some(machine) = kubelet.machine_of(&pod) else { return Ok(Action::done()) };
    if !machine.is_on() {
        return Ok(Action::requeue_after(OFF));
    }
    if !machine.is_registered() {
        return Ok(Action::requeue_after(UNREGISTERED));
    }
    let now = Moment::now(cx.env());
    let needs = Needs { maps: cx.lister()?, secrets: cx.lister()?, claims: cx.lister()? };
    let (life, told) = kubelet.advance(&key, &pod, now, cx.env(), &needs);
    let wanted = kubelet.status(machine, &pod, &life, now, &cx.lister::<Pod>()?);
    let api: Api<Pod> = Api::namespaced(cx.client(), key.namespace().unwrap_or_default());
    if write(&cx.client(), &key, &pod, &wanted).await? == Written::Gone {
        kubelet.forget(&key);
        return Ok(Action::done());
    }
    tell(&cx, &pod, told);
    if matches!(life.stage, Stage::Ended { .. }) {
        remove(&api, &pod).await?;
        return Ok(Action::done());
    }
    Ok(next(&life, &pod, now))
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
}

/// When the life goes on.
fn next(life: &Life, pod: &Pod, now: Moment) -> Action {
    let due = life.due().map(|due| due.saturating_duration_since(now.instant));
    let deadline =
        life.deadline(pod).map(|end| Duration::try_from(end.duration_since(now.wall)).unwrap_or_default());
    match due.into_iter().chain(deadline).min() {
        Some(wait) => Action::requeue_after(wait),
        None => Action::done(),
    }
}

impl Kubelet {
    fn machine_of(&self, pod: &Pod) -> Option<&Machine> {
        self.nodes.inner.machines.get(pod.spec.as_ref()?.node_name.as_deref()?)
    }

    fn forget(&self, key: &ObjectKey) {
        self.waiting.set(key, None);
        if let Some(life) = self.lives.lock().remove(key) {
            self.release(&life);
        }
    }

    /// Frees the address of a pod whose life is over.
    fn release(&self, life: &Life) {
        if let Some(machine) = self.nodes.inner.machines.get(&life.node) {
            machine.release(&life.uid);
        }
    }

    /// Where the pod is now. Another pod of the same name begins anew.
    fn advance(
        &self,
        key: &ObjectKey,
        pod: &Pod,
        now: Moment,
        env: &Env,
        needs: &Needs,
    ) -> (Life, Vec<Told>) {
        let delays = &self.nodes.inner.config.delays;
        let mut lives = self.lives.lock();
        let find = || Life::find(pod, now, env, delays);
        let life = lives.entry(key.clone()).or_insert_with(find);
        if Some(&life.uid) != pod.metadata.uid.as_ref() {
            self.release(&std::mem::replace(life, find()));
        }
        let obstacle = if life.is_before_start() { self.obstacle(key, pod, needs) } else { None };
        let told = life.advance(pod, obstacle.as_ref(), now, env, delays);
        if !matches!(life.stage, Stage::Blocked(_)) {
            self.waiting.set(key, None);
        }
        (life.clone(), told)
    }

    /// What a pod needs and does not have. It is woken when that has changed.
    fn obstacle(&self, key: &ObjectKey, pod: &Pod, needs: &Needs) -> Option<Obstacle> {
        let namespace = key.namespace().unwrap_or_default();
        let Needs { maps, secrets, claims } = needs;
        let why_not = |kind: Need, name: &str| {
            let is_there = match kind {
                Need::ConfigMap => maps.namespace(namespace).get(name).is_some(),
                Need::Secret => secrets.namespace(namespace).get(name).is_some(),
                Need::Claim => match claims.namespace(namespace).get(name) {
                    Some(claim) if !is_bound(&claim) => return Some("is not bound"),
                    claim => claim.is_some(),
                },
            };
            (!is_there).then_some("not found")
        };
        let found = obstacle::first(pod, why_not)?;
        self.waiting.set(key, Some((found.kind, ObjectKey::namespaced(namespace, &found.name))));
        // It may have come before anybody knew that it is waited for.
        obstacle::first(pod, why_not)
    }

    fn status(
        &self,
        machine: &Machine,
        pod: &Pod,
        life: &Life,
        now: Moment,
        pods: &Lister<Pod>,
    ) -> PodStatus {
        let behaviour = Behaviour::of(pod, self.nodes.inner.config.delays.job);
        let is_host = pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
        let current = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref());
        let has_network =
            !matches!(life.stage, Stage::Creating) && (life.started.is_some() || current.is_some());
        let pod_ip = match (is_host, has_network || matches!(life.stage, Stage::Init(_))) {
            (true, _) => Some(machine.host_ip()),
            (false, true) => Some(machine.pod_ip(&life.uid, current, |address| has_address(pods, address))),
            (false, false) => None,
        };
        let place = status::Place { host_ip: machine.host_ip(), pod_ip, now: now.wall };
        status::status(pod, life, &behaviour, &place)
    }
}

/// Whether the cache shows a pod with this address.
fn has_address(pods: &Lister<Pod>, address: &str) -> bool {
    pods.index_keys(caches::BY_ADDRESS, address).is_ok_and(|pods| !pods.is_empty())
}

#[derive(PartialEq)]
enum Written {
    Done,
    Gone,
}

/// Writes the status if it is not what the pod has. Conditions are merged by type: those of others stay.
async fn write(
    client: &Client,
    key: &ObjectKey,
    pod: &Pod,
    wanted: &PodStatus,
) -> Result<Written, kube::Error> {
    if pod.status.as_ref() == Some(wanted) {
        return Ok(Written::Done);
    }
    let namespace = key.namespace().unwrap_or_default();
    let patched = if has_old_reasons(wanted, pod) {
        let mut status: Value = serde_json::to_value(wanted).map_err(kube::Error::SerdeError)?;
        drop_old_reasons(&mut status, pod);
        unread::patch_status::<Pod, _>(client, namespace, key.name(), &StatusPatch::new(pod, &status)).await
    } else {
        unread::patch_status::<Pod, _>(client, namespace, key.name(), &StatusPatch::new(pod, wanted)).await
    };
    match patched {
        Ok(()) => Ok(Written::Done),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Written::Gone),
        Err(error) => Err(error),
    }
}

/// A status for this pod, and no other one of its name.
#[derive(Serialize)]
struct StatusPatch<'a, S> {
    metadata: OfPod<'a>,
    status: &'a S,
}

#[derive(Serialize)]
struct OfPod<'a> {
    uid: Option<&'a str>,
}

impl<'a, S> StatusPatch<'a, S> {
    fn new(pod: &'a Pod, status: &'a S) -> StatusPatch<'a, S> {
        StatusPatch { metadata: OfPod { uid: pod.metadata.uid.as_deref() }, status }
    }
}

/// Whether a condition had a reason or a message that it is to have no more.
fn has_old_reasons(wanted: &PodStatus, pod: &Pod) -> bool {
    let old = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    wanted.conditions.iter().flatten().any(|new| {
        let old = old.iter().find(|old| old.type_ == new.type_);
        old.is_some_and(|old| {
            (old.reason.is_some() && new.reason.is_none()) || (old.message.is_some() && new.message.is_none())
        })
    })
}

/// A merge keeps what it is not told of: a condition that has no reason any more must say so.
fn drop_old_reasons(status: &mut Value, pod: &Pod) {
    let old = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let new = status["conditions"].as_array_mut();
    for condition in new.into_iter().flatten().filter_map(Value::as_object_mut) {
        let Some(old) = old.iter().find(|old| condition["type"] == old.type_) else { continue };
        for (field, had) in [("reason", old.reason.is_some()), ("message", old.message.is_some())] {
            if had {
                condition.entry(field).or_insert(Value::Null);
            }
        }
    }
}

fn tell(cx: &Context, pod: &Pod, told: Vec<Told>) {
    for (field_path, event) in told {
        let mut about = pod.object_ref(&());
        about.field_path = field_path;
        cx.recorder().event_about(about, event);
    }
}

/// Takes a pod that was deleted, and whose containers have ended, from the server.
async fn remove(api: &Api<Pod>, pod: &Pod) -> Result<(), kube::Error> {
    let meta = &pod.metadata;
    if meta.deletion_timestamp.is_none() || meta.deletion_grace_period_seconds == Some(0) {
        return Ok(());
    }
    let preconditions = Preconditions { uid: meta.uid.clone(), resource_version: None };
    let now = DeleteParams::default().grace_period(0).preconditions(preconditions);
    match api.delete(meta.name.as_deref().unwrap_or_default(), &now).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}
