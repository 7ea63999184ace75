//! One version of a custom resource, as its definition describes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::column::Column;
use super::json_path::JsonPath;
use crate::bounds::{Exceeded, Room};
use crate::extension::{Program, Programs};
use crate::field_error::FieldError;
use crate::object;
use crate::resource::Resource;
use crate::schema::{Nulls, Structural};

/// The verbs of a custom resource, in the order of discovery.
pub(crate) const VERBS: [&str; 8] =
    ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
/// Those that are left while its definition is being deleted.
pub(crate) const TERMINATING_VERBS: [&str; 5] = ["delete", "deletecollection", "get", "list", "watch"];
/// The verbs of its subresources.
pub(crate) const PART_VERBS: [&str; 3] = ["get", "patch", "update"];

/// Why an object that a client has sent cannot be brought into shape.
#[derive(Debug)]
pub(crate) enum Undecodable {
    /// A resource in it can be none.
    Embedded(FieldError),
    /// With its defaults it would be too large.
    Exceeded(Exceeded),
}

impl From<FieldError> for Undecodable {
    fn from(error: FieldError) -> Undecodable {
        Undecodable::Embedded(error)
    }
}

impl From<Exceeded> for Undecodable {
    fn from(exceeded: Exceeded) -> Undecodable {
        Undecodable::Exceeded(exceeded)
    }
}

/// What a definition says about one of its versions.
#[derive(Debug)]
pub(crate) struct Custom {
    pub group: Box<str>,
    pub version: Box<str>,
    pub plural: Box<str>,
    pub singular: Box<str>,
    pub kind: Box<str>,
    pub list_kind: Box<str>,
    pub short_names: Vec<Box<str>>,
    pub categories: Vec<Box<str>>,
    pub namespaced: bool,
    /// The version that objects are written in.
    pub storage_version: Box<str>,
    /// Whether the status has a path of its own.
    pub has_status: bool,
    /// Where the replicas are, if it can be scaled.
    pub scale: Option<Scale>,
    /// What objects look like.
    pub schema: Option<Structural>,
    /// The same as it was written, for OpenAPI.
    pub open_api: Arc<Value>,
    /// What a table shows after the name.
    pub columns: Vec<Column>,
    /// The fields that objects can be selected by, each with its label: `spec.color`.
    pub selectable: Vec<(String, JsonPath)>,
    /// The `clientConfig` of the webhook that converts between versions.
    pub conversion: Option<Value>,
    /// Told with each answer about a version that shall not be used any more.
    pub deprecation: Option<String>,
    /// The code of an extension server. Never part of what is stored.
    pub program: Option<Arc<Program>>,
    /// Whether objects may have been written under another schema or in another version than this.
    changes_on_read: bool,
    terminating: AtomicBool,
    /// Cancelled when the resource is no longer served as it is.
    pub ended: CancellationToken,
}

/// The JSON paths of the scale subresource, taken apart at their dots.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    pub spec_replicas: Vec<String>,
    pub status_replicas: Vec<String>,
    pub selector: Option<Vec<String>>,
}

impl Scale {
    fn of(value: &Value) -> Option<Scale> {
        let path = |name: &str| {
            let text = value[name].as_str()?.trim_start_matches('.');
            (!text.is_empty()).then(|| text.split('.').map(str::to_owned).collect())
        };
        let spec_replicas = path("specReplicasPath")?;
        let status_replicas = path("statusReplicasPath")?;
        Some(Scale { spec_replicas, status_replicas, selector: path("labelSelectorPath") })
    }
}

impl Custom {
    /// Brings an object that a client has sent into shape; the paths of the fields that are dropped. An error is a
    /// resource in it that can be none.
    pub(crate) fn decode(&self, object: &mut Value, nulls: Nulls) -> Result<Vec<String>, Undecodable> {
        let Some(schema) = &self.schema else { return Ok(Vec::new()) };
        let mut dropped = schema.prune(object);
        if nulls == Nulls::Dropped {
            schema.prune_nulls(object);
        }
        dropped.extend(schema.coerce(object)?);
        schema.default(object, &mut Room::default())?;
        Ok(dropped)
    }

    /// Drops the nulls that apply has left where there is no type to refuse them.
    pub(crate) fn drop_nulls(&self, object: &mut Value) {
        if let Some(schema) = &self.schema {
            schema.prune_nulls(object);
        }
    }

    /// Brings an object that was stored under another schema into shape.
    pub(crate) fn read(&self, object: &mut Value) {
        if self.changes_on_read {
            let Some(schema) = &self.schema else { return };
            schema.prune(object);
            schema.prune_nulls(object);
            if let Err(exceeded) = schema.default(object, &mut Room::default()) {
                // It can still be read, and its owner can shorten it.
                tracing::warn!(kind = %self.kind, %exceeded, "some defaults of a stored object were not applied");
            }
        }
    }

    /// The value of a selectable field, as selectors compare it.
    pub(crate) fn field(&self, object: &Value, label: &str) -> Option<String> {
        let (_, path) = self.selectable.iter().find(|(known, _)| known == label)?;
        Some(match path.first(object) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        })
    }

    /// Whether there is such a subresource.
    pub(crate) fn has_subresource(&self, name: &str) -> bool {
        match name {
            "status" => self.has_status,
            "scale" => self.scale.is_some(),
            _ => false,
        }
    }

    /// Whether stored objects may differ from what is served.
    pub(crate) fn changes_on_read(&self) -> bool {
        self.changes_on_read
    }

    /// Whether the definition is being deleted: no new objects then.
    pub(crate) fn is_terminating(&self) -> bool {
        self.terminating.load(Ordering::Relaxed)
    }

    /// What it was before.
    pub(super) fn set_terminating(&self, terminating: bool) -> bool {
        self.terminating.swap(terminating, Ordering::Relaxed)
    }

    /// The verbs that it has now.
    pub(crate) fn verbs(&self) -> Vec<&'static str> {
        let all: &[&str] = if self.is_terminating() { &TERMINATING_VERBS } else { &VERBS };
        all.iter().copied().filter(|verb| self.has_verb(verb)).collect()
    }

    /// Whether its clients may do this at all.
    pub(crate) fn has_verb(&self, verb: &str) -> bool {
        self.program.as_ref().is_none_or(|program| program.verbs.has(verb))
    }
}

/// Whether a definition has a condition that is true.
pub(super) fn has_condition(definition: &Value, kind: &str) -> bool {
    let conditions = definition["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|found| found["type"] == kind && found["status"] == "True")
}

pub(super) fn is_terminating(definition: &Value) -> bool {
    object::is_being_deleted(definition)
}

/// Whether two states of a definition make the server serve the same.
pub(super) fn serves_the_same(old: &Value, new: &Value) -> bool {
    old["metadata"]["uid"] == new["metadata"]["uid"]
        && old["spec"] == new["spec"]
        && old["status"]["acceptedNames"] == new["status"]["acceptedNames"]
        && has_condition(old, "Established") == has_condition(new, "Established")
}

/// The served versions of a definition; none while it is not established, and in an extension server none without code.
pub(super) fn resources(definition: &Value, programs: Option<&Programs>) -> Vec<Arc<Resource>> {
    if !has_condition(definition, "Established") {
        return Vec::new();
    }
    let program = match programs {
        None => None,
        Some(programs) => match programs.get(&collection(definition)) {
            None => return Vec::new(),
            program => program,
        },
    };
    versions(definition)
        .iter()
        .filter(|version| version["served"] == true)
        .filter_map(|version| resource(definition, version, program))
        .collect()
}

/// The version that the objects of a definition are stored in.
pub(super) fn stored(definition: &Value) -> Option<Arc<Resource>> {
    let version = versions(definition).iter().find(|version| version["storage"] == true)?;
    resource(definition, version, None)
}

fn versions(definition: &Value) -> &[Value] {
    definition["spec"]["versions"].as_array().map_or(&[], Vec::as_slice)
}

/// Where the objects of a definition are.
fn collection(definition: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, names) = (&definition["spec"]["group"], &definition["status"]["acceptedNames"]);
    format!("{}/{}", text(group), text(&names["plural"]))
}

fn resource(definition: &Value, version: &Value, program: Option<&Arc<Program>>) -> Option<Arc<Resource>> {
    let storage = versions(definition).iter().find(|version| version["storage"] == true)?["name"].as_str()?;
    let custom = custom(definition, version, storage);
    Some(Arc::new(Resource::custom(Custom { program: program.cloned(), ..custom })))
}

fn custom(definition: &Value, version: &Value, storage: &str) -> Custom {
    let (spec, names) = (&definition["spec"], &definition["status"]["acceptedNames"]);
    let text = |value: &Value| -> Box<str> { value.as_str().unwrap_or_default().into() };
    let texts = |value: &Value| value.as_array().into_iter().flatten().map(text).collect();
    let subresources = &version["subresources"];
    let name = text(&version["name"]);
    let first_generation = definition["metadata"]["generation"] == 1;
    Custom {
        group: text(&spec["group"]),
        plural: text(&names["plural"]),
        singular: text(&names["singular"]),
        kind: text(&names["kind"]),
        list_kind: text(&names["listKind"]),
        short_names: texts(&names["shortNames"]),
        categories: texts(&names["categories"]),
        namespaced: spec["scope"] == "Namespaced",
        storage_version: storage.into(),
        has_status: subresources["status"].is_object(),
        scale: Scale::of(&subresources["scale"]),
        schema: Structural::parse(&version["schema"]["openAPIV3Schema"]).ok(),
        open_api: Arc::new(version["schema"]["openAPIV3Schema"].clone()),
        columns: Column::of_version(version),
        selectable: selectable(version),
        conversion: conversion(spec),
        deprecation: deprecation(spec, version),
        // What was written under the only schema that there ever was needs no second look.
        changes_on_read: !first_generation || *name != *storage,
        program: None,
        terminating: AtomicBool::new(is_terminating(definition)),
        ended: CancellationToken::new(),
        version: name,
    }
}

fn selectable(version: &Value) -> Vec<(String, JsonPath)> {
    let paths = version["selectableFields"].as_array().into_iter().flatten();
    let paths = paths.filter_map(|field| field["jsonPath"].as_str());
    paths.filter_map(|path| Some((path.trim_start_matches('.').to_owned(), JsonPath::parse(path)?))).collect()
}

/// Where the webhook is that converts; none is needed while there is one version.
fn conversion(spec: &Value) -> Option<Value> {
    let is_webhook = spec["conversion"]["strategy"] == "Webhook";
    is_webhook.then(|| spec["conversion"]["webhook"]["clientConfig"].clone())
}

/// What is told about a deprecated version: its own words, or which version to use.
fn deprecation(spec: &Value, version: &Value) -> Option<String> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(text) = version["deprecationWarning"].as_str() {
        return Some(text.to_owned());
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, name, kind) = (text(&spec["group"]), text(&version["name"]), text(&spec["names"]["kind"]));
    let mut message = format!("{group}/{name} {kind} is deprecated");
    let others = spec["versions"].as_array().into_iter().flatten();
    let better = others
        .filter(|other| other["served"] == true && other["deprecated"] != true)
        .map(|other| text(&other["name"]))
        .filter(|other| rank(other) > rank(&name))
        .max_by(|a, b| rank(a).cmp(&rank(b)));
    if let Some(better) = better {
        message.push_str(&format!("; use {group}/{better} {kind}"));
    }
    Some(message)
}

/// How Kubernetes orders versions: `v1` before `v1beta1` before `v1alpha1`, higher numbers first, and then all other
/// names by alphabet. The greatest is preferred.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    Other(std::cmp::Reverse<String>),
    Kube(Stability, u32, u32),
}

/// How much a version promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stability {
    Alpha,
    Beta,
    Stable,
}

/// The rank of a version among others.
pub(crate) fn rank(version: &str) -> Rank {
    parse(version).unwrap_or_else(|| Rank::Other(std::cmp::Reverse(version.to_owned())))
}

fn parse(version: &str) -> Option<Rank> {
    let number = |text: &str| -> Option<u32> {
        (text.starts_with(|c: char| ('1'..='9').contains(&c))).then(|| text.parse().ok()).flatten()
    };
    let rest = version.strip_prefix('v')?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let major = number(&rest[..end])?;
    let (stability, minor) = match &rest[end..] {
        "" => (Stability::Stable, 0),
        minor if minor.starts_with("alpha") => (Stability::Alpha, number(&minor["alpha".len()..])?),
        minor if minor.starts_with("beta") => (Stability::Beta, number(&minor["beta".len()..])?),
        _ => return None,
    };
    Some(Rank::Kube(stability, major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_kubernetes_does() {
        let mut versions =
            ["foo1", "v3beta1", "v12alpha1", "v10", "foo10", "v1", "v11beta2", "v2", "v11alpha2", "v10beta3"];
        versions.sort_by_key(|version| std::cmp::Reverse(rank(version)));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"]
        );
    }
}
