//! GET of a collection.

mod token;

use std::sync::Arc;

use http::Response;

use self::token::Token;
use super::get::wait_until_fresh;
use crate::answer::respond_list;
use crate::convert;
use crate::object::ListMeta;
use crate::options::{ListOptions, VersionMatch};
use crate::request::ResourceRequest;
use crate::response::Body;
use crate::selection::Selection;
use crate::server::Core;
use crate::status::{Result, Status};
use crate::storage::{ListQuery, ReadError, Record};

pub(crate) async fn handle(core: &Core, request: &ResourceRequest) -> Result<Response<Body>> {
    let options = ListOptions::parse(&request.query, false)?;
    let selection =
        Selection::new(&request.resource, request.namespace.as_deref(), request.name.as_deref(), &options)?;
    let listing = list(core, request, &options, &selection).await?;
    let records = convert::webhook::records(core, &request.resource, listing.records).await?;
    respond_list(request, records, &listing.meta).await
}

struct Listing {
    records: Vec<Arc<Record>>,
    meta: ListMeta,
}

async fn list(
    core: &Core,
    request: &ResourceRequest,
    options: &ListOptions,
    selection: &Selection,
) -> Result<Listing> {
    let mut query = ListQuery {
        limit: options.limit,
        ..ListQuery::all(request.resource.collection()).under(selection.prefix())
    };
    if let Some(text) = &options.next {
        if options.resource_version.is_some_and(|version| version > 0) {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let token = Token::parse(text, &query.prefix)?;
        query.after = Some(token.after.into());
        query.at = token.revision;
    } else if let Some(version) = options.resource_version.filter(|version| *version > 0) {
        wait_until_fresh(core, version).await?;
        if options.version_match == Some(VersionMatch::Exact) {
            query.at = Some(version);
        }
    }
    collect(core, query, selection).await.map_err(|error| match error {
        ReadError::Compacted { .. } => expired(options.next.as_deref()),
        other => other.into(),
    })
}

/// Reads on until there are as many selected records as asked for.
async fn collect(core: &Core, mut query: ListQuery, selection: &Selection) -> Result<Listing, ReadError> {
    let limit = query.limit.unwrap_or(usize::MAX);
    let whole = selection.is_whole_prefix();
    let mut records: Vec<Arc<Record>> = Vec::new();
    loop {
        let mut page = core.storage.list(&query).await?;
        let last = page.records.last().map(|record| record.path.clone());
        if !whole {
            page.records.retain(|record| selection.matches(record));
        }
        if records.is_empty() {
            records = page.records;
        } else {
            records.append(&mut page.records);
        }
        let more = page.remaining > 0;
        if more && records.len() < limit {
            // The selectors left room: the next read is of the same state, and of no more than fits.
            query.at = Some(page.revision);
            query.after = last;
            query.limit = Some(limit - records.len());
            continue;
        }
        let next = last
            .filter(|_| more)
            .map(|path| Token { revision: Some(page.revision), after: path.into() }.to_text(&query.prefix));
        let remaining = (whole && more).then_some(page.remaining);
        return Ok(Listing { records, meta: ListMeta { revision: page.revision, next, remaining } });
    }
}

/// 410 for a page whose revision is compacted: with a token to go on without consistency.
fn expired(token: Option<&str>) -> Status {
    match token {
        None => Status::expired("The resourceVersion for the provided list is too old."),
        Some(token) => Status::page_expired(Token::without_revision(token)),
    }
}
