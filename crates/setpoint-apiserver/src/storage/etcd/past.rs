//! Lists at a revision that the copy does not have: read from etcd, page by page.

use std::sync::Arc;

use etcd_client::{GetOptions, GetResponse};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::super::{Chunk, ListQuery, ReadError, Record, Revision, Scan};
use super::cache::end_of;
use super::stats::Operation;
use super::{Shared, connection};

/// How many objects are read at once at most.
const PAGE: usize = 500;

pub(super) struct PastScan {
    shared: Arc<Shared>,
    revision: Revision,
    /// Where to read on.
    from: Vec<u8>,
    end: Vec<u8>,
    /// How the places of the collection begin.
    folder: String,
    /// What was read to see whether the revision is there.
    first: Option<Chunk>,
    visited: usize,
}

impl PastScan {
    pub(super) async fn open(
        shared: Arc<Shared>,
        query: &ListQuery,
        revision: Revision,
    ) -> Result<Box<dyn Scan>, ReadError> {
        let folder = format!("{}{}", shared.root, shared.layout.folder(&query.collection));
        let prefix = format!("{folder}{}", query.prefix);
        let from = match &query.after {
            Some(after) => [folder.as_bytes(), after.as_bytes(), b"\0"].concat(),
            None => prefix.clone().into_bytes(),
        };
        let mut scan =
            PastScan { shared, revision, from, end: end_of(&prefix), folder, first: None, visited: 0 };
        scan.first = Some(scan.read(1).await?);
        Ok(Box::new(scan))
    }

    async fn read(&mut self, limit: usize) -> Result<Chunk, ReadError> {
        let limit = limit.clamp(1, PAGE);
        let options = GetOptions::new()
            .with_range(self.end.clone())
            .with_revision(self.revision.cast_signed())
            .with_limit(i64::try_from(limit).unwrap_or(i64::MAX));
        let answer = self.shared.call(Operation::List, || {
            let mut kv = self.shared.client.kv_client().max_decoding_message_size(connection::LONGEST);
            let (from, options) = (self.from.clone(), options.clone());
            async move { kv.get(from, Some(options)).await }
        });
        let answer = answer.await.map_err(|failed| match failed.is_compacted {
            true => ReadError::Compacted { asked: self.revision, floor: self.revision },
            false => self.shared.unavailable(&failed.why),
        })?;
        if let Some(last) = answer.kvs().last() {
            self.from = [last.key(), b"\0"].concat();
        }
        self.visited += answer.kvs().len();
        let remaining = usize::try_from(answer.count()).unwrap_or(0).saturating_sub(answer.kvs().len());
        Ok(Chunk {
            records: self.records(&answer),
            end: !answer.more(),
            remaining: answer.more().then_some(remaining),
        })
    }

    /// What cannot be decoded is left out, as from the copy.
    fn records(&self, answer: &GetResponse) -> Vec<Arc<Record>> {
        let known = |record: &Arc<Record>, key: &super::Key| {
            let current = self.shared.view.read(|state| state.find(key).cloned());
            current.filter(|current| current.revision == record.revision)
        };
        let mut records = Vec::with_capacity(answer.kvs().len());
        for found in answer.kvs().iter().filter(|found| found.key().starts_with(self.folder.as_bytes())) {
            let Some(key) = self.shared.key_at(found.key()) else { continue };
            let Ok(value) = self.shared.layout.decode(&key, found.value()) else { continue };
            let revision = found.mod_revision().cast_unsigned();
            let record = Arc::new(Record::new(key.path.clone(), revision, value));
            records.push(known(&record, &key).unwrap_or(record));
        }
        records
    }
}

impl Scan for PastScan {
    fn revision(&self) -> Revision {
        self.revision
    }

    fn next(&mut self, limit: usize) -> BoxFuture<'_, Result<Chunk, ReadError>> {
        async move {
            match self.first.take() {
                Some(first) => Ok(first),
                None => self.read(limit).await,
            }
        }
        .boxed()
    }

    fn visited(&self) -> usize {
        self.visited
    }
}
