//! ResourceQuotas: what is in use. Admission charges a quota when something comes; here it is counted again when something
//! goes, when the quota changes, and from time to time.

mod counters;
mod releases;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, ResourceQuotaStatus, Service};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde_json::Value;
use setpoint::controller::ListerError;
use setpoint::{Action, Context, Controller, Manager, Object, ObjectKey, ReconcileError, Watch, is_resync};
use setpoint_apiserver::quota::{Amounts, Counted};

use self::counters::Counters;
use self::releases::Releases;
use crate::controllers::Setup;
use crate::failure;

/// How long one reconcile may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);
const NAME: &str = "resourcequota-controller";
const WORKERS: usize = 5;
/// How often everything is counted again without a reason.
const RESYNC: Duration = Duration::from_secs(5 * 60);
/// How long after a usage was lowered it is counted again: something may have been charged that was not there yet.
const SECOND_LOOK: Duration = Duration::from_secs(10);
/// How long to wait when the quota was charged meanwhile.
const AFTER_CONFLICT: Duration = Duration::from_millis(50);

pub(crate) fn add_to(manager: Manager, setup: &Setup) -> Manager {
    let releases = Arc::new(Releases::default());
    let counters = Counters::new(setup.client.clone(), setup.env.clone(), releases.clone());
    let informers = manager.informers();
    let quotas = informers.informer::<ResourceQuota>().lister();
    releases::of_pods(&informers.informer::<Pod>(), &releases);
    releases::of_services(&informers.informer::<Service>(), &releases);
    releases::of_claims(&informers.informer::<PersistentVolumeClaim>(), &releases);
    // Who comes is charged by admission: counting then would lower what was charged for those who are on their way.
    let all = Watch::<ResourceQuota>::new();
    let controller = Controller::of(all.filter_updates(is_resync), NAME, reconcile)
        .watches::<ResourceQuota>(
            ..,
            |quota| if is_outdated(quota) { vec![key_of(quota)] } else { Vec::new() },
        )
        .reads::<Pod>(..)
        .reads::<Service>(..)
        .reads::<PersistentVolumeClaim>(..)
        .triggered_by(releases::keys(releases, quotas))
        .resync(RESYNC)
        .workers(WORKERS)
        .time_limit(TIME_LIMIT)
        .state(counters);
    manager.controller(controller)
}

fn key_of(quota: &ResourceQuota) -> ObjectKey {
    ObjectKey::namespaced(&quota.namespace().unwrap_or_default(), &quota.name_any())
}

/// Whether the status is not about this spec.
fn is_outdated(quota: &ResourceQuota) -> bool {
    let hard = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref());
    let status = quota.status.as_ref();
    let known = status.and_then(|status| status.hard.as_ref());
    let is_empty = |amounts: Option<&BTreeMap<String, Quantity>>| amounts.is_none_or(BTreeMap::is_empty);
    hard != known && !(is_empty(hard) && is_empty(known))
        || !is_empty(hard) && status.is_none_or(|status| status.used.is_none())
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let counters = cx.state::<Arc<Counters>>()?;
    let Some(quota) = cx.lister::<ResourceQuota>()?.get(&key) else {
        counters.forget(&cx.lister::<ResourceQuota>()?.list()).await;
        return Ok(Action::done());
    };
    let namespace = key.namespace().unwrap_or_default();
    let described = serde_json::to_value(&*quota).map_err(ReconcileError::terminal)?;
    let (hard, known) = (Amounts::of(&described["spec"]["hard"]), Amounts::of(&described["status"]["used"]));
    let mut used = known.clone();
    let now = cx.env().now();
    let mut count = |counted: Option<Counted>, objects: Vec<Value>| {
        if let Some(counted) = counted {
            sum(&counted, &described, &hard, &objects, now, &mut used);
        }
    };
    count(Counted::of("", "pods"), values::<Pod>(&cx, namespace)?);
    count(Counted::of("", "services"), values::<Service>(&cx, namespace)?);
    count(Counted::of("", "persistentvolumeclaims"), values::<PersistentVolumeClaim>(&cx, namespace)?);
    counters.count(&described, &hard, namespace, &mut used).await?;
    let used = used.within(&hard);
    let is_less = known.iter().any(|(name, amount)| used.get(name).is_some_and(|used| used < amount));
    let is_known = known == used && known.names().eq(used.names());
    if is_known && !is_outdated(&quota) {
        return Ok(Action::done());
    }
    let status = ResourceQuotaStatus {
        hard: quota.spec.as_ref().and_then(|spec| spec.hard.clone()),
        used: Some(quantities(&used)),
    };
    // At the version that it was counted for: it may have been charged meanwhile.
    let changed = ResourceQuota { status: Some(status), ..ResourceQuota::clone(&quota) };
    let api: Api<ResourceQuota> = Api::namespaced(cx.client(), namespace);
    match api.replace_status(key.name(), &PostParams::default(), &changed).await {
        Err(error) if failure::is_not_found(&error) => Ok(Action::done()),
        Err(error) if failure::is_conflict(&error) => Ok(Action::requeue_after(AFTER_CONFLICT)),
        Err(error) => Err(error.into()),
        Ok(_) if is_less => Ok(Action::requeue_after(SECOND_LOOK)),
        Ok(_) => Ok(Action::done()),
    }
}

fn quantities(amounts: &Amounts) -> BTreeMap<String, Quantity> {
    amounts.iter().map(|(name, amount)| (name.to_owned(), Quantity(amount.to_string()))).collect()
}

/// The objects of a kind in a namespace.
fn values<K: Object + Serialize>(cx: &Context, namespace: &str) -> Result<Vec<Value>, ListerError> {
    let objects = cx.lister::<K>()?.namespace(namespace).list();
    Ok(objects.iter().filter_map(|object| serde_json::to_value(&**object).ok()).collect())
}

/// Puts what objects use of what a quota tracks of them into `used`.
fn sum(
    counted: &Counted,
    quota: &Value,
    hard: &Amounts,
    objects: &[Value],
    now: Timestamp,
    used: &mut Amounts,
) {
    let tracked = counted.tracked(hard);
    if tracked.is_empty() {
        return;
    }
    let mut total = Amounts::default();
    for object in objects.iter().filter(|object| counted.is_in_scope(quota, object)) {
        total.add(&counted.usage(object, now));
    }
    for name in tracked {
        used.set(&name, total.get(&name).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_is_outdated_until_it_has_the_limits_and_the_usage() {
        let is = |quota: Value| is_outdated(&serde_json::from_value(quota).unwrap());
        let hard = json!({"hard": {"pods": "4"}});
        assert!(is(json!({"metadata": {}, "spec": hard})));
        assert!(is(json!({"metadata": {}, "spec": hard, "status": hard})));
        assert!(!is(
            json!({"metadata": {}, "spec": hard, "status": {"hard": {"pods": "4"}, "used": {"pods": "1"}}})
        ));
        assert!(is(
            json!({"metadata": {}, "spec": hard, "status": {"hard": {"pods": "5"}, "used": {"pods": "1"}}})
        ));
        assert!(!is(json!({"metadata": {}, "spec": {}})));
    }

    #[test]
    fn usage_is_the_sum_of_what_is_in_scope() {
        let pod = |cpu: &str, phase: &str| {
            json!({
                "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": cpu}}}]},
                "status": {"phase": phase}
            })
        };
        let quota =
            json!({"spec": {"hard": {"pods": "9", "requests.cpu": "9", "count/pods": "9", "services": "1"}}});
        let hard = Amounts::of(&quota["spec"]["hard"]);
        let pods = [pod("500m", "Running"), pod("750m", "Pending"), pod("2", "Succeeded")];
        let mut used = Amounts::default();
        sum(&Counted::of("", "pods").unwrap(), &quota, &hard, &pods, Timestamp::UNIX_EPOCH, &mut used);
        assert_eq!(used.to_string(), "count/pods=3,pods=2,requests.cpu=1250m");
        sum(&Counted::of("", "services").unwrap(), &quota, &hard, &[], Timestamp::UNIX_EPOCH, &mut used);
        assert_eq!(used.get("services").unwrap().to_string(), "0");
    }
}
