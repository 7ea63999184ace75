//! What a Job's policy says about a pod that failed.

use k8s_openapi::api::batch::v1::{
    JobSpec, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern,
    PodFailurePolicyRule,
};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};
use kube::ResourceExt;

/// What follows from a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It does not count.
    Ignore,
    /// It counts, as without a policy.
    Count,
    /// Its index has failed.
    FailIndex,
    /// The Job has failed; this is why.
    FailJob(String),
}

/// The verdict of the first rule that matches.
pub(super) fn verdict(spec: &JobSpec, pod: &Pod) -> Option<Verdict> {
    let rules = &spec.pod_failure_policy.as_ref()?.rules;
    rules.iter().enumerate().find_map(|(place, rule)| apply(rule, place, pod))
}

fn apply(rule: &PodFailurePolicyRule, place: usize, pod: &Pod) -> Option<Verdict> {
    let PodFailurePolicyRule { action, on_exit_codes, on_pod_conditions } = rule;
    let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
    let why = if let Some(requirement) = on_exit_codes {
        let (container, code) = exit_code(pod, requirement)?;
        format!(
            "Container {container} for pod {namespace}/{name} failed with exit code {code} matching {action} \
             rule at index {place}"
        )
    } else {
        let condition = condition(pod, on_pod_conditions.as_deref().unwrap_or_default())?;
        let type_ = &condition.type_;
        format!("Pod {namespace}/{name} has condition {type_} matching {action} rule at index {place}")
    };
    Some(match action.as_str() {
        "Ignore" => Verdict::Ignore,
        "FailIndex" => Verdict::FailIndex,
        "FailJob" => Verdict::FailJob(why),
        _ => Verdict::Count,
    })
}

/// The first container that ended with one of the codes.
fn exit_code<'a>(
    pod: &'a Pod,
    requirement: &PodFailurePolicyOnExitCodesRequirement,
) -> Option<(&'a str, i32)> {
    let status = pod.status.as_ref()?;
    let containers = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    let code = |container: &ContainerStatus| Some(container.state.as_ref()?.terminated.as_ref()?.exit_code);
    let is_named = |container: &&ContainerStatus| {
        requirement.container_name.as_ref().is_none_or(|name| *name == container.name)
    };
    let matches = |code: i32| {
        let is_listed = requirement.values.contains(&code);
        code != 0 && if requirement.operator == "In" { is_listed } else { !is_listed }
    };
    let codes =
        containers.filter(is_named).filter_map(|container| Some((container.name.as_str(), code(container)?)));
    codes.into_iter().find(|(_, code)| matches(*code))
}

fn condition<'a>(
    pod: &'a Pod,
    patterns: &[PodFailurePolicyOnPodConditionsPattern],
) -> Option<&'a PodCondition> {
    let matches = |condition: &PodCondition, pattern: &PodFailurePolicyOnPodConditionsPattern| {
        condition.type_ == pattern.type_ && condition.status == pattern.status.as_deref().unwrap_or("True")
    };
    let conditions = pod.status.as_ref()?.conditions.iter().flatten();
    conditions.into_iter().find(|condition| patterns.iter().any(|pattern| matches(condition, pattern)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(rules: Value, status: Value, expected: Option<Verdict>) {
        let spec: JobSpec =
            serde_json::from_value(json!({"template": {}, "podFailurePolicy": {"rules": rules}})).unwrap();
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns"}, "status": status}))
                .unwrap();
        assert_eq!(verdict(&spec, &pod), expected);
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let status = json!({
            "conditions": [{"type": "DisruptionTarget", "status": "True"}],
            "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                                   "state": {"terminated": {"exitCode": 42}}}],
        });
        let in_codes = |action: &str, operator: &str, codes: &[i32]| json!({"action": action, "onExitCodes": {"operator": operator, "values": codes}});
        let disrupted = json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]});
        let why = "Container c for pod ns/p failed with exit code 42 matching FailJob rule at index 1";
        let rules = json!([in_codes("Ignore", "In", &[1]), in_codes("FailJob", "In", &[42]), disrupted]);
        check(rules, status.clone(), Some(Verdict::FailJob(why.into())));
        check(json!([disrupted, in_codes("FailJob", "In", &[42])]), status.clone(), Some(Verdict::Ignore));
        check(json!([in_codes("FailIndex", "NotIn", &[1])]), status.clone(), Some(Verdict::FailIndex));
        check(json!([in_codes("Count", "NotIn", &[42])]), status, None);
    }
}
