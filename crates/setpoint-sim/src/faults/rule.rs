//! One line of a fault script: which requests it meets, what it does to them, how often.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use setpoint_env::watch;

use super::{Effect, Faults, Match, Refusal};
use crate::request::RequestInfo;

/// A rule of the script, from the moment that it was made. Clones are the same rule.
///
/// A rule fires once, unless [`times`](Rule::times) or [`always`](Rule::always) says otherwise; what counts
/// is that the effect took place, not that a request was met. A hold lasts until it is released.
#[derive(Clone, Debug)]
pub struct Rule {
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    matching: Match,
    effect: Effect,
    limit: AtomicU64,
    met: AtomicU64,
    fired: watch::Sender<u64>,
    /// Shared by the rules that one swarm makes.
    released: Arc<watch::Sender<bool>>,
}

impl Rule {
    pub(crate) fn new(matching: Match, effect: Effect, released: Arc<watch::Sender<bool>>) -> Rule {
        let limit = if matches!(effect, Effect::HoldAfterEvents(_)) { u64::MAX } else { 1 };
        let (limit, met) = (AtomicU64::new(limit), AtomicU64::new(0));
        let fired = watch::Sender::new(0);
        Rule { state: Arc::new(State { matching, effect, limit, met, fired, released }) }
    }

    /// Lets the rule fire `n` times.
    pub fn times(self, n: u64) -> Rule {
        self.state.limit.store(n, Ordering::Relaxed);
        self
    }

    /// Lets the rule fire whenever it can, until it is released.
    pub fn always(self) -> Rule {
        self.times(u64::MAX)
    }

    /// How often the rule has fired.
    pub fn fired(&self) -> u64 {
        *self.state.fired.borrow()
    }

    /// Waits until the rule has fired `n` times in all.
    pub async fn wait_fired(&self, n: u64) {
        let mut fired = self.state.fired.subscribe();
        fired.wait_for(|fired| *fired >= n).await.expect("the rule itself keeps the sender");
    }

    /// Withdraws the rule: it does not fire again, and what it holds back is let go.
    pub fn release(&self) {
        self.state.released.send_replace(true);
    }

    pub(crate) fn effect(&self) -> &Effect {
        &self.state.effect
    }

    pub(crate) fn is_released(&self) -> bool {
        *self.state.released.borrow()
    }

    /// Waits for [`Rule::release`].
    pub(crate) async fn released(&self) {
        let mut released = self.state.released.subscribe();
        released.wait_for(|released| *released).await.expect("the rule itself keeps the sender");
    }

    /// Whether the rule may do something to this request. Counts the request.
    pub(crate) fn meets(&self, client: &str, request: &RequestInfo) -> bool {
        if !self.state.matching.selects(client, request) {
            return false;
        }
        let n = self.state.met.fetch_add(1, Ordering::Relaxed) + 1;
        self.state.matching.wants_nth(n) && !self.is_released()
    }

    /// Takes one of the rule's shots, if there is one left.
    pub(crate) fn take_shot(&self) -> bool {
        let limit = self.state.limit.load(Ordering::Relaxed);
        let may_fire = !self.is_released();
        self.state.fired.send_if_modified(|fired| {
            let fires = may_fire && *fired < limit;
            *fired += u64::from(fires);
            fires
        })
    }

    /// What [`Faults::assert_all_fired`] complains about.
    pub(crate) fn unfired(&self) -> Option<String> {
        let limit = self.state.limit.load(Ordering::Relaxed);
        let wanted = if limit == u64::MAX { 1 } else { limit };
        let fired = self.fired();
        (fired < wanted)
            .then(|| format!("{self}: fired {fired} of {wanted} times, met {} requests", self.met()))
    }

    fn met(&self) -> u64 {
        self.state.met.load(Ordering::Relaxed)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "on {}: {:?}", self.state.matching, self.state.effect)
    }
}

/// A rule that still lacks its effect: see [`Faults::on`].
#[derive(Debug)]
#[must_use = "a rule without an effect does nothing"]
pub struct On {
    faults: Faults,
    matching: Match,
}

impl On {
    pub(crate) fn new(faults: Faults, matching: Match) -> On {
        On { faults, matching }
    }

    /// Any effect. The other methods are short forms of this one.
    pub fn inject(self, effect: Effect) -> Rule {
        self.faults.add(self.matching, effect)
    }

    /// The request reaches the server `time` later.
    pub fn delay_request(self, time: Duration) -> Rule {
        self.inject(Effect::DelayRequest(time))
    }

    /// The server acts at once, and its answer arrives `time` later.
    pub fn delay_response(self, time: Duration) -> Rule {
        self.inject(Effect::DelayResponse(time))
    }

    /// Connection refused: the server never sees the request, and the client knows it.
    pub fn refuse_connection(self) -> Rule {
        self.inject(Effect::RefuseConnection)
    }

    /// Connection reset: the server never sees the request, and the client cannot know it.
    pub fn drop_request(self) -> Rule {
        self.inject(Effect::DropRequest)
    }

    /// An error Status in the server's place. At the start of a watch, [`Refusal::Expired`] is the 410.
    pub fn refuse(self, refusal: Refusal) -> Rule {
        self.inject(Effect::Refuse(refusal))
    }

    /// Any answer in the server's place, to see how a client takes a server that is not one.
    pub fn answer(self, status: u16, content_type: &str, body: impl Into<Bytes>) -> Rule {
        self.inject(Effect::Answer { status, content_type: content_type.to_owned(), body: body.into() })
    }

    /// Connection reset after the server has acted: a write is committed and the client cannot know it.
    pub fn lose_response(self) -> Rule {
        self.inject(Effect::LoseResponse)
    }

    /// The server acts, and a proxy answers 502: a write is committed and the client cannot know it.
    pub fn bad_gateway(self) -> Rule {
        self.inject(Effect::BadGateway)
    }

    /// The server acts, and the client sees nothing but a time-out after `time`.
    pub fn time_out(self, time: Duration) -> Rule {
        self.inject(Effect::TimeOut(time))
    }

    /// The server acts, and the client never hears of the request again.
    pub fn silence(self) -> Rule {
        self.inject(Effect::Silence)
    }

    /// Connection reset after `n` bytes of the answer's body.
    pub fn cut_after_bytes(self, n: u64) -> Rule {
        self.inject(Effect::CutAfterBytes(n))
    }

    /// Connection reset in a watch after `n` events.
    pub fn cut_after_events(self, n: u64) -> Rule {
        self.inject(Effect::CutAfterEvents(n))
    }

    /// Connection reset in a watch in the middle of the line that follows event `n`.
    pub fn cut_inside_event(self, n: u64) -> Rule {
        self.inject(Effect::CutInsideEvent(n))
    }

    /// The watch ends in good order after `n` events.
    pub fn end_after_events(self, n: u64) -> Rule {
        self.inject(Effect::EndAfterEvents(n))
    }

    /// An ERROR event in a watch after `n` events; then it ends. [`Refusal::Expired`] is the 410.
    pub fn error_after_events(self, n: u64, refusal: Refusal) -> Rule {
        self.inject(Effect::ErrorAfterEvents(n, refusal))
    }

    /// Bytes written into a watch after `n` events, to see how a client takes a broken server.
    pub fn insert_after_events(self, n: u64, bytes: impl Into<Bytes>) -> Rule {
        self.inject(Effect::InsertAfterEvents(n, bytes.into()))
    }

    /// Every event of a watch arrives `time` later; their order stays.
    pub fn delay_events(self, time: Duration) -> Rule {
        self.inject(Effect::DelayEvents(time))
    }

    /// The watch is silent until [`Rule::release`]: the client's view is stale. Nothing is lost.
    pub fn hold(self) -> Rule {
        self.hold_after_events(0)
    }

    /// The watch is silent after `n` events until [`Rule::release`].
    pub fn hold_after_events(self, n: u64) -> Rule {
        self.inject(Effect::HoldAfterEvents(n))
    }
}
