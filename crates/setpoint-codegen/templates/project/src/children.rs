//! What a `Widget` owns, as it should be. Functions without I/O, so that a test is a line.

{% for child in owned %}
use k8s_openapi::api::{{ child.module }}::{{ child.kind }};
{% endfor %}
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
{% if workload %}
use serde_json::{Value, json};
{% else %}
use serde_json::json;
{% endif %}
use setpoint::owner::controller_reference;

use crate::api;

{% if cluster_scoped %}
/// Where the children are: a `Widget` is in no namespace.
const NAMESPACE: &str = "default";

{% endif %}
/// The same name as the object, and belonging to it.
fn metadata(object: &api::Widget) -> ObjectMeta {
    ObjectMeta {
        name: Some(object.name_any()),
{% if cluster_scoped %}
        namespace: Some(NAMESPACE.to_owned()),
{% else %}
        namespace: object.namespace(),
{% endif %}
        owner_references: controller_reference(object).map(|reference| vec![reference]),
        ..ObjectMeta::default()
    }
}
{% if message %}

fn message(object: &api::Widget) -> String {
{% if plain %}
    object.spec.message.clone()
{% else %}
    format!("made for {}", object.name_any())
{% endif %}
}
{% endif %}
{% if workload %}

fn labels(object: &api::Widget) -> Value {
    json!({"app.kubernetes.io/name": "widget", "app.kubernetes.io/instance": object.name_any()})
}
{% endif %}
{% if pods %}

fn pod_template(object: &api::Widget, restart_policy: &str) -> Value {
    json!({
        "metadata": {"labels": labels(object)},
        "spec": {
            "restartPolicy": restart_policy,
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10"}],
        },
    })
}
{% endif %}
{% for child in owned %}

{{ child.function }}
{% if child.is_available %}

{{ child.is_available }}
{% endif %}
{% endfor %}

#[cfg(test)]
mod tests {
    use super::*;

{% if plain %}
    fn object() -> api::Widget {
        let mut object = api::Widget::new("one", api::WidgetSpec { message: "hello".to_owned() });
{% else %}
    fn object() -> api::Widget {
        let sample = include_str!("../config/samples/widget.yaml");
        let mut object: api::Widget = serde_saphyr::from_str(sample).expect("the sample is a Widget");
        object.metadata.name = Some("one".to_owned());
{% endif %}
        object.metadata.uid = Some("1".to_owned());
{% if not cluster_scoped %}
        object.metadata.namespace = Some("default".to_owned());
{% endif %}
        object
    }
{% for child in owned %}

    #[test]
    fn the_{{ child.name }}_belongs_to_the_object() -> Result<(), serde_json::Error> {
        let child = {{ child.name }}(&object())?;
        assert_eq!(child.name_any(), "one");
        assert!(setpoint::owner::is_controlled_by(&child, &object()));
        Ok(())
    }
{% if child.is_available %}

    #[test]
    fn the_{{ child.name }}_is_available_when_its_status_says_so() -> Result<(), serde_json::Error> {
        let mut child = {{ child.name }}(&object())?;
        assert!(!{{ child.name }}_is_available(&child), "nobody has looked at it");
        child.metadata.generation = Some(1);
        child.status = Some(serde_json::from_value(json!({{ child.available_status }}))?);
        assert!({{ child.name }}_is_available(&child));
{% if child.kind != "Job" %}
        child.metadata.generation = Some(2);
        assert!(!{{ child.name }}_is_available(&child), "that was said of another spec");
{% endif %}
        Ok(())
    }
{% endif %}
{% endfor %}
}
