//! GET of one object.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use setpoint_env::Later;

use crate::answer::{Answer, Payload};
use crate::convert;
use crate::options::get_resource_version;
use crate::request::ResourceRequest;
use crate::response::Body;
use crate::server::Core;
use crate::status::{Result, Status};
use crate::storage::{Key, Record, Revision};

/// How long a read waits for the store to reach the revision that the client has seen.
const FRESHNESS: Duration = Duration::from_secs(3);

pub(crate) async fn handle(core: &Core, request: &ResourceRequest) -> Result<Response<Body>> {
    if let Some(revision) = get_resource_version(&request.query)? {
        wait_until_fresh(core, revision).await?;
    }
    let record = find(core, request).await?;
    let record = convert::webhook::record(core, &request.resource, record).await?;
    Answer::ok(Payload::Stored(record)).respond(request)
}

/// The object that the request names, or 404.
pub(crate) async fn find(core: &Core, request: &ResourceRequest) -> Result<Arc<Record>> {
    let resource = &request.resource;
    let key = resource.key(request.namespace.as_deref(), request.name());
    read(core, &key).await?.ok_or_else(|| Status::not_found(resource.group_resource(), request.name()))
}

/// The record at a key, if there is one.
pub(crate) async fn read(core: &Core, key: &Key) -> Result<Option<Arc<Record>>> {
    Ok(core.storage.get(key).await.map_err(Status::from)?.record)
}

/// Waits a little for a revision that the client knows of but this server does not yet. A client that has
/// talked to another server over the same store may be ahead; one that names the future is told so.
pub(crate) async fn wait_until_fresh(core: &Core, revision: Revision) -> Result<()> {
    let deadline = core.env.instant().later(FRESHNESS);
    while core.storage.revision() < revision {
        if core.env.instant() >= deadline {
            return Err(Status::version_too_large(revision, core.storage.revision()));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
