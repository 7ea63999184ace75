//! Deployments.

use serde_json::Value;

use super::at::At;
use super::fill::{default as set, default_text, part_or_new};
use super::pod::template;
use super::{replica_set, workload};
use crate::field_error::Shown;
use crate::strategy::Part;

pub(super) fn default(deployment: &mut Value) {
    let Some(deployment) = deployment.as_object_mut() else { return };
    let spec = part_or_new(deployment, "spec");
    set(spec, "replicas", 1);
    let strategy = part_or_new(spec, "strategy");
    default_text(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        let rolling = part_or_new(strategy, "rollingUpdate");
        set(rolling, "maxUnavailable", "25%");
        set(rolling, "maxSurge", "25%");
    }
    set(spec, "revisionHistoryLimit", 10);
    set(spec, "progressDeadlineSeconds", 600);
    template::default_in(spec);
}

pub(super) fn validate(deployment: &At, old: Option<&Value>, part: Part) {
    if part == Part::Status {
        return workload::validate_status(deployment, old);
    }
    let spec = deployment.field("spec");
    spec.field("replicas").non_negative();
    replica_set::selector_and_template(&spec);
    strategy(&spec.field("strategy"));
    spec.field("minReadySeconds").non_negative();
    spec.field("revisionHistoryLimit").non_negative();
    let deadline = spec.field("progressDeadlineSeconds");
    if let Some(seconds) = deadline.number() {
        deadline.non_negative();
        if seconds <= spec.field("minReadySeconds").number().unwrap_or(0) {
            deadline.invalid("must be greater than minReadySeconds");
        }
    }
    if let Some(old) = old {
        spec.field("selector").immutable(&old["spec"]["selector"]);
    }
}

fn strategy(strategy: &At) {
    let rolling = strategy.field("rollingUpdate");
    match strategy.field("type").text() {
        "Recreate" if rolling.exists() => {
            rolling.forbidden("may not be specified when strategy `type` is 'Recreate'");
        }
        "Recreate" => {}
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.field("maxUnavailable"), rolling.field("maxSurge"));
            unavailable.number_or_percent();
            surge.number_or_percent();
            if unavailable.number_of_percent() == 0 && surge.number_of_percent() == 0 {
                unavailable.invalid("may not be 0 when `maxSurge` is 0");
            }
            unavailable.at_most_100_percent();
        }
        other => {
            let shown = Shown::Raw(format!("{{\"Type\":{other:?},\"RollingUpdate\":null}}"));
            strategy.not_supported_as(shown, &["Recreate", "RollingUpdate"]);
        }
    }
}
