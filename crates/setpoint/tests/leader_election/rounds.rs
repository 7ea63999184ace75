//! A thousand rounds of killing, pausing, partitioning and stopping the leader, with clocks that run at
//! different rates: never two writers, and a new leader in time.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use setpoint::leader_election::{LeaderElection, NotLeader, Term};
use setpoint_env::Task;
use setpoint_env::watch;
use setpoint_sim::{Match, World};

use crate::replica::{Network, Replica, SECOND, config, detached};

const NAMES: [&str; 3] = ["a", "b", "c"];
const ROUNDS: usize = 100;

/// What the server committed, by resourceVersion.
#[derive(Clone, Debug)]
enum Commit {
    Lease { holder: String },
    Write { by: String },
}

type History = Arc<Mutex<Vec<(u64, Commit)>>>;

struct Cluster {
    world: World,
    rates: [f64; 3],
    /// How long a request may be on its way to the server, also after its sender is gone.
    delay: Option<Duration>,
    replicas: [Option<Replica>; 3],
    history: History,
    holder: watch::Receiver<String>,
    refused: Arc<Mutex<usize>>,
    network: Network,
    _observers: [Task<()>; 2],
}

fn observe<K>(world: &World, history: &History, note: impl Fn(&K) -> Commit + Send + 'static) -> Task<()>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + serde::de::DeserializeOwned
        + Clone
        + std::fmt::Debug
        + Send
        + 'static,
{
    let (api, history): (Api<K>, _) = (Api::default_namespaced(world.direct()), history.clone());
    world.env().spawn(async move {
        let mut version = "0".to_owned();
        loop {
            let mut events = api.watch(&WatchParams::default(), &version).await.unwrap().boxed();
            while let Some(event) = events.try_next().await.unwrap() {
                let (WatchEvent::Added(object) | WatchEvent::Modified(object)) = event else { continue };
                version = object.resource_version().unwrap();
                history.lock().push((version.parse().unwrap(), note(&object)));
            }
        }
    })
}

impl Cluster {
    async fn start(world: World, rates: [f64; 3], delay: Option<Duration>) -> Cluster {
        let history = History::default();
        let maps: Api<ConfigMap> = Api::default_namespaced(world.direct());
        let metadata = ObjectMeta { name: Some("state".to_owned()), ..Default::default() };
        let map = ConfigMap { metadata, ..Default::default() };
        maps.create(&PostParams::default(), &map).await.unwrap();
        let (told, holder) = watch::channel(String::new());
        let leases = observe(&world, &history, move |lease: &Lease| {
            let holder =
                lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
            told.send_replace(holder.clone());
            Commit::Lease { holder }
        });
        let writes = observe(&world, &history, |map: &ConfigMap| Commit::Write {
            by: map.data.as_ref().and_then(|data| data.get("by").cloned()).unwrap_or_default(),
        });
        let _observers = [leases, writes];
        let (refused, network, replicas) = (Arc::default(), Network::default(), Default::default());
        let mut cluster =
            Cluster { world, rates, delay, replicas, history, holder, refused, network, _observers };
        (0..3).for_each(|n| cluster.spawn(n));
        cluster
    }

    fn client(&self, n: usize) -> Client {
        let client = self.world.client_named(NAMES[n]);
        if self.delay.is_some() { detached(&self.world, &self.network, client) } else { client }
    }

    fn spawn(&mut self, n: usize) {
        let election = LeaderElection::new(self.client(n), config(NAMES[n])).unwrap();
        let election = election.env(self.world.env().clone()).clock_rate(self.rates[n]);
        let refused = self.refused.clone();
        // With delays, the writer is a task of its own, which goes on while the elector is paused: then there is
        // only the fence between it and the server.
        let env = self.delay.map(|_| self.world.env().clone());
        let work = move |term: Term| {
            let (env, writing) = (env.clone(), write_for_ever(term, NAMES[n], refused.clone()));
            async move {
                match env {
                    Some(env) => env.spawn(writing).await.expect("writing does not panic"),
                    None => writing.await,
                }
            }
        };
        self.replicas[n] = Some(Replica::start(&self.world, election, work));
    }

    /// Waits until somebody leads; gives who.
    async fn leader(&self) -> usize {
        let number = |holder: &String| NAMES.iter().position(|name| name == holder);
        let holder = self.holder.clone().wait_for(|holder| number(holder).is_some()).await.unwrap().clone();
        number(&holder).unwrap()
    }

    /// Waits until another than `n` leads; gives how long that took.
    async fn successor(&self, n: usize) -> Duration {
        let start = self.world.now();
        self.holder.clone().wait_for(|holder| ![NAMES[n], ""].contains(&holder.as_str())).await.unwrap();
        self.world.now() - start
    }

    fn random(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.world.env().random_range(from..=to))
    }

    /// The latest that another takes over: it sees the last renewal after one wait, waits for the lease, and
    /// looks again after one wait; all by the slowest clock. (Timers are as fine as a millisecond.)
    #[expect(clippy::disallowed_methods, reason = "the numbers are the test's own")]
    fn bound(&self) -> Duration {
        let slowest = self.rates.iter().copied().fold(f64::INFINITY, f64::min);
        (15 * SECOND + 2 * 2 * SECOND.mul_f64(2.2)).div_f64(slowest) + SECOND / 200
    }

    async fn round(&mut self) {
        let leader = self.leader().await;
        tokio::time::sleep(self.random(0, 8000)).await;
        match self.world.env().random_range(0..=3) {
            0 => {
                self.replicas[leader] = None;
                self.expect_successor(leader).await;
                self.spawn(leader);
            }
            1 => {
                let pause = self.random(1000, 60_000);
                let replica = self.replicas[leader].as_ref().unwrap();
                replica.pause();
                let (taken, ()) = tokio::join!(self.successor(leader), async {
                    tokio::time::sleep(pause).await;
                    replica.resume();
                    // If it came back in time it goes on; then somebody has to end this round.
                    tokio::time::sleep(5 * SECOND).await;
                    if *self.holder.borrow() == NAMES[leader] {
                        replica.shutdown.cancel();
                    }
                });
                assert!(pause < self.bound() || taken <= self.bound(), "took over after {taken:?}");
                self.spawn(leader);
            }
            2 => {
                // Cut off from everything, or from the lease alone, so that it could still write.
                let requests = Match::any().client(NAMES[leader]);
                let everything = self.world.env().random_range(0..=1) == 0;
                let requests = if everything { requests } else { requests.resource("leases") };
                let cut = self.world.faults().on(requests).drop_request().always();
                self.expect_successor(leader).await;
                tokio::time::sleep(self.random(0, 20_000)).await;
                cut.release();
            }
            _ => {
                self.replicas[leader].as_ref().unwrap().shutdown.cancel();
                self.expect_successor(leader).await;
                self.spawn(leader);
            }
        }
    }

    async fn expect_successor(&self, leader: usize) {
        let taken = self.successor(leader).await;
        assert!(taken <= self.bound(), "took over after {taken:?}, not {:?}", self.bound());
    }

    /// In the order of commits, every write is the holder's.
    fn check(&self) -> (usize, usize) {
        let mut history = self.history.lock().clone();
        history.sort_by_key(|(version, _)| *version);
        let (mut holder, mut writes, mut terms) = (String::new(), 0, 0);
        for (version, commit) in history {
            match commit {
                Commit::Lease { holder: now } => {
                    terms += usize::from(now != holder);
                    holder = now;
                }
                Commit::Write { by } if by.is_empty() => {}
                Commit::Write { by } => {
                    assert_eq!(by, holder, "at {version} {by} wrote while {holder} held the lease");
                    writes += 1;
                }
            }
        }
        (writes, terms)
    }
}

async fn write_for_ever(term: Term, name: &'static str, refused: Arc<Mutex<usize>>) {
    let maps: Api<ConfigMap> = Api::default_namespaced(term.client());
    for n in 0.. {
        let patch = json!({"data": {"by": name, "n": n.to_string()}});
        let written = maps.patch("state", &PatchParams::default(), &Patch::Merge(patch)).await;
        if written.as_ref().is_err_and(|error| NotLeader::find(error).is_some()) {
            *refused.lock() += 1;
        }
        if term.ending().is_cancelled() {
            return;
        }
        tokio::time::sleep(SECOND * 2 / 5).await;
    }
}

fn run(seed: u64, rates: [f64; 3], delay: Option<Duration>) -> (usize, usize) {
    World::run(seed, async |world| {
        if let Some(delay) = delay {
            world.faults().on(Match::writes().resource("configmaps")).delay_request(delay).always();
        }
        let mut cluster = Cluster::start(world, rates, delay).await;
        for _ in 0..ROUNDS {
            cluster.round().await;
        }
        cluster.check()
    })
}

/// Five hundred rounds, a hundred a world.
fn rounds(worlds: [[f64; 3]; 5], delay: Option<Duration>) {
    let (mut writes, mut terms) = (0, 0);
    for (seed, rates) in worlds.into_iter().enumerate() {
        let done = run(seed as u64, rates, delay);
        (writes, terms) = (writes + done.0, terms + done.1);
    }
    assert!(terms >= 500 && writes > 3000, "{terms} terms, {writes} writes");
}

/// The stated bound is 1.5.
#[test]
fn with_clock_rates_up_to_the_bound_there_are_never_two_writers_and_a_successor_comes_in_time() {
    let worlds = [[1.0, 1.0, 1.0], [1.49, 1.0, 1.0], [0.7, 1.0, 1.04], [1.2, 0.81, 0.9], [0.68, 1.0, 1.01]];
    rounds(worlds, None);
}

/// With clocks that differ less, what the fence has cut may still be on its way to the server. The writer runs
/// on when the elector is stuck.
#[test]
fn with_writes_on_their_way_that_outlive_their_sender_there_are_never_two_writers() {
    let worlds = [[1.0, 1.0, 1.0], [0.95, 1.05, 1.0], [1.1, 0.9, 1.0], [1.05, 1.1, 0.95], [1.1, 1.0, 0.9]];
    rounds(worlds, Some(Duration::from_millis(1500)));
}

/// The check itself: beyond the bound it finds two writers.
#[test]
#[should_panic(expected = "held the lease")]
fn clocks_beyond_the_stated_bound_do_give_two_writers() {
    for seed in 0..10 {
        run(seed, [0.5, 1.0, 1.0], None);
    }
}
