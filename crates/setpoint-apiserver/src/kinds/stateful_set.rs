//! Stateful sets.

use serde_json::Value;

use super::at::{At, items};
use super::fill::{default as set, default_text, each, part, part_or_new};
use super::pod::template;
use super::{persistent_volume_claim, workload};
use crate::field_error::Shown;
use crate::metadata::names;
use crate::strategy::Part;

pub(super) fn default(stateful_set: &mut Value) {
    let Some(fields) = stateful_set.as_object_mut() else { return };
    let spec = part_or_new(fields, "spec");
    default_text(spec, "podManagementPolicy", "OrderedReady");
    let strategy = part_or_new(spec, "updateStrategy");
    if super::fill::text(strategy, "type").is_empty() {
        strategy.insert("type".to_owned(), "RollingUpdate".into());
        part_or_new(strategy, "rollingUpdate");
    }
    if strategy["type"] == "RollingUpdate"
        && let Some(rolling) = part(strategy, "rollingUpdate")
    {
        set(rolling, "partition", 0);
        set(rolling, "maxUnavailable", 1);
    }
    let retention = part_or_new(spec, "persistentVolumeClaimRetentionPolicy");
    default_text(retention, "whenDeleted", "Retain");
    default_text(retention, "whenScaled", "Retain");
    set(spec, "replicas", 1);
    set(spec, "revisionHistoryLimit", 10);
    template::default_in(spec);
    for claim in each(spec, "volumeClaimTemplates") {
        // Go writes what it is, since these are whole objects.
        set(claim, "apiVersion", "v1");
        set(claim, "kind", "PersistentVolumeClaim");
        persistent_volume_claim::default_fields(claim);
    }
}

pub(super) fn validate(stateful_set: &At, old: Option<&Value>, part: Part) {
    if part == Part::Status {
        return workload::validate_status(stateful_set, old);
    }
    let spec = stateful_set.field("spec");
    let policy = spec.field("podManagementPolicy");
    match policy.text() {
        "" => policy.required(""),
        "OrderedReady" | "Parallel" => {}
        _ => policy.invalid("must be 'OrderedReady' or 'Parallel'"),
    }
    update_strategy(&spec.field("updateStrategy"));
    for when in ["whenDeleted", "whenScaled"] {
        spec.field("persistentVolumeClaimRetentionPolicy").field(when).one_of_if_set(&["Retain", "Delete"]);
    }
    if old.is_none() {
        for claim in spec.field("volumeClaimTemplates").items() {
            persistent_volume_claim::validate_spec(&claim.field("spec"));
        }
    }
    spec.field("replicas").non_negative();
    spec.field("minReadySeconds").non_negative();
    spec.alias("ordinals.start").with(&spec.value()["ordinals"]["start"]).non_negative();
    if old.is_none() {
        spec.field("serviceName").has_form_if_set(names::dns1123_label);
    }
    selector_and_template(&spec);
    template::keeps_running(&spec.field("template"), "StatefulSet");
    if let Some(old) = old {
        for field in ["selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy"] {
            spec.field(field).immutable(&old["spec"][field]);
        }
    }
}

const ROLLING: [(&str, &str, &str); 2] =
    [("Partition", "partition", "0"), ("MaxUnavailable", "maxUnavailable", "null")];

fn update_strategy(strategy: &At) {
    let rolling = strategy.field("rollingUpdate");
    match strategy.field("type").text() {
        "" => strategy.required(""),
        "OnDelete" if rolling.exists() => {
            rolling.invalid_as(rolling.in_go(&ROLLING), "only allowed for updateStrategy 'RollingUpdate'");
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            rolling.field("partition").non_negative();
            let unavailable = rolling.field("maxUnavailable");
            if unavailable.exists() {
                unavailable.number_or_percent();
                if unavailable.number_of_percent() == 0 {
                    unavailable.invalid("cannot be 0");
                }
                unavailable.at_most_100_percent();
            }
        }
        other => {
            let rolling =
                if rolling.exists() { rolling.in_go(&ROLLING).to_string() } else { "null".to_owned() };
            let shown = Shown::Raw(format!("{{\"Type\":{other:?},\"RollingUpdate\":{rolling}}}"));
            strategy.invalid_as(shown, "must be 'RollingUpdate' or 'OnDelete'");
        }
    }
}

fn selector_and_template(spec: &At) {
    let (selector, template) = (spec.field("selector"), spec.field("template"));
    if !selector.exists() {
        selector.required("");
    } else {
        selector.label_selector();
        if selector.selects_all() {
            selector.invalid("empty selector is invalid for statefulset");
        }
    }
    match selector.selects(template::labels(&template)) {
        None => selector.invalid(""),
        Some(selects) => {
            let says_something = !selector.exists() || !selector.selects_all();
            if !selects && says_something {
                workload::does_not_match(&template);
            }
            let claims = items(&spec.value()["volumeClaimTemplates"]);
            let claimed: Vec<&str> =
                claims.iter().filter_map(|claim| claim["metadata"]["name"].as_str()).collect();
            template::validate_with(&template, &claimed);
        }
    }
}
