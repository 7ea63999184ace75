//! Power cuts, failing syncs and full disks at random, one after the other on the same store.
//!
//! `SETPOINT_POWER_CUTS=1000 cargo test -p setpoint-apiserver --lib power_cuts` does more of them; `SETPOINT_POWER_SEED`
//! repeats a run, which prints its seed.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use setpoint_env::Env;

use super::super::{Limits, Storage};
use super::Redb;
use super::crash_consistency::{COLLECTION, Clients, SHORT, open};
use super::faulty_disk::{Disk, coin};

/// A small generator, so that a run can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    /// Some clients that write at once: to which paths, and whether what is there shall be deleted.
    fn batch(&mut self) -> BTreeMap<u8, bool> {
        let size = 1 + self.below(7);
        (0..size).map(|_| (u8::try_from(self.below(12)).unwrap(), self.below(3) == 0)).collect()
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("it is a number"))
}

/// What a client saw last, and goes on from.
struct Watcher {
    position: u64,
}

impl Watcher {
    /// Either it is told everything since then, or that it has to list again.
    fn resume(&mut self, store: &Redb, clients: &Clients) {
        if let Ok(mut watch) = store.watch(&COLLECTION.into(), self.position) {
            let mut told = BTreeMap::new();
            loop {
                let batch = watch.ready().unwrap();
                told.extend(
                    batch.events.iter().map(|event| (event.revision(), event.record.path.to_string())),
                );
                if !batch.more {
                    break;
                }
            }
            for (revision, (path, _)) in clients.acknowledged.range(self.position + 1..) {
                assert_eq!(told.get(revision), Some(path), "after {}", self.position);
            }
        }
        self.position = store.revision();
    }
}

async fn round(
    disk: &Disk,
    limits: Limits,
    random: &mut Random,
    clients: &mut Clients,
    watcher: &mut Watcher,
) {
    let store = open(disk, limits).await;
    clients.check(&store).await;
    watcher.resume(&store, clients);
    let (from, batches) = (random.below(60), 1 + random.below(10));
    let may_go_on = match random.below(4) {
        // The power goes in the middle of a commit.
        0 => {
            disk.fail(from..usize::MAX, ErrorKind::Other);
            false
        }
        1 => {
            disk.fail_syncs(1 + random.below(2), if random.below(2) == 0 { 0 } else { random.0 | 1 });
            false
        }
        2 => {
            disk.fail(from..from + 1 + random.below(30), ErrorKind::StorageFull);
            true
        }
        _ => true,
    };
    for _ in 0..batches {
        let stored = clients.write(&store, &random.batch()).await;
        assert!(stored || may_go_on || store.failure().is_some(), "nothing is stored after a failure");
    }
    drop(store);
    let mut luck = random.0;
    match random.below(3) {
        0 => disk.cut_power(|| false),
        1 => disk.cut_power(|| true),
        _ => disk.cut_power(|| coin(&mut luck)),
    }
}

#[tokio::test]
#[allow(clippy::print_stdout, reason = "who wants to repeat it needs the seed")]
async fn nothing_acknowledged_is_lost_by_power_cuts_and_no_revision_is_used_twice() {
    let cuts = number("SETPOINT_POWER_CUTS").unwrap_or(50);
    let seed = number("SETPOINT_POWER_SEED").unwrap_or_else(|| Env::system().random_range(0..=u64::MAX));
    println!("SETPOINT_POWER_CUTS={cuts} SETPOINT_POWER_SEED={seed}");
    let mut random = Random(seed);
    let limits = if random.below(2) == 0 { SHORT } else { Limits { events: 200, ..SHORT } };
    let disk = Disk::default();
    let (mut clients, mut watcher) = (Clients::default(), Watcher { position: 1 });
    for _ in 0..cuts {
        round(&disk, limits, &mut random, &mut clients, &mut watcher).await;
    }
    let store = open(&disk, limits).await;
    clients.check(&store).await;
    println!("at revision {}", store.revision());
}
