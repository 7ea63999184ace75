//! What a server makes of an object before it stores it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use setpoint_kinds::{Resource, Type, conform, table};

use crate::merge;

/// What the server decides, whatever is sent.
const SERVERS_OWN: [&str; 7] = [
    "uid",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
];

/// How the objects of one resource are stored.
pub(crate) struct Stored {
    /// None for what the table does not have: custom resources.
    built_in: Option<&'static Resource>,
}

impl Stored {
    /// Of the resource with this path: `/apis/apps/v1/namespaces/x/deployments`.
    pub(crate) fn at(path: &str) -> Stored {
        Stored { built_in: resource_at(path) }
    }

    /// What can be asked of the server at all.
    pub(crate) fn wish(&self, mut wanted: Value) -> Value {
        let Some(fields) = wanted.as_object_mut() else { return wanted };
        // The path has said it.
        fields.remove("apiVersion");
        fields.remove("kind");
        if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
            SERVERS_OWN.iter().for_each(|name| drop(metadata.remove(*name)));
        }
        let Some(resource) = self.built_in else { return wanted };
        if resource.subresource("status").is_some() {
            fields.remove("status");
        }
        if (resource.group, resource.plural) == ("", "secrets") {
            move_texts(fields);
        }
        wanted
    }

    /// What a merge patch must say to make `live` have what the wish says; none if it would change nothing.
    pub(crate) fn missing(&self, live: &Value, wish: &Value) -> Option<Value> {
        let patch = merge::missing(live, wish)?;
        let is_same = match self.built_in {
            Some(resource) => is_same(resource.ty(), live, wish),
            None => is_same_custom(live, wish),
        };
        (!is_same).then_some(patch)
    }

    /// The type of the status.
    pub(crate) fn status_type(&self) -> Option<&'static Type> {
        self.built_in?.ty().field("status")?.ty.struct_type()
    }
}

/// Whether an object of this type stays as it is when the server is told the wish.
fn is_same(ty: &Type, live: &Value, wish: &Value) -> bool {
    let mut told = merge::overlay(live.clone(), wish);
    let mut live = live.clone();
    // A value of the wrong type is for the server to refuse.
    let into_shape = |value: &mut Value| conform(ty, value, &mut Vec::new()).is_ok();
    into_shape(&mut told) && into_shape(&mut live) && told == live
}

/// Of a custom resource only the metadata is known.
fn is_same_custom(live: &Value, wish: &Value) -> bool {
    let (Value::Object(live), Value::Object(wish)) = (live, wish) else { return false };
    let Some(metadata) = table().type_named("meta.v1.ObjectMeta") else { return false };
    wish.iter().all(|(name, wish)| match live.get(name) {
        Some(live) if name == "metadata" => is_same(metadata, live, wish),
        Some(live) => merge::missing(live, wish).is_none(),
        None => wish.is_null(),
    })
}

/// `stringData` is written, never read: it becomes `data`, and wins over it.
fn move_texts(secret: &mut Map<String, Value>) {
    let Some(texts) = secret.remove("stringData") else { return };
    let Value::Object(texts) = texts else { return };
    if texts.is_empty() {
        return;
    }
    let data = secret.entry("data").or_insert(Value::Null);
    if data.is_null() {
        *data = Value::Object(Map::new());
    }
    let Value::Object(data) = data else { return };
    for (key, text) in texts {
        data.insert(key, STANDARD.encode(text.as_str().unwrap_or_default()).into());
    }
}

fn resource_at(path: &str) -> Option<&'static Resource> {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    let group = match segments.next()? {
        "api" => "",
        "apis" => segments.next()?,
        _ => return None,
    };
    let version = segments.next()?;
    table().resource(group, version, segments.next_back()?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_says_which_resource_it_is() {
        let kind = |path: &str| Stored::at(path).built_in.map(|resource| resource.kind);
        assert_eq!(kind("/api/v1/namespaces/x/pods"), Some("Pod"));
        assert_eq!(kind("/api/v1/namespaces"), Some("Namespace"));
        assert_eq!(kind("/apis/apps/v1/deployments"), Some("Deployment"));
        assert_eq!(kind("/apis/example.com/v1/namespaces/x/pods"), None);
        assert_eq!(kind("/apis/apps/v9/deployments"), None);
        assert_eq!(kind("/version"), None);
    }

    #[test]
    fn the_metadata_of_a_custom_resource_is_as_any() {
        let stored = Stored::at("/apis/example.com/v1/widgets");
        let live = json!({"metadata": {"name": "a"}, "spec": {"size": 1}});
        let missing = |wish| stored.missing(&live, &stored.wish(wish));
        assert_eq!(missing(json!({"metadata": {"labels": {}, "finalizers": []}, "spec": {"size": 1}})), None);
        let wish = json!({"metadata": {"labels": {}}, "spec": {"size": 1, "other": ""}});
        assert_eq!(missing(wish), Some(json!({"metadata": {"labels": {}}, "spec": {"other": ""}})));
        assert_eq!(missing(json!({"spec": {"gone": null}})), None);
        assert!(missing(json!({"spec": {"size": null}})).is_some());
    }

    #[test]
    fn what_the_server_would_refuse_is_sent() {
        let stored = Stored::at("/apis/apps/v1/namespaces/x/deployments");
        let wish = json!({"spec": {"replicas": "three"}});
        assert_eq!(stored.missing(&json!({"spec": {"replicas": 3}}), &wish), Some(wish));
    }

    #[test]
    fn texts_win_over_data() {
        let stored = Stored::at("/api/v1/namespaces/x/secrets");
        let wish = stored.wish(json!({"data": {"a": "eA==", "b": "eQ=="}, "stringData": {"a": "z"}}));
        assert_eq!(wish, json!({"data": {"a": "eg==", "b": "eQ=="}}));
        assert_eq!(stored.wish(json!({"stringData": {}})), json!({}));
    }
}
