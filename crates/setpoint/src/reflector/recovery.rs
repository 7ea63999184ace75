//! What a reflector does after a failure: one table.

use std::time::Duration;

use super::backoff::BackoffState;
use super::error::{Class, ReflectorFailure};

/// The request that a reflector makes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A watch that begins with the whole state. It goes on as [`State::Watch`].
    StreamingList(AsOf),
    /// A list: in pages if it is of the newest state, else whole.
    List(AsOf),
    /// The next page of a list.
    Page,
    /// A list of the newest state in one answer.
    WholeList,
    /// A watch from the newest version seen, or more of the one that is open.
    Watch,
}

/// How new a list must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AsOf {
    /// At least as new as the newest version seen.
    Seen,
    /// Up to date, whatever was seen: the server cannot serve what was seen.
    Newest,
}

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) next: State,
    pub(super) pause: Duration,
}

/// Where a cell of the table leads.
#[derive(Clone, Copy)]
enum Next {
    /// The same request.
    Again,
    /// The same request this many times in a row, counting the first; then another.
    Tries(u32, Then),
    /// Another request.
    Go(Then),
}

#[derive(Clone, Copy)]
enum Then {
    /// A list at least as new as what was seen.
    Relist,
    /// A list of the newest state.
    Newest,
    /// The same list without streaming.
    Plain,
    /// A list in one answer.
    Whole,
}

/// How long to wait before the next request.
#[derive(Clone, Copy)]
enum Pause {
    /// Not at all. Only where the next request is another one that cannot lead back here without a pause.
    None,
    /// Not at all if all was well for as long as resets the back-off; else as the back-off says.
    Rare,
    /// As the back-off says, and as long as the server asks.
    Backoff,
}

/// After so many requests in a row that a server answered badly, another request may do better.
const TRIES: u32 = 3;
/// The same for requests that nothing came of for minutes.
const SILENT_TRIES: u32 = 2;
/// The longest pause that a server may ask for.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(300);

/// The table. Two rules keep it sound: a request that fails without a pause is followed by another one, nearer
/// to a plain list of the newest state; and a watch that does not work leads to a list sooner or later, unless
/// the server cannot be reached at all, or asks to be left alone.
#[rustfmt::skip]
fn cell(state: State, class: Class) -> (Next, Pause) {
    use {AsOf::Seen, Class::*, Next::*, Pause::*, State::*, Then::*};
    match (class, state) {
        // No request does better than another.
        (Unreachable | Throttled,  _)                       => (Again,                       Backoff),

        // What was asked for is not there. Something newer is.
        (Expired | TooLarge,       StreamingList(Seen))     => (Go(Newest),                  None),
        (Expired | TooLarge,       List(Seen))              => (Go(Newest),                  None),
        (Expired,                  Page)                    => (Go(Whole),                   None),
        (Expired,                  Watch)                   => (Go(Relist),                  Rare),
        (WentBack,                 StreamingList(Seen))     => (Go(Newest),                  None),
        (WentBack,                 List(Seen))              => (Go(Newest),                  None),
        (TooLarge | WentBack,      Watch)                   => (Go(Newest),                  Backoff),

        // The server does not stream lists, or not to us, or does it wrong.
        (Refused | Forbidden,      StreamingList(_))        => (Go(Plain),                   None),
        (Malformed | EndedEarly,   StreamingList(_))        => (Go(Plain),                   None),
        (Endless,                  StreamingList(_))        => (Go(Plain),                   None),
        (ServerError | Broken,     StreamingList(_))        => (Tries(TRIES, Plain),         Backoff),
        (Silent,                   StreamingList(_))        => (Tries(SILENT_TRIES, Plain),  Backoff),
        (_,                        StreamingList(_))        => (Again,                       Backoff),

        // A version that the server cannot read is refused each time.
        (Refused,                  List(Seen))              => (Go(Newest),                  Backoff),
        (_,                        List(_))                 => (Again,                       Backoff),

        // A page may come yet; else the list begins anew. One that is too large for one answer, in pages.
        (ServerError | Broken,     Page)                    => (Tries(TRIES, Newest),        Backoff),
        (Malformed,                Page)                    => (Tries(TRIES, Newest),        Backoff),
        (Silent,                   Page)                    => (Tries(SILENT_TRIES, Newest), Backoff),
        (_,                        Page | WholeList)        => (Go(Newest),                  Backoff),

        // What was seen still holds: watch again, but not for ever.
        (ServerError | Broken,     Watch)                   => (Tries(TRIES, Relist),        Backoff),
        (Malformed | EndedEarly,   Watch)                   => (Tries(TRIES, Relist),        Backoff),
        (Unauthorized,             Watch)                   => (Tries(TRIES, Relist),        Backoff),
        (Silent,                   Watch)                   => (Tries(SILENT_TRIES, Relist), Backoff),
        (_,                        Watch)                   => (Go(Relist),                  Backoff),
    }
}

/// The table at work: how often it was tried, and how long the next pause is.
pub(super) struct Recovery {
    backoff: BackoffState,
    /// Whether lists are streaming ones at first.
    streaming: bool,
    /// Failures in a row of the same request that a table's cell counts.
    tries: u32,
}

impl Recovery {
    pub(super) fn new(backoff: BackoffState, streaming: bool) -> Recovery {
        Recovery { backoff, streaming, tries: 0 }
    }

    /// How a list begins.
    pub(super) fn list(&self, as_of: AsOf) -> State {
        if self.streaming { State::StreamingList(as_of) } else { State::List(as_of) }
    }

    /// A request brought something.
    pub(super) fn worked(&mut self) {
        self.tries = 0;
    }

    /// What follows a failure of the request that `state` is.
    pub(super) fn after(&mut self, state: State, failure: &ReflectorFailure) -> Step {
        let (next, pause) = cell(state, failure.class());
        let next = match next {
            Next::Again => state,
            Next::Go(then) => self.resolve(state, then),
            Next::Tries(most, then) => {
                self.tries += 1;
                if self.tries < most { state } else { self.resolve(state, then) }
            }
        };
        if next != state {
            self.tries = 0;
        }
        let asked = failure.retry_after().unwrap_or_default().min(LONGEST_RETRY_AFTER);
        let pause = match pause {
            Pause::None => Duration::ZERO,
            Pause::Rare => self.backoff.next_unless_first(),
            Pause::Backoff => self.backoff.next().max(asked),
        };
        Step { next, pause }
    }

    fn resolve(&self, state: State, then: Then) -> State {
        match (then, state) {
            (Then::Plain, State::StreamingList(as_of)) => State::List(as_of),
            (Then::Whole, _) => State::WholeList,
            (Then::Relist, _) => self.list(AsOf::Seen),
            // A watch may be too old for streaming lists too; a list that was not a streaming one stays so.
            (Then::Newest, State::Watch | State::StreamingList(_)) => self.list(AsOf::Newest),
            (Then::Newest | Then::Plain, _) => State::List(AsOf::Newest),
        }
    }
}

#[cfg(test)]
mod tests;
