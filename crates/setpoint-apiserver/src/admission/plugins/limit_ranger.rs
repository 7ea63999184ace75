//! `LimitRanger`: what the LimitRanges of a namespace give to containers that do not say, and what they allow.

use serde_json::{Value, json};
use setpoint_kinds::Quantity;

use super::super::{Attributes, Operation};
use crate::object;
use crate::quota::{Amounts, pods};
use crate::resource::Registry;
use crate::server::Core;
use crate::status::Result;
use crate::storage::ListQuery;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";
const CONTAINERS: [(&str, &str); 2] = [("containers", "container"), ("initContainers", "init container")];

/// New pods, pods whose resources are changed, and claims.
fn concerns(attributes: &Attributes<'_>) -> bool {
    if attributes.old.is_some_and(object::is_being_deleted) {
        return false;
    }
    let is_pod = attributes.request.resource.plural() == "pods";
    match attributes.subresource() {
        "resize" => is_pod && attributes.operation == Operation::Update,
        "" => !is_pod || attributes.operation == Operation::Create,
        _ => false,
    }
}

async fn ranges(core: &Core, attributes: &Attributes<'_>) -> Result<Vec<Value>> {
    let ranges = Registry::built_in().expect("", "v1", "limitranges");
    let query = ListQuery::all(ranges.collection()).under(format!("{}/", attributes.namespace()));
    let page = core.storage.list(&query).await?;
    Ok(page.records.iter().map(|record| object::decode(&record.value, record.revision)).collect())
}

fn limits<'a>(range: &'a Value, type_: &'a str) -> impl Iterator<Item = &'a Value> {
    let limits = range["spec"]["limits"].as_array().into_iter().flatten();
    limits.filter(move |limit| limit["type"] == type_)
}

/// Fills in what the containers of a pod do not say, and says so in an annotation.
pub(super) async fn fill(core: &Core, attributes: &Attributes<'_>, pod: &mut Value) -> Result<()> {
    if !concerns(attributes) {
        return Ok(());
    }
    for range in ranges(core, attributes).await? {
        fill_by(&range, pod);
    }
    Ok(())
}

fn fill_by(range: &Value, pod: &mut Value) {
    let (mut requests, mut defaults) = (Amounts::default(), Amounts::default());
    for limit in limits(range, "Container") {
        Amounts::of(&limit["defaultRequest"]).iter().for_each(|(name, amount)| requests.set(name, amount));
        Amounts::of(&limit["default"]).iter().for_each(|(name, amount)| defaults.set(name, amount));
    }
    let mut notes = Vec::new();
    for (list, title) in CONTAINERS {
        let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let name = container["name"].as_str().unwrap_or_default().to_owned();
            // Limits first: what a container asks for may follow from them.
            let limits = add_missing(container, "limits", &defaults);
            for (what, set) in [("request", add_missing(container, "requests", &requests)), ("limit", limits)]
            {
                if !set.is_empty() {
                    notes.push(format!("{} {what} for {title} {name}", set.join(", ")));
                }
            }
        }
    }
    if !notes.is_empty() {
        let text = format!("LimitRanger plugin set: {}", notes.join("; "));
        let annotations = object::metadata_mut(pod).entry("annotations").or_insert_with(|| json!({}));
        if annotations.is_null() {
            *annotations = json!({});
        }
        annotations[ANNOTATION] = text.into();
    }
}

/// Adds the amounts that a container does not name, and returns their names.
fn add_missing(container: &mut Value, list: &str, defaults: &Amounts) -> Vec<String> {
    let missing: Vec<(String, Quantity)> = defaults
        .iter()
        .filter(|(name, _)| container["resources"][list].get(*name).is_none())
        .map(|(name, amount)| (name.to_owned(), amount))
        .collect();
    for (name, amount) in &missing {
        container["resources"][list][name] = amount.to_string().into();
    }
    missing.into_iter().map(|(name, _)| name).collect()
}

/// Whether a pod or a claim is within the limits.
pub(super) async fn check(core: &Core, attributes: &Attributes<'_>, object: &Value) -> Result<()> {
    if !concerns(attributes) {
        return Ok(());
    }
    let is_pod = attributes.request.resource.plural() == "pods";
    for range in ranges(core, attributes).await? {
        let mut problems = if is_pod { of_pod(&range, object) } else { of_claim(&range, object) };
        let mut seen: Vec<String> = Vec::new();
        problems.retain(|problem| {
            let is_new = !seen.contains(problem);
            seen.push(problem.clone());
            is_new
        });
        match problems.as_slice() {
            [] => {}
            [one] => return Err(attributes.forbidden(Some(object), one)),
            several => {
                return Err(attributes.forbidden(Some(object), &format!("[{}]", several.join(", "))));
            }
        }
    }
    Ok(())
}

fn of_pod(range: &Value, pod: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    for limit in range["spec"]["limits"].as_array().into_iter().flatten() {
        match limit["type"].as_str() {
            Some("Container") => {
                for (list, _) in CONTAINERS {
                    for container in pod["spec"][list].as_array().into_iter().flatten() {
                        let resources = &container["resources"];
                        let asked = Asked {
                            type_: "Container",
                            requests: Amounts::of(&resources["requests"]),
                            limits: Amounts::of(&resources["limits"]),
                        };
                        asked.hold(limit, &mut problems);
                    }
                }
            }
            Some("Pod") => {
                let requests = pods::specified(pod, "requests");
                let limits = pods::specified(pod, "limits");
                Asked { type_: "Pod", requests, limits }.hold(limit, &mut problems);
            }
            _ => {}
        }
    }
    problems
}

fn of_claim(range: &Value, claim: &Value) -> Vec<String> {
    const TYPE: &str = "PersistentVolumeClaim";
    let requests = Amounts::of(&claim["spec"]["resources"]["requests"]);
    let asked = Asked { type_: TYPE, requests, limits: Amounts::default() };
    let mut problems = Vec::new();
    for limit in limits(range, TYPE) {
        problems.extend(Amounts::of(&limit["min"]).iter().filter_map(|(name, least)| asked.min(name, least)));
        problems.extend(Amounts::of(&limit["max"]).iter().filter_map(|(name, most)| {
            let wrong = |why: String| Some(format!("maximum {name} usage per {TYPE} is {most}{why}"));
            match asked.requests.get(name) {
                None => wrong(".  No request is specified".to_owned()),
                Some(request) if request > most => wrong(format!(", but request is {request}")),
                Some(_) => None,
            }
        }));
    }
    problems
}

/// What a container, a pod or a claim asks for.
struct Asked {
    type_: &'static str,
    requests: Amounts,
    limits: Amounts,
}

impl Asked {
    fn hold(&self, limit: &Value, problems: &mut Vec<String>) {
        let amounts = |list: &str| Amounts::of(&limit[list]);
        problems.extend(amounts("min").iter().filter_map(|(name, least)| self.min(name, least)));
        problems.extend(amounts("max").iter().filter_map(|(name, most)| self.max(name, most)));
        let ratios = amounts("maxLimitRequestRatio");
        problems.extend(ratios.iter().filter_map(|(name, most)| self.ratio(name, most)));
    }

    fn min(&self, name: &str, least: Quantity) -> Option<String> {
        let wrong = |why: String| Some(format!("minimum {name} usage per {} is {least}{why}", self.type_));
        match (self.requests.get(name), self.limits.get(name)) {
            (None, _) => wrong(".  No request is specified".to_owned()),
            (Some(request), _) if request < least => wrong(format!(", but request is {request}")),
            (_, Some(limit)) if limit < least => wrong(format!(", but limit is {limit}")),
            _ => None,
        }
    }

    fn max(&self, name: &str, most: Quantity) -> Option<String> {
        let wrong = |why: String| Some(format!("maximum {name} usage per {} is {most}{why}", self.type_));
        match (self.limits.get(name), self.requests.get(name)) {
            (None, _) => wrong(".  No limit is specified".to_owned()),
            (Some(limit), _) if limit > most => wrong(format!(", but limit is {limit}")),
            (_, Some(request)) if request > most => wrong(format!(", but request is {request}")),
            _ => None,
        }
    }

    fn ratio(&self, name: &str, most: Quantity) -> Option<String> {
        let wrong = |why: String| {
            Some(format!("{name} max limit to request ratio per {} is {most}, but {why}", self.type_))
        };
        let some = |amounts: &Amounts| amounts.get(name).filter(|amount| !amount.is_zero());
        let Some(request) = some(&self.requests) else {
            return wrong("no request is specified or request is 0".to_owned());
        };
        let Some(limit) = some(&self.limits) else {
            return wrong("no limit is specified or limit is 0".to_owned());
        };
        // In thousandths, as they are compared there.
        let ratio = limit.millis() as f64 / request.millis() as f64;
        if ratio * 1000.0 > most.millis() as f64 {
            return wrong(format!("provided ratio is {ratio:.6}"));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(limits: Value) -> Value {
        json!({"metadata": {"name": "limits"}, "spec": {"limits": limits}})
    }

    #[test]
    fn containers_get_what_they_do_not_say() {
        let range = range(json!([{
            "type": "Container", "default": {"cpu": "500m", "memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}
        }]));
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {
            "containers": [{"name": "a"}, {"name": "b", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}}],
            "initContainers": [{"name": "c", "resources": {"limits": {"memory": "2Gi"}}}]
        }});
        fill_by(&range, &mut pod);
        let full = json!({"limits": {"cpu": "500m", "memory": "1Gi"}, "requests": {"cpu": "100m"}});
        assert_eq!(pod["spec"]["containers"][0]["resources"], full);
        assert_eq!(pod["spec"]["containers"][1]["resources"]["limits"], json!({"cpu": "1", "memory": "1Gi"}));
        assert_eq!(
            pod["metadata"]["annotations"][ANNOTATION],
            "LimitRanger plugin set: cpu request for container a; cpu, memory limit for container a; \
             memory limit for container b; cpu request for init container c; cpu limit for init container c"
        );
    }

    #[test]
    fn what_is_out_of_bounds_is_named_in_kube_apiservers_words() {
        let pod = |requests: Value, limits: Value| {
            let container = json!({"name": "a", "resources": {"requests": requests, "limits": limits}});
            json!({"spec": {"containers": [container]}})
        };
        for (limit, pod, expected) in [
            (
                json!({"type": "Container", "min": {"cpu": "100m"}}),
                pod(json!({}), json!({})),
                "minimum cpu usage per Container is 100m.  No request is specified",
            ),
            (
                json!({"type": "Container", "min": {"cpu": "100m"}}),
                pod(json!({"cpu": "50m"}), json!({})),
                "minimum cpu usage per Container is 100m, but request is 50m",
            ),
            (
                json!({"type": "Container", "max": {"memory": "1Gi"}}),
                pod(json!({}), json!({})),
                "maximum memory usage per Container is 1Gi.  No limit is specified",
            ),
            (
                json!({"type": "Pod", "max": {"memory": "1Gi"}}),
                pod(json!({}), json!({"memory": "2Gi"})),
                "maximum memory usage per Pod is 1Gi, but limit is 2Gi",
            ),
            (
                json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}),
                pod(json!({"cpu": "100m"}), json!({"cpu": "300m"})),
                "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
            ),
            (
                json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}),
                pod(json!({"cpu": "100m"}), json!({})),
                "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
            ),
        ] {
            assert_eq!(of_pod(&range(json!([limit])), &pod), [expected]);
        }
        let claim = json!({"spec": {"resources": {"requests": {"storage": "3Gi"}}}});
        let limit =
            json!({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}});
        assert_eq!(
            of_claim(&range(json!([limit])), &claim),
            ["maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"]
        );
    }
}
