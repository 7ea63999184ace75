//! Histories in a few words.

use setpoint_history::{
    Call, Ended, Event, Fields, Fresh, From, History, Item, Key, Mark, Moment, Operation, Outcome, Promise,
    Resource, Select, State, Verdict, Version, Watch, check,
};

/// The object of most stories.
pub(crate) const A: Key = Key(0);
/// Another one.
pub(crate) const B: Key = Key(1);

/// A history that is told operation by operation. The n-th operation is the n-th of client 0, so `mark(n)` is its mark.
#[derive(Default)]
pub(crate) struct Story {
    history: History,
}

pub(crate) fn mark(number: u32) -> Mark {
    Mark { client: 0, number }
}

/// An object at a version, as the n-th operation has made it; its uid is 1.
pub(crate) fn item(key: Key, version: Version, number: u32) -> Item {
    Item {
        key,
        version,
        state: State { mark: mark(number), previous: None, uid: 1, fields: Fields::default() },
    }
}

/// The same with another uid.
pub(crate) fn again(key: Key, version: Version, number: u32, uid: u128) -> Item {
    let item = item(key, version, number);
    Item { state: State { uid, ..item.state }, ..item }
}

/// The same, made by a JSON patch from what another operation has left.
pub(crate) fn made_from(item: Item, number: u32) -> Item {
    Item { state: State { previous: Some(mark(number)), ..item.state }, ..item }
}

pub(crate) fn get(key: Key) -> Call {
    Call::Get { key, fresh: Fresh::Latest }
}

pub(crate) fn list(fresh: Fresh) -> Call {
    Call::List { fresh, limit: None, from: None }
}

pub(crate) fn listed(version: Version, items: &[Item]) -> Outcome {
    Outcome::Listed { version, items: items.to_vec(), more: false }
}

impl Story {
    /// One more operation, with its start and its end.
    pub(crate) fn then(mut self, time: (Moment, Moment), call: Call, outcome: Outcome) -> Story {
        let number = u32::try_from(self.history.operations.len()).unwrap() + 1;
        let (start, end) = time;
        self.history.operations.push(Operation { mark: mark(number), call, start, end, outcome });
        self
    }

    /// A is created at version 10, from 1 to 2, by operation 1.
    pub(crate) fn created() -> Story {
        Story::default().then((1, 2), Call::Create { key: A }, Outcome::Written(item(A, 10, 1)))
    }

    /// The same, then updated at version 11, from 3 to 4, by operation 2.
    pub(crate) fn updated() -> Story {
        let update = Call::Update { key: A, expect: Some(10) };
        Story::created().then((3, 4), update, Outcome::Written(item(A, 11, 2)))
    }

    /// One more watch, whose events come from 100 on.
    pub(crate) fn watch(self, from: From, events: &[Event]) -> Story {
        self.watch_of(Select::All, from, events, Ended::Closed)
    }

    pub(crate) fn watch_of(mut self, select: Select, from: From, events: &[Event], ended: Ended) -> Story {
        let told = (100..).zip(events.iter().copied()).collect();
        let number = u32::try_from(self.history.watches.len()).unwrap() + 1;
        self.history.watches.push(Watch { watcher: 0, number, select, from, start: 50, told, ended });
        self
    }

    /// The objects are pods.
    pub(crate) fn of_pods(mut self) -> Story {
        self.history.resource = Resource::Pods;
        self
    }

    pub(crate) fn verdict(&self) -> Verdict {
        check(&self.history)
    }

    #[track_caller]
    pub(crate) fn holds(self) {
        let verdict = check(&self.history);
        assert_eq!(verdict.total, 0, "{verdict}");
    }

    /// Just this promise is broken, and the explanation has these words.
    #[track_caller]
    pub(crate) fn breaks(self, promise: Promise, words: &str) {
        let verdict = check(&self.history);
        assert!(verdict.total > 0, "nothing was found");
        let promises: Vec<_> = verdict.violations.iter().map(|violation| violation.promise).collect();
        assert!(promises.iter().all(|found| *found == promise), "{verdict}");
        let text = verdict.violations[0].to_string();
        assert!(text.contains(words), "{text}");
    }

    /// Just these promises are broken, all of them.
    #[track_caller]
    pub(crate) fn breaks_all(self, promises: &[Promise]) {
        let verdict = check(&self.history);
        let mut found: Vec<_> = verdict.violations.iter().map(|violation| violation.promise).collect();
        let mut promises = promises.to_vec();
        found.sort();
        found.dedup();
        promises.sort();
        assert_eq!(found, promises, "{verdict}");
    }
}
