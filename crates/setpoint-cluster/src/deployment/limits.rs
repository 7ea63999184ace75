//! How many pods a rollout may add, and how many it may miss.

use k8s_openapi::api::apps::v1::DeploymentSpec;

use crate::number::{Round, scaled};

/// How many pods there shall be.
pub(super) fn replicas(spec: &DeploymentSpec) -> i32 {
    spec.replicas.unwrap_or(1)
}

/// Whether all old pods end before the first new one starts.
pub(super) fn is_recreate(spec: &DeploymentSpec) -> bool {
    let strategy = spec.strategy.as_ref().and_then(|strategy| strategy.type_.as_deref());
    strategy == Some("Recreate")
}

/// How many pods there may be more than replicas.
pub(super) fn max_surge(spec: &DeploymentSpec) -> i32 {
    if is_recreate(spec) { 0 } else { fenceposts(spec).0 }
}

/// How many of the replicas may be unavailable.
pub(super) fn max_unavailable(spec: &DeploymentSpec) -> i32 {
    if is_recreate(spec) { 0 } else { fenceposts(spec).1.min(replicas(spec)) }
}

/// Surge and unavailability in numbers. Both together are never zero, or nothing could ever move.
fn fenceposts(spec: &DeploymentSpec) -> (i32, i32) {
    let rolling = spec.strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let surge = rolling.and_then(|rolling| rolling.max_surge.as_ref());
    let unavailable = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
    let surge = surge.map_or(0, |surge| scaled(surge, replicas(spec), Round::Up));
    let unavailable = unavailable.map_or(0, |unavailable| scaled(unavailable, replicas(spec), Round::Down));
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(replicas: i32, surge: Value, unavailable: Value, expected: (i32, i32)) {
        let spec: DeploymentSpec = serde_json::from_value(json!({
            "replicas": replicas, "selector": {}, "template": {},
            "strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}},
        }))
        .unwrap();
        assert_eq!((max_surge(&spec), max_unavailable(&spec)), expected);
    }

    #[test]
    fn surge_is_rounded_up_and_unavailability_down() {
        check(10, json!("25%"), json!("25%"), (3, 2));
        check(8, json!("25%"), json!("25%"), (2, 2));
        check(1, json!("25%"), json!("25%"), (1, 0));
        check(10, json!(4), json!(12), (4, 10));
    }

    #[test]
    fn something_can_always_move() {
        check(3, json!(0), json!("10%"), (0, 1));
        check(0, json!("25%"), json!("25%"), (0, 0));
    }
}
