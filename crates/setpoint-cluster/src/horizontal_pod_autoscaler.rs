//! HorizontalPodAutoscalers: a target gets as many pods as its metrics ask for, as fast as its behavior allows.

mod behavior;
mod compute;
mod metrics;
mod replicas;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus, MetricStatus,
};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::core::{DynamicObject, Selector, SelectorExt};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use setpoint::{
    Action, Context, Controller, Event, Lister, ObjectKey, Predicate, ReconcileError, Watch, patch_status,
};

use self::behavior::{Past, Sizes};
use self::compute::Computed;
use crate::failure;
use crate::number::unless_zero;
use crate::scale_target::{self, Targets};
use crate::time::time;

/// How long one reconcile may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// What its events are from.
const NAME: &str = "horizontal-pod-autoscaler";
const WORKERS: usize = 5;
/// How often the metrics are looked at.
const PERIOD: Duration = Duration::from_secs(15);
/// How often a scale is tried that others write, too.
const TRIES: u32 = 5;

const ABLE_TO_SCALE: &str = "AbleToScale";
const SCALING_ACTIVE: &str = "ScalingActive";
const SCALING_LIMITED: &str = "ScalingLimited";
const SCALED_TO_ZERO: &str = "ScaledToZero";
const BELOW_MINIMUM: &str = "Current number of replicas below Spec.MinReplicas";

/// What is remembered between two syncs.
#[derive(Default)]
struct Memory {
    pasts: Mutex<BTreeMap<ObjectKey, Past>>,
    /// What each autoscaler's pods are selected by.
    selectors: Mutex<BTreeMap<ObjectKey, Selector>>,
    targets: Targets,
}

/// One sync of an autoscaler.
struct Sync<'a> {
    cx: &'a Context,
    memory: &'a Memory,
    pods: Lister<Pod>,
    key: &'a ObjectKey,
    autoscaler: &'a HorizontalPodAutoscaler,
    conditions: Vec<HorizontalPodAutoscalerCondition>,
}

/// Why a sync ends early. The conditions say it already.
#[derive(Debug)]
struct Stopped {
    /// What the status says about replicas, if they are known.
    replicas: Option<(i32, Vec<MetricStatus>)>,
}

/// How many pods there should be, and why.
struct Decision {
    desired: i32,
    reason: String,
    metrics: Vec<MetricStatus>,
}

/// What a sync has come to.
struct Outcome {
    current: i32,
    desired: i32,
    metrics: Vec<MetricStatus>,
    is_rescaled: bool,
}

pub(crate) fn controller() -> Controller {
    let watch = Watch::<HorizontalPodAutoscaler>::new().filter(Predicate::generation_changed());
    Controller::of(watch, NAME, reconcile)
        // Its own writes of the status are no reason to look again before the time has come.
        .reads::<Pod>(..)
        .workers(WORKERS)
        .time_limit(TIME_LIMIT)
        .state(Memory::default())
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let memory = cx.state::<Memory>()?;
    let found = cx.lister::<HorizontalPodAutoscaler>()?.get(&key);
    let Some(autoscaler) = found.filter(|found| found.metadata.deletion_timestamp.is_none()) else {
        memory.pasts.lock().remove(&key);
        memory.selectors.lock().remove(&key);
        return Ok(Action::done());
    };
    let known = autoscaler.status.clone().unwrap_or_default();
    let conditions = known.conditions.clone().unwrap_or_default();
    let mut sync =
        Sync { cx: &cx, memory, pods: cx.lister()?, key: &key, autoscaler: &autoscaler, conditions };
    let outcome = sync.run().await;
    let mut status = HorizontalPodAutoscalerStatus { conditions: Some(sync.conditions), ..known.clone() };
    match outcome {
        Ok(outcome) => {
            fill(&mut status, &autoscaler, outcome.current, outcome.desired, outcome.metrics);
            if outcome.is_rescaled {
                status.last_scale_time = Some(time(cx.env().now()));
            }
        }
        Err(Stopped { replicas: Some((current, metrics)) }) => {
            fill(&mut status, &autoscaler, current, known.desired_replicas, metrics);
        }
        Err(Stopped { replicas: None }) => {}
    }
    if status != known {
        let api: Api<HorizontalPodAutoscaler> =
            Api::namespaced(cx.client(), key.namespace().unwrap_or_default());
        match patch_status(&api, &*autoscaler, &status).await {
            Err(error) if failure::is_not_found(&error) => return Ok(Action::done()),
            written => drop(written?),
        }
    }
    Ok(Action::requeue_after(PERIOD))
}

fn fill(
    status: &mut HorizontalPodAutoscalerStatus,
    autoscaler: &HorizontalPodAutoscaler,
    current: i32,
    desired: i32,
    metrics: Vec<MetricStatus>,
) {
    status.current_replicas = unless_zero(current);
    status.desired_replicas = desired;
    status.current_metrics = Some(metrics).filter(|metrics| !metrics.is_empty());
    status.observed_generation = autoscaler.metadata.generation;
}

impl Sync<'_> {
    fn namespace(&self) -> &str {
        self.key.namespace().unwrap_or_default()
    }

    fn set(&mut self, type_: &str, status: &str, reason: &str, message: impl Into<String>) {
        let now = time(self.cx.env().now());
        let found = self.conditions.iter().position(|condition| condition.type_ == type_);
        let at = found.unwrap_or_else(|| {
            let type_ = type_.to_owned();
            self.conditions.push(HorizontalPodAutoscalerCondition { type_, ..Default::default() });
            self.conditions.len() - 1
        });
        let condition = &mut self.conditions[at];
        if condition.status != status {
            condition.last_transition_time = Some(now);
        }
        condition.status = status.to_owned();
        condition.reason = Some(reason.to_owned());
        condition.message = Some(message.into()).filter(|message| !message.is_empty());
    }

    fn warn(&self, reason: &str, note: &str) {
        self.cx.recorder().event(self.autoscaler, Event::warning(reason.to_owned(), note.to_owned()));
    }

    async fn run(&mut self) -> Result<Outcome, Stopped> {
        let (api, scale) = match self.scale().await {
            Ok(found) => found,
            Err(why) => {
                self.warn("FailedGetScale", &why);
                let message =
                    format!("the HPA controller was unable to get the target's current scale: {why}");
                self.set(ABLE_TO_SCALE, "False", "FailedGetScale", message);
                return Err(Stopped { replicas: None });
            }
        };
        let message = "the HPA controller was able to get the target's current scale";
        self.set(ABLE_TO_SCALE, "True", "SucceededGetScale", message);
        let current = scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
        let now = self.cx.env().instant();
        self.memory.pasts.lock().entry(self.key.clone()).or_default().begin(current, now);
        let min = self.autoscaler.spec.min_replicas.unwrap_or(1);
        if current == 0 && !(self.is_scaled_to_zero() && (min != 0 || self.has_outside_metrics())) {
            let message = "scaling is disabled since the replica count of the target is zero";
            self.set(SCALING_ACTIVE, "False", "ScalingDisabled", message);
            return Ok(Outcome { current, desired: 0, metrics: Vec::new(), is_rescaled: false });
        }
        let Decision { desired, reason, metrics } = self.decide(&scale, current, min).await?;
        if desired == current {
            return Ok(Outcome { current, desired, metrics, is_rescaled: false });
        }
        if let Err(error) = rescale(&api, &self.autoscaler.spec.scale_target_ref.name, scale, desired).await {
            let why = failure::message(&error);
            self.warn("FailedRescale", &format!("New size: {desired}; reason: {reason}; error: {why}"));
            let message = format!("the HPA controller was unable to update the target scale: {why}");
            self.set(ABLE_TO_SCALE, "False", "FailedUpdateScale", message);
            return Err(Stopped { replicas: Some((current, metrics)) });
        }
        self.rescaled(current, desired, min, &reason);
        Ok(Outcome { current, desired, metrics, is_rescaled: true })
    }

    /// How many pods there should be: bounds come first, then metrics.
    async fn decide(&mut self, scale: &Scale, current: i32, min: i32) -> Result<Decision, Stopped> {
        let max = self.autoscaler.spec.max_replicas;
        let by_bounds =
            |desired, reason: &str| Ok(Decision { desired, reason: reason.to_owned(), metrics: Vec::new() });
        if current > max {
            return by_bounds(max, "Current number of replicas above Spec.MaxReplicas");
        }
        if current != 0 && current < min {
            return by_bounds(min, BELOW_MINIMUM);
        }
        let Computed { proposal, statuses: metrics } = self.compute(scale).await;
        let Some((proposal, metric)) = proposal else {
            return Err(Stopped { replicas: Some((current, metrics)) });
        };
        let mut reason = match proposal.cmp(&current) {
            Ordering::Greater => format!("{metric} above target"),
            Ordering::Less => "All metrics below target".to_owned(),
            Ordering::Equal => String::new(),
        };
        let mut desired = self.judge(Sizes { current, desired: proposal, min, max });
        if current == 0 && min != 0 && desired < min {
            desired = min;
            if reason.is_empty() {
                reason = BELOW_MINIMUM.to_owned();
            }
        }
        Ok(Decision { desired, reason, metrics })
    }

    fn is_scaled_to_zero(&self) -> bool {
        self.conditions
            .iter()
            .any(|condition| condition.type_ == SCALED_TO_ZERO && condition.status == "True")
    }

    /// Whether there is a metric that says something when there are no pods.
    fn has_outside_metrics(&self) -> bool {
        let metrics = self.autoscaler.spec.metrics.iter().flatten();
        metrics.into_iter().any(|metric| matches!(metric.type_.as_str(), "Object" | "External"))
    }

    /// What a proposal comes to within the bounds, and at the speed, that are allowed.
    fn judge(&mut self, sizes: Sizes) -> i32 {
        let now = self.cx.env().instant();
        let verdict = {
            let mut pasts = self.memory.pasts.lock();
            pasts.entry(self.key.clone()).or_default().judge(&self.autoscaler.spec, sizes, now)
        };
        let (reason, message) =
            verdict.stabilized.unwrap_or(("ReadyForNewScale", "recommended size matches current size"));
        self.set(ABLE_TO_SCALE, "True", reason, message);
        let (reason, message) = verdict.limit;
        self.set(SCALING_LIMITED, if verdict.is_limited { "True" } else { "False" }, reason, message);
        verdict.replicas
    }

    /// Says that the target was given another size.
    fn rescaled(&mut self, current: i32, desired: i32, min: i32, reason: &str) {
        let message = format!("the HPA controller was able to update the target scale to {desired}");
        self.set(ABLE_TO_SCALE, "True", "SucceededRescale", message);
        let note = format!("New size: {desired}; reason: {reason}");
        self.cx.recorder().event(self.autoscaler, Event::normal("SuccessfulRescale", note));
        if current > 0 && desired == 0 && min == 0 && self.has_outside_metrics() {
            let message = "the HPA controller scaled the workload to zero";
            self.set(SCALED_TO_ZERO, "True", "ScaledToZero", message);
        } else {
            let message = "the HPA controller did not scale the workload to zero";
            self.set(SCALED_TO_ZERO, "False", "NotScaledToZero", message);
        }
        let now = self.cx.env().instant();
        let mut pasts = self.memory.pasts.lock();
        let past = pasts.entry(self.key.clone()).or_default();
        past.changed(&self.autoscaler.spec, current, desired, now);
    }

    /// The target's scale, and where it is written.
    async fn scale(&self) -> Result<(Api<DynamicObject>, Scale), String> {
        let reference = &self.autoscaler.spec.scale_target_ref;
        let targets = &self.memory.targets;
        let api = targets.api(&self.cx.client(), self.namespace(), reference).await?;
        match api.get_scale(&reference.name).await {
            Ok(scale) => Ok((api, scale)),
            Err(error) => {
                if failure::is_not_found(&error) {
                    targets.forget(reference);
                }
                Err(failure::message(&error))
            }
        }
    }

    /// The selector of the target's pods, if it is one, and no other autoscaler has one of its pods.
    fn selector(&mut self, scale: &Scale) -> Result<(String, Selector), String> {
        let text = scale.status.as_ref().and_then(|status| status.selector.clone()).unwrap_or_default();
        if text.is_empty() {
            let why = "selector is required";
            self.warn("SelectorRequired", why);
            let message = "the HPA target's scale is missing a selector";
            self.set(SCALING_ACTIVE, "False", "InvalidSelector", message);
            return Err(why.to_owned());
        }
        let selector = match scale_target::selector(&text) {
            Ok(selector) => selector,
            Err(why) => {
                let why =
                    format!("couldn't convert selector into a corresponding internal selector object: {why}");
                self.warn("InvalidSelector", &why);
                self.set(SCALING_ACTIVE, "False", "InvalidSelector", why.as_str());
                return Err(why);
            }
        };
        let others = self.sharing(&selector);
        if others.is_empty() {
            return Ok((text, selector));
        }
        let names: Vec<String> = std::iter::once(self.key).chain(&others).map(ToString::to_string).collect();
        let names = names.join(" ");
        let why = format!("pods by selector {text} are controlled by more than one HPA (e.g. [{names}])");
        self.warn("AmbiguousSelector", &why);
        self.set(SCALING_ACTIVE, "False", "AmbiguousSelector", why.as_str());
        Err(why)
    }

    /// Another autoscaler that has some of the same pods. Remembers what this one selects.
    fn sharing(&self, selector: &Selector) -> Vec<ObjectKey> {
        let pods = self.pods.namespace(self.namespace()).select(selector);
        let mut selectors = self.memory.selectors.lock();
        selectors.insert(self.key.clone(), selector.clone());
        let others = selectors.iter().filter(|(key, other)| {
            *key != self.key
                && key.namespace() == self.key.namespace()
                && pods.iter().any(|pod| other.matches(pod.labels()))
        });
        others.map(|(key, _)| key.clone()).take(1).collect()
    }
}

/// Gives the target another size, whoever writes it at the same time.
async fn rescale(api: &Api<DynamicObject>, name: &str, mut scale: Scale, replicas: i32) -> kube::Result<()> {
    let mut tries = 1;
    loop {
        scale.spec.get_or_insert_default().replicas = Some(replicas);
        match api.replace_scale(name, &PostParams::default(), &scale).await {
            Err(error) if failure::is_conflict(&error) && tries < TRIES => {
                scale = api.get_scale(name).await?;
                tries += 1;
            }
            written => return written.map(drop),
        }
    }
}
