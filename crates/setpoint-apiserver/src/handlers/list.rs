//! GET of a collection.

mod gather;
mod token;

use http::Response;

use self::gather::Interrupted;
pub(super) use self::gather::{Listing, gather};
use self::token::Token;
use super::get::wait_until_fresh;
use crate::answer::respond_list;
use crate::options::{ListOptions, VersionMatch};
use crate::request::ResourceRequest;
use crate::response::{Body, add_warnings};
use crate::selection::Selection;
use crate::server::Core;
use crate::status::{Result, Status};
use crate::storage::{Freshness, ListQuery, ReadError};

/// A list of the newest state starts again this often if what it reads is compacted meanwhile.
const TRIES: usize = 3;

pub(crate) async fn handle(core: &Core, request: &ResourceRequest) -> Result<Response<Body>> {
    let options = ListOptions::parse(&request.query, false)?;
    let selection =
        Selection::new(&request.resource, request.namespace.as_deref(), request.name.as_deref(), &options)?;
    let listing = read(core, &options, &selection).await?;
    let mut response = respond_list(request, listing.records, &listing.meta).await?;
    let damaged = core.storage.damaged(request.resource.collection());
    if !damaged.is_empty() {
        let plural = request.resource.plural();
        let warning = |(path, why)| format!("{plural} {path} cannot be decoded and is left out: {why}");
        add_warnings(&mut response, &damaged.into_iter().map(warning).collect::<Vec<_>>());
    }
    Ok(response)
}

/// What the options ask for, in the version of the request.
pub(super) async fn read(core: &Core, options: &ListOptions, selection: &Selection) -> Result<Listing> {
    let query = query(core, options, selection).await?;
    let limit = options.limit.unwrap_or(usize::MAX);
    for tries_left in (0..TRIES).rev() {
        match gather(core, &query, limit, selection).await {
            Ok(listing) => return Ok(listing),
            Err(Interrupted::Read(ReadError::Compacted { .. })) => {
                if tries_left == 0 || matches!(query.fresh, Freshness::Exact(_)) {
                    return Err(expired(options.next.as_deref()));
                }
            }
            Err(other) => return Err(other.into()),
        }
    }
    unreachable!("the last try returns")
}

/// Where to read, and from which state.
async fn query(core: &Core, options: &ListOptions, selection: &Selection) -> Result<ListQuery> {
    let mut query = selection.query();
    if let Some(text) = &options.next {
        if options.resource_version.is_some_and(|version| version > 0) {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let token = Token::parse(text, &query.prefix)?;
        query.fresh = token.revision.map_or(Freshness::Latest, Freshness::Exact);
        query.after = Some(token.after.into());
        query.before = token.before;
        return Ok(query);
    }
    query.fresh = freshness(options);
    if let Freshness::AtLeast(version) | Freshness::Exact(version) = query.fresh {
        wait_until_fresh(core, &query.collection, version).await?;
    }
    Ok(query)
}

/// How fresh the list has to be.
fn freshness(options: &ListOptions) -> Freshness {
    let Some(version) = options.resource_version else { return Freshness::Latest };
    match options.version_match {
        _ if version == 0 => Freshness::Any,
        Some(VersionMatch::Exact) => Freshness::Exact(version),
        Some(VersionMatch::NotOlderThan) => Freshness::AtLeast(version),
        // The beginning of a list in pages, as kube-apiserver has always read it.
        None if options.limit.is_some() => Freshness::Exact(version),
        None => Freshness::AtLeast(version),
    }
}

/// 410 for a page whose revision is compacted: with a token to go on without consistency.
fn expired(token: Option<&str>) -> Status {
    match token {
        None => Status::expired("The resourceVersion for the provided list is too old."),
        Some(token) => Status::page_expired(Token::without_revision(token)),
    }
}
