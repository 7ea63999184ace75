//! Its resources, from the newer form of discovery or from the older one.
//!
//! They become a part of the one document that every client reads first, so nothing gets in that is not of the right form.

use std::collections::HashMap;
use std::time::Duration;

use http::{HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::Backend;
use super::super::backend::Spec;
use super::fetch;
use crate::patch::drop_nulls;
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
            Resources { known: Some(newer(found.json()?, spec)?), tag }
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
fn newer(mut document: Value, spec: &Spec) -> Result<Vec<Resource>, String> {
    // Go writes null for a list or an object that it has none of.
    drop_nulls(&mut document);
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

fn older(document: Value) -> Result<Vec<Resource>, String> {
    let Value::Object(mut list) = document else { return Err("it is no list of resources".to_owned()) };
    let mut all = list.remove("resources").unwrap_or_default();
    drop_nulls(&mut all);
    let all: Vec<Older> = match all {
        Value::Null => Vec::new(),
        all => serde_json::from_value(all).map_err(|error| error.to_string())?,
    };
    let (parts, wholes): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| one.name.contains('/'));
    let mut resources: Vec<Resource> = wholes.into_iter().map(Older::into_resource).collect();
    let places = resources.iter().enumerate().map(|(place, resource)| (resource.resource.clone(), place));
    let mut places: HashMap<String, usize> = places.collect();
    for one in parts {
        let Some((name, part)) = one.name.split_once('/') else { continue };
        let scope = one.scope();
        let place = places.entry(name.to_owned()).or_insert_with(|| {
            resources.push(Resource::without_objects(name, scope));
            resources.len() - 1
        });
        let whole = &mut resources[*place];
        if whole.scope != scope {
            return Err(format!("{name} is {:?}, and {part} of it is {scope:?}", whole.scope));
        }
        let subresource = part.to_owned();
        // The group and the version of a kind without a name say nothing.
        let response_kind = if one.kind.is_empty() { Kind::default() } else { one.response_kind() };
        whole.subresources.push(Subresource { subresource, response_kind, verbs: one.verbs });
    }
    Ok(resources)
}

impl Older {
    fn scope(&self) -> Scope {
        if self.namespaced { Scope::Namespaced } else { Scope::Cluster }
    }

    fn response_kind(&self) -> Kind {
        Kind { group: self.group.clone(), version: self.version.clone(), kind: self.kind.clone() }
    }

    fn into_resource(self) -> Resource {
        Resource {
            response_kind: self.response_kind(),
            scope: self.scope(),
            resource: self.name,
            singular_resource: self.singular_name,
            verbs: self.verbs,
            short_names: self.short_names,
            categories: self.categories,
            subresources: Vec::new(),
        }
    }
}

impl Resource {
    /// One that only has parts.
    fn without_objects(name: &str, scope: Scope) -> Resource {
        Resource {
            resource: name.to_owned(),
            response_kind: Kind::default(),
            scope,
            singular_resource: String::new(),
            verbs: Vec::new(),
            short_names: Vec::new(),
            categories: Vec::new(),
            subresources: Vec::new(),
        }
    }
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
            assert!(newer(document, &spec()).is_err(), "{bad}");
        }
        for bad in
            [json!([]), json!("resources"), json!({"resources": "a"}), json!({"resources": [{"name": 7}]})]
        {
            assert!(older(bad.clone()).is_err(), "{bad}");
        }
    }

    fn spec() -> Spec {
        let object =
            json!({"metadata": {"name": "v1.g"}, "spec": {"group": "g", "version": "v1", "service": {}}});
        Spec::read(&object).unwrap()
    }

    #[test]
    fn null_is_nothing_as_go_reads_it() {
        let found = older(json!({"kind": "APIResourceList", "resources": [
            {"name": "things/vnc", "singularName": "", "namespaced": true, "kind": "", "verbs": null,
             "shortNames": null, "categories": null, "group": null},
        ]}))
        .unwrap();
        let kind = json!({"group": "", "version": "", "kind": ""});
        let told = json!([{
            "resource": "things", "responseKind": kind, "scope": "Namespaced", "singularResource": "", "verbs": [],
            "subresources": [{"subresource": "vnc", "responseKind": kind, "verbs": []}],
        }]);
        assert_eq!(json!(found), told);
        assert_eq!(older(json!({"resources": null})).unwrap(), Vec::new());
        let resource = json!({"resource": "things", "responseKind": null, "scope": "Namespaced",
            "singularResource": null, "verbs": null, "shortNames": null, "categories": null,
            "subresources": [{"subresource": "vnc", "responseKind": null, "verbs": null}]});
        let document = |resources: Value| json!({"items": [{"metadata": {"name": "g"}, "versions": [{"version": "v1", "resources": resources}]}]});
        assert_eq!(json!(newer(document(json!([resource])), &spec()).unwrap()), told);
        assert_eq!(newer(document(Value::Null), &spec()).unwrap(), Vec::new());
        assert_eq!(newer(json!({"items": null}), &spec()).unwrap(), Vec::new());
    }

    #[test]
    fn a_part_may_come_before_its_whole() {
        let part = json!({"name": "things/status", "namespaced": true, "kind": "Thing", "verbs": ["get"]});
        let whole = json!({"name": "things", "namespaced": true, "kind": "Thing", "verbs": ["list"]});
        let found = older(json!({"resources": [part, whole]})).unwrap();
        assert_eq!(found, older(json!({"resources": [whole, part]})).unwrap());
        assert_eq!(found.len(), 1, "{found:?}");
        let elsewhere =
            json!({"name": "things/status", "namespaced": false, "kind": "Thing", "verbs": ["get"]});
        assert!(older(json!({"resources": [whole, elsewhere]})).is_err(), "as kube-apiserver has it");
    }
}
