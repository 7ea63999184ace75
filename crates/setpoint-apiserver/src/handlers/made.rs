//! Objects that an extension server makes when somebody asks.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use serde_json::Value;
use setpoint_kinds::Verb;

use crate::answer::{Answer, Payload, respond_list};
use crate::extension::{Asked, Source};
use crate::object::{self, ListMeta};
use crate::options::ListOptions;
use crate::request::ResourceRequest;
use crate::response::Body;
use crate::selection::Selection;
use crate::server::Core;
use crate::status::{Result, Status};
use crate::storage::{Record, Revision};

/// How many objects one answer is made of.
const MOST: usize = 1_000_000;

pub(crate) async fn handle(
    core: &Core,
    source: &Arc<dyn Source>,
    request: &ResourceRequest,
) -> Result<Response<Body>> {
    let asked = Asked { user: Arc::clone(&request.user), namespace: request.namespace.clone() };
    let revision = core.storage.revision();
    match request.verb {
        Verb::Get => {
            let made = source.get(&asked, request.name()).await?;
            let not_found = || Status::not_found(request.resource.group_resource(), request.name());
            let record = record(request, &made.ok_or_else(not_found)?, revision);
            Answer::ok(Payload::Stored(record)).respond(request)
        }
        Verb::List => {
            let options = ListOptions::parse(&request.query, false)?;
            let (namespace, name) = (request.namespace.as_deref(), request.name.as_deref());
            let selection = Selection::new(&request.resource, namespace, name, &options)?;
            let made = source.list(&asked).await?;
            if made.len() > MOST {
                return Err(Status::internal(format!("there are more than {MOST} objects")));
            }
            let mut records: Vec<Arc<Record>> =
                made.iter().map(|object| record(request, object, revision)).collect();
            records.retain(|record| selection.matches(record));
            records.sort_by(|one, other| one.path.cmp(&other.path));
            // All of them are one page: they are another moment's when the next one is asked for.
            let meta = ListMeta { revision, next: None, remaining: None };
            respond_list(request, records, &meta).await
        }
        _ => Err(Status::method_not_allowed()),
    }
}

/// An object as if it were kept.
fn record(request: &ResourceRequest, made: &Value, revision: Revision) -> Arc<Record> {
    let text = |field: &str| made["metadata"][field].as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text("namespace"), text("name"));
    let path = if request.resource.is_namespaced() { format!("{namespace}/{name}") } else { name };
    let value: Bytes = object::encode(made);
    Arc::new(Record::new(path.into(), revision, value))
}
