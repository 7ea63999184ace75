//! What is registered in a collection, parsed once and kept until the collection changes.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use crate::object;
use crate::resource::Resource;
use crate::server::Core;
use crate::status::Result;
use crate::storage::{ListQuery, Watch};

/// The objects of one collection as something that is made of all of them. It costs one comparison while
/// nothing changes, and is right in the very next request when something did.
#[derive(Default)]
pub(crate) struct Registered<T> {
    state: Mutex<Option<(Watch, Arc<T>)>>,
}

impl<T> Registered<T> {
    /// What `build` makes of the objects, in order of their names.
    pub(crate) async fn current(
        &self,
        core: &Core,
        resource: &Resource,
        build: impl FnOnce(Vec<Value>) -> T,
    ) -> Result<Arc<T>> {
        if let Some((watch, built)) = &*self.state.lock()
            && !watch.has_changed()
        {
            return Ok(Arc::clone(built));
        }
        let query = ListQuery::all(resource.collection());
        let page = core.storage.list(&query).await?;
        let mut watch = core.storage.watch(resource.collection(), page.revision)?;
        // Whatever came after the list is seen as a change by the next request.
        let changed = !watch.ready()?.events.is_empty();
        let objects = page.records.iter().map(|record| object::decode(&record.value, record.revision));
        let built = Arc::new(build(objects.collect()));
        *self.state.lock() = (!changed).then(|| (watch, Arc::clone(&built)));
        Ok(built)
    }
}
