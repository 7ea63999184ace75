//! Jobs, and the job templates of cron jobs.

mod failure_policy;
mod status;
mod success_policy;

use serde_json::{Map, Value};

use super::at::{At, same};
use super::fill::{Fields, default as set, default_text, each, part, part_or_new};
use super::formats;
use super::pod::template;
use super::workload;
use crate::metadata::names;
use crate::strategy::Part;

const LABELS: [(&str, Label); 4] = [
    ("controller-uid", Label::Uid),
    ("job-name", Label::Name),
    ("batch.kubernetes.io/controller-uid", Label::Uid),
    ("batch.kubernetes.io/job-name", Label::Name),
];
const SELECTED: &str = "batch.kubernetes.io/controller-uid";

#[derive(Clone, Copy)]
enum Label {
    Uid,
    Name,
}

impl Label {
    fn of(self, job: &Value) -> &str {
        let field = match self {
            Label::Uid => "uid",
            Label::Name => "name",
        };
        job["metadata"][field].as_str().unwrap_or_default()
    }
}

pub(super) fn default(job: &mut Value) {
    let labels = job["spec"]["template"]["metadata"].get("labels").cloned();
    let Some(fields) = job.as_object_mut() else { return };
    // A new job gets the labels of its template once these are complete: with the selector's.
    let is_complete = fields.get("spec").is_some_and(|spec| spec["selector"].is_object());
    if let (true, Some(labels), Some(metadata)) = (is_complete, labels, part(fields, "metadata")) {
        set(metadata, "labels", labels);
    }
    let spec = part_or_new(fields, "spec");
    if !spec.contains_key("parallelism") {
        set(spec, "completions", 1);
    }
    set(spec, "parallelism", 1);
    let per_index = spec.contains_key("backoffLimitPerIndex");
    set(spec, "backoffLimit", if per_index { i32::MAX } else { 6 });
    set(spec, "completionMode", "NonIndexed");
    set(spec, "suspend", false);
    let on_failure = spec.contains_key("podFailurePolicy");
    set(spec, "podReplacementPolicy", if on_failure { "Failed" } else { "TerminatingOrFailed" });
    set(spec, "manualSelector", false);
    default_failure_policy(spec);
    template::default_in(spec);
}

pub(super) fn default_failure_policy(spec: &mut Fields) {
    let Some(policy) = part(spec, "podFailurePolicy") else { return };
    for rule in each(policy, "rules") {
        each(rule, "onPodConditions").for_each(|pattern| default_text(pattern, "status", "True"));
    }
}

/// Selects the pods of a job by its uid, unless the job wants to do that itself.
pub(super) fn prepare_create(job: &mut Value) {
    if job["spec"]["manualSelector"] == true {
        return;
    }
    let labels: Vec<(&str, Value)> =
        LABELS.into_iter().map(|(key, label)| (key, label.of(job).into())).collect();
    let uid = Value::from(Label::Uid.of(job));
    let Some(fields) = job.as_object_mut() else { return };
    let spec = part_or_new(fields, "spec");
    let metadata = part_or_new(part_or_new(spec, "template"), "metadata");
    let on_template: &mut Map<_, _> = part_or_new(metadata, "labels");
    for (key, value) in labels {
        set(on_template, key, value);
    }
    set(part_or_new(part_or_new(spec, "selector"), "matchLabels"), SELECTED, uid);
}

pub(super) fn validate(job: &At, old: Option<&Value>, part: Part) {
    if part == Part::Status {
        return status::validate(job, old.unwrap_or(&Value::Null));
    }
    let spec = job.field("spec");
    if old.is_none() {
        generated_selector(job);
    }
    validate_spec(&spec);
    selector(&spec);
    if let Some(old) = old {
        validate_update(&spec, old);
    }
    let metadata = job.field("metadata");
    let completions = spec.field("completions").number().unwrap_or(0);
    if spec.field("completionMode").text() == "Indexed" && completions > 0 {
        let name = metadata.field("name");
        let longest = format!("{}-{}", name.text(), completions - 1);
        if !names::dns1123_label(&longest).is_empty() {
            name.invalid_text(format!("will not able to create pod with invalid DNS label: {longest}"));
        }
    }
}

fn generated_selector(job: &At) {
    let spec = job.field("spec");
    if spec.field("manualSelector").is_true() || !spec.field("selector").exists() {
        return;
    }
    let template = spec.field("template");
    let metadata = template.field("metadata");
    let labels = metadata.field("labels");
    for (key, label) in LABELS {
        let wanted = label.of(job.value());
        let found = labels.key(key);
        if !found.exists() {
            found.required(format!("must be '{wanted}'"));
        } else if found.text() != wanted {
            found.invalid_as(labels.value().clone(), format!("must be '{wanted}'"));
        }
    }
    let own: Map<String, Value> =
        LABELS.into_iter().map(|(key, label)| (key.to_owned(), label.of(job.value()).into())).collect();
    let own = Value::Object(own);
    if spec.field("selector").selects(&own) == Some(false) {
        spec.field("selector").invalid("`selector` not auto-generated");
    }
}

fn selector(spec: &At) {
    let (selector, template) = (spec.field("selector"), spec.field("template"));
    if selector.exists() {
        selector.label_selector();
    } else {
        selector.required("");
    }
    if selector.selects(template::labels(&template)) == Some(false) {
        workload::does_not_match(&template);
    }
}

/// What holds for jobs and for the templates of cron jobs.
pub(super) fn validate_spec(spec: &At) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        spec.field(field).non_negative();
    }
    if spec.field("maxFailedIndexes").exists() && !spec.field("backoffLimitPerIndex").exists() {
        spec.field("backoffLimitPerIndex").required("when maxFailedIndexes is specified");
    }
    managed_by(&spec.field("managedBy"));
    completion_mode(spec);
    failure_policy::validate(spec);
    success_policy::validate(spec);
    let replacement = spec.field("podReplacementPolicy");
    if spec.field("podFailurePolicy").exists() {
        replacement.one_of_if_set(&["Failed"]);
    } else {
        replacement.one_of_if_set(&["Failed", "TerminatingOrFailed"]);
    }
    let template = spec.field("template");
    template::validate(&template);
    restart_policy(&template, spec.field("podFailurePolicy").exists());
}

fn restart_policy(template: &At, has_failure_policy: bool) {
    let spec = template.field("spec");
    let policy = spec.field("restartPolicy");
    match policy.text() {
        "Always" | "" => policy.required("valid values: \"OnFailure\", \"Never\""),
        "Never" => {}
        "OnFailure" if has_failure_policy => {
            policy.invalid("only \"Never\" is supported when podFailurePolicy is specified");
        }
        "OnFailure" => {}
        _ => policy.not_supported(&["OnFailure", "Never"]),
    }
}

fn managed_by(manager: &At) {
    if !manager.exists() {
        return;
    }
    if manager.is_empty() {
        manager.required("");
    } else {
        for (wrong, problem) in formats::domain_prefixed_path(manager.text()) {
            manager.invalid_as(wrong, problem);
        }
    }
    if manager.text().len() > 63 {
        manager.too_long(63);
    }
}

fn completion_mode(spec: &At) {
    let mode = spec.field("completionMode");
    mode.one_of_if_set(&["NonIndexed", "Indexed"]);
    let (completions, parallelism, failed) =
        (spec.field("completions"), spec.field("parallelism"), spec.field("maxFailedIndexes"));
    let above = |at: &At, most: i64| at.number().is_some_and(|number| number > most);
    if mode.text() == "Indexed" {
        if !completions.exists() {
            completions.required("when completion mode is Indexed");
        }
        if above(&parallelism, 100_000) {
            parallelism.invalid("must be less than or equal to 100000 when completion mode is Indexed");
        }
        if completions.number().is_some_and(|completions| above(&failed, completions)) {
            failed.invalid("must be less than or equal to completions");
        }
        if above(&failed, 100_000) {
            failed.invalid("must be less than or equal to 100000");
        }
        if above(&completions, 100_000) && spec.field("backoffLimitPerIndex").exists() {
            const DETAIL: &str = "must be less than or equal to 10000 when completions are above 100000 and used with \
                                  backoff limit per index";
            if !failed.exists() {
                failed.required("must be specified when completions is above 100000");
            }
            for at in [&parallelism, &failed].into_iter().filter(|at| above(at, 10_000)) {
                at.invalid(DETAIL);
            }
        }
    }
    if matches!(mode.text(), "NonIndexed" | "") {
        for at in [spec.field("backoffLimitPerIndex"), failed].into_iter().filter(At::exists) {
            at.invalid("requires indexed completion mode");
        }
    }
}

fn validate_update(spec: &At, old_job: &Value) {
    let old = &old_job["spec"];
    let completions = spec.field("completions");
    if spec.field("completionMode").text() != "Indexed" {
        completions.immutable(&old["completions"]);
    } else if completions.exists()
        && *completions.value() != old["completions"]
        && completions.value() != spec.field("parallelism").value()
    {
        completions.invalid("can only be modified in tandem with completions.parallelism");
    }
    spec.field("selector").immutable(&old["selector"]);
    template_update(&spec.field("template"), old_job);
    for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"]
    {
        spec.field(field).immutable(&old[field]);
    }
}

/// The template stays as it is; that of a job that has not begun can be told where to run and with what.
fn template_update(template: &At, old_job: &Value) {
    let status = &old_job["status"];
    let suspended = old_job["spec"]["suspend"] == true;
    let idle = status["startTime"].is_null() || status::has_condition(status, "Suspended");
    let is_open = suspended && idle && status["active"].as_i64().unwrap_or(0) == 0;
    let old = &old_job["spec"]["template"];
    if !is_open {
        return template.immutable(old);
    }
    let mut expected = old["spec"].clone();
    let new = &template.value()["spec"];
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        take(&mut expected, new, field);
    }
    match (new["affinity"].is_object(), expected["affinity"].as_object_mut()) {
        (true, _) => take(&mut expected["affinity"], &new["affinity"], "nodeAffinity"),
        (false, Some(affinity)) => {
            affinity.remove("nodeAffinity");
            if affinity.is_empty() {
                take(&mut expected, new, "affinity");
            }
        }
        (false, None) => {}
    }
    for list in ["containers", "initContainers"] {
        let Some(containers) = expected.get_mut(list).and_then(Value::as_array_mut) else { continue };
        let new = super::at::items(&new[list]);
        if new.len() == containers.len() {
            for (container, new) in
                containers.iter_mut().zip(new).filter(|(old, new)| old["name"] == new["name"])
            {
                take(container, new, "resources");
            }
        }
    }
    if !same(new, &expected) {
        template.alias("spec").with(new).invalid("field is immutable");
    }
}

fn take(to: &mut Value, from: &Value, field: &str) {
    match from.get(field) {
        Some(value) => to[field] = value.clone(),
        None => drop(to.as_object_mut().and_then(|to| to.remove(field))),
    }
}
