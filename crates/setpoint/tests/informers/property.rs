//! Random histories, faults, relists and handlers: the cache is always what the server was at the watermark,
//! and what a handler was told always adds up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use setpoint::{
    Deleted, Env, EventHandler, HandlerOptions, Held, ReflectorConfig, Registration, Scope, SharedInformer,
    is_resync,
};

use super::history::{Fault, History, Objects};
use super::script::{builder, settle};

/// A handler that knows the cache only from what it is told, and checks that this adds up.
#[derive(Clone, Default)]
struct Witness {
    view: Arc<Mutex<Objects>>,
    calls: Arc<Mutex<Vec<String>>>,
    /// What did not add up. (A panic would be caught by the informer.)
    complaints: Arc<Mutex<Vec<String>>>,
    /// How many more calls it takes; `None` for any number.
    patience: Arc<Mutex<(Option<u64>, Option<Waker>)>>,
}

fn parts(object: &ConfigMap) -> (String, (String, u64)) {
    let metadata = &object.metadata;
    let version = metadata.resource_version.as_deref().unwrap().parse().unwrap();
    (metadata.name.clone().unwrap(), (metadata.uid.clone().unwrap(), version))
}

impl Witness {
    fn set_patience(&self, calls: Option<u64>) {
        let mut patience = self.patience.lock();
        patience.0 = calls;
        patience.1.take().iter().for_each(Waker::wake_by_ref);
    }

    fn expect(&self, holds: bool, complaint: &str) {
        if !holds {
            let call = self.calls.lock().last().cloned();
            self.complaints.lock().push(format!("{complaint}: {call:?}"));
        }
    }

    fn note(&self, call: String) {
        self.calls.lock().push(call);
        let mut patience = self.patience.lock();
        patience.0 = patience.0.map(|calls| calls.saturating_sub(1));
    }
}

impl EventHandler<ConfigMap> for Witness {
    fn on_add(&self, object: &Held<ConfigMap>, is_initial: bool) {
        let (name, state) = parts(object);
        self.note(format!("add {name} {state:?} {is_initial}"));
        let told = self.view.lock().insert(name, state);
        self.expect(told.is_none(), "an add of what was there");
    }

    fn on_update(&self, old: &Held<ConfigMap>, new: &Held<ConfigMap>) {
        let ((name, before), (_, after)) = (parts(old), parts(new));
        self.note(format!("update {name} {before:?} {after:?}"));
        self.expect(before.0 == after.0, "an update to another object");
        self.expect(before.1 < after.1 || is_resync(old, new), "an update to an older state");
        let told = self.view.lock().insert(name, after);
        self.expect(told == Some(before), "an update whose old state was not the last one told");
    }

    fn on_delete(&self, deleted: &Deleted<ConfigMap>) {
        let (name, (uid, _)) = parts(&deleted.object);
        self.note(format!("delete {name} {uid} {}", deleted.is_tombstone));
        let told = self.view.lock().remove(&name);
        self.expect(told.map(|(uid, _)| uid) == Some(uid), "a deletion of what was not there");
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut patience = self.patience.lock();
        patience.1 = Some(context.waker().clone());
        if patience.0 == Some(0) { Poll::Pending } else { Poll::Ready(()) }
    }
}

struct World {
    random: Env,
    history: History,
    informer: SharedInformer<ConfigMap>,
    handlers: Vec<(Registration, Witness)>,
    largest: usize,
    transcript: Vec<String>,
}

impl World {
    fn new(seed: u64) -> World {
        let random = Env::seeded(seed);
        let (history, client) = History::new();
        let config = ReflectorConfig {
            streaming: seed.is_multiple_of(2),
            page_size: 3,
            queue_capacity: 1 + (seed % 7) as usize,
            ..ReflectorConfig::default()
        };
        let informer = builder(client).env(Env::seeded(seed + 1)).config(config).build();
        World { random, history, informer, handlers: Vec::new(), largest: 0, transcript: Vec::new() }
    }

    fn dice(&self, sides: u64) -> u64 {
        self.random.random_range(0..=sides - 1)
    }

    fn add_handler(&mut self) {
        let witness = Witness::default();
        if self.dice(3) == 0 {
            witness.set_patience(Some(self.dice(5)));
        }
        let resync = (self.dice(2) == 0).then(|| Duration::from_secs(1 + self.dice(20)));
        let options = HandlerOptions { resync, name: None };
        self.handlers.push((self.informer.add_handler_with(witness.clone(), options), witness));
    }

    async fn step(&mut self) {
        let name = format!("o{}", self.dice(8));
        match self.dice(32) {
            0..=8 => self.history.with(|state| state.put(&name)),
            9..=12 => self.history.with(|state| state.delete(&name)),
            13 | 14 => self.history.with(|state| {
                state.delete(&name);
                state.put(&name);
            }),
            15 => self.history.with(|state| state.bookmark()),
            16 | 17 => {
                let how = self.dice(3);
                self.history.with(|state| state.break_watches(how));
            }
            18 => self.history.with(|state| {
                state.compact();
                state.break_watches(1);
            }),
            19 => self.history.with(|state| state.expire_watches()),
            20 => {
                let fault =
                    [Fault::Refused, Fault::TooMany, Fault::Internal, Fault::Html][self.dice(4) as usize];
                let in_stream = self.dice(2) == 0;
                self.history.with(|state| {
                    state.faults.push(fault);
                    state.expire_in_stream = in_stream;
                });
            }
            21 | 22 if self.handlers.len() < 5 => self.add_handler(),
            23 if !self.handlers.is_empty() => {
                let which = self.dice(self.handlers.len() as u64) as usize;
                self.handlers.remove(which).0.remove().await;
            }
            24 | 25 if !self.handlers.is_empty() => {
                let which = self.dice(self.handlers.len() as u64) as usize;
                let patience = (self.dice(2) == 0).then(|| self.dice(6));
                self.handlers[which].1.set_patience(patience);
            }
            26 | 27 => tokio::time::sleep(Duration::from_millis(self.dice(40_000))).await,
            28 => tokio::time::sleep(Duration::from_millis(self.dice(500))).await,
            29 | 30 => settle().await,
            _ => tokio::task::yield_now().await,
        }
    }

    /// Holds at every moment.
    fn check_always(&mut self) {
        let (cached, watermark) = self.informer.lister().view(|view| {
            let cached: Objects = view.list().iter().map(|object| parts(object)).collect();
            (
                cached,
                view.watermark(&Scope::Cluster).map(|version| version.to_string().parse::<u64>().unwrap()),
            )
        });
        self.largest = self.largest.max(cached.len());
        match watermark {
            Some(version) => {
                self.history.with(|state| assert_eq!(cached, state.past[&version], "at {version}"))
            }
            None => assert!(cached.is_empty()),
        }
        for (registration, witness) in &self.handlers {
            assert!(witness.complaints.lock().is_empty(), "{:?}", witness.complaints.lock());
            let backlog = registration.backlog();
            assert!(backlog <= 2 * self.largest, "{backlog} notices for at most {} objects", self.largest);
        }
    }

    /// When faults end and handlers take what they are given, everything agrees.
    async fn check_quiet(&mut self) {
        self.history.with(|state| state.faults.clear());
        self.handlers.iter().for_each(|(_, witness)| witness.set_patience(None));
        let version = self.history.with(|state| state.version);
        let caught_up = async {
            loop {
                self.history.with(|state| state.bookmark());
                let version = version.to_string().as_str().into();
                let reached = self.informer.wait_for_version(&Scope::Cluster, &version);
                if tokio::time::timeout(Duration::from_secs(60), reached).await.is_ok() {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(3600), caught_up).await.expect("the cache catches up");
        settle().await;
        self.check_always();
        let objects = self.history.with(|state| state.objects.clone());
        let cached: BTreeMap<_, _> =
            self.informer.lister().list().iter().map(|object| parts(object)).collect();
        assert_eq!(cached, objects);
        for (registration, witness) in &self.handlers {
            assert!(registration.has_synced());
            assert_eq!(registration.backlog(), 0);
            assert_eq!(*witness.view.lock(), objects);
        }
    }

    async fn run(mut self, steps: usize) -> Vec<String> {
        for _ in 0..self.dice(6) {
            let name = format!("o{}", self.dice(8));
            self.history.with(|state| state.put(&name));
        }
        if self.dice(2) == 0 {
            self.add_handler();
        }
        self.informer.start();
        for step in 0..steps {
            self.step().await;
            self.check_always();
            if step % 25 == 24 {
                self.check_quiet().await;
            }
        }
        self.check_quiet().await;
        for (number, (_, witness)) in self.handlers.iter().enumerate() {
            let calls = witness.calls.lock();
            self.transcript.extend(calls.iter().map(|call| format!("handler {number}: {call}")));
        }
        self.history.with(|state| self.transcript.append(&mut state.log));
        self.transcript
    }
}

/// Runs a world on a runtime of its own; a failure names its seed.
fn run(seed: u64, steps: usize) -> Vec<String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        runtime.block_on(async { World::new(seed).run(steps).await })
    }));
    result.unwrap_or_else(|_| panic!("seed {seed} failed"))
}

#[test]
fn the_cache_is_the_server_at_the_watermark_and_every_handler_sees_it() {
    for seed in 0..300 {
        run(seed, 150);
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..20 {
        let (one, two) = (run(seed, 100), run(seed, 100));
        assert_eq!(one, two, "seed {seed}");
        assert!(one.len() > 5);
    }
}
