//! Daemon sets. Each change of the template is counted apart from the other changes.

use serde_json::Value;

use super::at::{At, same};
use super::fill::{default as set, default_text, part_or_new};
use super::pod::template;
use super::workload;
use crate::field_error::Shown;
use crate::strategy::Part;

const COUNTER: &str = "deprecated.daemonset.template.generation";

pub(super) fn default(daemon_set: &mut Value) {
    let Some(fields) = daemon_set.as_object_mut() else { return };
    let spec = part_or_new(fields, "spec");
    let strategy = part_or_new(spec, "updateStrategy");
    default_text(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        let rolling = part_or_new(strategy, "rollingUpdate");
        set(rolling, "maxUnavailable", 1);
        set(rolling, "maxSurge", 0);
    }
    set(spec, "revisionHistoryLimit", 10);
    template::default_in(spec);
}

pub(super) fn prepare_create(daemon_set: &mut Value) {
    let given = counter(daemon_set).filter(|count| *count >= 1);
    set_counter(daemon_set, given.unwrap_or(1));
}

pub(super) fn prepare_update(daemon_set: &mut Value, old: &Value, part: Part) {
    if part != Part::Main {
        return;
    }
    let before = counter(old).unwrap_or(0);
    let changed = !same(&daemon_set["spec"]["template"], &old["spec"]["template"]);
    set_counter(daemon_set, if changed { before.saturating_add(1) } else { before });
}

/// In this version the count is an annotation.
fn counter(daemon_set: &Value) -> Option<i64> {
    daemon_set["metadata"]["annotations"][COUNTER].as_str()?.parse().ok()
}

fn set_counter(daemon_set: &mut Value, count: i64) {
    let metadata = crate::object::metadata_mut(daemon_set);
    part_or_new(metadata, "annotations").insert(COUNTER.to_owned(), count.to_string().into());
}

pub(super) fn validate(daemon_set: &At, old: Option<&Value>, part: Part) {
    if part == Part::Status {
        return workload::validate_status(daemon_set, old);
    }
    let spec = daemon_set.field("spec");
    let selector = spec.field("selector");
    if let Some(old) = old {
        selector.immutable(&old["spec"]["selector"]);
    }
    let template = spec.field("template");
    selector.label_selector();
    if selector.selects(template::labels(&template)) == Some(false) {
        workload::does_not_match(&template);
    }
    if selector.exists() && selector.selects_all() {
        selector.invalid("empty selector is invalid for daemonset");
    }
    template::validate(&template);
    template::keeps_running(&template, "DaemonSet");
    spec.field("minReadySeconds").non_negative();
    update_strategy(&spec.field("updateStrategy"));
    spec.field("revisionHistoryLimit").non_negative();
}

fn update_strategy(strategy: &At) {
    let rolling = strategy.field("rollingUpdate");
    match strategy.field("type").text() {
        "OnDelete" => {}
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.field("maxUnavailable"), rolling.field("maxSurge"));
            unavailable.number_or_percent();
            surge.number_or_percent();
            unavailable.at_most_100_percent();
            surge.at_most_100_percent();
            match (unavailable.number_of_percent() != 0, surge.number_of_percent() != 0) {
                (true, true) => surge.invalid("may not be set when maxUnavailable is non-zero"),
                (false, false) => unavailable.required("cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        other => {
            let shown = Shown::Raw(format!("{{\"Type\":{other:?},\"RollingUpdate\":null}}"));
            strategy.not_supported_as(shown, &["RollingUpdate", "OnDelete"]);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_count_of_changes_stops_at_the_last_number() {
        let with = |count: i64, image: &str| json!({"metadata": {"annotations": {COUNTER: count.to_string()}}, "spec": {"template": image}});
        let check = |before, expected: &str| {
            let mut new = with(before, "new");
            prepare_update(&mut new, &with(before, "old"), Part::Main);
            assert_eq!(new["metadata"]["annotations"][COUNTER], expected);
        };
        check(1, "2");
        // A client can create one with any count.
        check(i64::MAX, &i64::MAX.to_string());
    }
}
