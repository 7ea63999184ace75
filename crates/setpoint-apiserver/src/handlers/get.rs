//! GET of one object.

use std::sync::Arc;
use std::time::Duration;

use http::Response;

use crate::answer::{Answer, Payload};
use crate::convert;
use crate::options::get_resource_version;
use crate::request::ResourceRequest;
use crate::response::Body;
use crate::server::Core;
use crate::status::{Result, Status};
use crate::storage::{Freshness, Key, Record, Revision};

/// How long a read waits for the store to reach the revision that the client has seen.
const FRESHNESS: Duration = Duration::from_secs(3);

pub(crate) async fn handle(core: &Core, request: &ResourceRequest) -> Result<Response<Body>> {
    let fresh = match get_resource_version(&request.query)? {
        None => Freshness::Latest,
        Some(0) => Freshness::Any,
        Some(revision) => {
            wait_until_fresh(core, request.resource.collection(), revision).await?;
            Freshness::AtLeast(revision)
        }
    };
    let record = find_as_fresh(core, request, fresh).await?;
    let record = convert::webhook::record(core, &request.resource, record).await?;
    Answer::ok(Payload::Stored(record)).respond(request)
}

/// The object that the request names, or 404.
pub(crate) async fn find(core: &Core, request: &ResourceRequest) -> Result<Arc<Record>> {
    find_as_fresh(core, request, Freshness::Latest).await
}

async fn find_as_fresh(core: &Core, request: &ResourceRequest, fresh: Freshness) -> Result<Arc<Record>> {
    let resource = &request.resource;
    let key = resource.key(request.namespace.as_deref(), request.name());
    let found = core.storage.get(&key, fresh).await?;
    found.record.ok_or_else(|| Status::not_found(resource.group_resource(), request.name()))
}

/// The record at a key, if there is one.
pub(crate) async fn read(core: &Core, key: &Key) -> Result<Option<Arc<Record>>> {
    Ok(core.storage.get(key, Freshness::Latest).await?.record)
}

/// The record that this server knows of, or the one in the store if it knows of none. It may be a moment old, like those of
/// kube-apiserver's informers: for questions that each request asks, and that must be answered while a store elsewhere is away.
pub(crate) async fn known(core: &Core, key: &Key) -> Result<Option<Arc<Record>>> {
    if let Ok(found) = core.storage.get(key, Freshness::Any).await
        && found.record.is_some()
    {
        return Ok(found.record);
    }
    read(core, key).await
}

/// Waits a little for a revision that the client knows of but this server does not yet. A client that has
/// talked to another server over the same store may be ahead; one that names the future is told so.
pub(crate) async fn wait_until_fresh(core: &Core, collection: &str, revision: Revision) -> Result<()> {
    if core.storage.is_foreign(collection) || core.storage.revision() >= revision {
        return Ok(());
    }
    let reached = tokio::time::timeout(FRESHNESS, core.storage.reached(revision)).await;
    reached.map_err(|_| Status::version_too_large(revision, core.storage.revision()))
}
