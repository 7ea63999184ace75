//! What happens to the body of an answer on its way to the client.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use setpoint_env::Later;
use tokio::time::{Instant, sleep_until, timeout};
use tower::BoxError;

use super::layer::Body;
use super::lines::{Framing, Lines};
use super::link::Connection;
use super::{Effect, Faults, Refusal, Rule};
use crate::connection_error::ConnectionError;
use crate::request::Verb;
use crate::trace::Call;

/// The body of an answer, and the rules that may still do something to it.
#[derive(Debug)]
pub(crate) struct ResponseStream {
    faults: Faults,
    call: Call,
    status: u16,
    framing: Framing,
    source: Lines,
    rules: Vec<StreamRule>,
    /// What has arrived and is delayed, each with its time. The first leaves first: a delay that has become
    /// shorter lets nothing overtake.
    delayed: VecDeque<(Instant, Option<Result<Bytes, BoxError>>)>,
    /// What has arrived and lags behind: no more than the longest lag.
    lagging: VecDeque<Result<Bytes, BoxError>>,
    /// Events that the client has been given.
    events: u64,
    /// Bytes that the client has been given.
    bytes: u64,
    /// How the stream ends, once that is decided.
    end: Option<End>,
}

#[derive(Debug)]
struct StreamRule {
    rule: Rule,
    /// Whether it has fired for this stream.
    started: bool,
}

#[derive(Debug)]
enum End {
    Clean,
    Broken(BoxError),
}

impl End {
    fn reset() -> End {
        End::Broken(ConnectionError::reset().into())
    }

    fn into_item(self) -> Option<Result<Bytes, BoxError>> {
        match self {
            End::Clean => None,
            End::Broken(error) => Some(Err(error)),
        }
    }
}

/// What the client gets next.
enum Step {
    Data(Bytes),
    /// Data, and nothing after it but the end.
    Last(Bytes, End),
    End(End),
}

impl ResponseStream {
    /// Puts the rules, and the life of the connection, into the body of an answer.
    pub(crate) fn wrap(
        response: Response<Body>,
        faults: Faults,
        call: Call,
        connection: Connection,
        rules: Vec<Rule>,
    ) -> Response<Body> {
        let status = response.status();
        let watch = call.request.verb == Verb::Watch && status.is_success();
        let rules = rules.into_iter().filter(|rule| concerns_body(rule.effect(), watch));
        let rules = rules.map(|rule| StreamRule { rule, started: false }).collect();
        let framing = if watch { Framing::of_watch(response.headers()) } else { Framing::Frames };
        response.map(|body| {
            let stream = ResponseStream {
                faults,
                call,
                status: status.as_u16(),
                framing,
                source: Lines::new(body, framing),
                rules,
                delayed: VecDeque::new(),
                lagging: VecDeque::new(),
                events: 0,
                bytes: 0,
                end: None,
            };
            let items = stream::unfold(Some((stream, connection)), |state| async {
                let (mut stream, mut connection) = state?;
                let item = tokio::select! {
                    biased;
                    () = connection.broken() => End::reset().into_item(),
                    item = stream.next() => item,
                }?;
                let more = item.is_ok().then_some((stream, connection));
                Some((item.map(Frame::data), more))
            });
            StreamBody::new(items).boxed_unsync()
        })
    }

    async fn next(&mut self) -> Option<Result<Bytes, BoxError>> {
        if let Some(end) = self.end.take() {
            return end.into_item();
        }
        let step = match self.rules_before_next_event().await {
            Some(step) => step,
            None => match self.lagged().await {
                None => Step::End(End::Clean),
                Some(Err(error)) => Step::End(End::Broken(error)),
                Some(Ok(data)) => self.rules_on_data(data),
            },
        };
        match step {
            Step::Data(data) => Some(Ok(data)),
            Step::Last(data, end) => {
                self.end = Some(end);
                Some(Ok(data))
            }
            Step::End(end) => end.into_item(),
        }
    }

    /// The rules that act between two events, whether or not another event has arrived.
    async fn rules_before_next_event(&mut self) -> Option<Step> {
        for index in 0..self.rules.len() {
            let rule = self.rules[index].rule.clone();
            if self.rules[index].started || after_events(rule.effect()) != Some(self.events) {
                continue;
            }
            if !self.faults.fire(&rule, &self.call, Some(self.status)) {
                continue;
            }
            self.rules[index].started = true;
            match rule.effect() {
                Effect::CutAfterEvents(_) => return Some(Step::End(End::reset())),
                Effect::EndAfterEvents(_) => return Some(Step::End(End::Clean)),
                Effect::ErrorAfterEvents(_, refusal) => {
                    return Some(Step::Last(refusal.event(&self.call.request, self.framing), End::Clean));
                }
                Effect::InsertAfterEvents(_, bytes) => return Some(Step::Data(bytes.clone())),
                Effect::HoldAfterEvents(_) => rule.released().await,
                Effect::StallAfterEvents(_, time) => {
                    let _released = timeout(*time, rule.released()).await;
                }
                Effect::HideAfterEvents(_) => {
                    rule.released().await;
                    return Some(Step::Last(
                        Refusal::Expired.event(&self.call.request, self.framing),
                        End::Clean,
                    ));
                }
                _ => unreachable!("only the effects above count events"),
            }
        }
        None
    }

    /// The rules that cut through data.
    fn rules_on_data(&mut self, data: Bytes) -> Step {
        for StreamRule { rule, .. } in &self.rules {
            let keep = match rule.effect() {
                Effect::CutInsideEvent(n) if *n == self.events => data.len() / 2,
                Effect::CutAfterBytes(n) if *n < self.bytes + data.len() as u64 => {
                    n.saturating_sub(self.bytes) as usize
                }
                _ => continue,
            };
            if self.faults.fire(rule, &self.call, Some(self.status)) {
                return match keep {
                    0 => Step::End(End::reset()),
                    _ => Step::Last(data.slice(..keep), End::reset()),
                };
            }
        }
        self.events += 1;
        self.bytes += data.len() as u64;
        Step::Data(data)
    }

    /// What comes from the server, when enough has come after it.
    async fn lagged(&mut self) -> Option<Result<Bytes, BoxError>> {
        loop {
            let Some((rule, k)) = self.lag() else {
                return match self.lagging.pop_front() {
                    Some(item) => Some(item),
                    None => self.arrival().await,
                };
            };
            if self.lagging.len() as u64 > k {
                return self.lagging.pop_front();
            }
            tokio::select! {
                biased;
                () = rule.released() => {}
                item = self.arrival() => match item {
                    Some(Ok(data)) => self.lagging.push_back(Ok(data)),
                    // It ends, and what was held back comes first.
                    end => {
                        self.lags_end();
                        self.lagging.extend(end);
                    }
                },
            }
        }
    }

    /// The lag that is on, if there is one. It begins with its event.
    fn lag(&mut self) -> Option<(Rule, u64)> {
        for StreamRule { rule, started } in &mut self.rules {
            let Effect::LagAfterEvents(n, k) = rule.effect() else { continue };
            if !*started && *n <= self.events && self.faults.fire(rule, &self.call, Some(self.status)) {
                *started = true;
            }
            if *started && !rule.is_released() {
                return Some((rule.clone(), *k));
            }
        }
        None
    }

    fn lags_end(&mut self) {
        self.rules.retain(|rule| !matches!(rule.rule.effect(), Effect::LagAfterEvents(..)));
    }

    /// What comes from the server, when it is time.
    async fn arrival(&mut self) -> Option<Result<Bytes, BoxError>> {
        if self.delayed.is_empty() && !self.delays() {
            return self.source.next().await;
        }
        loop {
            let due = self.delayed.front().map(|(due, _)| *due);
            let ended = matches!(self.delayed.back(), Some((_, None | Some(Err(_)))));
            tokio::select! {
                biased;
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    return self.delayed.pop_front().and_then(|(_, item)| item);
                }
                item = self.source.next(), if !ended => {
                    let due = Instant::now().later(self.delay());
                    self.delayed.push_back((due, item));
                }
            }
        }
    }

    fn delays(&self) -> bool {
        self.rules.iter().any(|rule| matches!(rule.rule.effect(), Effect::DelayEvents(_)))
    }

    /// How long what arrives now is delayed. A rule fires once for a stream, with its first event.
    fn delay(&mut self) -> Duration {
        let mut delay = Duration::ZERO;
        for StreamRule { rule, started } in &mut self.rules {
            let Effect::DelayEvents(time) = rule.effect() else { continue };
            let goes_on = *started && !rule.is_released();
            if goes_on || (!*started && self.faults.fire(rule, &self.call, Some(self.status))) {
                *started = true;
                delay = delay.saturating_add(*time);
            }
        }
        delay
    }
}

/// After how many events the effect acts, for those that act between events.
fn after_events(effect: &Effect) -> Option<u64> {
    match effect {
        Effect::CutAfterEvents(n)
        | Effect::EndAfterEvents(n)
        | Effect::ErrorAfterEvents(n, _)
        | Effect::InsertAfterEvents(n, _)
        | Effect::HoldAfterEvents(n)
        | Effect::StallAfterEvents(n, _)
        | Effect::HideAfterEvents(n) => Some(*n),
        _ => None,
    }
}

fn concerns_body(effect: &Effect, watch: bool) -> bool {
    let concerns_events = after_events(effect).is_some()
        || matches!(effect, Effect::CutInsideEvent(_) | Effect::DelayEvents(_) | Effect::LagAfterEvents(..));
    matches!(effect, Effect::CutAfterBytes(_)) || (watch && concerns_events)
}
