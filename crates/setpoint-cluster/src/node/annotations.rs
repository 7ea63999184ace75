//! What a pod's annotations make its containers do.

use std::time::Duration;

use setpoint::k8s_openapi::api::core::v1::Pod;

/// Containers end by themselves this long after they started, such as `5s` or `1m30s`; with the code of
/// [`EXIT_CODE`], or 1.
pub const FAIL_AFTER: &str = "sim.setpoint.dev/fail-after";
/// The code that containers end with.
pub const EXIT_CODE: &str = "sim.setpoint.dev/exit-code";
/// Containers are ready this long after they started.
pub const READY_AFTER: &str = "sim.setpoint.dev/ready-after";
/// The images cannot be pulled, for this reason. `true` stands for a registry that does not have them.
pub const IMAGE_PULL_ERROR: &str = "sim.setpoint.dev/image-pull-error";

/// What containers of a pod do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Behaviour {
    /// How long they run, and with which code they end; for ever if there is none.
    pub(super) end: Option<(Duration, i32)>,
    pub(super) ready_after: Duration,
    pub(super) pull_error: Option<String>,
}

impl Behaviour {
    /// What the annotations say, or else what such a pod does: a Job's ends well after `job`.
    pub(super) fn of(pod: &Pod, job: Duration) -> Behaviour {
        let code = text(pod, EXIT_CODE).and_then(|code| code.trim().parse().ok());
        let end = match duration(pod, FAIL_AFTER) {
            Some(after) => Some((after, code.unwrap_or(1))),
            None if code.is_some() || is_of_job(pod) => Some((job, code.unwrap_or(0))),
            None => None,
        };
        let pull_error = text(pod, IMAGE_PULL_ERROR).filter(|error| !matches!(*error, "" | "false"));
        Behaviour {
            end,
            ready_after: duration(pod, READY_AFTER).unwrap_or_else(|| probe_delay(pod)),
            pull_error: pull_error.map(|error| match error {
                "true" => "not found".to_owned(),
                error => error.to_owned(),
            }),
        }
    }
}

fn text<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

fn duration(pod: &Pod, name: &str) -> Option<Duration> {
    text(pod, name).and_then(parse)
}

/// `300ms`, `5s`, `1m30s`, `1h`, or a number of seconds.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let mut total = Duration::ZERO;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let unit_end = rest[end..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |next| end + next);
        let unit = match &rest[end..unit_end] {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        let amount: f64 = rest[..end].parse().ok()?;
        total = total.checked_add(Duration::try_from_secs_f64(amount * unit).ok()?)?;
        rest = &rest[unit_end..];
    }
    (!text.trim().is_empty()).then_some(total)
}

fn is_of_job(pod: &Pod) -> bool {
    setpoint::owner::controller_of(pod)
        .is_some_and(|owner| owner.kind == "Job" && owner.api_version.starts_with("batch/"))
}

/// The longest that a container's readiness probe waits before it asks.
fn probe_delay(pod: &Pod) -> Duration {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let delays = containers.filter_map(|c| c.readiness_probe.as_ref()?.initial_delay_seconds);
    Duration::from_secs(delays.max().unwrap_or(0).max(0).unsigned_abs().into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const JOB: Duration = Duration::from_secs(2);

    fn behaviour(metadata: serde_json::Value) -> Behaviour {
        let pod = json!({"metadata": metadata, "spec": {"containers": []}});
        Behaviour::of(&serde_json::from_value(pod).unwrap(), JOB)
    }

    #[test]
    fn durations_are_written_as_in_go() {
        assert_eq!(parse("300ms"), Some(Duration::from_millis(300)));
        assert_eq!(parse("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(parse("5"), Some(Duration::from_secs(5)));
        for bad in ["", "s", "5x", "-5s", "1e999s"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_pod_of_a_job_ends_well_and_others_run_for_ever() {
        let job =
            json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "u", "controller": true}]);
        assert_eq!(behaviour(json!({"ownerReferences": job})).end, Some((JOB, 0)));
        assert_eq!(behaviour(json!({})).end, None);
        assert_eq!(behaviour(json!({"annotations": {EXIT_CODE: "3"}})).end, Some((JOB, 3)));
        assert_eq!(
            behaviour(json!({"annotations": {FAIL_AFTER: "5s"}})).end,
            Some((Duration::from_secs(5), 1))
        );
    }

    #[test]
    fn an_annotation_that_cannot_be_read_does_nothing() {
        assert_eq!(behaviour(json!({"annotations": {FAIL_AFTER: "soon", EXIT_CODE: "bad"}})).end, None);
    }
}
