//! Giving up old revisions, which etcd would otherwise keep for ever.
//!
//! As in kube-apiserver: in each interval the server that first changes a well-known key compacts what was the newest
//! revision one interval ago. So however many servers there are, and of whichever kind, one of them does it.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Compare, CompareOp, Txn, TxnOp, TxnOpResponse};

use super::super::Revision;
use super::stats::Operation;
use super::{Shared, revision_of};

/// The key is not below the prefix of objects.
const KEY: &str = "compact_rev_key";

pub(super) async fn run(shared: Arc<Shared>, interval: Duration) {
    let (mut version, mut revision) = (0, 0);
    loop {
        tokio::time::sleep(interval).await;
        match turn(&shared, version, revision).await {
            Ok(next) => (version, revision) = next,
            Err(why) => tracing::warn!(why = &*why, "cannot compact old revisions of etcd"),
        }
    }
}

/// Compacts up to a revision if the key has not been changed since. The version of the key, and what to compact next time.
async fn turn(shared: &Shared, version: i64, revision: Revision) -> Result<(i64, Revision), Arc<str>> {
    let compare = Compare::version(KEY, CompareOp::Equal, version);
    let put = TxnOp::put(KEY, revision.to_string(), None);
    let txn = Txn::new().when([compare]).and_then([put]).or_else([TxnOp::get(KEY, None)]);
    let answer = shared.call(Operation::Compact, || {
        let (mut kv, txn) = (shared.client.kv_client(), txn.clone());
        async move { kv.txn(txn).await }
    });
    let answer = answer.await.map_err(|failed| failed.why)?;
    let newest = revision_of(answer.header());
    if !answer.succeeded() {
        let found = answer.op_responses().into_iter().find_map(|response| match response {
            TxnOpResponse::Get(found) => found.kvs().first().map(etcd_client::KeyValue::version),
            _ => None,
        });
        return Ok((found.unwrap_or(0), newest));
    }
    // The first time nobody knows what is old.
    if revision > 0 {
        let compact = shared.call(Operation::Compact, || {
            let mut kv = shared.client.kv_client();
            async move { kv.compact(revision.cast_signed(), None).await }
        });
        compact.await.map_err(|failed| failed.why)?;
        shared.measured.compacted();
    }
    Ok((version + 1, newest))
}
