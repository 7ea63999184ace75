//! Pods, whose STATUS is worked out from a dozen fields.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cells::{
    condition as find_condition, containers, flag, has, int, labels, list, name, text, text_or, time,
};
use super::{AGE, CONTAINERS, Column, Context, IMAGES, NAME, Printer};
use crate::resource::Resource;

pub(super) fn printer(plural: &str) -> Option<&'static Printer> {
    match plural {
        "pods" => Some(&POD),
        "podtemplates" => Some(&TEMPLATE),
        _ => None,
    }
}

const POD: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Ready", "How many of the containers are ready."),
        Column::text("Status", "What the containers are doing, in a word."),
        Column::text("Restarts", "How often containers were restarted, and when the last time was."),
        AGE,
        Column::text("IP", "The address of the pod.").wide(),
        Column::text("Node", "The node that the pod is on.").wide(),
        Column::text("Nominated Node", "The node where room is being made for the pod.").wide(),
        Column::text("Readiness Gates", "How many further conditions of readiness are met.").wide(),
    ],
    cells: pod,
};

const TEMPLATE: Printer = Printer {
    columns: &[
        NAME,
        Column { priority: 0, ..CONTAINERS },
        Column { priority: 0, ..IMAGES },
        Column::text("Pod Labels", "The labels of the pod template."),
    ],
    cells: |object, _| {
        let [names, images] = containers(object, "/template/spec/containers");
        vec![name(object), names, images, labels(object, "/template/metadata/labels").into()]
    },
};

/// What a row of a pod that has ended says beside its cells.
pub(super) fn condition(resource: &Resource, pod: &Value) -> Option<Value> {
    if resource.plural() != "pods" {
        return None;
    }
    let (reason, message) = match text(pod, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
}

fn pod(pod: &Value, context: &Context) -> Vec<Value> {
    let summary = Summary::of(pod);
    let restarts = match summary.last_restart {
        Some(_) if summary.restarts != 0 => {
            format!("{} ({} ago)", summary.restarts, context.since(summary.last_restart))
        }
        _ => summary.restarts.to_string(),
    };
    vec![
        name(pod),
        format!("{}/{}", summary.ready, summary.total).into(),
        summary.status.into(),
        restarts.into(),
        context.age(pod),
        text_or(pod, "/status/podIPs/0/ip", "<none>").into(),
        text_or(pod, "/spec/nodeName", "<none>").into(),
        text_or(pod, "/status/nominatedNodeName", "<none>").into(),
        readiness_gates(pod).into(),
    ]
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let is_open = |gate: &&Value| {
        find_condition(pod, text(gate, "/conditionType"))
            .is_some_and(|found| text(found, "/status") == "True")
    };
    format!("{}/{}", gates.iter().filter(is_open).count(), gates.len())
}

/// What containers tell about their pod.
struct Summary {
    ready: usize,
    total: usize,
    status: String,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

impl Summary {
    fn of(pod: &Value) -> Summary {
        let init = list(pod, "/spec/initContainers");
        let sidecars = init.iter().filter(|container| is_sidecar(container)).count();
        let mut summary = Summary {
            ready: 0,
            total: list(pod, "/spec/containers").len() + sidecars,
            status: text_or(pod, "/status/reason", text(pod, "/status/phase")).to_owned(),
            restarts: 0,
            last_restart: None,
        };
        if list(pod, "/status/conditions").iter().any(|condition| {
            text(condition, "/type") == "PodScheduled" && text(condition, "/reason") == "SchedulingGated"
        }) {
            summary.status = "SchedulingGated".to_owned();
        }
        let (is_initializing, of_sidecars) = summary.look_at_init_containers(pod, init);
        let is_initialized =
            find_condition(pod, "Initialized").is_some_and(|found| text(found, "/status") == "True");
        if !is_initializing || is_initialized {
            (summary.restarts, summary.last_restart) = of_sidecars;
            summary.look_at_containers(pod);
        }
        if has(pod, "/metadata/deletionTimestamp") {
            if text(pod, "/status/reason") == "NodeLost" {
                summary.status = "Unknown".to_owned();
            } else if !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") {
                summary.status = "Terminating".to_owned();
            }
        }
        summary
    }

    /// Whether init containers still keep the others from starting; and the restarts of sidecars alone.
    fn look_at_init_containers(&mut self, pod: &Value, init: &[Value]) -> (bool, (i64, Option<Timestamp>)) {
        let mut of_sidecars = (0, None);
        for (index, status) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
            let spec = init.iter().rfind(|container| text(container, "/name") == text(status, "/name"));
            let is_sidecar = spec.is_some_and(is_sidecar);
            let last = time(status, "/lastState/terminated/finishedAt");
            self.restarts += int(status, "/restartCount");
            self.last_restart = self.last_restart.max(last);
            if is_sidecar {
                of_sidecars.0 += int(status, "/restartCount");
                of_sidecars.1 = of_sidecars.1.max(last);
            }
            let terminated = status.pointer("/state/terminated");
            if terminated.is_some_and(|terminated| int(terminated, "/exitCode") == 0) {
                continue;
            }
            if is_sidecar && flag(status, "/started") {
                self.ready += usize::from(flag(status, "/ready"));
                continue;
            }
            let waiting = text(status, "/state/waiting/reason");
            self.status = match terminated {
                Some(terminated) => format!("Init:{}", reason_of(terminated)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
                None => format!("Init:{index}/{}", init.len()),
            };
            return (true, of_sidecars);
        }
        (false, of_sidecars)
    }

    fn look_at_containers(&mut self, pod: &Value) {
        let mut any_running = false;
        let mut error = None;
        for status in list(pod, "/status/containerStatuses").iter().rev() {
            self.restarts += int(status, "/restartCount");
            self.last_restart = self.last_restart.max(time(status, "/lastState/terminated/finishedAt"));
            let waiting = text(status, "/state/waiting/reason");
            if !waiting.is_empty() {
                self.status = waiting.to_owned();
            } else if let Some(terminated) = status.pointer("/state/terminated") {
                self.status = reason_of(terminated);
                if int(terminated, "/exitCode") != 0 {
                    error = Some(self.status.clone());
                }
            } else if flag(status, "/ready") && has(status, "/state/running") {
                any_running = true;
                self.ready += 1;
            }
        }
        // Some have completed; the pod has not while others run.
        if self.status == "Completed" {
            let is_ready = find_condition(pod, "Ready").is_some_and(|found| text(found, "/status") == "True");
            if any_running && is_ready {
                self.status = "Running".to_owned();
            } else if let Some(error) = error {
                self.status = error;
            } else if any_running {
                self.status = "NotReady".to_owned();
            }
        }
    }
}

/// An init container that goes on running.
fn is_sidecar(container: &Value) -> bool {
    text(container, "/restartPolicy") == "Always"
}

fn reason_of(terminated: &Value) -> String {
    match (text(terminated, "/reason"), int(terminated, "/signal")) {
        ("", 0) => format!("ExitCode:{}", int(terminated, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pod: Value, ready: &str, status: &str, restarts: &str) {
        let context = Context { now: "2026-01-01T01:00:00Z".parse().unwrap(), default_class: None };
        let cells = super::pod(&pod, &context);
        assert_eq!((&cells[1], &cells[2], &cells[3]), (&ready.into(), &status.into(), &restarts.into()));
    }

    fn running(name: &str) -> Value {
        json!({"name": name, "ready": true, "restartCount": 0, "state": {"running": {}}})
    }

    #[test]
    fn a_pod_without_status_is_what_its_phase_says() {
        let spec = json!({"containers": [{"name": "a"}, {"name": "b"}]});
        check(json!({"spec": spec, "status": {"phase": "Pending"}}), "0/2", "Pending", "0");
        check(
            json!({"spec": spec, "status": {"phase": "Failed", "reason": "Evicted"}}),
            "0/2",
            "Evicted",
            "0",
        );
        let gated = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]});
        check(json!({"spec": spec, "status": gated}), "0/2", "SchedulingGated", "0");
    }

    #[test]
    fn a_container_that_crashes_shows_and_so_do_its_restarts() {
        let crashing = json!({"name": "b", "ready": false, "restartCount": 3,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:57:57Z"}}});
        let pod = json!({
            "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
            "status": {"phase": "Running", "containerStatuses": [running("a"), crashing]},
        });
        check(pod, "1/2", "CrashLoopBackOff", "3 (2m3s ago)");
    }

    #[test]
    fn init_containers_come_first() {
        let spec = json!({"containers": [{"name": "a"}], "initContainers": [{"name": "i"}, {"name": "j"}]});
        let status = |state: Value| {
            json!({"phase": "Pending", "initContainerStatuses": [
                {"name": "i", "state": {"terminated": {"exitCode": 0}}}, {"name": "j", "state": state}]})
        };
        let check = |state: Value, expect: &str| {
            check(json!({"spec": spec, "status": status(state)}), "0/1", expect, "0");
        };
        check(json!({"running": {}}), "Init:1/2");
        check(json!({"waiting": {"reason": "PodInitializing"}}), "Init:1/2");
        check(json!({"waiting": {"reason": "ImagePullBackOff"}}), "Init:ImagePullBackOff");
        check(json!({"terminated": {"exitCode": 2}}), "Init:ExitCode:2");
        check(json!({"terminated": {"exitCode": 2, "signal": 9}}), "Init:Signal:9");
        check(json!({"terminated": {"exitCode": 2, "reason": "Error"}}), "Init:Error");
    }

    #[test]
    fn a_sidecar_counts_as_a_container() {
        let pod = json!({
            "spec": {"containers": [{"name": "a"}],
                "initContainers": [{"name": "s", "restartPolicy": "Always"}]},
            "status": {"phase": "Running", "containerStatuses": [running("a")],
                "initContainerStatuses": [{"name": "s", "ready": true, "started": true, "restartCount": 2,
                    "state": {"running": {}}}]},
        });
        check(pod, "2/2", "Running", "2");
    }

    #[test]
    fn completed_containers_beside_running_ones() {
        let done = json!({"name": "b", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
        let pod = |conditions: Value| {
            json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]},
                "status": {"phase": "Running", "containerStatuses": [done, running("a")],
                    "conditions": conditions}})
        };
        check(pod(json!([{"type": "Ready", "status": "True"}])), "1/2", "Running", "0");
        check(pod(json!([])), "1/2", "NotReady", "0");
    }

    #[test]
    fn a_pod_that_is_deleted_is_terminating_unless_it_has_ended() {
        let pod = |status: Value| json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": status});
        check(pod(json!({"phase": "Running"})), "0/0", "Terminating", "0");
        check(pod(json!({"phase": "Succeeded"})), "0/0", "Succeeded", "0");
        check(pod(json!({"phase": "Running", "reason": "NodeLost"})), "0/0", "Unknown", "0");
    }
}
