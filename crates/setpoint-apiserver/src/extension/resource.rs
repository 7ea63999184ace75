//! Objects that the author of an extension server keeps, or makes when somebody asks.

use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use kube::Resource as KubeResource;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Asked, Failure, Verbs};

/// A Rust type that can be served as a kind.
pub trait Object:
    KubeResource<DynamicType = ()> + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static
{
}

impl<K> Object for K where
    K: KubeResource<DynamicType = ()> + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static
{
}

/// The objects of a kind, and where they are: in a database, in another program, nowhere.
///
/// Only [`list`](Resource::list) has to be written. Selectors, pages, tables, metadata alone and `get` are made of it; patches and
/// server-side apply of [`update`](Resource::update), `deletecollection` of [`delete`](Resource::delete). What a client sends is decoded,
/// defaulted and validated before it comes here.
pub trait Resource: Send + Sync + 'static {
    /// The kind.
    type Object: Object;

    /// What clients can do: name what you have written.
    const VERBS: Verbs = Verbs::READ;

    /// All objects in the namespace that is asked for.
    fn list(&self, asked: &Asked) -> impl Future<Output = Result<Listed<Self::Object>, Failure>> + Send;

    /// One object, if there is one. It is looked for in the list unless you know better.
    fn get(
        &self,
        asked: &Asked,
        name: &str,
    ) -> impl Future<Output = Result<Option<Self::Object>, Failure>> + Send {
        async move {
            let all = self.list(asked).await?.items;
            Ok(all.into_iter().find(|object| object.meta().name.as_deref() == Some(name)))
        }
    }

    /// Keeps a new object, and returns it as it is kept: with its `resourceVersion`, if your objects have one. It has a name,
    /// a uid and a creation time already. If the name is taken: [`Failure::already_exists`].
    fn create(
        &self,
        _asked: &Asked,
        _object: Self::Object,
    ) -> impl Future<Output = Result<Self::Object, Failure>> + Send {
        std::future::ready(Err(Failure::method_not_allowed()))
    }

    /// Keeps a new state of an object. Its `resourceVersion` is that of the state that it was made from: if it is not the newest
    /// any more, the answer is [`Failure::conflict`], and the change is made again.
    fn update(
        &self,
        _asked: &Asked,
        _object: Self::Object,
    ) -> impl Future<Output = Result<Self::Object, Failure>> + Send {
        std::future::ready(Err(Failure::method_not_allowed()))
    }

    /// Removes an object. This is its last state; its `resourceVersion` counts as in [`update`](Resource::update). An object with
    /// finalizers is updated first, and comes here when they are gone.
    fn delete(
        &self,
        _asked: &Asked,
        _object: Self::Object,
    ) -> impl Future<Output = Result<(), Failure>> + Send {
        std::future::ready(Err(Failure::method_not_allowed()))
    }

    /// Everything that happens after a version, which is that of a [list](Listed::at) or of a change that was told: in order, and each
    /// change once. If it is not known any more what happened since then, the stream begins with [`Failure::expired`].
    /// Changes in other namespaces and of objects that are not selected are left out by the server. The stream is
    /// read as fast as its client reads, and dropped when the client goes. When it ends, clients begin another one.
    fn watch(&self, _asked: &Asked, _after: u64) -> Changes<Self::Object> {
        stream::once(std::future::ready(Err(Failure::method_not_allowed()))).boxed()
    }
}

/// A feed of changes.
pub type Changes<K> = BoxStream<'static, Result<Change<K>, Failure>>;

/// One change. An object in it has the `resourceVersion` of the change, greater than all before.
#[derive(Clone, Debug)]
pub enum Change<K> {
    /// The object is new.
    Added(K),
    /// The object has changed. What it was before tells who has to hear that it does not match a selector any more.
    Modified {
        /// What it was before.
        old: K,
        /// What it is now.
        new: K,
    },
    /// The object is gone; this was its last state.
    Deleted(K),
    /// Nothing else has happened up to this version.
    Bookmark(u64),
}

/// The objects of a list.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listed<K> {
    /// In any order.
    pub items: Vec<K>,
    /// The version that all of them are at, if there are versions.
    pub version: Option<u64>,
}

impl<K> Listed<K> {
    /// The state at a version, which a watch can begin at. Versions are greater than zero.
    #[must_use]
    pub fn at(version: u64, items: Vec<K>) -> Listed<K> {
        Listed { items, version: Some(version) }
    }
}

impl<K> From<Vec<K>> for Listed<K> {
    fn from(items: Vec<K>) -> Listed<K> {
        Listed { items, version: None }
    }
}
