//! How the world misbehaves between a client and the server: by script, or by seed.

mod effect;
mod fates;
mod interfere;
mod layer;
mod lines;
mod link;
mod matching;
mod observer;
mod pace;
mod refusal;
mod rule;
mod script;
mod stream;
mod swarm;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
pub use effect::{Act, Effect, FaultKind, Interference};
use http_body_util::Full;
pub(crate) use interfere::Hand;
#[cfg(feature = "world")]
pub(crate) use interfere::TOUCHED;
#[cfg(feature = "world")]
pub(crate) use layer::caller;
pub use layer::{Body, FaultLayer, FaultService};
pub use matching::Match;
use parking_lot::Mutex;
pub use refusal::Refusal;
pub use rule::{On, Rule};
pub use script::{Script, ScriptError};
use setpoint_env::Env;
use setpoint_env::watch;
pub use swarm::Swarm;

use self::fates::Fates;
use self::interfere::Made;
use self::link::Link;
use self::pace::Paces;
use crate::hash::Fnv;
use crate::request::{RequestInfo, Verb};
use crate::trace::{Call, Entry, Recorder, Trace, What};

/// A process that has its answer and sends nothing for so long will not do anything about it: on virtual time,
const AT_REST: Duration = Duration::from_millis(1);
/// and in real time.
const IN_REAL_TIME: Duration = Duration::from_millis(200);
/// How many faults that took place are kept.
const MOST_FIRED: usize = 100_000;

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
    paces: Paces,
    hand: OnceLock<Hand>,
    /// Clients whose lists of a resource from any version show an old one.
    travellers: Mutex<BTreeMap<(Arc<str>, String), u64>>,
    /// Clients that do not reach their leases.
    cut_off: Mutex<BTreeSet<Arc<str>>>,
    /// How fast the clocks of clients run, where they run otherwise.
    clock_rates: Mutex<BTreeMap<String, f64>>,
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
        Faults::with(seed, Fates::new(env.clone(), AT_REST), Recorder::new(env))
    }

    /// Faults in front of a real server, in real time, for as long as it may be: everything that happens is told to `tell`,
    /// and [`Faults::trace`] stays empty.
    pub fn in_real_time(env: Env, seed: u64, tell: impl Fn(&Entry) + Send + Sync + 'static) -> Faults {
        Faults::with(seed, Fates::new(env.clone(), IN_REAL_TIME), Recorder::telling(env, Arc::new(tell)))
    }

    fn with(seed: u64, fates: Fates, recorder: Recorder) -> Faults {
        Faults {
            inner: Arc::new(Inner {
                seed,
                rules: Mutex::default(),
                swarm: Mutex::default(),
                requests: Mutex::default(),
                fired: Mutex::default(),
                link: Link::up(),
                fates,
                paces: Paces::default(),
                hand: OnceLock::new(),
                travellers: Mutex::default(),
                cut_off: Mutex::default(),
                clock_rates: Mutex::default(),
                recorder,
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
        self.inner.cut_off.lock().clear();
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

    /// Lets a client that reaches the server directly do what [`Effect::Interfere`] says. Without one nothing happens.
    pub fn interfere_through<S, R>(&self, server: S)
    where
        S: tower::Service<http::Request<Full<Bytes>>, Response = http::Response<R>>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send,
        R: http_body::Body<Data = Bytes> + Send + 'static,
    {
        self.set_hand(Hand::new(server));
    }

    /// Who does what [`Effect::Interfere`] says.
    pub(crate) fn set_hand(&self, hand: Hand) {
        let _set_before = self.inner.hand.set(hand);
    }

    pub(crate) fn hand(&self) -> Option<Hand> {
        self.inner.hand.get().cloned()
    }

    fn cut_off_lease(&self, client: &Arc<str>) {
        self.inner.cut_off.lock().insert(Arc::clone(client));
    }

    fn is_cut_off(&self, call: &Call) -> bool {
        call.request.resource == "leases" && self.inner.cut_off.lock().contains(&call.client)
    }

    /// Lets the clock of this client run so many times as fast, in the processes that it starts from now on.
    pub(crate) fn set_clock_rate(&self, client: &str, rate: f64) {
        self.inner.clock_rates.lock().insert(client.to_owned(), rate);
    }

    pub(crate) fn clock_rate(&self, client: &str) -> f64 {
        self.inner.clock_rates.lock().get(client).copied().unwrap_or(1.0)
    }

    /// How many requests a simulated process may send at one instant: one more, and it is stopped.
    pub(crate) fn limit_requests_at_once(&self, limit: u32) {
        self.inner.paces.set_limit(limit);
    }

    /// Whether this client was stopped because it never waited.
    pub(crate) fn is_stopped(&self, client: &str) -> bool {
        self.inner.paces.is_stopped(client)
    }

    /// The clients that were stopped because they never waited, and when.
    pub(crate) fn stopped(&self) -> Vec<(Arc<str>, Duration)> {
        self.inner.paces.stopped()
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

    async fn interfere(&self, interference: &Interference, request: &RequestInfo, made: Option<&Made>) {
        if let Some(hand) = self.hand() {
            hand.interfere(interference, request, made).await;
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
        let mut fired = self.inner.fired.lock();
        if fired.len() < MOST_FIRED {
            fired.push(Fired { at: self.now(), client, number, request, effect, prose });
        }
        true
    }
}
