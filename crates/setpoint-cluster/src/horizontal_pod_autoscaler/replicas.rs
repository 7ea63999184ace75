//! How many pods metrics ask for. Nothing here talks to anybody.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerBehavior;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use setpoint_kinds::Quantity;

use crate::pod;

/// How far usage may be from its target without a change.
const TOLERANCE: f64 = 0.1;
/// How long the processor time of a new pod says nothing about its load.
const CPU_INITIALIZATION: SignedDuration = SignedDuration::from_mins(5);
/// How long after its start a pod that was never ready may get its first condition.
const INITIAL_READINESS: SignedDuration = SignedDuration::from_secs(30);

/// What was measured of one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PodMetric {
    /// In thousandths.
    pub(super) value: i64,
    pub(super) timestamp: Timestamp,
    /// The time that it is an average of.
    pub(super) window: Duration,
}

pub(super) type PodMetrics = BTreeMap<String, PodMetric>;

/// How far usage may be above and below its target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tolerances {
    up: f64,
    down: f64,
}

impl Tolerances {
    pub(super) fn of(behavior: Option<&HorizontalPodAutoscalerBehavior>) -> Tolerances {
        let up = behavior.and_then(|behavior| behavior.scale_up.as_ref()?.tolerance.as_ref());
        let down = behavior.and_then(|behavior| behavior.scale_down.as_ref()?.tolerance.as_ref());
        let [up, down] =
            [up, down].map(|given| given.map_or(TOLERANCE, |given| Quantity::of(&given.0).to_f64()));
        Tolerances { up, down }
    }

    fn allow(self, ratio: f64) -> bool {
        (1.0 - self.down..=1.0 + self.up).contains(&ratio)
    }
}

/// The pods that a target has now, and what is said about its size.
#[derive(Clone, Copy)]
pub(super) struct Situation<'a> {
    pub(super) pods: &'a [Arc<Pod>],
    /// How many pods the target asks for.
    pub(super) wanted: i32,
    /// How many it says that it has.
    pub(super) present: i32,
    pub(super) tolerances: Tolerances,
    pub(super) now: Timestamp,
}

/// Pods by what their metrics are worth.
#[derive(Debug, Default, PartialEq, Eq)]
struct Groups {
    ready: usize,
    unready: BTreeSet<String>,
    missing: BTreeSet<String>,
    ignored: BTreeSet<String>,
}

/// The next whole number of pods.
fn ceil(number: f64) -> i32 {
    // A cast stops at the ends of the range.
    number.ceil() as i32
}

const NO_PODS: &str = "no pods returned by selector while calculating replica count";

impl Situation<'_> {
    fn groups(&self, metrics: &PodMetrics, resource: &str) -> Groups {
        let mut groups = Groups::default();
        for pod in self.pods {
            let name = pod.name_any();
            let group = match metrics.get(&name) {
                _ if pod.metadata.deletion_timestamp.is_some() || pod::phase(pod) == "Failed" => {
                    &mut groups.ignored
                }
                _ if pod::phase(pod) == "Pending" => &mut groups.unready,
                None => &mut groups.missing,
                Some(metric) if resource == "cpu" && is_warming_up(pod, metric, self.now) => {
                    &mut groups.unready
                }
                Some(_) => {
                    groups.ready += 1;
                    continue;
                }
            };
            group.insert(name);
        }
        groups
    }

    /// How many pods bring a ratio of usage to target to one. Pods without metrics, and those that are not ready, are
    /// assumed to use what makes the change smaller.
    fn propose(
        &self,
        mut metrics: PodMetrics,
        groups: &Groups,
        if_missing: impl Fn(&str) -> i64,
        ratio: impl Fn(&PodMetrics) -> Result<f64, String>,
    ) -> Result<i32, String> {
        let first = ratio(&metrics)?;
        let grows_with_unready = !groups.unready.is_empty() && first > 1.0;
        if !grows_with_unready && groups.missing.is_empty() {
            let proposal = ceil(first * groups.ready as f64);
            return Ok(if self.tolerances.allow(first) { self.wanted } else { proposal });
        }
        let mut assume = |name: &str, value: i64| {
            let metric = PodMetric { value, timestamp: self.now, window: Duration::ZERO };
            metrics.insert(name.to_owned(), metric);
        };
        for name in &groups.missing {
            if first < 1.0 {
                assume(name, if_missing(name));
            } else if first > 1.0 {
                assume(name, 0);
            }
        }
        if grows_with_unready {
            groups.unready.iter().for_each(|name| assume(name, 0));
        }
        let second = ratio(&metrics)?;
        let turns = first < 1.0 && second > 1.0 || first > 1.0 && second < 1.0;
        if self.tolerances.allow(second) || turns {
            return Ok(self.wanted);
        }
        let proposal = ceil(second * metrics.len() as f64);
        let turns = second < 1.0 && proposal > self.wanted || second > 1.0 && proposal < self.wanted;
        Ok(if turns { self.wanted } else { proposal })
    }

    /// Leaves the metrics that count.
    fn counting(&self, metrics: &PodMetrics, resource: &str) -> Result<(PodMetrics, Groups), String> {
        if self.pods.is_empty() {
            return Err(NO_PODS.to_owned());
        }
        let groups = self.groups(metrics, resource);
        let mut metrics = metrics.clone();
        metrics.retain(|name, _| !groups.ignored.contains(name) && !groups.unready.contains(name));
        if metrics.is_empty() {
            return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
        }
        Ok((metrics, groups))
    }

    /// By a percentage of what pods ask for. Returns the pods, the percentage, and the average in thousandths.
    pub(super) fn by_utilization(
        &self,
        metrics: &PodMetrics,
        resource: &str,
        container: &str,
        target: i32,
    ) -> Result<(i32, i32, i64), String> {
        let (metrics, groups) = self.counting(metrics, resource)?;
        let requests = requests(self.pods, resource, container)?;
        let (percent, average) = utilization(&metrics, &requests)?;
        let ratio =
            |metrics: &PodMetrics| Ok(f64::from(utilization(metrics, &requests)?.0) / f64::from(target));
        let if_missing = |name: &str| {
            let request = requests.get(name).copied().unwrap_or(0);
            request.saturating_mul(i64::from(target.max(100))) / 100
        };
        Ok((self.propose(metrics, &groups, if_missing, ratio)?, percent, average))
    }

    /// By an average of a pod, in thousandths. Returns the pods, and the average.
    pub(super) fn by_average(
        &self,
        metrics: &PodMetrics,
        resource: &str,
        target: i64,
    ) -> Result<(i32, i64), String> {
        let (metrics, groups) = self.counting(metrics, resource)?;
        let average = |metrics: &PodMetrics| {
            let total = metrics.values().fold(0i64, |total, metric| total.saturating_add(metric.value));
            total / i64::try_from(metrics.len()).unwrap_or(i64::MAX).max(1)
        };
        let usage = average(&metrics);
        let ratio = |metrics: &PodMetrics| Ok(average(metrics) as f64 / target as f64);
        Ok((self.propose(metrics, &groups, |_| target, ratio)?, usage))
    }

    /// By one value that all pods bring about together.
    pub(super) fn by_value(&self, usage: i64, target: i64) -> Result<i32, String> {
        let ratio = usage as f64 / target as f64;
        if self.wanted == 0 {
            return Ok(ceil(ratio));
        }
        if self.tolerances.allow(ratio) {
            return Ok(self.wanted);
        }
        if self.pods.is_empty() {
            return Err(format!("unable to calculate ready pods: {NO_PODS}"));
        }
        let is_ready = |pod: &&Arc<Pod>| pod::phase(pod) == "Running" && pod::is_ready(pod);
        Ok(ceil(ratio * self.pods.iter().filter(is_ready).count() as f64))
    }

    /// By one value that is shared by all pods. Returns the pods, and each one's share.
    pub(super) fn by_share(&self, usage: i64, target: i64) -> (i32, i64) {
        let ratio = usage as f64 / (target as f64 * f64::from(self.present));
        let proposal =
            if self.tolerances.allow(ratio) { self.present } else { ceil(usage as f64 / target as f64) };
        (proposal, (usage as f64 / f64::from(self.present)).ceil() as i64)
    }
}

/// Whether the processor time of a pod is not to be taken at its word.
fn is_warming_up(pod: &Pod, metric: &PodMetric, now: Timestamp) -> bool {
    let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
    let (Some(ready), Some(started)) = (pod::condition(pod, "Ready"), started) else { return true };
    let since = ready.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let is_unready = ready.status == "False";
    if now.duration_since(started) < CPU_INITIALIZATION {
        // One window has to be measured since it became ready.
        let measured = metric.timestamp.duration_since(since);
        is_unready || measured < SignedDuration::try_from(metric.window).unwrap_or(SignedDuration::MAX)
    } else {
        is_unready && since.duration_since(started) < INITIAL_READINESS
    }
}

/// The percentage of what is asked for, and the average in thousandths.
fn utilization(metrics: &PodMetrics, requests: &BTreeMap<String, i64>) -> Result<(i32, i64), String> {
    let known = metrics.iter().filter_map(|(name, metric)| Some((metric.value, *requests.get(name)?)));
    let (mut used, mut asked, mut count) = (0i64, 0i64, 0i64);
    for (value, request) in known {
        used = used.saturating_add(value);
        asked = asked.saturating_add(request);
        count += 1;
    }
    if asked == 0 {
        return Err("no metrics returned matched known pods".to_owned());
    }
    let percent = i32::try_from(used.saturating_mul(100) / asked).unwrap_or(i32::MAX);
    Ok((percent, used / count.max(1)))
}

/// What each pod asks for of a resource, or one of its containers, in thousandths.
fn requests(pods: &[Arc<Pod>], resource: &str, container: &str) -> Result<BTreeMap<String, i64>, String> {
    let of_pod = |pod: &Arc<Pod>| -> Result<(String, i64), String> {
        Ok((pod.name_any(), request(pod, resource, container)?))
    };
    pods.iter().map(of_pod).collect()
}

fn request(pod: &Pod, resource: &str, container: &str) -> Result<i64, String> {
    let name = pod.name_any();
    let Some(spec) = &pod.spec else { return Ok(0) };
    let whole = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    if let Some(whole) = whole.filter(|whole| container.is_empty() && !whole.is_empty()) {
        let amount = whole.get(resource).map(|amount| Quantity::of(&amount.0).millis());
        return amount.ok_or_else(|| format!("missing pod-level request for {resource} in Pod {name}"));
    }
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let all: Vec<&Container> = spec.containers.iter().chain(sidecars).collect();
    let of = |one: &Container| {
        let amount = one.resources.as_ref().and_then(|resources| resources.requests.as_ref()?.get(resource));
        let amount = amount.map(|amount| Quantity::of(&amount.0).millis());
        amount
            .ok_or_else(|| format!("missing request for {resource} in container {} of Pod {name}", one.name))
    };
    if container.is_empty() {
        return all.into_iter().try_fold(0i64, |total, one| Ok(total.saturating_add(of(one)?)));
    }
    let found = all.into_iter().find(|one| one.name == container);
    of(found.ok_or_else(|| format!("container {container} not found in Pod {name}"))?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: &str = "2030-01-01T01:00:00Z";

    fn now() -> Timestamp {
        NOW.parse().unwrap()
    }

    /// A pod that asks for one processor and has been ready for long.
    fn pod(name: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {
                "phase": "Running", "startTime": "2030-01-01T00:00:00Z",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2030-01-01T00:00:10Z"}]
            }
        }))
        .unwrap()
    }

    fn pods(count: usize) -> Vec<Arc<Pod>> {
        (0..count).map(|n| Arc::new(pod(&format!("p{n}")))).collect()
    }

    fn measured(values: &[i64]) -> PodMetrics {
        let metric = |value| PodMetric { value, timestamp: now(), window: Duration::from_secs(60) };
        values.iter().enumerate().map(|(n, value)| (format!("p{n}"), metric(*value))).collect()
    }

    fn situation(pods: &[Arc<Pod>], wanted: i32) -> Situation<'_> {
        Situation { pods, wanted, present: wanted, tolerances: Tolerances::of(None), now: now() }
    }

    fn by_cpu(pods: &[Arc<Pod>], values: &[i64], target: i32) -> Result<(i32, i32, i64), String> {
        let wanted = i32::try_from(pods.len()).unwrap();
        situation(pods, wanted).by_utilization(&measured(values), "cpu", "", target)
    }

    #[test]
    fn usage_is_brought_to_its_target() {
        // 3 pods at 30, 50 and 70 % with a target of 30 %: 5 pods. Numbers are those of Kubernetes' own tests.
        assert_eq!(by_cpu(&pods(3), &[300, 500, 700], 30), Ok((5, 50, 500)));
        assert_eq!(by_cpu(&pods(5), &[100, 300, 500, 250, 250], 50), Ok((3, 28, 280)));
        // Within the tolerance nothing changes.
        assert_eq!(by_cpu(&pods(3), &[1010, 1030, 1020], 100), Ok((3, 102, 1020)));
        assert_eq!(by_cpu(&pods(3), &[1100, 1100, 1100], 100), Ok((3, 110, 1100)));
        assert_eq!(by_cpu(&pods(3), &[1110, 1110, 1110], 100), Ok((4, 111, 1110)));
    }

    #[test]
    fn pods_without_metrics_make_a_change_smaller() {
        // Up: the missing one counts as idle.
        assert_eq!(by_cpu(&pods(3), &[1000, 1000], 50).map(|found| found.0), Ok(4));
        // Down: it counts as using all it asks for.
        assert_eq!(by_cpu(&pods(4), &[100, 100, 100], 50).map(|found| found.0), Ok(3));
        // It never turns the direction.
        assert_eq!(by_cpu(&pods(2), &[400], 50).map(|found| found.0), Ok(2));
    }

    #[test]
    fn pods_that_are_not_ready_count_as_idle_when_more_are_wanted() {
        let mut pods = pods(3);
        let mut pending = pod("p2");
        pending.status.as_mut().unwrap().phase = Some("Pending".to_owned());
        pods[2] = Arc::new(pending);
        // Without the third 2 pods at 100 % with a target of 30 % are 7; with it as idle (66 %) it is 7, too.
        assert_eq!(by_cpu(&pods, &[1000, 1000, 9000], 30).map(|found| found.0), Ok(7));
        // When less are wanted, it is left out.
        assert_eq!(by_cpu(&pods, &[100, 100, 9000], 50).map(|found| found.0), Ok(1));
        let mut failed = pod("p2");
        failed.status.as_mut().unwrap().phase = Some("Failed".to_owned());
        pods[2] = Arc::new(failed);
        assert_eq!(by_cpu(&pods, &[1000, 1000, 9000], 50).map(|found| found.0), Ok(4));
    }

    #[test]
    fn the_processor_time_of_a_new_pod_says_nothing() {
        let at = |started: &str, ready: &str, since: &str, measured: &str| {
            let mut pod = pod("p0");
            let status = pod.status.as_mut().unwrap();
            status.start_time = serde_json::from_value(json!(started)).unwrap();
            let condition = json!([{"type": "Ready", "status": ready, "lastTransitionTime": since}]);
            status.conditions = serde_json::from_value(condition).unwrap();
            let timestamp = measured.parse().unwrap();
            is_warming_up(&pod, &PodMetric { value: 1, timestamp, window: Duration::from_secs(60) }, now())
        };
        let young = "2030-01-01T00:58:00Z";
        // Ready for a whole window, or not.
        assert!(!at(young, "True", "2030-01-01T00:58:30Z", "2030-01-01T00:59:30Z"));
        assert!(at(young, "True", "2030-01-01T00:58:31Z", "2030-01-01T00:59:30Z"));
        assert!(at(young, "False", "2030-01-01T00:58:01Z", NOW));
        // An old one that is not ready any more counts; one that never was does not.
        let old = "2030-01-01T00:30:00Z";
        assert!(!at(old, "False", "2030-01-01T00:50:00Z", NOW));
        assert!(at(old, "False", "2030-01-01T00:30:05Z", NOW));
    }

    #[test]
    fn what_cannot_be_computed_is_said_in_kubernetes_words() {
        let wrong = |pods: &[Arc<Pod>], values: &[i64]| by_cpu(pods, values, 50).unwrap_err();
        assert_eq!(wrong(&[], &[1]), NO_PODS);
        assert_eq!(wrong(&pods(1), &[]), "did not receive metrics for targeted pods (pods might be unready)");
        let mut silent = pod("p0");
        silent.spec.as_mut().unwrap().containers[0].resources = None;
        let expected = "missing request for cpu in container a of Pod p0";
        assert_eq!(wrong(&[Arc::new(silent)], &[1]), expected);
        let one = pods(1);
        let of = |container: &str| situation(&one, 1).by_utilization(&measured(&[500]), "cpu", container, 50);
        assert_eq!(of("b"), Err("container b not found in Pod p0".to_owned()));
        assert_eq!(of("a"), Ok((1, 50, 500)));
    }

    #[test]
    fn averages_values_and_shares() {
        let three = pods(3);
        let now = situation(&three, 3);
        assert_eq!(now.by_average(&measured(&[20_000, 10_000, 30_000]), "", 15_000), Ok((4, 20_000)));
        assert_eq!(now.by_value(20_000, 15_000), Ok(4));
        assert_eq!(now.by_value(15_100, 15_000), Ok(3));
        assert_eq!(situation(&[], 0).by_value(20_000, 15_000), Ok(2), "from nothing");
        assert_eq!(now.by_share(8_600, 2_150), (4, 2_867));
        assert_eq!(now.by_share(6_450, 2_150), (3, 2_150));
    }
}
