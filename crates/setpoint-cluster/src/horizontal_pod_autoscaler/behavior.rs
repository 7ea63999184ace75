//! How fast a target may grow and shrink: what was recommended lately, what was done lately, and the policies.

use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::{HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerSpec};
use tokio::time::Instant;

/// Of the recommendations of this time the highest counts, unless the behavior says otherwise.
const DOWNSCALE_WINDOW: Duration = Duration::from_secs(5 * 60);
/// Without a behavior, a target may grow to so many times its size, or to so many pods.
const GROWTH_FACTOR: f64 = 2.0;
const GROWTH_MINIMUM: f64 = 4.0;
/// More recommendations and changes than this are of no use: the longest window is an hour, and one sync in it takes a second.
const MOST: usize = 4096;

/// What is remembered of one autoscaler.
#[derive(Debug, Default)]
pub(super) struct Past {
    recommendations: Vec<(i32, Instant)>,
    ups: Vec<(i32, Instant)>,
    downs: Vec<(i32, Instant)>,
}

/// What may be done right now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) replicas: i32,
    /// Why the recommendation was not taken as it is, if it was not.
    pub(super) stabilized: Option<(&'static str, &'static str)>,
    /// Whether, and why, the size is limited.
    pub(super) is_limited: bool,
    pub(super) limit: (&'static str, &'static str),
}

/// The size of a target, and what is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) current: i32,
    pub(super) desired: i32,
    pub(super) min: i32,
    pub(super) max: i32,
}

const IN_RANGE: (&str, &str) = ("DesiredWithinRange", "the desired count is within the acceptable range");
const TOO_MANY: (&str, &str) =
    ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: (&str, &str) =
    ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const TOO_FAST_UP: (&str, &str) =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const TOO_FAST_DOWN: (&str, &str) =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");
const STABILIZED_DOWN: (&str, &str) = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const STABILIZED_UP: (&str, &str) = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);

fn age(at: Instant, now: Instant) -> Duration {
    now.saturating_duration_since(at)
}

impl Past {
    /// The size that the target has before anything was recommended.
    pub(super) fn begin(&mut self, current: i32, now: Instant) {
        if self.recommendations.is_empty() {
            self.recommendations.push((current, now));
        }
    }

    /// What comes of a recommendation.
    pub(super) fn judge(
        &mut self,
        spec: &HorizontalPodAutoscalerSpec,
        sizes: Sizes,
        now: Instant,
    ) -> Verdict {
        let rules = spec.behavior.as_ref();
        let rules =
            rules.and_then(|behavior| Some((behavior.scale_up.as_ref()?, behavior.scale_down.as_ref()?)));
        let (stable, why) = match rules {
            Some((up, down)) => self.stabilize(up, down, sizes, now),
            None => (self.highest(sizes.desired, DOWNSCALE_WINDOW, now), STABILIZED_DOWN),
        };
        let stabilized = (stable != sizes.desired).then_some(why);
        self.remember(sizes.desired, rules, now);
        let stable = Sizes { desired: stable, ..sizes };
        let (replicas, limit) = match rules {
            Some((up, down)) => self.by_rules(up, down, stable, now),
            None => by_default(stable),
        };
        Verdict { replicas, stabilized, is_limited: replicas != stable.desired, limit }
    }

    /// The highest recommendation of a window, this one included.
    fn highest(&self, desired: i32, window: Duration, now: Instant) -> i32 {
        let recent = self.recommendations.iter().filter(|(_, at)| age(*at, now) <= window);
        recent.map(|(replicas, _)| *replicas).fold(desired, i32::max)
    }

    /// The current size, moved by as little as recent recommendations allow.
    fn stabilize(
        &self,
        up: &HPAScalingRules,
        down: &HPAScalingRules,
        sizes: Sizes,
        now: Instant,
    ) -> (i32, (&'static str, &'static str)) {
        let recent = |window: Duration| {
            let recent = self.recommendations.iter().filter(move |(_, at)| age(*at, now) < window);
            recent.map(|(replicas, _)| *replicas)
        };
        let (up_window, down_window) = windows(up, down);
        let lowest = recent(up_window).fold(sizes.desired, i32::min);
        let highest = recent(down_window).fold(sizes.desired, i32::max);
        let stable = sizes.current.max(lowest).min(highest);
        (stable, if sizes.desired >= sizes.current { STABILIZED_UP } else { STABILIZED_DOWN })
    }

    fn remember(&mut self, desired: i32, rules: Option<(&HPAScalingRules, &HPAScalingRules)>, now: Instant) {
        let window = rules.map_or(DOWNSCALE_WINDOW, |(up, down)| {
            let (up, down) = windows(up, down);
            up.max(down)
        });
        self.recommendations.retain(|(_, at)| age(*at, now) <= window);
        self.recommendations.push((desired, now));
        keep_newest(&mut self.recommendations);
    }

    /// Notes a change that was made.
    pub(super) fn changed(&mut self, spec: &HorizontalPodAutoscalerSpec, from: i32, to: i32, now: Instant) {
        let Some(behavior) = &spec.behavior else { return };
        let (changes, rules) = if to > from {
            (&mut self.ups, &behavior.scale_up)
        } else {
            (&mut self.downs, &behavior.scale_down)
        };
        let periods = rules.iter().flat_map(policies).map(period);
        let longest = periods.max().unwrap_or_default();
        changes.retain(|(_, at)| age(*at, now) <= longest);
        changes.push((to.abs_diff(from).try_into().unwrap_or(i32::MAX), now));
        keep_newest(changes);
    }

    fn by_rules(
        &self,
        up: &HPAScalingRules,
        down: &HPAScalingRules,
        sizes: Sizes,
        now: Instant,
    ) -> (i32, (&'static str, &'static str)) {
        let Sizes { current, desired, min, max } = sizes;
        if desired > current {
            let limit = self.limit(up, current, true, now).max(current);
            let (most, why) = if max > limit { (limit, TOO_FAST_UP) } else { (max, TOO_MANY) };
            if desired > most {
                return (most, why);
            }
        } else if desired < current {
            let limit = self.limit(down, current, false, now).min(current);
            let (least, why) = if min < limit { (limit, TOO_FAST_DOWN) } else { (min, TOO_FEW) };
            if desired < least {
                return (least, why);
            }
        }
        (desired, IN_RANGE)
    }

    /// The size that the policies of a direction allow.
    fn limit(&self, rules: &HPAScalingRules, current: i32, is_up: bool, now: Instant) -> i32 {
        let select = rules.select_policy.as_deref().unwrap_or("Max");
        if select == "Disabled" {
            return current;
        }
        let allowed = policies(rules).map(|policy| {
            let within = |changes: &[(i32, Instant)]| {
                let recent = changes.iter().filter(|(_, at)| age(*at, now) < period(policy));
                recent.fold(0i32, |sum, (change, _)| sum.saturating_add(*change))
            };
            let start = current.saturating_sub(within(&self.ups)).saturating_add(within(&self.downs));
            match (policy.type_.as_str(), is_up) {
                ("Pods", true) => start.saturating_add(policy.value),
                ("Pods", false) => start.saturating_sub(policy.value),
                // Up is rounded up, since otherwise a small target would never grow.
                (_, true) => (f64::from(start) * (1.0 + f64::from(policy.value) / 100.0)).ceil() as i32,
                (_, false) => (f64::from(start) * (1.0 - f64::from(policy.value) / 100.0)) as i32,
            }
        });
        let is_highest = is_up == (select != "Min");
        let limit = if is_highest { allowed.max() } else { allowed.min() };
        limit.unwrap_or(current)
    }
}

fn keep_newest(list: &mut Vec<(i32, Instant)>) {
    let surplus = list.len().saturating_sub(MOST);
    list.drain(..surplus);
}

fn policies(rules: &HPAScalingRules) -> impl Iterator<Item = &HPAScalingPolicy> {
    rules.policies.iter().flatten()
}

fn period(policy: &HPAScalingPolicy) -> Duration {
    Duration::from_secs(u64::try_from(policy.period_seconds).unwrap_or(0))
}

/// How long recommendations count, up and down.
fn windows(up: &HPAScalingRules, down: &HPAScalingRules) -> (Duration, Duration) {
    let window = |rules: &HPAScalingRules, default: Duration| {
        let seconds = rules.stabilization_window_seconds.map(|seconds| u64::try_from(seconds).unwrap_or(0));
        seconds.map_or(default, Duration::from_secs)
    };
    (window(up, Duration::ZERO), window(down, DOWNSCALE_WINDOW))
}

/// Without a behavior.
fn by_default(sizes: Sizes) -> (i32, (&'static str, &'static str)) {
    let Sizes { current, desired, min, max } = sizes;
    let growth = (GROWTH_FACTOR * f64::from(current)).max(GROWTH_MINIMUM) as i32;
    let (most, why) = if max > growth { (growth, TOO_FAST_UP) } else { (max, TOO_MANY) };
    if desired < min {
        (min, TOO_FEW)
    } else if desired > most {
        (most, why)
    } else {
        (desired, IN_RANGE)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(behavior: Value) -> HorizontalPodAutoscalerSpec {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        serde_json::from_value(json!({"scaleTargetRef": target, "maxReplicas": 100, "behavior": behavior}))
            .unwrap()
    }

    fn sizes(current: i32, desired: i32) -> Sizes {
        Sizes { current, desired, min: 1, max: 100 }
    }

    fn after(begin: Instant, seconds: u64) -> Instant {
        begin.checked_add(Duration::from_secs(seconds)).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_highest_recommendation_of_five_minutes_counts() {
        let (mut past, spec, begin) = (Past::default(), spec(Value::Null), Instant::now());
        past.begin(5, begin);
        let verdict = past.judge(&spec, sizes(5, 2), after(begin, 15));
        assert_eq!((verdict.replicas, verdict.stabilized), (5, Some(STABILIZED_DOWN)));
        let verdict = past.judge(&spec, sizes(5, 2), after(begin, 301));
        assert_eq!((verdict.replicas, verdict.stabilized), (2, None));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_behavior_a_target_doubles_at_most() {
        let (mut past, spec, now) = (Past::default(), spec(Value::Null), Instant::now());
        let mut judge = |sizes: Sizes| {
            let verdict = past.judge(&spec, sizes, now);
            (verdict.replicas, verdict.is_limited, verdict.limit.0)
        };
        assert_eq!(judge(sizes(1, 9)), (4, true, "ScaleUpLimit"));
        assert_eq!(judge(sizes(10, 21)), (20, true, "ScaleUpLimit"));
        assert_eq!(judge(Sizes { max: 15, ..sizes(10, 30) }), (15, true, "TooManyReplicas"));
        let (mut past, now) = (Past::default(), Instant::now());
        let verdict = past.judge(&spec, Sizes { min: 3, ..sizes(5, 1) }, now);
        assert_eq!((verdict.replicas, verdict.limit.0), (3, "TooFewReplicas"));
        assert_eq!(Past::default().judge(&spec, sizes(5, 6), now).limit.0, "DesiredWithinRange");
    }

    #[tokio::test(start_paused = true)]
    async fn policies_limit_how_much_changes_in_their_period() {
        let policies = json!([
            {"type": "Pods", "value": 4, "periodSeconds": 60}, {"type": "Percent", "value": 50, "periodSeconds": 60}
        ]);
        let behavior = |select: &str| {
            let up = json!({"policies": policies, "selectPolicy": select, "stabilizationWindowSeconds": 0});
            let down = json!({"policies": policies, "selectPolicy": select, "stabilizationWindowSeconds": 0});
            spec(json!({"scaleUp": up, "scaleDown": down}))
        };
        let begin = Instant::now();
        for (select, up, down) in [("Max", 15, 5), ("Min", 14, 6), ("Disabled", 10, 10)] {
            let spec = behavior(select);
            assert_eq!(Past::default().judge(&spec, sizes(10, 50), begin).replicas, up, "{select}");
            assert_eq!(Past::default().judge(&spec, sizes(10, 1), begin).replicas, down, "{select}");
        }
        let (mut past, spec) = (Past::default(), behavior("Max"));
        past.changed(&spec, 10, 15, begin);
        let verdict = past.judge(&spec, sizes(15, 50), after(begin, 15));
        assert_eq!((verdict.replicas, verdict.limit.0), (15, "ScaleUpLimit"));
        assert_eq!(
            past.judge(&spec, sizes(15, 50), after(begin, 61)).replicas,
            23,
            "15 and a half, rounded up"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn windows_of_both_directions_hold_a_target_still() {
        let policies = json!([{"type": "Percent", "value": 900, "periodSeconds": 15}]);
        let rules = |seconds: u32| json!({"policies": policies, "selectPolicy": "Max", "stabilizationWindowSeconds": seconds});
        let spec = spec(json!({"scaleUp": rules(120), "scaleDown": rules(300)}));
        let (mut past, begin) = (Past::default(), Instant::now());
        past.begin(5, begin);
        let verdict = past.judge(&spec, sizes(5, 9), after(begin, 60));
        assert_eq!((verdict.replicas, verdict.stabilized), (5, Some(STABILIZED_UP)));
        assert_eq!(past.judge(&spec, sizes(5, 8), after(begin, 121)).replicas, 8);
        let verdict = past.judge(&spec, sizes(8, 2), after(begin, 180));
        assert_eq!(
            (verdict.replicas, verdict.stabilized),
            (8, Some(STABILIZED_DOWN)),
            "nine was two minutes ago"
        );
    }
}
