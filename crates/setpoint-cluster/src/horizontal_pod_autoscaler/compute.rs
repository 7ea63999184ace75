//! What each metric of an autoscaler asks for.

use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, ExternalMetricSource, ExternalMetricStatus, MetricSpec, MetricStatus,
    MetricTarget, MetricValueStatus, ObjectMetricSource, ObjectMetricStatus, PodsMetricSource,
    PodsMetricStatus, ResourceMetricStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use kube::ResourceExt;
use setpoint_kinds::Quantity;

use super::metrics::{Metrics, described};
use super::replicas::{Situation, Tolerances};
use super::{SCALING_ACTIVE, Sync};

/// What all metrics come to.
pub(super) struct Computed {
    /// The number of pods, and the metric that asks for it; none if it cannot be said.
    pub(super) proposal: Option<(i32, String)>,
    pub(super) statuses: Vec<MetricStatus>,
}

/// What one metric comes to.
struct Proposal {
    replicas: i32,
    /// What events call it.
    metric: String,
    status: MetricStatus,
}

/// Why a metric says nothing.
struct Failure {
    reason: &'static str,
    /// What the event and the condition say.
    why: String,
    /// What it was about.
    what: String,
}

impl Failure {
    /// The same in the words of the whole.
    fn told(&self) -> String {
        format!("failed to get {}: {}", self.what, self.why)
    }
}

fn millis(text: &Text) -> i64 {
    Quantity::of(&text.0).millis()
}

fn text(millis: i64) -> Text {
    Text(Quantity::from_millis(millis).to_string())
}

/// Memory is written with `Mi` and the like.
fn amount(resource: &str, millis: i64) -> Text {
    let amount = Quantity::from_millis(millis);
    Text(if resource == "memory" { amount.in_binary() } else { amount }.to_string())
}

impl Sync<'_> {
    /// Computes all metrics: the one that asks for the most pods counts. If some say nothing, the others must not make the
    /// target smaller.
    pub(super) async fn compute(&mut self, scale: &Scale) -> Computed {
        let (text, selector) = match self.selector(scale) {
            Ok(found) => found,
            Err(why) => {
                self.warn("FailedComputeMetricsReplicas", &why);
                return Computed { proposal: None, statuses: Vec::new() };
            }
        };
        let namespace = self.key.namespace().unwrap_or_default();
        let pods = self.pods.namespace(namespace).select(&selector);
        let spec = &self.autoscaler.spec;
        let wanted = scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
        let now = self.cx.env().now();
        let situation = Situation {
            pods: &pods,
            wanted,
            present: scale.status.as_ref().map_or(0, |status| status.replicas),
            tolerances: Tolerances::of(spec.behavior.as_ref()),
            now,
        };
        let client = self.cx.client();
        let metrics = Metrics {
            client: &client,
            targets: &self.memory.targets,
            namespace,
            pods: &pods,
            selector: &text,
            annotations: self.autoscaler.annotations(),
            now,
        };
        let (mut best, mut statuses, mut failures): (Option<(i32, String)>, _, _) =
            (None, Vec::new(), Vec::new());
        let specs = spec.metrics.as_deref().unwrap_or_default();
        for spec in specs {
            match propose(&metrics, &situation, spec).await {
                Ok(Proposal { replicas, metric, status }) => {
                    statuses.push(status);
                    if best.as_ref().is_none_or(|(most, _)| *most == 0 || replicas > *most) {
                        best = Some((replicas, metric));
                    }
                }
                Err(failure) => {
                    self.warn(failure.reason, &failure.why);
                    // It has no status, and takes its place.
                    statuses.push(MetricStatus::default());
                    failures.push(failure);
                }
            }
        }
        let would_shrink = best.as_ref().is_none_or(|(replicas, _)| *replicas < wanted);
        if let Some(first) = failures.first().filter(|_| failures.len() >= specs.len() || would_shrink) {
            let message = format!("the HPA was unable to compute the replica count: {}", first.why);
            let (count, all) = (failures.len(), specs.len());
            let note =
                format!("invalid metrics ({count} invalid out of {all}), first error is: {}", first.told());
            self.set(SCALING_ACTIVE, "False", first.reason, message);
            self.warn("FailedComputeMetricsReplicas", &note);
            return Computed { proposal: None, statuses };
        }
        if let Some((_, metric)) = &best {
            let message = format!("the HPA was able to successfully calculate a replica count from {metric}");
            self.set(SCALING_ACTIVE, "True", "ValidMetricFound", message);
        }
        Computed { proposal: best, statuses }
    }
}

async fn propose(metrics: &Metrics<'_>, now: &Situation<'_>, spec: &MetricSpec) -> Result<Proposal, Failure> {
    match (&spec.resource, &spec.container_resource, &spec.pods, &spec.object, &spec.external) {
        (Some(source), ..) => {
            let name = source.name.as_str();
            let failed = |why| Failure {
                reason: "FailedGetResourceMetric",
                why,
                what: format!("{name} resource metric value"),
            };
            let (replicas, metric, current) =
                by_resource(metrics, now, name, "", &source.target).await.map_err(failed)?;
            let status = ResourceMetricStatus { name: name.to_owned(), current };
            let status = MetricStatus { resource: Some(status), ..of_type(spec) };
            Ok(Proposal { replicas, metric, status })
        }
        (_, Some(source), ..) => {
            let (name, container) = (source.name.as_str(), source.container.as_str());
            let failed = |why| Failure {
                reason: "FailedGetContainerResourceMetric",
                why,
                what: format!("{container} container metric value"),
            };
            let (replicas, metric, current) =
                by_resource(metrics, now, name, container, &source.target).await.map_err(failed)?;
            let (container, name) = (container.to_owned(), name.to_owned());
            let status = ContainerResourceMetricStatus { container, current, name };
            let status = MetricStatus { container_resource: Some(status), ..of_type(spec) };
            Ok(Proposal { replicas, metric, status })
        }
        (_, _, Some(source), ..) => {
            let failed =
                |why| Failure { reason: "FailedGetPodsMetric", why, what: "pods metric value".to_owned() };
            by_pods(metrics, now, spec, source).await.map_err(failed)
        }
        (_, _, _, Some(source), _) => {
            let failed = |why| Failure {
                reason: "FailedGetObjectMetric",
                why,
                what: "object metric value".to_owned(),
            };
            by_object(metrics, now, spec, source).await.map_err(failed)
        }
        (_, _, _, _, Some(source)) => {
            let what = format!("{} external metric value", source.metric.name);
            let failed = |why| Failure { reason: "FailedGetExternalMetric", why, what };
            by_external(metrics, now, spec, source).await.map_err(failed)
        }
        _ => Err(Failure {
            reason: "InvalidMetricSourceType",
            why: format!("unknown metric source type {:?}", spec.type_),
            what: "metric".to_owned(),
        }),
    }
}

fn of_type(spec: &MetricSpec) -> MetricStatus {
    MetricStatus { type_: spec.type_.clone(), ..MetricStatus::default() }
}

async fn by_resource(
    metrics: &Metrics<'_>,
    now: &Situation<'_>,
    resource: &str,
    container: &str,
    target: &MetricTarget,
) -> Result<(i32, String, MetricValueStatus), String> {
    if let Some(average) = &target.average_value {
        let failed = |why: String| format!("failed to get {resource} usage: {why}");
        let found = metrics.resource(resource, container).await.map_err(failed)?;
        let (replicas, usage) = now.by_average(&found, resource, millis(average)).map_err(failed)?;
        let current = MetricValueStatus {
            average_value: Some(amount(resource, usage)),
            ..MetricValueStatus::default()
        };
        return Ok((replicas, format!("{resource} resource"), current));
    }
    let Some(wanted) = target.average_utilization else {
        let why = "invalid resource metric source: neither an average utilization target nor an average value (usage) \
                   target was set";
        return Err(why.to_owned());
    };
    let failed = |why: String| format!("failed to get {resource} utilization: {why}");
    let found = metrics.resource(resource, container).await.map_err(failed)?;
    let (replicas, percent, usage) =
        now.by_utilization(&found, resource, container, wanted).map_err(failed)?;
    let kind = if container.is_empty() { "" } else { "container " };
    let current = MetricValueStatus {
        average_utilization: Some(percent),
        average_value: Some(amount(resource, usage)),
        value: None,
    };
    Ok((replicas, format!("{resource} {kind}resource utilization (percentage of request)"), current))
}

async fn by_pods(
    metrics: &Metrics<'_>,
    now: &Situation<'_>,
    spec: &MetricSpec,
    source: &PodsMetricSource,
) -> Result<Proposal, String> {
    let name = &source.metric.name;
    let found = metrics.of_pods(name, source.metric.selector.as_ref()).await?;
    let target = source.target.average_value.as_ref().map(millis).unwrap_or_default();
    let (replicas, usage) = now.by_average(&found, "", target)?;
    let current = MetricValueStatus { average_value: Some(text(usage)), ..MetricValueStatus::default() };
    let status = PodsMetricStatus { current, metric: source.metric.clone() };
    let status = MetricStatus { pods: Some(status), ..of_type(spec) };
    Ok(Proposal { replicas, metric: format!("pods metric {name}"), status })
}

async fn by_object(
    metrics: &Metrics<'_>,
    now: &Situation<'_>,
    spec: &MetricSpec,
    source: &ObjectMetricSource,
) -> Result<Proposal, String> {
    let (name, selector) = (&source.metric.name, source.metric.selector.as_ref());
    let mut current = MetricValueStatus::default();
    let (replicas, metric) = match (&source.target.value, &source.target.average_value) {
        (Some(target), _) if source.target.type_ == "Value" => {
            let usage = metrics.of_object(&source.described_object, name, selector).await?;
            current.value = Some(text(usage));
            (now.by_value(usage, millis(target))?, format!("{} metric {name}", source.described_object.kind))
        }
        (_, Some(target)) if source.target.type_ == "AverageValue" => {
            let usage = metrics.of_object(&source.described_object, name, selector).await;
            let usage = usage.map_err(|why| format!("failed to get {name} object metric: {why}"))?;
            let (replicas, share) = now.by_share(usage, millis(target));
            current.average_value = Some(text(share));
            (replicas, format!("external metric {name}({})", described(selector)))
        }
        _ => {
            let why =
                "invalid object metric source: neither a value target nor an average value target was set";
            return Err(why.to_owned());
        }
    };
    let status = ObjectMetricStatus {
        current,
        described_object: source.described_object.clone(),
        metric: source.metric.clone(),
    };
    Ok(Proposal { replicas, metric, status: MetricStatus { object: Some(status), ..of_type(spec) } })
}

async fn by_external(
    metrics: &Metrics<'_>,
    now: &Situation<'_>,
    spec: &MetricSpec,
    source: &ExternalMetricSource,
) -> Result<Proposal, String> {
    let (name, selector) = (&source.metric.name, source.metric.selector.as_ref());
    let mut current = MetricValueStatus::default();
    let replicas = match (&source.target.average_value, &source.target.value) {
        (Some(target), _) => {
            let usage = metrics.external(name, selector).await;
            let usage = usage.map_err(|why| format!("failed to get {name} external metric: {why}"))?;
            let (replicas, share) = now.by_share(usage, millis(target));
            current.average_value = Some(text(share));
            replicas
        }
        (None, Some(target)) => {
            let usage = metrics.external(name, selector).await;
            let usage = usage.map_err(|why| format!("failed to get external metric {name}: {why}"))?;
            current.value = Some(text(usage));
            now.by_value(usage, millis(target))
                .map_err(|why| format!("failed to get external metric {name}: {why}"))?
        }
        (None, None) => {
            let why =
                "invalid external metric source: neither a value target nor an average value target was set";
            return Err(why.to_owned());
        }
    };
    let status = ExternalMetricStatus { current, metric: source.metric.clone() };
    let status = MetricStatus { external: Some(status), ..of_type(spec) };
    Ok(Proposal { replicas, metric: format!("external metric {name}({})", described(selector)), status })
}
