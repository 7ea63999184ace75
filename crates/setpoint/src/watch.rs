//! Before stage 1: what to watch, as a value.

mod predicate;
mod selector;

use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeFull;
use std::sync::Arc;

use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::predicate::{Change, Predicate};
use self::selector::joined;
pub(crate) use self::selector::takes;
use crate::factory::Defaults;
use crate::indexer::IndexFn;
use crate::{Held, InformerBuilder, ScopedResource, SharedInformer};

/// What can be watched: every [`kube::Resource`], also a [`DynamicObject`], and the metadata of either.
pub trait Watchable: Resource + Serialize + DeserializeOwned + Clone + Send + Sync + 'static {}

impl<K> Watchable for K where K: Resource + Serialize + DeserializeOwned + Clone + Send + Sync + 'static {}

/// What to watch: which kind, which of its objects, and which of their changes matter. `T` is what is cached.
///
/// A [`Controller`](crate::Controller) takes one wherever a kind is named, and `..` where all objects of a kind are
/// meant. The order of calls has no meaning: of selectors that are given twice both must match, and namespaces add up.
///
/// ```
/// use setpoint::k8s_openapi::api::apps::v1::Deployment;
/// use setpoint::k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
/// use setpoint::{Action, Context, Controller, ObjectKey, Predicate, ReconcileError, Watch};
///
/// # async fn reconcile(_: ObjectKey, _: Context) -> Result<Action, ReconcileError> { Ok(Action::done()) }
/// # let _ =
/// Controller::of::<Service>(.., "web", reconcile)
///     .owns(Watch::<Deployment>::new().labels("app=web").filter(Predicate::generation_changed()))
///     .watches(Watch::<Secret>::metadata_only().namespaces(["certificates"]), |secret| {
///         vec![ObjectKey::namespaced("default", secret.metadata.name.as_deref().unwrap_or_default())]
///     })
///     .reads::<ConfigMap>(..)
/// # ;
/// ```
///
/// Two watches of one kind with other selectors or namespaces have a cache each; equal ones share one, also with other
/// controllers. The filter is no part of this: it says which changes cause a reconcile, not what is cached. Nor are the
/// indices: they are all in the one cache.
#[must_use]
pub struct Watch<T> {
    kind: ScopedResource,
    make: Make<T>,
    labels: BTreeSet<String>,
    fields: BTreeSet<String>,
    namespaces: Option<BTreeSet<String>>,
    predicate: Predicate<T>,
    /// All that were asked for: whoever makes them finds out whether a name stands for two.
    indices: Vec<(String, IndexFn<T>)>,
}

/// An informer of the kind, without selectors.
type Make<T> = Arc<dyn Fn(Client) -> InformerBuilder<T> + Send + Sync>;

/// What a watch caches: equal for two that would cache the same, however they came about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WatchId {
    cached: TypeId,
    what: String,
}

impl<K: Watchable + Resource<DynamicType = ()>> Watch<K> {
    /// Every object of a kind, in the namespaces that the [factory](crate::SharedInformerFactory) is for.
    pub fn new() -> Watch<K> {
        Watch::with(ScopedResource::of::<K>(), SharedInformer::<K>::builder)
    }

    /// The same, but nothing more than the metadata of each object is asked for and cached.
    pub fn metadata_only() -> Watch<PartialObjectMeta<K>>
    where
        PartialObjectMeta<K>: Watchable + Resource<DynamicType = ()>,
    {
        Watch::new()
    }
}

impl<K: Watchable + Resource<DynamicType = ()>> Default for Watch<K> {
    fn default() -> Watch<K> {
        Watch::new()
    }
}

impl Watch<DynamicObject> {
    /// Every object of a kind that is known at run time only ([`find_resource`](crate::client::find_resource)).
    pub fn dynamic(resource: &ScopedResource) -> Watch<DynamicObject> {
        let kind = resource.clone();
        Watch::with(kind.clone(), move |client| SharedInformer::dynamic(client, &kind))
    }

    /// The same, but nothing more than the metadata of each object is asked for and cached.
    pub fn dynamic_metadata_only(resource: &ScopedResource) -> Watch<PartialObjectMeta<DynamicObject>> {
        let kind = resource.clone();
        Watch::with(kind.clone(), move |client| SharedInformer::dynamic_metadata(client, &kind))
    }
}

impl<T: Watchable> Watch<T> {
    fn with(
        kind: ScopedResource,
        make: impl Fn(Client) -> InformerBuilder<T> + Send + Sync + 'static,
    ) -> Watch<T> {
        Watch {
            kind,
            make: Arc::new(make),
            labels: BTreeSet::new(),
            fields: BTreeSet::new(),
            namespaces: None,
            predicate: Predicate::default(),
            indices: Vec::new(),
        }
    }

    /// Only objects whose labels match, like `app=web,tier in (a,b)`.
    #[doc(alias = "label_selector")]
    pub fn labels(mut self, selector: impl Into<String>) -> Watch<T> {
        self.labels.extend(selector::of_labels(&selector.into()));
        self
    }

    /// Only objects whose fields match, like `spec.nodeName=n1`. Which fields there are depends on the kind.
    #[doc(alias = "field_selector")]
    pub fn fields(mut self, selector: impl Into<String>) -> Watch<T> {
        self.fields.extend(selector::of_fields(&selector.into()));
        self
    }

    /// Only objects of these namespaces, whatever the [factory](crate::SharedInformerFactory) is for; with none, or
    /// one without a name, of all. Each has a list and watch of its own, and all are in one cache. Called again, it adds to them.
    /// It means nothing for a kind whose objects are in no namespace.
    pub fn namespaces<N: Into<String>>(mut self, namespaces: impl IntoIterator<Item = N>) -> Watch<T> {
        self.namespaces.get_or_insert_default().extend(namespaces.into_iter().map(Into::into));
        self
    }

    /// Lets only some changes cause a reconcile. All objects are cached, whatever the filter.
    pub fn filter(mut self, predicate: Predicate<T>) -> Watch<T> {
        self.predicate = self.predicate.and(predicate);
        self
    }

    /// The same with a function of your own that sees updates, as `|old, new|`. Adds and deletes pass.
    ///
    /// ```
    /// use setpoint::Watch;
    /// use setpoint::k8s_openapi::api::apps::v1::Deployment;
    ///
    /// let rollouts = Watch::<Deployment>::new().filter_updates(|old, new| old.status != new.status);
    /// # let _ = rollouts;
    /// ```
    pub fn filter_updates(
        self,
        passes: impl Fn(&Held<T>, &Held<T>) -> bool + Send + Sync + 'static,
    ) -> Watch<T> {
        self.filter(Predicate::updates(passes))
    }

    /// Adds an index to the cache: [`Lister::by_index`](crate::Lister::by_index) finds the objects for which `function`
    /// gives a value, without a look at the others.
    ///
    /// Equal watches share a cache, and its indices: a name stands for one function everywhere. Who means another one by it
    /// does not start. A function, or a closure that captures nothing, is the same wherever it is named. One that captures
    /// something, or a pointer to a function, is the same only in clones of one watch.
    ///
    /// ```
    /// use setpoint::k8s_openapi::api::core::v1::{Node, Pod};
    /// use setpoint::{Action, Context, Controller, ObjectKey, ReconcileError, Watch};
    ///
    /// fn pods() -> Watch<Pod> {
    ///     Watch::new().index("node", |pod: &Pod| {
    ///         pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect()
    ///     })
    /// }
    ///
    /// async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    ///     println!("{key} has {} pods", cx.lister::<Pod>()?.by_index("node", key.name())?.len());
    ///     Ok(Action::done())
    /// }
    ///
    /// # let _ =
    /// Controller::of::<Node>(.., "nodes", reconcile).reads(pods())
    /// # ;
    /// ```
    #[doc(alias = "IndexField")]
    #[doc(alias = "FieldIndexer")]
    pub fn index(
        mut self,
        name: impl Into<String>,
        function: impl Fn(&T) -> Vec<String> + Send + Sync + 'static,
    ) -> Watch<T> {
        self.indices.push((name.into(), IndexFn::new(function)));
        self
    }

    pub(crate) fn indices(&self) -> impl Iterator<Item = (&str, IndexFn<T>)> {
        self.indices.iter().map(|(name, function)| (name.as_str(), function.clone()))
    }

    pub(crate) fn has_index(&self, name: &str) -> bool {
        self.indices.iter().any(|(other, _)| other == name)
    }

    /// Whether its namespaces and labels take an object. (What fields there are, the server knows.)
    pub(crate) fn takes(&self, object: &T) -> bool {
        let meta = object.meta();
        let is_there = match self.namespaces.as_ref().filter(|_| self.kind.is_namespaced) {
            Some(names) if !names.is_empty() && !names.contains("") => {
                meta.namespace.as_ref().is_some_and(|namespace| names.contains(namespace))
            }
            _ => true,
        };
        let labels = meta.labels.as_ref();
        is_there
            && self.labels.iter().all(|selector| match labels {
                Some(labels) => takes(selector, labels),
                None => takes(selector, &BTreeMap::new()),
            })
    }

    pub(crate) fn kind(&self) -> &ScopedResource {
        &self.kind
    }

    pub(crate) fn predicate(&self) -> &Predicate<T> {
        &self.predicate
    }

    /// The informer that it asks for.
    pub(crate) fn builder(&self, client: Client, defaults: &Defaults) -> InformerBuilder<T> {
        let mut builder = (self.make)(client).inherit(defaults);
        if let Some(namespaces) = &self.namespaces {
            builder = builder.in_namespaces(namespaces.iter().cloned());
        }
        if let Some(labels) = joined(&self.labels) {
            builder = builder.label_selector(labels);
        }
        if let Some(fields) = joined(&self.fields) {
            builder = builder.field_selector(fields);
        }
        builder
    }

    pub(crate) fn id(&self) -> WatchId {
        let ApiResource { api_version, plural, .. } = &self.kind.api;
        let namespaces = self.namespaces.as_ref().filter(|_| self.kind.is_namespaced);
        let what = format!("{api_version} {plural} {namespaces:?} {:?} {:?}", self.labels, self.fields);
        WatchId { cached: TypeId::of::<T>(), what }
    }
}

impl<T> Clone for Watch<T> {
    fn clone(&self) -> Watch<T> {
        Watch {
            kind: self.kind.clone(),
            make: self.make.clone(),
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            namespaces: self.namespaces.clone(),
            predicate: self.predicate.clone(),
            indices: self.indices.clone(),
        }
    }
}

/// `pods`, `deployments.apps with labels app=web in a, b`.
impl<T> fmt::Display for Watch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind.name())?;
        for (what, selectors) in [("labels", &self.labels), ("fields", &self.fields)] {
            if let Some(selectors) = joined(selectors) {
                write!(f, " with {what} {selectors}")?;
            }
        }
        match self.namespaces.as_ref().filter(|_| self.kind.is_namespaced) {
            Some(namespaces) if !namespaces.is_empty() => {
                let all: Vec<&str> = namespaces.iter().map(String::as_str).collect();
                write!(f, " in {}", all.join(", "))
            }
            _ => Ok(()),
        }
    }
}

impl<T> fmt::Debug for Watch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch({self})")
    }
}

/// What names a [`Watch`]: one, or `..` for every object of a kind.
pub trait IntoWatch<T> {
    /// The watch.
    fn into_watch(self) -> Watch<T>;
}

impl<T> IntoWatch<T> for Watch<T> {
    fn into_watch(self) -> Watch<T> {
        self
    }
}

impl<T> IntoWatch<T> for &Watch<T> {
    fn into_watch(self) -> Watch<T> {
        self.clone()
    }
}

/// `..` is every object of the kind, as it is every item of a collection.
impl<K: Watchable + Resource<DynamicType = ()>> IntoWatch<K> for RangeFull {
    fn into_watch(self) -> Watch<K> {
        Watch::new()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Node, Pod};

    use super::*;

    #[test]
    fn the_order_of_calls_has_no_meaning() {
        let one = Watch::<Pod>::new().labels("a=b").namespaces(["x", "y"]).labels("c=d").fields("e=f");
        let two =
            Watch::<Pod>::new().fields("e=f").labels("c=d").namespaces(["y"]).labels("a=b").namespaces(["x"]);
        assert_eq!(one.id(), two.id());
        assert_eq!(one.to_string(), "pods with labels a=b,c=d with fields e=f in x, y");
        assert_eq!(one.to_string(), two.to_string());
    }

    #[test]
    fn a_selector_is_the_same_in_one_piece_and_in_several() {
        let one = Watch::<Pod>::new().labels("tier in (b, a), app == web,,").fields(r"a.b=1\,2,c==d");
        let two = Watch::<Pod>::new().labels("app=web").labels("tier in (a,b)").labels("").fields("c=d");
        assert_eq!(one.id(), two.fields(r"a.b=1\,2").id());
        assert_eq!(one.to_string(), r"pods with labels app=web,tier in (a,b) with fields a.b=1\,2,c=d");
    }

    #[test]
    fn namespaces_mean_nothing_for_a_kind_that_is_in_none() {
        let kind = ScopedResource::of::<Node>();
        let (all, some) = (Watch::dynamic(&kind), Watch::dynamic(&kind).namespaces(["a"]));
        assert_eq!((all.id(), all.to_string()), (some.id(), some.to_string()));
        let kind = ScopedResource::of::<Pod>();
        assert_ne!(Watch::dynamic(&kind).id(), Watch::dynamic(&kind).namespaces(["a"]).id());
    }

    #[test]
    fn other_objects_or_another_part_of_them_is_another_watch() {
        let all = Watch::<Pod>::new();
        assert_ne!(all.id(), all.clone().labels("a=b").id());
        assert_ne!(all.id(), all.clone().namespaces(["x"]).id());
        assert_ne!(all.id(), Watch::<Pod>::metadata_only().id());
        assert_eq!(all.id(), all.clone().filter(Predicate::labels_changed()).id(), "the same is cached");
    }
}
