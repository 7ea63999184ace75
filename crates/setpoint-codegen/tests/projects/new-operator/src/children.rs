//! What a `Shop` owns, as it should be. Functions without I/O, so that a test is a line.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde_json::{Value, json};
use setpoint::owner::controller_reference;

use crate::api;

/// The same name as the object, and belonging to it.
fn metadata(object: &api::Shop) -> ObjectMeta {
    ObjectMeta {
        name: Some(object.name_any()),
        namespace: object.namespace(),
        owner_references: controller_reference(object).map(|reference| vec![reference]),
        ..ObjectMeta::default()
    }
}

fn message(object: &api::Shop) -> String {
    object.spec.message.clone()
}

fn labels(object: &api::Shop) -> Value {
    json!({"app.kubernetes.io/name": "shop", "app.kubernetes.io/instance": object.name_any()})
}

fn pod_template(object: &api::Shop, restart_policy: &str) -> Value {
    json!({
        "metadata": {"labels": labels(object)},
        "spec": {
            "restartPolicy": restart_policy,
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10"}],
        },
    })
}

/// The Deployment of an object.
pub(crate) fn deployment(object: &api::Shop) -> Result<Deployment, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": metadata(object),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels(object)},
            "template": pod_template(object, "Always"),
        },
    }))
}

/// Whether the Deployment has pods that work, as this spec wants them.
pub(crate) fn deployment_is_available(child: &Deployment) -> bool {
    child.status.as_ref().is_some_and(|status| {
        let mut conditions = status.conditions.iter().flatten();
        let available = conditions.find(|one| one.type_.as_deref() == Some("Available"));
        status.observed_generation >= child.metadata.generation
            && available.is_some_and(|one| one.status.as_deref() == Some("True"))
    })
}

/// The ConfigMap of an object.
pub(crate) fn config_map(object: &api::Shop) -> Result<ConfigMap, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": metadata(object),
        "data": {"message": message(object)},
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> api::Shop {
        let mut object = api::Shop::new(
            "one",
            api::ShopSpec {
                message: "hello".to_owned(),
            },
        );
        object.metadata.uid = Some("1".to_owned());
        object.metadata.namespace = Some("default".to_owned());
        object
    }

    #[test]
    fn the_deployment_belongs_to_the_object() -> Result<(), serde_json::Error> {
        let child = deployment(&object())?;
        assert_eq!(child.name_any(), "one");
        assert!(setpoint::owner::is_controlled_by(&child, &object()));
        Ok(())
    }

    #[test]
    fn the_deployment_is_available_when_its_status_says_so() -> Result<(), serde_json::Error> {
        let mut child = deployment(&object())?;
        assert!(!deployment_is_available(&child), "nobody has looked at it");
        child.metadata.generation = Some(1);
        child.status = Some(serde_json::from_value(
            json!({"observedGeneration": 1, "conditions": [{"type": "Available", "status": "True"}]}),
        )?);
        assert!(deployment_is_available(&child));
        child.metadata.generation = Some(2);
        assert!(
            !deployment_is_available(&child),
            "that was said of another spec"
        );
        Ok(())
    }

    #[test]
    fn the_config_map_belongs_to_the_object() -> Result<(), serde_json::Error> {
        let child = config_map(&object())?;
        assert_eq!(child.name_any(), "one");
        assert!(setpoint::owner::is_controlled_by(&child, &object()));
        Ok(())
    }
}
