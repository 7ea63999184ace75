//! Who selects an object by its labels, and which objects are selected, without a look at everything in the namespace.
//!
//! Objects are indexed by each of their labels, selectors by one label that they ask for.

use std::collections::BTreeMap;
use std::sync::Arc;

use setpoint::kube::ResourceExt;
use setpoint::{Lister, Object, SharedInformer};

/// Objects by each of their labels.
const BY_LABEL: &str = "label";
/// Selectors by the first label that they ask for; those that ask for none by their namespace.
const BY_SELECTOR: &str = "selector";

type Labels = BTreeMap<String, String>;

/// Adds the index of objects by label, unless another controller has.
pub(crate) fn index_objects<T: Object + ResourceExt>(informer: &SharedInformer<T>) {
    let by_label = |object: &T| {
        let namespace = object.namespace().unwrap_or_default();
        object.labels().iter().map(|(key, value)| under(&namespace, key, value)).collect()
    };
    // The only error is that the index is there.
    let _ = informer.add_index(BY_LABEL, by_label);
}

/// Adds the index of selectors, unless another controller has. `asks_for` gives the labels that all objects have that are
/// selected; none if nothing is.
pub(crate) fn index_selectors<S: Object + ResourceExt>(
    informer: &SharedInformer<S>,
    asks_for: impl Fn(&S) -> Option<&Labels> + Send + Sync + 'static,
) {
    let by_selector = move |selector: &S| {
        let namespace = selector.namespace().unwrap_or_default();
        let value = |labels: &Labels| match labels.first_key_value() {
            Some((key, value)) => under(&namespace, key, value),
            None => anything(&namespace),
        };
        asks_for(selector).map(value).into_iter().collect()
    };
    // As above.
    let _ = informer.add_index(BY_SELECTOR, by_selector);
}

/// The selectors that may select an object: the caller looks at each.
pub(crate) fn selectors_of<S: Object, T: ResourceExt>(selectors: &Lister<S>, object: &T) -> Vec<Arc<S>> {
    let namespace = object.namespace().unwrap_or_default();
    let mut found = look_up(selectors, BY_SELECTOR, &anything(&namespace));
    for (key, value) in object.labels() {
        found.extend(look_up(selectors, BY_SELECTOR, &under(&namespace, key, value)));
    }
    found
}

/// The objects of a namespace that have all of these labels, by name; all of them if there are no labels.
pub(crate) fn having<T: Object + ResourceExt>(
    objects: &Lister<T>,
    namespace: &str,
    labels: &Labels,
) -> Vec<Arc<T>> {
    let Some((key, value)) = labels.first_key_value() else { return objects.namespace(namespace).list() };
    let mut found = look_up(objects, BY_LABEL, &under(namespace, key, value));
    found.retain(|object| has_all(object.labels(), labels));
    found
}

/// Whether labels have all that is asked for.
pub(crate) fn has_all(labels: &Labels, asked: &Labels) -> bool {
    asked.iter().all(|(key, value)| labels.get(key) == Some(value))
}

fn look_up<T: Object>(lister: &Lister<T>, index: &str, value: &str) -> Vec<Arc<T>> {
    lister.by_index(index, value).unwrap_or_else(|error| {
        tracing::error!(%error, "cannot look up by labels");
        Vec::new()
    })
}

fn under(namespace: &str, key: &str, value: &str) -> String {
    format!("{namespace}/{key}={value}")
}

/// What selectors that ask for no label are found under. No key of a label is empty.
fn anything(namespace: &str) -> String {
    format!("{namespace}/")
}
