//! Writes: transactions that compare the revision of a key, and read it if it is another.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Compare, CompareOp, GetResponse, PutOptions, Txn, TxnOp, TxnOpResponse};

use super::super::{Action, Change, CommitError, Expect, Key, NotStored, Record, Revision};
use super::stats::Operation;
use super::{Shared, connection, revision_of};

/// How long an answer waits for the copy, so that whoever has it reads what they wrote.
const OWN: Duration = Duration::from_secs(1);

impl Shared {
    pub(super) async fn commit(&self, change: Change) -> Result<Arc<Record>, CommitError> {
        let Change { key, expect, action } = change;
        let expected = match expect {
            Expect::Absent => 0,
            Expect::Revision(revision) => revision,
        };
        let place = self.place(&key);
        match action {
            Action::Put { value, ttl } => {
                let encoded = self.layout.encode(&key, &value).map_err(|why| refused(&place, &why))?;
                if let Some(record) = self.unchanged(&key, expected, &encoded).filter(|_| ttl.is_none()) {
                    return Ok(record);
                }
                let lease = match ttl {
                    Some(ttl) => {
                        let lease = self.call(Operation::Lease, || self.leases.lease(ttl)).await;
                        Some(lease.map_err(|failed| self.not_stored(&failed.why))?)
                    }
                    None => None,
                };
                let options = lease.map(|lease| PutOptions::new().with_lease(lease));
                let put = TxnOp::put(place.clone(), encoded, options);
                let operation = if expected == 0 { Operation::Create } else { Operation::Update };
                let revision = self.transact(operation, &key, place, expected, put).await?;
                Ok(Arc::new(Record::new(key.path, revision, value)))
            }
            Action::Delete => {
                let before = self.before(&key, expected).await?;
                let delete = TxnOp::delete(place.clone(), None);
                let revision = self.transact(Operation::Delete, &key, place, expected, delete).await?;
                Ok(Arc::new(Record::new(key.path, revision, before.value.clone())))
            }
        }
    }

    /// The record that is there already, if the value is what etcd has.
    fn unchanged(&self, key: &Key, expected: Revision, encoded: &[u8]) -> Option<Arc<Record>> {
        let known = self.view.read(|state| state.find(key).cloned());
        let known = known.filter(|record| record.revision == expected)?;
        (self.layout.encode(key, &known.value).ok()? == encoded).then_some(known)
    }

    /// The record that is about to be removed.
    async fn before(&self, key: &Key, expected: Revision) -> Result<Arc<Record>, CommitError> {
        let known = self.view.read(|state| state.find(key).cloned());
        if let Some(record) = known.filter(|record| record.revision == expected) {
            return Ok(record);
        }
        let found = self.get(key, None).await.map_err(|error| not_stored(&error.to_string()))?;
        match found.record {
            Some(record) if record.revision == expected => Ok(record),
            current => Err(CommitError::Conflict { current }),
        }
    }

    /// Does it if the key was last changed at `expected`, and waits until the copy shows it. The revision of the change.
    async fn transact(
        &self,
        operation: Operation,
        key: &Key,
        place: String,
        expected: Revision,
        change: TxnOp,
    ) -> Result<Revision, CommitError> {
        let compare = Compare::mod_revision(place.clone(), CompareOp::Equal, expected.cast_signed());
        let txn = Txn::new().when([compare]).and_then([change]).or_else([TxnOp::get(place, None)]);
        let answer = self.call(operation, || {
            let mut kv = self.client.kv_client().max_decoding_message_size(connection::LONGEST);
            let txn = txn.clone();
            async move { kv.txn(txn).await }
        });
        let answer = answer.await.map_err(|failed| self.not_stored(&failed.why))?;
        if answer.succeeded() {
            let revision = revision_of(answer.header());
            // Later it is still written, and only the copy is late.
            let _late = tokio::time::timeout(OWN, self.view.reached(revision)).await;
            return Ok(revision);
        }
        let found = answer.op_responses().into_iter().find_map(|response| match response {
            TxnOpResponse::Get(found) => Some(found),
            _ => None,
        });
        Err(CommitError::Conflict { current: found.and_then(|found| self.current(key, &found)) })
    }

    fn not_stored(&self, why: &str) -> CommitError {
        not_stored(&format!("etcd at {}: {why}", self.endpoints))
    }

    fn current(&self, key: &Key, found: &GetResponse) -> Option<Arc<Record>> {
        let found = found.kvs().first()?;
        let value = match self.layout.decode(key, found.value()) {
            Ok(value) => value,
            Err(why) => {
                self.damage.note(key.clone(), &why);
                return None;
            }
        };
        Some(Arc::new(Record::new(key.path.clone(), found.mod_revision().cast_unsigned(), value)))
    }
}

fn not_stored(why: &str) -> CommitError {
    NotStored { why: why.into(), is_full: false, refused: None }.into()
}

fn refused(place: &str, why: &str) -> CommitError {
    not_stored(&format!("{place} cannot be encoded: {why}"))
}
