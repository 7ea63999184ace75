//! `AlwaysPullImages`: whoever has no right to an image cannot use the copy that a node has of it.

use serde_json::Value;

use super::super::{Attributes, Operation};
use crate::field_error::{FieldError, Problem};
use crate::status::Result;

const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
const ALWAYS: &str = "Always";

/// The containers of a pod, with their fields' paths.
fn containers(pod: &Value) -> impl Iterator<Item = (String, &Value)> {
    LISTS.into_iter().flat_map(|list| {
        let found = pod["spec"][list].as_array().into_iter().flatten();
        found.enumerate().map(move |(at, container)| (format!("spec.{list}[{at}]"), container))
    })
}

/// Whether an update brings no image that was not there before.
fn is_old_news(attributes: &Attributes<'_>, pod: &Value) -> bool {
    let Some(old) = attributes.old.filter(|_| attributes.operation == Operation::Update) else {
        return false;
    };
    let images: Vec<&Value> = containers(old).map(|(_, container)| &container["image"]).collect();
    containers(pod).all(|(_, container)| images.contains(&&container["image"]))
}

pub(super) fn pull_always(attributes: &Attributes<'_>, pod: &mut Value) {
    if is_old_news(attributes, pod) {
        return;
    }
    for list in LISTS {
        let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            container["imagePullPolicy"] = ALWAYS.into();
        }
    }
    let volumes = pod["spec"].get_mut("volumes").and_then(Value::as_array_mut);
    for image in volumes.into_iter().flatten().filter_map(|volume| volume.get_mut("image")) {
        image["pullPolicy"] = ALWAYS.into();
    }
}

pub(super) fn must_pull_always(attributes: &Attributes<'_>, pod: &Value) -> Result<()> {
    if is_old_news(attributes, pod) {
        return Ok(());
    }
    let policies = containers(pod)
        .map(|(path, container)| (format!("{path}.imagePullPolicy"), &container["imagePullPolicy"]));
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten().enumerate();
    let images = volumes.filter_map(|(at, volume)| {
        Some((format!("spec.volumes[{at}].image.pullPolicy"), &volume.get("image")?["pullPolicy"]))
    });
    for (path, policy) in policies.chain(images) {
        if policy != ALWAYS {
            let problem = Problem::NotSupported(policy.clone().into(), vec![ALWAYS.to_owned()]);
            return Err(attributes.forbidden(Some(pod), &FieldError::new(&path, problem).to_string()));
        }
    }
    Ok(())
}
