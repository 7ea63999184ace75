//! Which objects of a resource a list, a watch or a deletecollection is about.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use crate::convert;
use crate::object;
use crate::options::ListOptions;
use crate::resource::Resource;
use crate::selector::{FieldLabels, FieldSelector, LabelSelector};
use crate::server::Core;
use crate::status::Result;
use crate::storage::{Field, Hint, ListQuery, Record};

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

    pub(crate) fn resource(&self) -> &Resource {
        &self.resource
    }

    /// Where the selected objects are.
    pub(crate) fn query(&self) -> ListQuery {
        let prefix = self.namespace.as_ref().map_or_else(String::new, |namespace| format!("{namespace}/"));
        ListQuery { hint: self.hint(), ..ListQuery::all(self.resource.collection()).under(prefix) }
    }

    /// How the store can find them without looking at all.
    fn hint(&self) -> Option<Hint> {
        if let Some(name) = &self.name {
            return Some(Hint::Name(name.as_str().into()));
        }
        // What is converted has other fields than what is stored; a namespace is looked through faster than an index is made.
        if self.resource.is_converted() || self.resource.definition().is_some() || self.namespace.is_some() {
            return None;
        }
        let labels = self.resource.behavior().field_labels;
        let mut indexed = labels.iter().enumerate().filter(|(_, label)| label.indexed);
        indexed.find_map(|(at, label)| {
            let value = self.fields.exact(label.label)?;
            Some(Hint::Field(Field { labels, at }, value.into()))
        })
    }

    /// Whether each object whose path has the prefix is selected.
    pub(crate) fn is_whole_prefix(&self) -> bool {
        self.is_by_path() && self.name.is_none()
    }

    /// Whether the path of an object alone decides.
    pub(crate) fn is_by_path(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// Those of the stored objects that are selected, in the version of the resource.
    pub(crate) async fn select(&self, core: &Core, mut stored: Vec<Arc<Record>>) -> Result<Vec<Arc<Record>>> {
        // The namespace is where the store has looked.
        if self.name.is_some() {
            stored.retain(|record| self.has_path(&record.path));
        }
        // A webhook may change labels and fields, so it has its say before the selectors.
        let mut served = convert::webhook::records(core, &self.resource, stored).await?;
        if !self.is_by_path() {
            served.retain(|record| self.has_content(record));
        }
        Ok(served)
    }

    /// Whether an object in the version of the resource is selected. Without a webhook that converts, it can also be as it
    /// is stored.
    pub(crate) fn matches(&self, record: &Record) -> bool {
        self.has_path(&record.path) && self.has_content(record)
    }

    /// Whether the namespace and the name are selected.
    pub(crate) fn has_path(&self, path: &str) -> bool {
        let (namespace, name) = path.split_once('/').unwrap_or(("", path));
        self.namespace.as_deref().is_none_or(|wanted| wanted == namespace)
            && self.name.as_deref().is_none_or(|wanted| wanted == name)
    }

    /// Whether labels and fields are selected.
    fn has_content(&self, record: &Record) -> bool {
        let path = || record.path.split_once('/').unwrap_or(("", &record.path));
        self.labels.matches(|key| record.attributes.label(&record.value, key))
            && (self.fields.is_everything()
                || self.fields.matches(|field| match field {
                    "metadata.name" => Some(Cow::Borrowed(path().1)),
                    "metadata.namespace" => Some(Cow::Borrowed(path().0)),
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
