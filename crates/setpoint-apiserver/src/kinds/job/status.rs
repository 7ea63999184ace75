//! The status of a job, which the job controller writes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::at::{At, items, same};
use super::success_policy::count_indexes;

/// Whether a condition of a status is true.
pub(super) fn has_condition(status: &Value, name: &str) -> bool {
    items(&status["conditions"]).iter().any(|found| found["type"] == name && found["status"] == "True")
}

pub(super) fn validate(job: &At, old: &Value) {
    let status = job.field("status");
    for count in ["active", "succeeded", "failed", "ready", "terminating"] {
        status.field(count).non_negative();
    }
    uncounted_pods(&status.field("uncountedTerminatedPods"));
    let (new, before) = (status.value(), &old["status"]);
    let changed = |name: &str| has_condition(new, name) != has_condition(before, name);
    let [complete, failed, target, met] =
        ["Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"].map(|name| has_condition(new, name));
    let conditions = status.field("conditions");
    let wrong = |is_wrong: bool, detail: &str| {
        if is_wrong {
            conditions.invalid_hidden(detail);
        }
    };
    wrong(
        complete && failed && (changed("Complete") || changed("Failed")),
        "cannot set Complete=True and Failed=true conditions",
    );
    wrong(
        complete && target && (changed("Complete") || changed("FailureTarget")),
        "cannot set Complete=True and FailureTarget=true conditions",
    );
    times(job, before, complete, complete || failed);
    wrong(
        failed && !target && changed("Failed"),
        "cannot set Failed=True condition without the FailureTarget=true condition",
    );
    wrong(
        complete && !met && (changed("Complete") || changed("SuccessCriteriaMet")),
        "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
    );
    finished(&status, before, complete || failed);
    indexes(job, before);
    wrong(met && failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions");
    wrong(met && target, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions");
    for name in ["Failed", "Complete", "FailureTarget"] {
        wrong(
            has_condition(before, name) && !has_condition(new, name),
            &format!("cannot disable the terminal {name}=True condition"),
        );
    }
    counters(&status, before);
    wrong(
        has_condition(before, "SuccessCriteriaMet") && !met,
        "cannot disable the SuccessCriteriaMet=True condition",
    );
}

fn uncounted_pods(pods: &At) {
    let mut seen = BTreeSet::new();
    for list in ["succeeded", "failed"] {
        for uid in pods.field(list).items() {
            if uid.is_empty() {
                uid.invalid_text("must not be empty");
            } else if !seen.insert(uid.text()) {
                uid.duplicate();
            }
        }
    }
}

fn times(job: &At, before: &Value, complete: bool, finished: bool) {
    let status = job.field("status");
    let (start, end) = (status.field("startTime"), status.field("completionTime"));
    let end_changed = *end.value() != before["completionTime"];
    let complete_changed = complete != has_condition(before, "Complete");
    if complete_changed || end_changed {
        if end.exists() && !complete {
            end.invalid("cannot set completionTime when there is no Complete=True condition");
        }
        if !end.exists() && complete {
            end.required("completionTime is required for Complete jobs");
        }
    }
    // Times in one form and one zone compare as texts do.
    if start.exists() && end.exists() && end.text() < start.text() {
        end.invalid("must be equal to or after `startTime`");
    }
    if end.exists() && !before["completionTime"].is_null() && end_changed {
        end.invalid("field is immutable");
    }
    let resumes = has_condition(before, "Suspended") && !has_condition(status.value(), "Suspended");
    let suspended = job.field("spec").field("suspend").is_true();
    if !before["startTime"].is_null() && *start.value() != before["startTime"] && !suspended && !resumes {
        start.invalid("field is immutable for unsuspended job once set");
    }
    let was_finished = has_condition(before, "Complete") || has_condition(before, "Failed");
    if finished && !start.exists() && (!was_finished || *start.value() != before["startTime"]) {
        start.required("startTime is required for finished job");
    }
}

fn finished(status: &At, before: &Value, finished: bool) {
    let (active, ready) = (status.field("active").number().unwrap_or(0), status.field("ready"));
    if finished && active > 0 {
        status.field("active").invalid("active>0 is invalid for finished job");
    }
    let uncounted = status.field("uncountedTerminatedPods");
    let is_empty = uncounted.field("succeeded").is_empty() && uncounted.field("failed").is_empty();
    if finished && !is_empty && !same(uncounted.value(), &before["uncountedTerminatedPods"]) {
        uncounted.invalid("must be empty for finished job");
    }
    if finished && status.field("terminating").number().unwrap_or(0) > 0 {
        status.field("terminating").invalid("terminating>0 is invalid for finished job");
    }
    if ready.number().is_some_and(|ready| ready > active) {
        ready.invalid("cannot set more ready pods than active");
    }
}

fn indexes(job: &At, before: &Value) {
    let (spec, status) = (job.field("spec"), job.field("status"));
    let (completed, failed) = (status.field("completedIndexes"), status.field("failedIndexes"));
    let completions = spec.field("completions").number();
    if *completed.value() != before["completedIndexes"] {
        if let Some(Err(error)) = completions.map(|completions| count_indexes(completed.text(), completions))
        {
            completed.invalid_text(format!("error parsing completedIndexes: {error}"));
        }
        if !completed.is_empty() && spec.field("completionMode").text() != "Indexed" {
            completed.invalid("cannot set non-empty completedIndexes when non-indexed completion mode");
        }
    }
    if *failed.value() != before["failedIndexes"]
        && failed.exists()
        && !spec.field("backoffLimitPerIndex").exists()
    {
        failed.invalid("cannot set non-null failedIndexes when backoffLimitPerIndex is null");
    }
}

/// Counters only grow.
fn counters(status: &At, before: &Value) {
    for counter in ["failed", "succeeded"] {
        let at = status.field(counter);
        if at.number().unwrap_or(0) < before[counter].as_i64().unwrap_or(0) {
            at.invalid_number(format!("cannot decrease the {counter} counter"));
        }
    }
}
