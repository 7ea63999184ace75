//! Whether a webhook or a policy is asked about a request: rules, scopes, selectors.

use std::sync::Arc;

use serde_json::Value;

use super::attributes::Attributes;
use crate::handlers::get::read;
use crate::label_query;
use crate::resource::{Registry, Resource};
use crate::selector::LabelSelector;
use crate::server::Core;
use crate::status::Result;

/// Kinds that configure admission: nothing that they configure is asked about them.
pub(crate) fn is_exempt(resource: &Resource) -> bool {
    resource.group() == "admissionregistration.k8s.io"
}

/// `rules`, `namespaceSelector`, `objectSelector` and `matchPolicy` of a webhook, or the same of a policy.
#[derive(Debug)]
pub(crate) struct Matching {
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    namespaces: LabelSelector,
    objects: LabelSelector,
    is_exact: bool,
}

/// One rule: which operations on which resources.
#[derive(Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
    names: Vec<String>,
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|entry| entry == "*" || entry == wanted)
}

impl Rule {
    fn parse(rule: &Value) -> Rule {
        Rule {
            operations: texts(&rule["operations"]),
            groups: texts(&rule["apiGroups"]),
            versions: texts(&rule["apiVersions"]),
            resources: texts(&rule["resources"]),
            scope: rule["scope"].as_str().unwrap_or("*").to_owned(),
            names: texts(&rule["resourceNames"]),
        }
    }

    fn matches(&self, attributes: &Attributes<'_>, resource: &Resource, name: &str) -> bool {
        let is_operation = has(&self.operations, attributes.operation.as_str());
        // A namespace is an object of the cluster, though its requests have a namespace.
        let is_scope = match self.scope.as_str() {
            "Namespaced" => resource.is_namespaced(),
            "Cluster" => !resource.is_namespaced(),
            _ => true,
        };
        is_operation
            && is_scope
            && has(&self.groups, resource.group())
            && has(&self.versions, resource.version())
            && self.names_resource(resource.plural(), attributes.subresource())
            && (self.names.is_empty() || self.names.iter().any(|entry| entry == name))
    }

    /// `pods`, `pods/status`, `pods/*`, `*/status`, `*`, `*/*`.
    fn names_resource(&self, plural: &str, subresource: &str) -> bool {
        self.resources.iter().any(|entry| {
            let (resource, part) = entry.split_once('/').unwrap_or((entry, ""));
            (resource == "*" || resource == plural) && (part == "*" || part == subresource)
        })
    }
}

impl Matching {
    /// Reads the fields of a webhook or of a policy's `matchConstraints`; `rules` is what it calls its rules.
    pub(crate) fn parse(value: &Value, rules: &str) -> Matching {
        let parse =
            |field: &str| value[field].as_array().into_iter().flatten().map(Rule::parse).collect::<Vec<_>>();
        // A selector that does not parse was refused when it was written.
        let selector = |field: &str| {
            let empty = value[field].as_object().is_none_or(serde_json::Map::is_empty);
            if empty {
                return LabelSelector::default();
            }
            LabelSelector::parse(&label_query::of(&value[field])).unwrap_or_default()
        };
        Matching {
            rules: parse(rules),
            excluded: parse("excludeResourceRules"),
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
            is_exact: value["matchPolicy"] == "Exact",
        }
    }

    /// The resource in whose version the question is asked, if it is asked: that of the request, or another
    /// version of the same kind.
    pub(crate) async fn matches(
        &self,
        core: &Core,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
    ) -> Result<Option<Arc<Resource>>> {
        let Some(resource) = self.rule(core, attributes, object) else { return Ok(None) };
        let is_selected = self.selects_object(attributes, object)
            && (self.namespaces.is_everything() || self.selects_namespace(core, attributes, object).await?);
        Ok(is_selected.then_some(resource))
    }

    /// The same for a binding, which narrows what its policy matches: without rules, everything.
    pub(crate) async fn selects(
        &self,
        core: &Core,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
    ) -> Result<bool> {
        if self.rules.is_empty() && self.excluded.is_empty() {
            return Ok(self.selects_object(attributes, object)
                && (self.namespaces.is_everything()
                    || self.selects_namespace(core, attributes, object).await?));
        }
        Ok(self.matches(core, attributes, object).await?.is_some())
    }

    fn rule(
        &self,
        core: &Core,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
    ) -> Option<Arc<Resource>> {
        let name = attributes.name(object);
        let asked = &attributes.request.resource;
        let listed = |rules: &[Rule], resource: &Resource| {
            rules.iter().any(|rule| rule.matches(attributes, resource, name))
        };
        let versions = || if self.is_exact { Vec::new() } else { equivalents(core, asked) };
        if listed(&self.excluded, asked) || versions().iter().any(|other| listed(&self.excluded, other)) {
            return None;
        }
        // A binding may only exclude.
        if self.rules.is_empty() && !self.excluded.is_empty() {
            return Some(Arc::clone(asked));
        }
        if listed(&self.rules, asked) {
            return Some(Arc::clone(asked));
        }
        versions().into_iter().find(|other| listed(&self.rules, other))
    }

    /// Either state of the object will do, so that a change of labels evades nobody.
    fn selects_object(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> bool {
        if self.objects.is_everything() {
            return true;
        }
        [object, attributes.old].into_iter().flatten().any(|object| selects(&self.objects, object))
    }

    async fn selects_namespace(
        &self,
        core: &Core,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
    ) -> Result<bool> {
        let resource = &attributes.request.resource;
        let namespaces = Registry::built_in().expect("", "v1", "namespaces");
        if resource.collection() == namespaces.collection() {
            let object = object.or(attributes.old);
            return Ok(object.is_some_and(|object| selects(&self.namespaces, object)));
        }
        if !resource.is_namespaced() {
            return Ok(true);
        }
        let record = read(core, &namespaces.key(None, attributes.namespace())).await?;
        Ok(record
            .is_some_and(|record| self.namespaces.matches(|key| record.attributes.label(&record.value, key))))
    }
}

fn selects(selector: &LabelSelector, object: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    selector.matches(|key| labels.get(key).and_then(Value::as_str))
}

/// The other versions of the same kind.
fn equivalents(core: &Core, resource: &Arc<Resource>) -> Vec<Arc<Resource>> {
    core.versions_of(resource).into_iter().filter(|other| !Arc::ptr_eq(other, resource)).collect()
}
