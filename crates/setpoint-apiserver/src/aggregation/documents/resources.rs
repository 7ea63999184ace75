//! Its resources, from the newer form of discovery or from the older one.
//!
//! They become a part of the one document that every client reads first, so nothing gets in that is not of the right form.

use std::time::Duration;

use http::{HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::Backend;
use super::super::backend::Spec;
use super::fetch;
use crate::server::Core;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// The newer form, or whatever else it has.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
const LIMIT: (usize, Duration) = (3 << 20, Duration::from_secs(5));

/// What a backend says that it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resources {
    /// None while it is not known.
    known: Option<Vec<Resource>>,
    /// The tag of the document that they come from.
    tag: Option<HeaderValue>,
}

impl Resources {
    pub(super) fn is_current(&self) -> bool {
        self.known.is_some()
    }

    /// The version as discovery tells it.
    pub(in super::super) fn to_version(&self, spec: &Spec) -> Value {
        match &self.known {
            Some(resources) if resources.is_empty() => {
                json!({"version": spec.version, "freshness": "Current"})
            }
            Some(resources) => {
                json!({"version": spec.version, "resources": resources, "freshness": "Current"})
            }
            None => json!({"version": spec.version, "freshness": "Stale"}),
        }
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    resource: String,
    #[serde(default)]
    response_kind: Kind,
    scope: Scope,
    #[serde(default)]
    singular_resource: String,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    short_names: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    categories: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    subresources: Vec<Subresource>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Subresource {
    subresource: String,
    #[serde(default)]
    response_kind: Kind,
    #[serde(default)]
    verbs: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
struct Kind {
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    kind: String,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
enum Scope {
    Namespaced,
    Cluster,
}

/// Asks for them; whether they are not what they were.
pub(super) async fn learn(core: &Core, backend: &Backend) -> Result<bool, String> {
    let spec = &backend.spec;
    let tag = backend.resources.read().tag.clone();
    let root = if spec.group.is_empty() { "/api" } else { "/apis" };
    let found = fetch(core, backend, root.to_owned(), ACCEPT, tag.as_ref(), LIMIT).await?;
    let is_aggregated = found.headers.get(header::CONTENT_TYPE).is_some_and(|value| {
        value.to_str().is_ok_and(|value| value.replace(' ', "").starts_with(AGGREGATED))
    });
    let learned = match found.code {
        StatusCode::NOT_MODIFIED if tag.is_some() => return Ok(false),
        StatusCode::OK if is_aggregated => {
            let tag = found.headers.get(header::ETAG).cloned();
            Resources { known: Some(newer(&found.json()?, spec)?), tag }
        }
        _ => {
            let found = fetch(core, backend, spec.path(), "application/json", None, LIMIT).await?;
            if found.code != StatusCode::OK {
                return Err(format!("it answers {}", found.code));
            }
            Resources { known: Some(older(found.json()?)?), tag: None }
        }
    };
    let mut known = backend.resources.write();
    let is_new = known.known != learned.known;
    *known = learned;
    Ok(is_new)
}

/// What a document of all groups says about one version.
fn newer(document: &Value, spec: &Spec) -> Result<Vec<Resource>, String> {
    let groups = document["items"].as_array().into_iter().flatten();
    let of_group =
        groups.filter(|group| group["metadata"]["name"].as_str().unwrap_or_default() == spec.group);
    let mut versions = of_group.flat_map(|group| group["versions"].as_array().into_iter().flatten());
    let Some(version) = versions.find(|version| version["version"] == *spec.version) else {
        return Ok(Vec::new());
    };
    match &version["resources"] {
        Value::Null => Ok(Vec::new()),
        resources => Vec::deserialize(resources).map_err(|error| error.to_string()),
    }
}

/// A resource, or a part of one, in the older form.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Older {
    name: String,
    #[serde(default)]
    singular_name: String,
    #[serde(default)]
    namespaced: bool,
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
}

fn older(mut document: Value) -> Result<Vec<Resource>, String> {
    let all: Vec<Older> =
        serde_json::from_value(document["resources"].take()).map_err(|error| error.to_string())?;
    let mut resources: Vec<Resource> = Vec::new();
    for one in all {
        let response_kind = Kind { group: one.group, version: one.version, kind: one.kind };
        let scope = if one.namespaced { Scope::Namespaced } else { Scope::Cluster };
        let Some((name, part)) = one.name.split_once('/') else {
            resources.push(Resource {
                resource: one.name,
                response_kind,
                scope,
                singular_resource: one.singular_name,
                verbs: one.verbs,
                short_names: one.short_names,
                categories: one.categories,
                subresources: Vec::new(),
            });
            continue;
        };
        let subresource = Subresource { subresource: part.to_owned(), response_kind, verbs: one.verbs };
        match resources.iter_mut().find(|resource| resource.resource == name) {
            Some(resource) => resource.subresources.push(subresource),
            // A part without a whole.
            None => resources.push(Resource {
                resource: name.to_owned(),
                response_kind: Kind::default(),
                scope,
                singular_resource: String::new(),
                verbs: Vec::new(),
                short_names: Vec::new(),
                categories: Vec::new(),
                subresources: vec![subresource],
            }),
        }
    }
    Ok(resources)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_say_the_same() {
        let kind = json!({"group": "", "version": "", "kind": "Flunder"});
        let newer_form = json!([{
            "resource": "flunders", "responseKind": kind, "scope": "Namespaced", "singularResource": "flunder",
            "verbs": ["get", "list"], "shortNames": ["fl"],
            "subresources": [{"subresource": "status", "responseKind": kind, "verbs": ["get"]}],
        }]);
        let older_form = json!({"resources": [
            {"name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder",
             "verbs": ["get", "list"], "shortNames": ["fl"]},
            {"name": "flunders/status", "singularName": "", "namespaced": true, "kind": "Flunder", "verbs": ["get"]},
        ]});
        let from_newer: Vec<Resource> = Vec::deserialize(&newer_form).unwrap();
        assert_eq!(older(older_form).unwrap(), from_newer);
        assert_eq!(json!(from_newer), newer_form, "what is known is told as it came");
    }

    #[test]
    fn what_would_break_clients_is_refused() {
        for bad in [
            json!([{"resource": "a", "scope": "Namespaced", "verbs": "get"}]),
            json!([{"resource": "a", "scope": "Planet"}]),
            json!({"resource": "a"}),
            json!([["a"]]),
        ] {
            let document = json!({"items": [{"metadata": {"name": "g"}, "versions": [{"version": "v1", "resources": bad}]}]});
            let spec = Spec::read(
                &json!({"metadata": {"name": "v1.g"}, "spec": {"group": "g", "version": "v1", "service": {}}}),
            );
            assert!(newer(&document, &spec.unwrap()).is_err(), "{bad}");
        }
    }
}
