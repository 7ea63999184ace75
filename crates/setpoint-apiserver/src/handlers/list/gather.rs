//! One pass over the candidates of a list.

use std::sync::Arc;

use super::token::Token;
use crate::object::ListMeta;
use crate::selection::Selection;
use crate::server::Core;
use crate::status::Status;
use crate::storage::{ListQuery, ReadError, Record};

/// How many candidates are looked at before others get their turn, and the time limit of the request is heeded.
const CHUNK: usize = 256;

/// The selected records, in the version of the request.
pub(in crate::handlers) struct Listing {
    pub(in crate::handlers) records: Vec<Arc<Record>>,
    pub(in crate::handlers) meta: ListMeta,
}

/// Why there is no listing.
pub(in crate::handlers) enum Interrupted {
    Read(ReadError),
    /// The candidates could not be converted.
    Refused(Status),
}

impl From<ReadError> for Interrupted {
    fn from(error: ReadError) -> Interrupted {
        Interrupted::Read(error)
    }
}

impl From<Interrupted> for Status {
    fn from(interrupted: Interrupted) -> Status {
        match interrupted {
            Interrupted::Read(error) => error.into(),
            Interrupted::Refused(status) => status,
        }
    }
}

/// Reads on until there are as many selected records as asked for.
pub(in crate::handlers) async fn gather(
    core: &Core,
    query: &ListQuery,
    limit: usize,
    selection: &Selection,
) -> Result<Listing, Interrupted> {
    let mut scan = core.storage.scan(query).await?;
    let is_whole = selection.is_whole_prefix();
    let mut records: Vec<Arc<Record>> = Vec::new();
    let mut after = query.after.clone();
    let mut size = limit;
    loop {
        let wanted = limit - records.len();
        // With selectors nobody knows how many candidates it takes. A short page begins with few, so that few are looked at
        // in vain.
        size = if is_whole { wanted.min(CHUNK) } else { size.clamp(1, CHUNK) };
        let chunk = scan.next(size).await?;
        after = chunk.records.last().map(|record| record.path.clone()).or(after);
        let mut selected = selection.select(core, chunk.records).await.map_err(Interrupted::Refused)?;
        let mut more = !chunk.end;
        if selected.len() > wanted {
            selected.truncate(wanted);
            after = selected.last().map(|record| record.path.clone());
            more = true;
        }
        if records.is_empty() {
            records = selected;
        } else {
            records.append(&mut selected);
        }
        if more && records.len() < limit {
            size = size.saturating_mul(2);
            tokio::task::yield_now().await;
            continue;
        }
        core.metrics.listed(selection.resource(), scan.visited(), records.len());
        let revision = scan.revision();
        let before = query.before.filter(|_| is_whole).map(|before| before.saturating_add(records.len()));
        let next = after.filter(|_| more).map(|path| {
            // What has no revision goes on at the newest state.
            let revision = (revision != 0).then_some(revision);
            Token { revision, after: path.into(), before }.to_text(&query.prefix)
        });
        let remaining = chunk.remaining.filter(|_| is_whole && more);
        return Ok(Listing { records, meta: ListMeta { revision, next, remaining } });
    }
}
