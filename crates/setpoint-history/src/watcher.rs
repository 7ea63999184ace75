//! A watcher that does what its seed says, without any I/O of its own.

use std::collections::VecDeque;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::object::{Moment, Version};
use crate::select::Select;
use crate::watch::{Ended, Event, From, Watch};
use crate::wire::{Line, Request};

/// How far back a watch goes that tells again what was told.
const REMEMBERED: usize = 64;
/// Marks the bookmark that ends the initial events.
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// A watcher that begins where it stopped, again and again, and sometimes elsewhere.
#[derive(Debug)]
pub(crate) struct Watcher {
    id: u16,
    number: u32,
    collection: Arc<str>,
    select: Select,
    random: StdRng,
    /// Up to here it was told everything.
    told_to: Option<Version>,
    /// Versions before that, to begin at once more.
    older: VecDeque<Version>,
    running: Option<Watch>,
    /// After so many more events it cuts the watch.
    left: u32,
}

/// Whether a watch goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It does.
    GoesOn,
    /// It has ended so.
    Ends(Ended),
}

impl Watcher {
    /// A watcher of some objects of a collection. It begins at `from`, or with what is there.
    pub(crate) fn new(
        id: u16,
        seed: u64,
        collection: Arc<str>,
        select: Select,
        from: Option<Version>,
    ) -> Watcher {
        Watcher {
            id,
            number: 0,
            collection,
            select,
            random: StdRng::seed_from_u64(seed ^ (u64::from(id) << 48) ^ (1 << 47)),
            told_to: from,
            older: VecDeque::new(),
            running: None,
            left: 0,
        }
    }

    /// What it takes.
    pub(crate) fn select(&self) -> Select {
        self.select
    }

    /// The version up to which it was told everything.
    pub(crate) fn told_to(&self) -> Option<Version> {
        self.told_to
    }

    /// Begins a watch.
    pub(crate) fn begin(&mut self, now: Moment) -> Request {
        let from = match (self.told_to, self.random.random_range(0..100)) {
            // The first watcher leaves no gaps, so that little stays unseen.
            (Some(_), 0..4) if self.id > 0 => From::Now,
            (Some(last), 4..12) => {
                let older = self.older.len();
                From::Version(if older > 0 { self.older[self.random.random_range(0..older)] } else { last })
            }
            (Some(last), _) => From::Version(last),
            (None, _) => From::Now,
        };
        self.number += 1;
        self.left = self.random.random_range(1..300);
        let (watcher, number, select) = (self.id, self.number, self.select);
        self.running =
            Some(Watch { watcher, number, select, from, start: now, told: Vec::new(), ended: Ended::Closed });
        let begin = match from {
            From::Version(version) => format!("&resourceVersion={version}"),
            From::Now => "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(),
        };
        let selector = select.query();
        let bookmarks = "watch=true&allowWatchBookmarks=true&timeoutSeconds=120";
        Request::get(format!("{}?{bookmarks}{begin}{selector}", self.collection))
    }

    /// Takes a line of the running watch.
    pub(crate) fn take(&mut self, now: Moment, line: &[u8]) -> Step {
        let unreadable = || Step::Ends(Ended::Unreadable(String::from_utf8_lossy(line).into_owned()));
        let Ok(line) = serde_json::from_slice::<Line>(line) else { return unreadable() };
        let object = &line.object;
        let is_initial_end = || object.metadata.annotations.get(INITIAL_END).is_some_and(|end| end == "true");
        let event = match line.kind.as_str() {
            "ERROR" if object.code == 410 => return Step::Ends(self.expire()),
            "ERROR" => return Step::Ends(Ended::Failed(object.code)),
            "ADDED" => object.item().map(Event::Added),
            "MODIFIED" => object.item().map(Event::Modified),
            "DELETED" => object.item().map(Event::Deleted),
            "BOOKMARK" if is_initial_end() => object.version().map(Event::InitialEnd),
            "BOOKMARK" => object.version().map(Event::Bookmark),
            _ => None,
        };
        let (Some(event), Some(watch)) = (event, &mut self.running) else { return unreadable() };
        watch.told.push((now, event));
        if let Some(told_to) = watch.told_to() {
            self.told_to = self.told_to.max(Some(told_to));
            if self.older.len() == REMEMBERED {
                self.older.pop_front();
            }
            self.older.push_back(told_to);
        }
        self.left -= 1;
        if self.left == 0 { Step::Ends(Ended::Closed) } else { Step::GoesOn }
    }

    /// The versions that it knows are no longer there.
    pub(crate) fn expire(&mut self) -> Ended {
        self.told_to = None;
        self.older.clear();
        Ended::Expired
    }

    /// The running watch is over.
    pub(crate) fn end(&mut self, ended: Ended) -> Option<Watch> {
        self.running.take().map(|watch| Watch { ended, ..watch })
    }

    /// A random number below this one, of the watcher's own sequence.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.random.random_range(0..limit.max(1))
    }
}
