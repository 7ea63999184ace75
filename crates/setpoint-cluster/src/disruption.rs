//! PodDisruptionBudgets: how many pods may go right now. The server's `/eviction` spends what is allowed here.

mod scale;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::PostParams;
use kube::core::{Selector, SelectorExt};
use kube::{Api, ResourceExt};
use setpoint::conditions::{new_condition, set_condition};
use setpoint::{
    Action, Context, Controller, Event, Lister, ObjectKey, ReconcileError, SharedInformerFactory,
};

use crate::number::{Round, count, scaled, unless_zero};
use crate::scale_target::Targets;
use crate::{failure, pod, selected};

/// How long one reconcile may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// What its events are from.
const NAME: &str = "controllermanager";
/// How long an eviction that was allowed may take until the pod is gone.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_secs(2 * 60);
const CONDITION: &str = "DisruptionAllowed";

pub(crate) fn controller(informers: &SharedInformerFactory) -> Controller {
    let budgets = informers.informer::<PodDisruptionBudget>();
    selected::index_selectors(&budgets, asked);
    selected::index_objects(&informers.informer::<Pod>());
    let budgets = budgets.lister();
    let by_scale = |budgets: &Lister<PodDisruptionBudget>, namespace: Option<String>| {
        let namespace = namespace.unwrap_or_default();
        let all = budgets.namespace(&namespace).list();
        // A budget in numbers of pods does not ask how many there should be.
        let relative = all.iter().filter(|budget| needs_scale(budget));
        relative.map(|budget| ObjectKey::namespaced(&namespace, &budget.name_any())).collect::<Vec<_>>()
    };
    let (of_pod, of_set, of_stateful, of_controller, of_deployment) =
        (budgets.clone(), budgets.clone(), budgets.clone(), budgets.clone(), budgets);
    Controller::of::<PodDisruptionBudget>(.., NAME, reconcile)
        .watches::<Pod>(.., move |pod| covering(&of_pod, pod))
        .watches::<ReplicaSet>(.., move |set| by_scale(&of_set, set.namespace()))
        .watches::<StatefulSet>(.., move |set| by_scale(&of_stateful, set.namespace()))
        .watches::<ReplicationController>(.., move |set| by_scale(&of_controller, set.namespace()))
        .watches::<Deployment>(.., move |set| by_scale(&of_deployment, set.namespace()))
        .time_limit(TIME_LIMIT)
        .state(Targets::default())
}

fn needs_scale(budget: &PodDisruptionBudget) -> bool {
    let Some(spec) = &budget.spec else { return false };
    spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
}

/// What a budget covers: nothing without a selector, everything with an empty one.
fn selector(budget: &PodDisruptionBudget) -> Option<Selector> {
    let selector = budget.spec.as_ref()?.selector.clone()?;
    Selector::try_from(selector).ok()
}

/// The labels that every pod has that a budget covers, besides other conditions.
fn asked(budget: &PodDisruptionBudget) -> Option<&BTreeMap<String, String>> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    let selector = budget.spec.as_ref()?.selector.as_ref()?;
    Some(selector.match_labels.as_ref().unwrap_or(&NONE))
}

fn covering(budgets: &Lister<PodDisruptionBudget>, pod: &Pod) -> Vec<ObjectKey> {
    let namespace = pod.namespace().unwrap_or_default();
    let all = selected::selectors_of(budgets, pod);
    let covering = all.iter().filter(|b| selector(b).is_some_and(|selector| selector.matches(pod.labels())));
    covering.map(|budget| ObjectKey::namespaced(&namespace, &budget.name_any())).collect()
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(budget) = cx.lister::<PodDisruptionBudget>()?.get(&key) else { return Ok(Action::done()) };
    if budget.metadata.deletion_timestamp.is_some() {
        return Ok(Action::done());
    }
    let namespace = key.namespace().unwrap_or_default();
    let mut pods = match asked(&budget) {
        Some(labels) => selected::having(&cx.lister::<Pod>()?, namespace, labels),
        None => Vec::new(),
    };
    let selector = selector(&budget);
    pods.retain(|pod| selector.as_ref().is_some_and(|selector| selector.matches(pod.labels())));
    if pods.is_empty() {
        cx.recorder().event(&*budget, Event::normal("NoPods", "No matching pods found"));
    }
    let api: Api<PodDisruptionBudget> = Api::namespaced(cx.client(), namespace);
    let now = cx.env().now();
    let known = budget.status.clone().unwrap_or_default();
    let (expected, desired) = match expected(&cx, &budget, &pods).await {
        Ok(found) => found,
        Err(why) => {
            let note = format!("Failed to calculate the number of expected pods: {why}");
            cx.recorder().event(&*budget, Event::warning("CalculateExpectedPodCountFailed", note));
            let mut status = known;
            status.disruptions_allowed = Some(0);
            set_allowed(&mut status, "False", "SyncFailed", &why, now);
            write(&api, &budget, status).await?;
            return Err(why.into());
        }
    };
    let disrupted = disrupted(&cx, &budget, &pods, now);
    let is_healthy = |pod: &&Arc<Pod>| {
        pod.metadata.deletion_timestamp.is_none()
            && !disrupted.contains_key(&pod.name_any())
            && pod::is_ready(pod)
    };
    let healthy = count(pods.iter().filter(is_healthy).count());
    let allowed = if expected <= 0 { 0 } else { healthy.saturating_sub(desired).max(0) };
    let next = disrupted.values().filter_map(|time| time.0.checked_add(DELETION_TIMEOUT).ok()).min();
    let mut status = PodDisruptionBudgetStatus {
        current_healthy: Some(healthy),
        desired_healthy: Some(desired),
        expected_pods: Some(expected),
        disruptions_allowed: Some(allowed),
        disrupted_pods: Some(disrupted).filter(|disrupted| !disrupted.is_empty()),
        observed_generation: budget.metadata.generation,
        conditions: known.conditions,
    };
    match unless_zero(allowed) {
        Some(_) => set_allowed(&mut status, "True", "SufficientPods", "", now),
        None => set_allowed(&mut status, "False", "InsufficientPods", "", now),
    }
    write(&api, &budget, status).await?;
    Ok(match next {
        Some(at) => {
            Action::requeue_after(now.duration_until(at).max(SignedDuration::from_secs(1)).unsigned_abs())
        }
        None => Action::done(),
    })
}

/// Writes a status, at the version that it was computed from: an eviction may have spent something meanwhile.
async fn write(
    api: &Api<PodDisruptionBudget>,
    budget: &PodDisruptionBudget,
    status: PodDisruptionBudgetStatus,
) -> Result<(), kube::Error> {
    if budget.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let changed = PodDisruptionBudget { status: Some(status), ..budget.clone() };
    match api.replace_status(&budget.name_any(), &PostParams::default(), &changed).await {
        Err(error) if failure::is_not_found(&error) => Ok(()),
        written => written.map(drop),
    }
}

fn set_allowed(
    status: &mut PodDisruptionBudgetStatus,
    value: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let generation = status.observed_generation;
    let mut condition = new_condition(CONDITION, value == "True", reason, message);
    condition.observed_generation = generation;
    set_condition(status.conditions.get_or_insert_default(), condition, crate::time::whole_second(now));
}

/// How many pods there should be, and how many of them healthy.
async fn expected(
    cx: &Context,
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
) -> Result<(i32, i32), String> {
    let Some(spec) = &budget.spec else { return Ok((0, 0)) };
    let scale = async || -> Result<i32, String> {
        let (expected, unmanaged) = scale::of(cx, pods).await?;
        if !unmanaged.is_empty() {
            let note = format!(
                "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the \
                 status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for \
                 these pods please set \".spec.minAvailable\" field of the PDB to an integer value.",
                spec.selector.as_ref().map_or_else(|| "nil".to_owned(), go_string)
            );
            cx.recorder().event(budget, Event::warning("UnmanagedPods", note));
        }
        Ok(expected)
    };
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => {
            let expected = scale().await?;
            Ok((expected, expected.saturating_sub(scaled(most, expected, Round::Up)).max(0)))
        }
        (None, Some(IntOrString::Int(least))) => Ok((count(pods.len()), *least)),
        (None, Some(least)) => {
            let expected = scale().await?;
            Ok((expected, scaled(least, expected, Round::Up)))
        }
        (None, None) => Ok((0, 0)),
    }
}

/// A selector as Go prints it, which people find in the event.
fn go_string(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().flatten();
    let labels: String = labels.map(|(key, value)| format!("{key}: {value},")).collect();
    let expressions = selector.match_expressions.iter().flatten().map(|one| {
        let values = one.values.as_deref().unwrap_or_default().join(" ");
        format!("LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},", one.key, one.operator)
    });
    let expressions: String = expressions.collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

/// The pods whose eviction was allowed and that are not gone yet. One that takes too long counts again.
fn disrupted(
    cx: &Context,
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    now: Timestamp,
) -> BTreeMap<String, Time> {
    let known = budget.status.as_ref().and_then(|status| status.disrupted_pods.as_ref());
    let mut disrupted = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let name = pod.name_any();
        let Some(time) = known.and_then(|known| known.get(&name)) else { continue };
        if time.0.checked_add(DELETION_TIMEOUT).is_ok_and(|end| end < now) {
            let namespace = budget.namespace().unwrap_or_default();
            let budget = budget.name_any();
            let note = format!("Pod was expected by PDB {namespace}/{budget} to be deleted but it wasn't");
            cx.recorder().event(&**pod, Event::warning("NotDeleted", note));
        } else {
            disrupted.insert(name, time.clone());
        }
    }
    disrupted
}
