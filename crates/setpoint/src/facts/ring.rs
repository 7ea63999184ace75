//! The last facts, up to a bound.

use std::collections::VecDeque;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::{Fact, LoopEvent};

/// The last facts, as many as fit.
#[derive(Debug)]
pub(super) struct Ring {
    facts: VecDeque<(Arc<Fact>, usize)>,
    bytes: usize,
    /// The number of the next fact.
    end: u64,
    most: usize,
    most_bytes: usize,
}

/// What there is of a number.
pub(super) enum Found {
    Fact(Arc<Fact>),
    /// Facts were given up; `before` says so, with the time of the first one that is there.
    Missed {
        count: u64,
        before: Arc<Fact>,
    },
    Nothing,
}

impl Ring {
    pub(super) fn new(most: usize, most_bytes: usize) -> Ring {
        Ring { facts: VecDeque::new(), bytes: 0, end: 1, most, most_bytes }
    }

    /// The number of the next fact.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn push(&mut self, at: Timestamp, event: LoopEvent) {
        let size = event.size();
        self.facts.push_back((Arc::new(Fact { number: self.end, at, event }), size));
        self.end = self.end.saturating_add(1);
        self.bytes = self.bytes.saturating_add(size);
        while self.facts.len() > 1 && (self.facts.len() > self.most || self.bytes > self.most_bytes) {
            let size = self.facts.pop_front().map_or(0, |(_, size)| size);
            self.bytes = self.bytes.saturating_sub(size);
        }
    }

    pub(super) fn get(&self, number: u64) -> Found {
        let Some((first, _)) = self.facts.front() else { return Found::Nothing };
        if let Some(count) = first.number.checked_sub(number).filter(|count| *count > 0) {
            let event = LoopEvent::Missed { count };
            let before = Arc::new(Fact { number: first.number - 1, at: first.at, event });
            return Found::Missed { count, before };
        }
        let at = usize::try_from(number - first.number).ok();
        let fact = at.and_then(|at| self.facts.get(at));
        fact.map_or(Found::Nothing, |(fact, _)| Found::Fact(fact.clone()))
    }

    /// Gives everything up: nobody listens any more.
    pub(super) fn clear(&mut self) {
        self.facts = VecDeque::new();
        self.bytes = 0;
    }
}
