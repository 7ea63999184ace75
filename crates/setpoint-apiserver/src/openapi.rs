//! OpenAPI v3: one document a group-version, from the table of kinds. v2 is made from it.
//!
//! kubectl reads it before it writes: it looks for the `fieldValidation` parameter of a kind's PATCH, and for
//! how lists are merged. `kubectl explain` reads the schemas, other tools the paths.

mod convert;
mod custom;
mod descriptions;
mod gnostic;
mod paths;
mod schema;
mod v2;

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::sync::{Arc, LazyLock};

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::{Map, Value, json};
use setpoint_kinds::table;

use crate::aggregation::OpenApi;
use crate::definitions::Served;
use crate::options::Query;
use crate::response::{Body, respond as response};
use crate::status::{Result, Status};

pub(crate) use convert::converted;
pub(crate) use v2::Part;

/// What is told beside custom resources.
#[derive(Clone, Copy)]
pub(crate) struct Others<'a> {
    /// What other servers behind this one have, the first one first.
    pub(crate) backends: &'a [Arc<OpenApi>],
    /// Whether there is nothing else, not even built-in kinds.
    pub(crate) is_alone: bool,
}

/// The documents of built-in kinds, unless custom resources are alone.
fn built_in<'a>(is_alone: bool) -> impl Iterator<Item = (&'a String, &'a String)> {
    HASHES.iter().filter(move |_| !is_alone)
}

/// The documents by path (`apis/apps/v1`), each with the hash of its content. The texts are made again when
/// they are asked for: clients keep them, the server need not.
static HASHES: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
    let groups = table().groups().iter();
    let versions = groups.flat_map(|group| group.versions.iter().map(|version| (group.name, *version)));
    versions.map(|(group, version)| (path_of(group, version), hash(&document(group, version)))).collect()
});

/// Answers `/openapi/v3` and what is below it.
pub(crate) fn respond(
    served: &Served,
    others: Others<'_>,
    segments: &[&str],
    query: &Query,
    headers: &HeaderMap,
) -> Result<Response<Body>> {
    match segments {
        ["openapi", "v2"] => Ok(v2::respond(served, others, headers)),
        ["openapi", "v3"] => {
            Ok(response(StatusCode::OK, "application/json", index(served, others).to_string()))
        }
        ["openapi", "v3", "api", _] if others.is_alone => Err(Status::no_such_path()),
        ["openapi", "v3", "apis", group, version] if others.is_alone && is_built_in(group, version) => {
            Err(Status::no_such_path())
        }
        ["openapi", "v3", "api", version] => respond_document(served, others, ("", version), query, headers),
        ["openapi", "v3", "apis", group, version] => {
            respond_document(served, others, (group, version), query, headers)
        }
        _ => Err(Status::no_such_path()),
    }
}

fn index(served: &Served, others: Others<'_>) -> Value {
    let entry = |(path, hash): (&String, &String)| {
        (path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")}))
    };
    let own = built_in(others.is_alone).chain(served.open_api_hashes()).map(entry);
    let others = others
        .backends
        .iter()
        .map(|open_api| (open_api.path.clone(), json!({"serverRelativeURL": open_api.url})));
    json!({"paths": own.chain(others).collect::<Map<_, _>>()})
}

fn respond_document(
    served: &Served,
    others: Others<'_>,
    (group, version): (&str, &str),
    query: &Query,
    headers: &HeaderMap,
) -> Result<Response<Body>> {
    let path = path_of(group, version);
    let of_backend = others.backends.iter().find(|backend| backend.path == path);
    let converted = of_backend.and_then(|backend| backend.converted.as_ref());
    let built_in = HASHES.get(&path);
    let own = || built_in.or_else(|| served.open_api_hashes().get(&path));
    let hash = converted.map(|document| &document.hash).or_else(own).ok_or_else(Status::no_such_path)?;
    let etag = format!("\"{hash}\"");
    if query.get("hash").is_some_and(|asked| asked != hash) {
        // An old address leads to the new one.
        let mut moved = response(StatusCode::MOVED_PERMANENTLY, "text/plain", "");
        set(&mut moved, header::LOCATION, &format!("/openapi/v3/{path}?hash={hash}"));
        return Ok(moved);
    }
    let known = headers.get(header::IF_NONE_MATCH).is_some_and(|value| value.as_bytes() == etag.as_bytes());
    let mut answer = if known {
        response(StatusCode::NOT_MODIFIED, "application/json", "")
    } else {
        let document = match (converted, built_in) {
            (Some(converted), _) => converted.text.clone(),
            (None, Some(_)) => document(group, version),
            (None, None) => custom::document(served, group, version).to_string(),
        };
        response(StatusCode::OK, "application/json", document)
    };
    set(&mut answer, header::ETAG, &etag);
    set(&mut answer, header::VARY, "Accept");
    if query.get("hash").is_some() {
        set(&mut answer, header::CACHE_CONTROL, "public, immutable");
    }
    Ok(answer)
}

fn set(response: &mut Response<Body>, name: header::HeaderName, value: &str) {
    let value = HeaderValue::from_str(value).expect("addresses and hashes are plain ASCII");
    response.headers_mut().insert(name, value);
}

fn path_of(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// The hashes of the documents of custom resources, by path.
pub(crate) fn hashes(served: &Served) -> BTreeMap<String, String> {
    let versions = served
        .groups()
        .flat_map(|(group, versions)| versions.into_iter().map(move |version| (group, version)));
    versions
        .map(|(group, version)| {
            (path_of(group, version), hash(&custom::document(served, group, version).to_string()))
        })
        .filter(|(path, _)| !HASHES.contains_key(path))
        .collect()
}

/// What tells one document from another.
pub(crate) fn hash(document: &str) -> String {
    // Only to tell documents apart: any hash that does not change between runs will do.
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(document.as_bytes());
    format!("{:016X}", hasher.finish())
}

/// Whether a group-version belongs to Kubernetes.
fn is_built_in(group: &str, version: &str) -> bool {
    HASHES.contains_key(&path_of(group, version))
}

fn document(group: &str, version: &str) -> String {
    built_in_document(group, version).to_string()
}

fn built_in_document(group: &str, version: &str) -> Value {
    let mut schemas = schema::Schemas::new(descriptions::Descriptions::find());
    let mut paths = paths::Paths { schemas: &mut schemas, paths: Map::new() };
    schema::add_answers(paths.schemas);
    for resource in table().resources_of(group, version) {
        paths.schemas.add_kind(resource);
        paths.add(resource);
    }
    finish(paths.paths, schemas)
}

fn finish(paths: Map<String, Value>, schemas: schema::Schemas) -> Value {
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": format!("v{}", table().kubernetes_version())},
        "paths": paths,
        "components": {"schemas": schemas.into_map()},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(group: &str, version: &str) -> Value {
        serde_json::from_str(&document(group, version)).unwrap()
    }

    #[test]
    fn every_reference_leads_to_a_schema_of_the_same_document() {
        for group in table().groups() {
            for version in &group.versions {
                let text = document(group.name, version);
                let document: Value = serde_json::from_str(&text).unwrap();
                let schemas = document["components"]["schemas"].as_object().unwrap();
                for part in text.split("#/components/schemas/").skip(1) {
                    let name = part.split('"').next().unwrap();
                    assert!(schemas.contains_key(name), "{}/{version}: {name}", group.name);
                }
            }
        }
    }

    #[test]
    fn schemas_say_how_lists_are_merged() {
        let core = read("", "v1");
        let schemas = &core["components"]["schemas"];
        let ports = &schemas["io.k8s.api.core.v1.ServiceSpec"]["properties"]["ports"];
        assert_eq!(ports["x-kubernetes-patch-merge-key"], "port");
        assert_eq!(ports["x-kubernetes-list-map-keys"], json!(["port", "protocol"]));
        assert_eq!(ports["items"]["$ref"], "#/components/schemas/io.k8s.api.core.v1.ServicePort");
        let pod = &schemas["io.k8s.api.core.v1.Pod"];
        assert_eq!(pod["x-kubernetes-group-version-kind"][0]["kind"], "Pod");
        let quantity = &schemas["io.k8s.api.core.v1.ResourceRequirements"]["properties"]["limits"];
        assert_eq!(
            quantity["additionalProperties"]["$ref"],
            "#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity"
        );
    }

    #[test]
    fn schemas_of_subresources_and_of_failures_say_which_kind_they_are() {
        for (group, version, name, expected) in [
            ("apps", "v1", "autoscaling.v1.Scale", ["autoscaling", "v1", "Scale"]),
            ("", "v1", "policy.v1.Eviction", ["policy", "v1", "Eviction"]),
            ("", "v1", "authentication.v1.TokenRequest", ["authentication.k8s.io", "v1", "TokenRequest"]),
            ("", "v1", "core.v1.Pod", ["", "v1", "Pod"]),
        ] {
            let document = read(group, version);
            let schemas = &document["components"]["schemas"];
            let kind = &schemas[format!("io.k8s.api.{name}")]["x-kubernetes-group-version-kind"];
            let [group, version, name] = expected;
            assert_eq!(*kind, json!([{"group": group, "version": version, "kind": name}]));
            let status = &schemas["io.k8s.apimachinery.pkg.apis.meta.v1.Status"];
            assert_eq!(status["x-kubernetes-group-version-kind"][0]["kind"], "Status");
        }
    }

    #[test]
    fn a_patch_can_be_strict_about_fields() {
        let apps = read("apps", "v1");
        let patch = &apps["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
        let parameters = patch["parameters"].as_array().unwrap();
        assert!(parameters.iter().any(|parameter| parameter["name"] == "fieldValidation"));
        assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Deployment");
    }
}
