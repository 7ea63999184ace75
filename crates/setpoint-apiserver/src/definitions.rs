//! CustomResourceDefinitions: what they make the server serve.
//!
//! The definitions are objects like others. [`sync`] reads them, settles their names, and puts a new [`Served`] in
//! place: an immutable picture of all custom resources that requests look things up in. It runs within the request
//! that changes a definition, so that what a client has defined is there when it has its answer, and again in the
//! background ([`upkeep`]) in case that request was cut off.

mod acceptance;
mod api_service;
mod cleanup;
mod column;
mod custom;
mod json_path;
mod served;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use parking_lot::RwLock;
use serde_json::Value;
use tokio::sync::Notify;

use crate::background::Upkeep;
use crate::contention::{Attempts, Deadline};
use crate::object;
use crate::resource::{Registry, Resource};
use crate::server::Core;
use crate::status::{Result, Status};
use crate::storage::{Action, Change, CommitError, Expect, Key, ListQuery, Record, Revision};

pub(crate) use acceptance::{Approval, approval, is_protected};
pub(crate) use api_service::{group_priority, version_priority};
pub(crate) use cleanup::mark;
pub(crate) use custom::{Custom, PART_VERBS, Undecodable, rank};
pub(crate) use served::Served;

/// The custom resources of a server.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    served: RwLock<Arc<Served>>,
    /// Held while definitions are read and a new picture is made: one at a time.
    syncing: tokio::sync::Mutex<Parsed>,
    /// Told when something is left to do in the background.
    wake: Arc<Notify>,
}

/// The definitions as they were read last, by name. What has not changed is not read again, and its resources stay
/// the same, so that watches go on.
type Parsed = BTreeMap<Box<str>, Definition>;

/// One definition.
#[derive(Debug)]
struct Definition {
    revision: Revision,
    object: Value,
    /// Its served versions; none while it is not established.
    resources: Vec<Arc<Resource>>,
}

impl Definitions {
    /// What is served now.
    pub(crate) fn served(&self) -> Arc<Served> {
        Arc::clone(&self.served.read())
    }

    /// A custom resource.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.served.read().find(group, version, plural).cloned()
    }
}

/// The resource of the definitions themselves.
pub(crate) fn resource() -> &'static Arc<Resource> {
    Registry::built_in().expect("apiextensions.k8s.io", "v1", "customresourcedefinitions")
}

/// The old form of definitions, which many manuals still show.
pub(crate) const OLD_VERSION: &str = "apiextensions.k8s.io/v1beta1";
/// What is to be done about it.
pub(crate) const OLD_VERSION_HELP: &str = "apiextensions.k8s.io/v1beta1 is not served, as in Kubernetes since 1.22: use apiextensions.k8s.io/v1. In the \
     manifest, set apiVersion to apiextensions.k8s.io/v1; replace spec.version by spec.versions, a list of \
     {name, served: true, storage: true, schema}; move spec.validation to schema, where openAPIV3Schema is required; \
     move spec.subresources and spec.additionalPrinterColumns (JSONPath is called jsonPath now) into the version.";

/// 404 for a path that leads to no resource.
pub(crate) fn not_served(group: &str, version: &str) -> Status {
    let mut status = Status::no_such_path();
    if OLD_VERSION.split_once('/') == Some((group, version)) {
        status.message = OLD_VERSION_HELP.to_owned();
    }
    status
}

/// Whether a change of this resource changes what is served.
pub(crate) fn concerns(resource: &Resource) -> bool {
    resource.collection() == self::resource().collection()
}

/// Makes the server serve what the stored definitions say.
pub(crate) async fn sync(core: &Core) -> Result<()> {
    // A server that starts must not be kept waiting, not even by the runtime's sense of fairness.
    let mut parsed = match core.definitions.syncing.try_lock() {
        Ok(parsed) => parsed,
        Err(_) => core.definitions.syncing.lock().await,
    };
    let deadline = Deadline::of_server(&core.env);
    let mut attempts = BTreeMap::new();
    loop {
        let objects = read_all(core).await?;
        let is_settled = !accept(core, &objects, &mut attempts).await?;
        if is_settled {
            refresh(core, &mut parsed, objects);
            return api_services(core).await;
        }
        if deadline.check(&core.env).is_err() {
            // Somebody changes definitions all the time: serve what there is, and look again later.
            refresh(core, &mut parsed, objects);
            core.definitions.wake.notify_one();
            return Ok(());
        }
    }
}

/// Keeps the APIServices in step, when what is served has changed.
async fn api_services(core: &Core) -> Result<()> {
    let served = core.definitions.served();
    if served.is_registered() {
        return Ok(());
    }
    api_service::keep(core, &served).await?;
    served.set_registered();
    Ok(())
}

/// A stored definition.
struct Stored {
    record: Arc<Record>,
    object: Value,
}

async fn read_all(core: &Core) -> Result<Vec<Stored>> {
    let query = ListQuery::all(resource().collection());
    let page = core.storage.list(&query).await?;
    let read =
        |record: Arc<Record>| Stored { object: object::decode(&record.value, record.revision), record };
    Ok(page.records.into_iter().map(read).collect())
}

/// Settles names and conditions; whether anything was written, or somebody else wrote.
async fn accept<'a>(
    core: &'a Core,
    all: &[Stored],
    attempts: &mut BTreeMap<Key, Attempts<'a>>,
) -> Result<bool> {
    let mut changed = false;
    for wanted in acceptance::settle(all.iter().map(|stored| &stored.object), core.env.now()) {
        changed = true;
        let record = &all[wanted.index].record;
        let Err(error) = write(core, record, &wanted.object).await else { continue };
        error.into_current()?;
        let key = key_of(record);
        attempts.entry(key.clone()).or_insert_with(|| Attempts::of_server(core, key)).lost().await;
    }
    Ok(changed)
}

fn key_of(record: &Record) -> Key {
    Key { collection: Arc::clone(resource().collection()), path: record.path.clone() }
}

/// Writes a new state of a definition, if it is still what it was.
async fn write(core: &Core, record: &Record, object: &Value) -> Result<Arc<Record>, CommitError> {
    let change = Change {
        key: key_of(record),
        expect: Expect::Revision(record.revision),
        action: Action::Put { value: object::encode(object), ttl: None },
    };
    core.storage.commit(change).await
}

/// Puts a new picture in place. Watches of what has changed or is gone end.
fn refresh(core: &Core, parsed: &mut Parsed, objects: Vec<Stored>) {
    let mut old = std::mem::take(parsed);
    let mut is_new = false;
    for Stored { record, object } in objects {
        let definition = match old.remove(&record.path) {
            Some(known) if known.revision == record.revision => known,
            Some(known) if custom::serves_the_same(&known.object, &object) => {
                let terminating = custom::is_terminating(&object);
                for custom in known.resources.iter().filter_map(|resource| resource.definition()) {
                    is_new |= custom.set_terminating(terminating) != terminating;
                }
                Definition { revision: record.revision, object, resources: known.resources }
            }
            known => {
                is_new = true;
                known.iter().for_each(Definition::end);
                let resources = custom::resources(&object, core.programs.as_ref());
                Definition { revision: record.revision, object, resources }
            }
        };
        parsed.insert(record.path.clone(), definition);
    }
    is_new |= !old.is_empty();
    if is_new {
        let resources = parsed.values().flat_map(|definition| definition.resources.iter().cloned());
        *core.definitions.served.write() = Arc::new(Served::new(resources));
    }
    old.values().for_each(Definition::end);
}

impl Definition {
    /// Ends the watches of its resources.
    fn end(&self) {
        for custom in self.resources.iter().filter_map(|resource| resource.definition()) {
            custom.ended.cancel();
        }
    }
}

/// What is done in the background: syncs that a request did not finish, and the cleaning up after deleted definitions.
pub(crate) fn upkeep(core: &Core) -> Upkeep {
    Upkeep {
        collection: Arc::clone(resource().collection()),
        wake: Arc::clone(&core.definitions.wake),
        tend: |core| tend(core).boxed(),
    }
}

/// Whether something is left to do later.
async fn tend(core: &Core) -> Result<bool> {
    sync(core).await?;
    cleanup::run(core).await
}

impl Definitions {
    /// Lets the background look again at once: something that a deleted definition waits for may be gone.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }
}
