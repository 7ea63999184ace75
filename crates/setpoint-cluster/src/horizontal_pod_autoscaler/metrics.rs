//! Where metrics come from: the APIs `metrics.k8s.io`, `custom.metrics.k8s.io` and `external.metrics.k8s.io` where a server
//! answers for them, and annotations of simulated pods and of the objects themselves where none does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use kube::{Client, ResourceExt};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use setpoint_kinds::Quantity;

use super::replicas::{PodMetric, PodMetrics};
use crate::failure;
use crate::node::annotations;
use crate::scale_target::Targets;

/// What a pod uses of a resource: `sim.setpoint.dev/usage-cpu`, and of one container `sim.setpoint.dev/usage-cpu.NAME`.
const USAGE: &str = "sim.setpoint.dev/usage-";
/// Any other metric of a pod or an object: `sim.setpoint.dev/metric-NAME`. An external one is the autoscaler's own.
const METRIC: &str = "sim.setpoint.dev/metric-";
/// What a custom metric is an average of if it does not say.
const WINDOW: Duration = Duration::from_secs(60);

/// Asks for the metrics of one autoscaler.
pub(super) struct Metrics<'a> {
    pub(super) client: &'a Client,
    pub(super) targets: &'a Targets,
    pub(super) namespace: &'a str,
    pub(super) pods: &'a [Arc<Pod>],
    /// What selects these pods, as text.
    pub(super) selector: &'a str,
    /// The annotations of the autoscaler.
    pub(super) annotations: &'a BTreeMap<String, String>,
    pub(super) now: Timestamp,
}

fn millis(value: &Value) -> Option<i64> {
    Some(Quantity::parse(value.as_str()?).ok()?.millis())
}

fn millis_of(annotations: &BTreeMap<String, String>, name: &str) -> Option<i64> {
    Some(Quantity::parse(annotations.get(name)?.trim()).ok()?.millis())
}

/// A part of a URL in which nothing has a meaning.
fn encoded(text: &str) -> impl std::fmt::Display + '_ {
    const SPECIAL: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    utf8_percent_encode(text, SPECIAL)
}

/// A selector of metrics as a query has it; everything if there is none.
fn query_of(selector: Option<&LabelSelector>) -> Result<String, String> {
    match selector {
        Some(selector) => Selector::try_from(selector.clone())
            .map(|selector| selector.to_string())
            .map_err(|error| error.to_string()),
        None => Ok(String::new()),
    }
}

impl Metrics<'_> {
    async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, kube::Error> {
        let query = query.iter().filter(|(_, value)| !value.is_empty());
        let query: Vec<String> = query.map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let separator = if query.is_empty() { "" } else { "?" };
        let request = Request::get(format!("{path}{separator}{}", query.join("&")));
        let request = request.body(Vec::new()).map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }

    /// The path of a group of metrics in the version that its server likes best; none if nobody serves it.
    async fn served(&self, group: &str) -> Result<Option<String>, kube::Error> {
        match self.get(&format!("/apis/{group}"), &[]).await {
            Ok(found) => {
                let version = found["preferredVersion"]["version"].as_str().unwrap_or("v1beta1");
                Ok(Some(format!("/apis/{group}/{version}/namespaces/{}", encoded(self.namespace))))
            }
            Err(error) if failure::is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What the pods use of a resource, or one of their containers.
    pub(super) async fn resource(&self, resource: &str, container: &str) -> Result<PodMetrics, String> {
        const API: &str = "resource metrics API";
        let failed = |error: kube::Error| {
            let why = failure::message(&error);
            format!(
                "unable to get metrics for resource {resource}: unable to fetch metrics from {API}: {why}"
            )
        };
        let (metrics, is_empty) = match self.served("metrics.k8s.io").await.map_err(failed)? {
            Some(path) => {
                let query = [("labelSelector", self.selector)];
                let list = self.get(&format!("{path}/pods"), &query).await.map_err(failed)?;
                let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
                let of = |item: &Value| measured(item, resource, container, self.now);
                (items.iter().filter_map(of).collect(), items.is_empty())
            }
            None => {
                let metrics = self.simulated(|pod| usage(pod, resource, container));
                let is_empty = metrics.is_empty();
                (metrics, is_empty)
            }
        };
        if is_empty {
            return Err(format!(
                "unable to get metrics for resource {resource}: no metrics returned from {API}"
            ));
        }
        Ok(metrics)
    }

    /// What the annotations of the pods say, as of now.
    fn simulated(&self, value: impl Fn(&Pod) -> Option<i64>) -> PodMetrics {
        let metric = |value| PodMetric { value, timestamp: self.now, window: Duration::ZERO };
        self.pods.iter().filter_map(|pod| Some((pod.name_any(), metric(value(pod)?)))).collect()
    }

    /// A metric of the pods.
    pub(super) async fn of_pods(
        &self,
        name: &str,
        selector: Option<&LabelSelector>,
    ) -> Result<PodMetrics, String> {
        const API: &str = "custom metrics API";
        let failed =
            |why: String| format!("unable to get metric {name}: unable to fetch metrics from {API}: {why}");
        let served = self.served("custom.metrics.k8s.io").await;
        let metrics: PodMetrics = match served.map_err(|error| failed(failure::message(&error)))? {
            Some(path) => {
                let wanted = query_of(selector).map_err(failed)?;
                let query = [("labelSelector", self.selector), ("metricLabelSelector", &wanted)];
                let list = self.get(&format!("{path}/pods/*/{}", encoded(name)), &query).await;
                let list = list.map_err(|error| failed(failure::message(&error)))?;
                let items = list["items"].as_array().into_iter().flatten();
                items.filter_map(|item| custom(item, self.now)).collect()
            }
            None => self.simulated(|pod| millis_of(pod.annotations(), &format!("{METRIC}{name}"))),
        };
        if metrics.is_empty() {
            return Err(format!("unable to get metric {name}: no metrics returned from {API}"));
        }
        Ok(metrics)
    }

    /// A metric of one object, in thousandths.
    pub(super) async fn of_object(
        &self,
        object: &CrossVersionObjectReference,
        name: &str,
        selector: Option<&LabelSelector>,
    ) -> Result<i64, String> {
        let CrossVersionObjectReference { kind, name: object_name, .. } = object;
        let failed = |why: String| {
            format!(
                "unable to get metric {name} on {kind} {}/{object_name}: unable to fetch metrics from custom metrics \
                 API: {why}",
                self.namespace
            )
        };
        let served = self.served("custom.metrics.k8s.io").await;
        let Some(path) = served.map_err(|error| failed(failure::message(&error)))? else {
            let found =
                self.targets.annotations(self.client, self.namespace, object).await.map_err(failed)?;
            let value = millis_of(&found, &format!("{METRIC}{name}"));
            return value.ok_or_else(|| failed(format!("no annotation {METRIC}{name}")));
        };
        let place = if kind == "Namespace" {
            "metrics".to_owned()
        } else {
            let resource = self.targets.find(self.client, object).await.map_err(failed)?;
            let group =
                if resource.group.is_empty() { String::new() } else { format!(".{}", resource.group) };
            format!("{}{group}/{}", resource.plural, encoded(object_name))
        };
        let wanted = query_of(selector).map_err(failed)?;
        let query = [("metricLabelSelector", wanted.as_str())];
        let list = self.get(&format!("{path}/{place}/{}", encoded(name)), &query).await;
        let list = list.map_err(|error| failed(failure::message(&error)))?;
        millis(&list["items"][0]["value"]).ok_or_else(|| failed("no metrics returned".to_owned()))
    }

    /// A metric from outside the cluster: the sum of all its values, in thousandths.
    pub(super) async fn external(&self, name: &str, selector: Option<&LabelSelector>) -> Result<i64, String> {
        const API: &str = "external metrics API";
        let failed = |why: &str| {
            format!("unable to get external metric {}/{name}/{}: {why}", self.namespace, described(selector))
        };
        let fetch = |error: kube::Error| {
            failed(&format!("unable to fetch metrics from {API}: {}", failure::message(&error)))
        };
        let values: Vec<i64> = match self.served("external.metrics.k8s.io").await.map_err(fetch)? {
            Some(path) => {
                let wanted = query_of(selector).map_err(|why| failed(&why))?;
                let query = [("labelSelector", wanted.as_str())];
                let list = self.get(&format!("{path}/{}", encoded(name)), &query).await.map_err(fetch)?;
                list["items"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|item| millis(&item["value"]))
                    .collect()
            }
            None => millis_of(self.annotations, &format!("{METRIC}{name}")).into_iter().collect(),
        };
        if values.is_empty() {
            return Err(failed(&format!("no metrics returned from {API}")));
        }
        Ok(values.into_iter().fold(0, i64::saturating_add))
    }
}

/// The usage of a pod, or of one container, as a metrics server tells it.
fn measured(item: &Value, resource: &str, container: &str, now: Timestamp) -> Option<(String, PodMetric)> {
    let containers = item["containers"].as_array()?;
    let usage = |container: &Value| millis(&container["usage"][resource]);
    let value = if container.is_empty() {
        let values: Option<Vec<i64>> = containers.iter().map(usage).collect();
        let values = values.filter(|values| !values.is_empty())?;
        values.into_iter().fold(0, i64::saturating_add)
    } else {
        usage(containers.iter().find(|one| one["name"] == container)?)?
    };
    let timestamp = item["timestamp"].as_str().and_then(|time| time.parse().ok()).unwrap_or(now);
    let window = item["window"].as_str().and_then(annotations::parse).unwrap_or_default();
    Some((item["metadata"]["name"].as_str()?.to_owned(), PodMetric { value, timestamp, window }))
}

/// A custom metric of a pod.
fn custom(item: &Value, now: Timestamp) -> Option<(String, PodMetric)> {
    let value = millis(&item["value"])?;
    let timestamp = item["timestamp"].as_str().and_then(|time| time.parse().ok()).unwrap_or(now);
    let window = item["windowSeconds"].as_u64().map_or(WINDOW, Duration::from_secs);
    Some((item["describedObject"]["name"].as_str()?.to_owned(), PodMetric { value, timestamp, window }))
}

/// The usage that a simulated pod claims: of a container, of the pod, or of all its containers together.
fn usage(pod: &Pod, resource: &str, container: &str) -> Option<i64> {
    let annotations = pod.annotations();
    let of = |container: &str| millis_of(annotations, &format!("{USAGE}{resource}.{container}"));
    if !container.is_empty() {
        return of(container);
    }
    millis_of(annotations, &format!("{USAGE}{resource}")).or_else(|| {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let values: Option<Vec<i64>> = containers.map(|container| of(&container.name)).collect();
        values
            .filter(|values| !values.is_empty())
            .map(|values| values.into_iter().fold(0, i64::saturating_add))
    })
}

/// A selector as kube-controller-manager prints it.
pub(super) fn described(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "nil".to_owned() };
    let labels = selector.match_labels.iter().flatten();
    let labels: String = labels.map(|(name, value)| format!("{name}: {value},")).collect();
    let requirements = selector.match_expressions.iter().flatten().map(|requirement| {
        let values = requirement.values.as_ref().map(|values| values.join(" ")).unwrap_or_default();
        format!(
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},",
            requirement.key, requirement.operator
        )
    });
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{}}},}}",
        requirements.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_simulated_pod_says_what_it_uses() {
        let pod = |annotations: Value| -> Pod {
            let containers = json!([{"name": "a"}, {"name": "b"}]);
            serde_json::from_value(
                json!({"metadata": {"annotations": annotations}, "spec": {"containers": containers}}),
            )
            .unwrap()
        };
        let whole = pod(json!({"sim.setpoint.dev/usage-cpu": "250m"}));
        assert_eq!(
            (usage(&whole, "cpu", ""), usage(&whole, "cpu", "a"), usage(&whole, "memory", "")),
            (Some(250), None, None)
        );
        let parts = pod(json!({"sim.setpoint.dev/usage-cpu.a": "1", "sim.setpoint.dev/usage-cpu.b": "500m"}));
        assert_eq!((usage(&parts, "cpu", ""), usage(&parts, "cpu", "a")), (Some(1500), Some(1000)));
        assert_eq!(usage(&pod(json!({"sim.setpoint.dev/usage-cpu.a": "1"})), "cpu", ""), None);
    }

    #[test]
    fn a_metrics_server_is_understood() {
        let item = json!({
            "metadata": {"name": "p"}, "timestamp": "2030-01-01T00:00:00Z", "window": "30s",
            "containers": [{"name": "a", "usage": {"cpu": "100m", "memory": "1Mi"}}, {"name": "b", "usage": {"cpu": "5n"}}]
        });
        let of = |resource: &str, container: &str| {
            measured(&item, resource, container, Timestamp::UNIX_EPOCH).map(|(_, metric)| metric.value)
        };
        assert_eq!((of("cpu", ""), of("cpu", "b"), of("cpu", "c")), (Some(101), Some(1), None));
        assert_eq!((of("memory", ""), of("memory", "a")), (None, Some(1_048_576_000)));
        let (_, metric) = measured(&item, "cpu", "", Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(
            (metric.window, metric.timestamp.to_string()),
            (Duration::from_secs(30), "2030-01-01T00:00:00Z".to_owned())
        );
    }

    #[test]
    fn selectors_are_printed_as_go_does() {
        assert_eq!(described(None), "nil");
        let selector = serde_json::from_value(json!({"matchLabels": {"queue": "a"}})).unwrap();
        let text = "&LabelSelector{MatchLabels:map[string]string{queue: a,},MatchExpressions:[]LabelSelectorRequirement{},}";
        assert_eq!(described(Some(&selector)), text);
        assert_eq!(encoded("a in (b,c)").to_string(), "a%20in%20%28b%2Cc%29");
    }
}
