//! How much memory the ring of facts takes when it is full.

use anyhow::Result;
use setpoint::{Facts, ObjectKey, WorkQueue};

use crate::measure::status;

/// A round of a key is told in three facts at least.
const ROUNDS: usize = Facts::MOST;

/// Fills the ring with what a queue tells, and prints what it takes.
pub(crate) async fn run() -> Result<()> {
    let facts = Facts::default();
    let queue = WorkQueue::builder().facts("bench", &facts).build();
    let keys: Vec<_> = (0..1000).map(|n| ObjectKey::from(format!("default/object-{n}").as_str())).collect();
    let work = async |rounds: usize| {
        for n in 0..rounds {
            queue.add(keys[n % keys.len()].clone());
            if let Some(item) = queue.get().await {
                item.done();
            }
        }
    };
    work(ROUNDS).await;
    let before = status("VmRSS");
    let mut heard = facts.subscribe();
    work(ROUNDS).await;
    let after = status("VmRSS");
    let (mut kept, mut bytes) = (0_usize, 0_usize);
    while let Some(fact) = heard.try_next() {
        kept += 1;
        bytes += fact.size();
    }
    println!(
        "{kept} facts, {} KiB by their own count, {} KiB more memory",
        bytes / 1024,
        after.saturating_sub(before)
    );
    Ok(())
}
