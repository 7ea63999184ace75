//! How the world misbehaves between a client and the server: by script, or by seed.

mod effect;
mod fates;
mod interfere;
mod layer;
mod lines;
mod link;
mod matching;
mod observer;
mod refusal;
mod rule;
mod stream;
mod swarm;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use effect::{Act, Effect, FaultKind, Interference};
pub(crate) use interfere::{Hand, TOUCHED};
pub(crate) use layer::caller;
pub use layer::{Body, FaultLayer, FaultService};
pub use matching::Match;
use parking_lot::Mutex;
pub use refusal::Refusal;
pub use rule::{On, Rule};
use setpoint_env::Env;
pub use swarm::Swarm;
use tokio::sync::watch;

use self::fates::Fates;
use self::link::Link;
use crate::hash::Fnv;
use crate::request::{RequestInfo, Verb};
use crate::trace::{Call, Recorder, Trace, What};

/// The faults of one run: its script, its swarm, and what has fired. Clones are the same faults.
///
/// A request meets every rule that matches it, in the order in which they were made, and then what the
/// [`Swarm`] has chosen for it. The first one that answers in the server's place, or breaks the connection,
/// ends it.
#[derive(Clone, Debug)]
pub struct Faults {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    seed: u64,
    rules: Mutex<Vec<Rule>>,
    swarm: Mutex<Option<ActiveSwarm>>,
    requests: Mutex<BTreeMap<Arc<str>, u64>>,
    fired: Mutex<Vec<Fired>>,
    link: Link,
    fates: Fates,
    hand: OnceLock<Hand>,
    /// Clients whose lists of a resource from any version show an old one.
    travellers: Mutex<BTreeMap<(Arc<str>, String), u64>>,
    recorder: Recorder,
}

#[derive(Clone, Debug)]
struct ActiveSwarm {
    swarm: Swarm,
    released: Arc<watch::Sender<bool>>,
}

/// A fault that took place.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Fired {
    /// Virtual time since the start of the run.
    pub at: Duration,
    /// The client that it happened to.
    pub client: Arc<str>,
    /// The number of the request among this client's requests, from 1.
    pub number: u64,
    /// The request that it happened to.
    pub request: Arc<RequestInfo>,
    /// What happened.
    pub effect: Effect,
    prose: String,
}

impl Fired {
    /// A match for just this request: with [`On::inject`] a fault that a seed chose becomes a line of a script.
    pub fn matching(&self) -> Match {
        Match::any().client(&self.client).nth(self.number)
    }
}

/// `lost the response of POST configmaps/default/a after it was committed`.
impl fmt::Display for Fired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.prose)
    }
}

impl Faults {
    /// No faults yet. Times in the trace follow `env`; `seed` is what a [`Swarm`] chooses by.
    pub fn new(env: Env, seed: u64) -> Faults {
        Faults {
            inner: Arc::new(Inner {
                seed,
                rules: Mutex::default(),
                swarm: Mutex::default(),
                requests: Mutex::default(),
                fired: Mutex::default(),
                link: Link::up(),
                fates: Fates::new(env.clone()),
                hand: OnceLock::new(),
                travellers: Mutex::default(),
                recorder: Recorder::new(env),
            }),
        }
    }

    /// Begins a rule of the script: `faults.on(Match::watch("pods")).cut_after_events(3)`.
    pub fn on(&self, matching: Match) -> On {
        On::new(self.clone(), matching)
    }

    /// Lets the seed choose faults from now on; a second swarm replaces the first.
    pub fn swarm(&self, swarm: Swarm) {
        let active = ActiveSwarm { swarm, released: Arc::default() };
        if let Some(former) = self.inner.swarm.lock().replace(active) {
            former.released.send_replace(true);
        }
    }

    /// The heal point: withdraws every rule and the swarm, and lets go what is held back. From here on the
    /// world behaves, and a test may ask for liveness. A delay that has begun still takes its time, and a
    /// request that met [`Effect::Silence`] stays unanswered.
    pub fn heal(&self) {
        if let Some(swarm) = self.inner.swarm.lock().take() {
            swarm.released.send_replace(true);
        }
        for rule in self.inner.rules.lock().iter() {
            rule.release();
        }
        self.inner.travellers.lock().clear();
    }

    /// The faults that took place, in order.
    pub fn fired(&self) -> Vec<Fired> {
        self.inner.fired.lock().clone()
    }

    /// Checks that every rule of the script has fired as often as it says (`always`: at least once), so that a
    /// test cannot pass because its faults missed.
    ///
    /// # Panics
    /// When a rule has fired less often; the message lists these rules.
    #[track_caller]
    pub fn assert_all_fired(&self) {
        let unfired: Vec<_> = self.inner.rules.lock().iter().filter_map(Rule::unfired).collect();
        assert!(unfired.is_empty(), "fault rules that did not fire:\n  {}", unfired.join("\n  "));
    }

    /// A layer that puts these faults between the client called `client` and a server.
    pub fn layer(&self, client: &str) -> FaultLayer {
        FaultLayer::new(self.clone(), client, layer::Mode::Faulty)
    }

    /// A layer that only writes the trace: no fault and no stop of the server is felt through it.
    pub fn observer(&self, client: &str) -> FaultLayer {
        FaultLayer::new(self.clone(), client, layer::Mode::Direct)
    }

    /// What has happened so far.
    pub fn trace(&self) -> Trace {
        self.inner.recorder.trace()
    }

    /// Stops the server: requests under way and streams are reset, new connections are refused.
    pub fn stop_server(&self) {
        self.inner.link.stop();
    }

    /// Lets new connections in again.
    pub fn start_server(&self) {
        self.inner.link.start();
    }

    /// Who does what [`Effect::Interfere`] says. Without one nothing happens.
    pub(crate) fn set_hand(&self, hand: Hand) {
        let _set_before = self.inner.hand.set(hand);
    }

    /// Lets lists of this client that ask for any version (`resourceVersion=0`) of this resource show what there was at
    /// `revision`: a legal server may have a cache that is so old.
    pub(crate) fn travel_back(&self, client: &str, resource: &str, revision: u64) {
        self.inner.travellers.lock().insert((client.into(), resource.to_owned()), revision);
    }

    /// The URI of a list of a client that is shown an old state.
    fn old(&self, client: &Arc<str>, request: &RequestInfo) -> Option<http::Uri> {
        let revision = *self.inner.travellers.lock().get(&(client.clone(), request.group_resource()))?;
        if request.verb != Verb::List || request.query("resourceVersion") != Some("0") {
            return None;
        }
        let exact = format!("resourceVersion={revision}&resourceVersionMatch=Exact");
        let (path, query) = request.path.split_once('?')?;
        let kept = query.split('&').filter(|pair| !pair.starts_with("resourceVersion"));
        let query: Vec<&str> = kept.chain([exact.as_str()]).collect();
        format!("{path}?{}", query.join("&")).parse().ok()
    }

    async fn interfere(&self, interference: &Interference, request: &RequestInfo) {
        if let Some(hand) = self.inner.hand.get() {
            hand.interfere(interference, request).await;
        }
    }

    /// Virtual time since the start of the run.
    pub(crate) fn now(&self) -> Duration {
        self.inner.recorder.now()
    }

    fn add(&self, matching: Match, effect: Effect) -> Rule {
        let rule = Rule::new(matching, effect, Arc::default());
        self.inner.rules.lock().push(rule.clone());
        rule
    }

    /// Numbers and records a request.
    fn begin(&self, client: &Arc<str>, request: RequestInfo, body: &[u8]) -> Call {
        let number = {
            let mut requests = self.inner.requests.lock();
            let number = requests.entry(Arc::clone(client)).or_default();
            *number += 1;
            *number
        };
        let call = Call { client: Arc::clone(client), number, request: Arc::new(request) };
        self.inner.recorder.record(&call, What::Sent { body: Fnv::of(body) });
        call
    }

    /// Everything that may happen to a request, in order.
    fn arm(&self, call: &Call) -> Vec<Rule> {
        let rules = self.inner.rules.lock().clone();
        let mut armed: Vec<_> =
            rules.into_iter().filter(|rule| rule.meets(&call.client, &call.request)).collect();
        let swarm = self.inner.swarm.lock().clone();
        if let Some(ActiveSwarm { swarm, released }) = swarm {
            let effects = swarm.draw(self.inner.seed, &call.client, call.number, &call.request);
            armed.extend(
                effects.into_iter().map(|effect| Rule::new(Match::any(), effect, Arc::clone(&released))),
            );
        }
        armed
    }

    /// Takes a shot of the rule for this request and writes it down. `status` is the server's answer, if any.
    fn fire(&self, rule: &Rule, call: &Call, status: Option<u16>) -> bool {
        if !rule.take_shot() {
            return false;
        }
        let (effect, prose) = (rule.effect().clone(), effect::prose(rule.effect(), &call.request, status));
        self.inner.recorder.record(call, What::Fault(prose.clone()));
        let Call { client, number, request } = call.clone();
        self.inner.fired.lock().push(Fired { at: self.now(), client, number, request, effect, prose });
        true
    }
}
