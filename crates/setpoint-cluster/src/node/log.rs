//! What a container that does not exist would have written.

use std::time::Duration;

use jiff::Timestamp;
use setpoint::k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use setpoint_apiserver::{LogLine, LogSource};

/// How often a container that runs says so.
const BEAT: Duration = Duration::from_secs(10);
/// How many of these lines are kept.
const MOST: i64 = 1000;

/// The log of containers on simulated nodes: that they started, a line every ten seconds, and that they ended. It
/// follows from a pod's status alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct SyntheticLog;

impl LogSource for SyntheticLog {
    fn lines(&self, pod: &Pod, container: &str, previous: bool, now: Timestamp) -> Option<Vec<LogLine>> {
        let status = pod.status.as_ref()?;
        let all = status.container_statuses.iter().chain(&status.init_container_statuses);
        let found = all.flatten().find(|status| status.name == container)?;
        let last = found.last_state.as_ref();
        let (state, restarts) = match (previous, found.state.as_ref()) {
            (true, _) => (last?, found.restart_count.saturating_sub(1)),
            // One that waits to be started again shows what it wrote before.
            (false, Some(state)) if state.waiting.is_some() => (last?, found.restart_count.saturating_sub(1)),
            (false, state) => (state?, found.restart_count),
        };
        Some(lines(found, state, restarts, pod, now))
    }
}

fn lines(
    status: &ContainerStatus,
    state: &ContainerState,
    restarts: i32,
    pod: &Pod,
    now: Timestamp,
) -> Vec<LogLine> {
    let ended = state.terminated.as_ref();
    let running = state.running.as_ref().and_then(|running| running.started_at.as_ref());
    let started = running.or_else(|| ended?.started_at.as_ref()).map_or(now, |time| time.0);
    let end = ended.and_then(|ended| ended.finished_at.as_ref()).map(|time| time.0);
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    let mut lines = vec![LogLine {
        time: started,
        text: format!("container {} ({}) started on {node}, restart {restarts}", status.name, status.image),
    }];
    let seconds = end.unwrap_or(now).duration_since(started).as_secs().max(0);
    let beats = seconds / BEAT.as_secs() as i64;
    lines.extend(((beats - MOST).max(0)..beats).filter_map(|beat| {
        let after = (beat + 1) * BEAT.as_secs() as i64;
        let time = started.checked_add(Duration::from_secs(after.unsigned_abs())).ok()?;
        Some(LogLine { time, text: format!("container {} has run for {after} s", status.name) })
    }));
    if let (Some(ended), Some(end)) = (ended, end) {
        let text = format!("container {} ended with exit code {}", status.name, ended.exit_code);
        lines.push(LogLine { time: end, text });
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn log(state: Value, last: Value, previous: bool) -> Option<Vec<String>> {
        let status = json!({"name": "web", "image": "nginx", "imageID": "", "ready": true, "restartCount": 1,
                            "state": state, "lastState": last});
        let pod = json!({"metadata": {"name": "web"}, "spec": {"nodeName": "node-1", "containers": []},
                         "status": {"containerStatuses": [status]}});
        let pod = serde_json::from_value(pod).unwrap();
        let now = "2026-01-01T00:00:25Z".parse().unwrap();
        let lines = SyntheticLog.lines(&pod, "web", previous, now)?;
        Some(lines.into_iter().map(|line| line.text).collect())
    }

    #[test]
    fn a_log_tells_of_the_start_the_run_and_the_end() {
        let running = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
        let ended = json!({"terminated": {"exitCode": 3, "startedAt": "2026-01-01T00:00:00Z",
                                          "finishedAt": "2026-01-01T00:00:05Z"}});
        assert_eq!(
            log(running.clone(), json!({}), false).unwrap(),
            [
                "container web (nginx) started on node-1, restart 1",
                "container web has run for 10 s",
                "container web has run for 20 s"
            ]
        );
        let before =
            ["container web (nginx) started on node-1, restart 0", "container web ended with exit code 3"];
        assert_eq!(log(running, ended.clone(), true).unwrap(), before);
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        assert_eq!(log(waiting, ended, false).unwrap(), before);
    }
}
