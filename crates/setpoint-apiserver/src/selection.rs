//! Which objects of a resource a list, a watch or a deletecollection is about.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use crate::convert;
use crate::object;
use crate::options::ListOptions;
use crate::resource::Resource;
use crate::selector::{FieldLabels, FieldSelector, LabelSelector};
use crate::status::Result;
use crate::storage::Record;

/// A namespace (or all of them), a name (or all of them), labels and fields.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    resource: Arc<Resource>,
    namespace: Option<String>,
    name: Option<String>,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    /// `name` is one that the path gives: `/api/v1/watch/namespaces/x/pods/NAME`.
    pub(crate) fn new(
        resource: &Arc<Resource>,
        namespace: Option<&str>,
        name: Option<&str>,
        options: &ListOptions,
    ) -> Result<Selection> {
        let labels = LabelSelector::parse(options.label_selector.as_deref().unwrap_or_default())?;
        let fields = FieldSelector::parse(options.field_selector.as_deref().unwrap_or_default())?;
        let known = resource.behavior().field_labels;
        if let Some(custom) = resource.definition() {
            let own = custom.selectable.iter().map(|(label, _)| label.as_str());
            let metadata = ["metadata.name", "metadata.namespace"].into_iter();
            let metadata = metadata.take(if resource.is_namespaced() { 2 } else { 1 });
            fields.check(FieldLabels::Only(&own.chain(metadata).collect::<Vec<_>>()))?;
        } else if known.is_empty() {
            fields.check(FieldLabels::Generic)?;
        } else {
            let names = known.iter().map(|label| label.label);
            let names: Vec<_> = names.chain(["metadata.name", "metadata.namespace"]).collect();
            fields.check(FieldLabels::Only(&names))?;
        }
        let namespace = namespace.or(fields.namespace()).filter(|_| resource.is_namespaced());
        Ok(Selection {
            resource: Arc::clone(resource),
            namespace: namespace.map(str::to_owned),
            name: name.or(fields.name()).map(str::to_owned),
            labels,
            fields,
        })
    }

    /// What the paths of all selected objects begin with.
    pub(crate) fn prefix(&self) -> String {
        match (&self.namespace, &self.name) {
            (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
            (Some(namespace), None) => format!("{namespace}/"),
            (None, Some(name)) if !self.resource.is_namespaced() => name.clone(),
            (None, _) => String::new(),
        }
    }

    /// Whether each object whose path has the prefix is selected.
    pub(crate) fn is_whole_prefix(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything() && self.name.is_none()
    }

    pub(crate) fn matches(&self, record: &Record) -> bool {
        let (namespace, name) = record.path.split_once('/').unwrap_or(("", &record.path));
        if self.namespace.as_deref().is_some_and(|wanted| wanted != namespace)
            || self.name.as_deref().is_some_and(|wanted| wanted != name)
        {
            return false;
        }
        self.labels.matches(|key| record.attributes.label(&record.value, key))
            && (self.fields.is_everything()
                || self.fields.matches(|field| match field {
                    "metadata.name" => Some(Cow::Borrowed(name)),
                    "metadata.namespace" => Some(Cow::Borrowed(namespace)),
                    field => self.field(record, field),
                }))
    }

    fn field<'a>(&self, record: &'a Record, field: &str) -> Option<Cow<'a, str>> {
        if let Some(custom) = self.resource.definition() {
            let stored = object::decode(&record.value, record.revision);
            return custom.field(&convert::to_served(&self.resource, stored), field).map(Cow::Owned);
        }
        let labels = self.resource.behavior().field_labels;
        let at = labels.iter().position(|label| label.label == field)?;
        if self.resource.is_converted() {
            let stored: Value = object::decode(&record.value, record.revision);
            let object = convert::to_served(&self.resource, stored);
            return Some(Cow::Owned(labels[at].value(&object)));
        }
        Some(Cow::Borrowed(&record.attributes.fields(&record.value, labels)[at]))
    }
}
