//! The copy of etcd in memory: read once, then kept up to date by one watch of everything.
//!
//! A watch that breaks is begun again where it ended. If etcd does not have the changes since any more, everything is read
//! again, and whoever watches has to do the same (410).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use etcd_client::{Event, EventType, GetOptions, KeyValue, WatchOptions, WatchResponse};

use super::super::state::State;
use super::super::write::{Effect, Write};
use super::super::{Key, Record, Revision};
use super::stats::Operation;
use super::{Health, Shared, connection, revision_of};

/// How many objects are read at once.
const PAGE: i64 = 500;
/// After so much silence etcd is asked whether it is still there.
const SILENCE: Duration = Duration::from_secs(5);
/// After so much silence it is not.
const GONE: Duration = Duration::from_secs(15);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Why a watch has ended.
enum End {
    /// The changes since are not all there.
    Gap(Arc<str>),
    Lost(Arc<str>),
}

/// Follows etcd for ever.
pub(super) async fn follow(shared: Arc<Shared>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let began = shared.env.instant();
        let from = shared.view.read(State::revision) + 1;
        let why = match watch(&shared, from).await {
            End::Gap(why) => {
                tracing::warn!(why = &*why, "missed changes in etcd; reading everything again");
                shared.lost(&why);
                load_patiently(&shared).await;
                continue;
            }
            End::Lost(why) => why,
        };
        tracing::warn!(why = &*why, "the watch of etcd has ended; resuming it");
        shared.lost(&why);
        if shared.env.instant().duration_since(began) > LONGEST_PAUSE {
            pause = FIRST_PAUSE;
        }
        tokio::time::sleep(shared.env.jitter(pause, 0.5)).await;
        pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
    }
}

/// Reads everything, until it works.
pub(super) async fn load_patiently(shared: &Shared) {
    let mut pause = FIRST_PAUSE;
    while let Err(why) = load(shared).await {
        tracing::warn!(why = &*why, "cannot read etcd yet; retrying");
        shared.lost(&why);
        tokio::time::sleep(pause).await;
        pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
    }
}

/// Reads everything at one revision.
async fn load(shared: &Shared) -> Result<(), Arc<str>> {
    let end = end_of(&shared.root);
    let (mut from, mut revision) = (shared.root.clone().into_bytes(), 0);
    let mut records = Vec::new();
    shared.damage.clear();
    loop {
        let options = GetOptions::new().with_range(end.clone()).with_limit(PAGE);
        let options = options.with_revision(i64::try_from(revision).unwrap_or(0));
        let page = shared.call(Operation::List, || {
            let mut kv = shared.client.kv_client().max_decoding_message_size(connection::LONGEST);
            let (from, options) = (from.clone(), options.clone());
            async move { kv.get(from, Some(options)).await }
        });
        let page = page.await.map_err(|failed| failed.why)?;
        if revision == 0 {
            revision = revision_of(page.header());
        }
        records.extend(page.kvs().iter().filter_map(|found| shared.record_of(found)));
        let Some(last) = page.kvs().last().filter(|_| page.more()) else { break };
        from = [last.key(), b"\0"].concat();
    }
    shared.view.write(|state| state.reset(revision, records));
    shared.health.send_replace(Health::Following);
    Ok(())
}

/// The first key after all that begin with this.
pub(super) fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        // A slash, or what comes after a name: never the last of all bytes.
        *last = last.saturating_add(1);
    }
    end
}

/// Applies every change from a revision on, for as long as etcd tells them.
async fn watch(shared: &Shared, from: Revision) -> End {
    let options = WatchOptions::new()
        .with_prefix()
        .with_start_revision(from.cast_signed())
        .with_prev_key()
        .with_progress_notify();
    let stream = shared.call(Operation::Watch, || {
        let mut client = shared.client.watch_client().max_decoding_message_size(connection::LONGEST);
        let options = options.clone();
        async move { client.watch(shared.root.clone(), Some(options)).await }
    });
    let (mut requests, mut answers) = match stream.await {
        Ok(stream) => stream.split(),
        Err(failed) => return End::Lost(failed.why),
    };
    let mut heard = shared.env.instant();
    loop {
        let asks = tokio::select! {
            biased;
            answer = answers.message() => match answer {
                Ok(Some(answer)) => {
                    heard = shared.env.instant();
                    if let Err(end) = take_in(shared, &answer) {
                        return end;
                    }
                    false
                }
                Ok(None) => return End::Lost("etcd has ended it".into()),
                Err(error) => return End::Lost(connection::explain(&error).into()),
            },
            () = shared.progress.notified() => true,
            () = tokio::time::sleep(SILENCE) => true,
        };
        if shared.env.instant().duration_since(heard) > GONE {
            return End::Lost("etcd is silent".into());
        }
        if asks && let Err(error) = requests.request_progress().await {
            return End::Lost(connection::explain(&error).into());
        }
    }
}

fn take_in(shared: &Shared, answer: &WatchResponse) -> Result<(), End> {
    if answer.canceled() {
        let why: Arc<str> = answer.cancel_reason().into();
        return Err(if answer.compact_revision() > 0 { End::Gap(why) } else { End::Lost(why) });
    }
    if answer.created() {
        shared.health.send_replace(Health::Following);
        return Ok(());
    }
    shared.measured.heard(revision_of(answer.header()), shared.env.instant());
    if answer.events().is_empty() {
        // Everything up to here has been told.
        let revision = revision_of(answer.header());
        shared.view.write(|state| state.pass(revision));
    } else {
        apply(shared, answer.events())?;
    }
    shared.measured.applied(shared.view.read(State::revision), shared.env.instant());
    Ok(())
}

/// What one event does to a record.
enum Step {
    Put(Key, Arc<Record>),
    /// The value as etcd had it, in case that we do not.
    Delete(Key, Option<Bytes>),
}

fn apply(shared: &Shared, events: &[Event]) -> Result<(), End> {
    let mut revisions: Vec<(Revision, Vec<Step>)> = Vec::new();
    for event in events {
        let Some(found) = event.kv() else { continue };
        let revision = found.mod_revision().cast_unsigned();
        if revisions.last().is_none_or(|(last, _)| *last != revision) {
            revisions.push((revision, Vec::new()));
        }
        if let (Some(step), Some((_, steps))) = (shared.step_of(event, found), revisions.last_mut()) {
            steps.push(step);
        }
    }
    shared.view.write(|state| {
        for (revision, steps) in revisions {
            if revision <= state.revision() {
                return Err(End::Gap(format!("revision {revision} came after a newer one").into()));
            }
            let writes: Vec<Write> =
                steps.into_iter().filter_map(|step| write_of(state, revision, step)).collect();
            state.apply_at(revision, writes);
        }
        state.trim(|_, _| {});
        Ok(())
    })
}

fn write_of(state: &State, revision: Revision, step: Step) -> Option<Write> {
    match step {
        Step::Put(key, record) => Some(Write { key, record, effect: Effect::Put { expires: None } }),
        Step::Delete(key, before) => {
            let value = state.find(&key).map(|record| record.value.clone()).or(before)?;
            let record = Arc::new(Record::new(key.path.clone(), revision, value));
            Some(Write { key, record, effect: Effect::Delete })
        }
    }
}

impl Shared {
    pub(super) fn lost(&self, why: &str) {
        self.measured.lost();
        self.health.send_replace(Health::Lost(why.into()));
    }

    /// The record that etcd has at a key, if it is one that can be read.
    fn record_of(&self, found: &KeyValue) -> Option<(Key, Arc<Record>)> {
        let key = self.key_at(found.key())?;
        match self.layout.decode(&key, found.value()) {
            Ok(value) => {
                let revision = found.mod_revision().cast_unsigned();
                let record = Arc::new(Record::new(key.path.clone(), revision, value));
                Some((key, record))
            }
            Err(why) => {
                self.damage.note(key, &why);
                None
            }
        }
    }

    fn step_of(&self, event: &Event, found: &KeyValue) -> Option<Step> {
        let key = self.key_at(found.key())?;
        if event.event_type() == EventType::Delete {
            self.damage.mended(&key);
            let before = event.prev_kv().and_then(|before| self.layout.decode(&key, before.value()).ok());
            return Some(Step::Delete(key, before));
        }
        match self.record_of(found) {
            Some((key, record)) => {
                self.damage.mended(&key);
                Some(Step::Put(key, record))
            }
            // For readers it is gone, until somebody writes it again.
            None => self.view.read(|state| state.find(&key).is_some()).then_some(Step::Delete(key, None)),
        }
    }
}
