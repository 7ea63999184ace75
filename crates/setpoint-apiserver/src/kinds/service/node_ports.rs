//! Which node ports are taken: one object with a bit for each port of the range, as kube-apiserver keeps it.
//!
//! A port is taken before its service is written, and given back after it is gone. A server that dies in between leaves a
//! bit that nobody owns; whoever wants that port later finds out, and takes it over.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_env::Later;

use super::allocation::ports_of;
use crate::contention::Attempts;
use crate::handlers::get::read;
use crate::object;
use crate::resource::Resource;
use crate::server::Core;
use crate::status::{Result, Status};
use crate::storage::{Action, Change, Expect, Key, ListQuery, Record};

/// The ports of the range.
pub(super) const PORTS: RangeInclusive<u64> = 30000..=32767;
/// After so long a service that was about to be written has been, or never will be.
const AGE: Duration = Duration::from_secs(60);
/// Where each port was a record of its own, in stores of older versions.
const OLDER: &str = "ranges/servicenodeports";

/// Ports that are taken though no service has them, and since when that is known.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    since: Mutex<BTreeMap<u64, Timestamp>>,
}

impl Orphans {
    /// Whether this has been one for long.
    fn is_old(&self, port: u64, now: Timestamp) -> bool {
        let since = *self.since.lock().entry(port).or_insert(now);
        since.later(AGE) <= now
    }

    fn forget(&self, port: u64) {
        self.since.lock().remove(&port);
    }
}

fn key() -> Key {
    Key { collection: "ranges".into(), path: "servicenodeports".into() }
}

/// The ports that are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    /// The object, but for its bits.
    object: Value,
    /// The bit of the first port is the lowest one of the first byte.
    bits: Vec<u8>,
}

impl Range {
    fn new() -> Range {
        let object = json!({"metadata": {}, "range": format!("{}-{}", PORTS.start(), PORTS.end())});
        Range { object, bits: Vec::new() }
    }

    fn read(record: &Record) -> Result<Range> {
        let object: Value = serde_json::from_slice(&record.value).map_err(Status::internal)?;
        if object["range"] != Range::new().object["range"] {
            return Err(Status::internal("the provided range does not match the current range"));
        }
        // A number of as many bytes as it takes, the highest first.
        let mut bits =
            STANDARD.decode(object["data"].as_str().unwrap_or_default()).map_err(Status::internal)?;
        bits.reverse();
        Ok(Range { object, bits })
    }

    fn to_value(&self) -> bytes::Bytes {
        let used = self.bits.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let number: Vec<u8> = self.bits[..used].iter().rev().copied().collect();
        let mut object = self.object.clone();
        object["data"] = STANDARD.encode(number).into();
        serde_json::to_vec(&object).expect("JSON values always serialise into memory").into()
    }

    fn has(&self, port: u64) -> bool {
        place(port).is_some_and(|(byte, bit)| self.bits.get(byte).is_some_and(|bits| bits & bit != 0))
    }

    fn set(&mut self, port: u64, is_taken: bool) {
        let Some((byte, bit)) = place(port) else { return };
        if self.bits.len() <= byte {
            self.bits.resize(byte + 1, 0);
        }
        if is_taken {
            self.bits[byte] |= bit;
        } else {
            self.bits[byte] &= !bit;
        }
    }
}

/// The byte and the bit of a port of the range.
fn place(port: u64) -> Option<(usize, u8)> {
    let offset = PORTS.contains(&port).then(|| port - PORTS.start())?;
    Some((usize::try_from(offset / 8).ok()?, 1 << (offset % 8)))
}

/// Takes a port; false if somebody has it.
pub(super) async fn take(core: &Core, services: &Resource, port: u64) -> Result<bool> {
    let taken = change(core, services, |range| {
        let is_free = !range.has(port);
        range.set(port, true);
        is_free
    });
    if taken.await? {
        core.node_ports.forget(port);
        return Ok(true);
    }
    // Whoever has a bit that is nobody's has it now.
    is_orphan(core, services, port).await
}

/// Whether a port can be had, without taking it.
pub(super) async fn is_free(core: &Core, services: &Resource, port: u64) -> Result<bool> {
    let range = match read(core, &key()).await? {
        Some(record) => Range::read(&record)?,
        None => first(core, services).await?,
    };
    Ok(!range.has(port))
}

/// Gives ports back.
pub(super) async fn release(core: &Core, services: &Resource, ports: &[u64]) {
    if ports.is_empty() {
        return;
    }
    let released = change(core, services, |range| {
        let had = ports.iter().any(|port| range.has(*port));
        ports.iter().for_each(|port| range.set(*port, false));
        had
    });
    if let Err(error) = released.await {
        tracing::warn!(?ports, %error, "cannot release node ports; the next service that needs them takes them over");
    }
}

/// Changes the object, again and again until it is stored; false if there was nothing to do.
async fn change(
    core: &Core,
    services: &Resource,
    mut change: impl FnMut(&mut Range) -> bool,
) -> Result<bool> {
    let mut attempts = Attempts::of_server(core, key());
    let mut current = attempts.first().await?;
    loop {
        let (mut range, expect) = match &current {
            Some(record) => (Range::read(record)?, Expect::Revision(record.revision)),
            None => (first(core, services).await?, Expect::Absent),
        };
        if !change(&mut range) {
            return Ok(false);
        }
        let action = Action::Put { value: range.to_value(), ttl: None };
        match core.storage.commit(Change { key: key(), expect, action }).await {
            Ok(_) => return Ok(true),
            Err(error) => error.into_current()?,
        };
        current = attempts.next().await?;
    }
}

/// What the services have, where nobody has written it down yet.
async fn first(core: &Core, services: &Resource) -> Result<Range> {
    let mut range = Range::new();
    for port in used(core, services).await? {
        range.set(port, true);
    }
    for record in core.storage.list(&ListQuery::all(&OLDER.into())).await?.records {
        let key = Key { collection: OLDER.into(), path: record.path.clone() };
        let change = Change { key, expect: Expect::Revision(record.revision), action: Action::Delete };
        // Somebody else does the same.
        let _ = core.storage.commit(change).await;
    }
    Ok(range)
}

/// The ports of all services.
async fn used(core: &Core, services: &Resource) -> Result<Vec<u64>> {
    let records = core.storage.list(&ListQuery::all(services.collection())).await?.records;
    let spec = |record: &Record| ports_of(&object::decode(&record.value, record.revision)["spec"]);
    Ok(records.iter().flat_map(|record| spec(record)).collect())
}

/// Whether a port that is taken has been nobody's for long.
async fn is_orphan(core: &Core, services: &Resource, port: u64) -> Result<bool> {
    if used(core, services).await?.contains(&port) {
        core.node_ports.forget(port);
        return Ok(false);
    }
    let is_old = core.node_ports.is_old(port, core.env.now());
    if is_old {
        core.node_ports.forget(port);
    }
    Ok(is_old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_are_a_number_as_go_writes_it() {
        let mut range = Range::new();
        for (port, data) in [(30000, "AQ=="), (30007, "gQ=="), (30008, "AYE="), (30086, "QAAAAAAAAAAAAYE=")] {
            range.set(port, true);
            let value = range.to_value();
            let object: Value = serde_json::from_slice(&value).unwrap();
            assert_eq!(
                (object["data"].as_str(), object["range"].as_str()),
                (Some(data), Some("30000-32767"))
            );
            let read = Range::read(&Record::new("x".into(), 1, value)).unwrap();
            assert_eq!(read.bits, range.bits);
            assert!(read.has(port) && !read.has(port + 1));
        }
        range.set(30086, false);
        let object: Value = serde_json::from_slice(&range.to_value()).unwrap();
        assert_eq!(object["data"], "AYE=");
        assert!(!range.has(29999) && !range.has(40000));
    }
}
