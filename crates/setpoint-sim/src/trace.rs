//! What happened in a run: every request, every answer as the client saw it, every fault, in order.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint_env::Env;
use tokio::time::Instant;

use crate::faults::Match;
use crate::hash::Fnv;
use crate::request::RequestInfo;

/// A snapshot of what has happened so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    entries: Vec<Entry>,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Entry {
    /// Virtual time since the start of the run.
    pub at: Duration,
    /// The name of the client that it happened to.
    pub client: Arc<str>,
    /// The request that it belongs to: its number among this client's requests, from 1.
    pub number: u64,
    /// What the request asked for.
    pub request: Arc<RequestInfo>,
    /// What happened to it.
    pub what: What,
}

/// The kinds of things that happen to a request.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum What {
    /// The client sent it.
    Sent {
        /// A hash of its body.
        body: u64,
    },
    /// A fault was injected: how a failure report tells it.
    Fault(String),
    /// It was answered, and the client has read the whole answer.
    Answered {
        /// The HTTP status.
        status: u16,
        /// The resourceVersion of the object or list, if there is one.
        resource_version: Option<String>,
        /// The length of the answer's body.
        bytes: u64,
        /// A hash of the answer's body.
        body: u64,
    },
    /// It is a watch, and the server accepted it.
    Watching,
    /// The client was given these bytes of a watch: usually one event.
    Event {
        /// How many bytes.
        bytes: u64,
        /// A hash of the bytes.
        body: u64,
    },
    /// The watch ended in good order.
    Ended,
    /// The connection broke, and with which error.
    Broken(String),
    /// The client went away before it had read the answer.
    Abandoned,
}

impl Trace {
    /// Everything, in the order in which it happened.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The requests that `matching` selects, in the order in which they were sent.
    ///
    /// This is how a test asks "how often did the controller write?":
    /// `world.trace().requests(&Match::writes().client("controller")).count()`.
    pub fn requests<'a>(&'a self, matching: &'a Match) -> impl Iterator<Item = &'a Entry> {
        let sent = self.entries.iter().filter(|entry| matches!(entry.what, What::Sent { .. }));
        let selected = sent.filter(|entry| matching.selects(&entry.client, &entry.request));
        selected.zip(1..).filter(|(_, n)| matching.wants_nth(*n)).map(|(entry, _)| entry)
    }

    /// One number for the whole run. Two runs of the same code with the same seed have the same number.
    pub fn hash(&self) -> u64 {
        let mut hash = Fnv::default();
        for entry in &self.entries {
            entry.hash(&mut hash);
        }
        hash.finish()
    }
}

/// A line an entry.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entries.iter().try_for_each(|entry| writeln!(f, "{entry}"))
    }
}

impl Entry {
    fn hash(&self, hash: &mut Fnv) {
        hash.number(u64::try_from(self.at.as_nanos()).unwrap_or(u64::MAX));
        hash.text(&self.client);
        hash.number(self.number);
        hash.text(self.request.method.as_str());
        hash.text(&self.request.path);
        match &self.what {
            What::Sent { body } => {
                hash.number(1);
                hash.number(*body);
            }
            What::Fault(prose) => {
                hash.number(2);
                hash.text(prose);
            }
            What::Answered { status, resource_version, bytes, body } => {
                hash.number(3);
                hash.number(u64::from(*status));
                hash.text(resource_version.as_deref().unwrap_or_default());
                hash.number(*bytes);
                hash.number(*body);
            }
            What::Watching => hash.number(4),
            What::Event { bytes, body } => {
                hash.number(5);
                hash.number(*bytes);
                hash.number(*body);
            }
            What::Ended => hash.number(6),
            What::Broken(error) => {
                hash.number(7);
                hash.text(error);
            }
            What::Abandoned => hash.number(8),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.at.as_secs_f64();
        write!(
            f,
            "{seconds:10.6}s {} #{} {} {} ",
            self.client, self.number, self.request.method, self.request.path
        )?;
        match &self.what {
            What::Sent { body } => write!(f, "sent (body {body:016x})"),
            What::Fault(prose) => write!(f, "fault: {prose}"),
            What::Answered { status, resource_version, bytes, body } => {
                let version = resource_version.as_deref().unwrap_or("none");
                write!(f, "answered {status} (resourceVersion {version}, {bytes} bytes, body {body:016x})")
            }
            What::Watching => write!(f, "watching"),
            What::Event { bytes, body } => write!(f, "event ({bytes} bytes, body {body:016x})"),
            What::Ended => write!(f, "ended"),
            What::Broken(error) => write!(f, "broken: {error}"),
            What::Abandoned => write!(f, "abandoned by the client"),
        }
    }
}

/// Writes the trace of a run.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    env: Env,
    start: Instant,
    keeps: Keeps,
}

#[derive(Clone)]
enum Keeps {
    All(Arc<Mutex<Vec<Entry>>>),
    /// Nothing: whoever listens keeps what they want.
    Nothing(Arc<dyn Fn(&Entry) + Send + Sync>),
}

impl fmt::Debug for Keeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Keeps::All(_) => "All",
            Keeps::Nothing(_) => "Nothing",
        })
    }
}

impl Recorder {
    pub(crate) fn new(env: Env) -> Recorder {
        let start = env.instant();
        Recorder { env, start, keeps: Keeps::All(Arc::default()) }
    }

    /// Tells everything, and keeps nothing.
    pub(crate) fn telling(env: Env, tell: Arc<dyn Fn(&Entry) + Send + Sync>) -> Recorder {
        let start = env.instant();
        Recorder { env, start, keeps: Keeps::Nothing(tell) }
    }

    /// Virtual time since the start of the run.
    pub(crate) fn now(&self) -> Duration {
        self.env.instant().duration_since(self.start)
    }

    pub(crate) fn trace(&self) -> Trace {
        match &self.keeps {
            Keeps::All(entries) => Trace { entries: entries.lock().clone() },
            Keeps::Nothing(_) => Trace::default(),
        }
    }

    pub(crate) fn record(&self, call: &Call, what: What) {
        let at = self.now();
        let (client, request) = (Arc::clone(&call.client), Arc::clone(&call.request));
        let entry = Entry { at, client, number: call.number, request, what };
        match &self.keeps {
            Keeps::All(entries) => entries.lock().push(entry),
            Keeps::Nothing(tell) => tell(&entry),
        }
    }
}

/// One request under way.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) client: Arc<str>,
    /// Its number among its client's requests, from 1.
    pub(crate) number: u64,
    pub(crate) request: Arc<RequestInfo>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(path: &str) -> Call {
        let request = RequestInfo::parse(&http::Method::GET, &path.parse().unwrap(), b"");
        Call { client: "a".into(), number: 1, request: Arc::new(request) }
    }

    #[tokio::test(start_paused = true)]
    async fn every_part_of_an_entry_changes_the_hash() {
        let run = async |path: &str, wait: u64, what: What| {
            let recorder = Recorder::new(Env::seeded(0));
            tokio::time::sleep(Duration::from_millis(wait)).await;
            recorder.record(&call(path), what);
            recorder.trace().hash()
        };
        let answer = |status, version: &str, bytes, body| What::Answered {
            status,
            resource_version: Some(version.to_owned()),
            bytes,
            body,
        };
        let reference = run("/api/v1/pods", 5, answer(200, "7", 10, 1)).await;
        assert_eq!(run("/api/v1/pods", 5, answer(200, "7", 10, 1)).await, reference);
        assert_ne!(run("/api/v1/nodes", 5, answer(200, "7", 10, 1)).await, reference);
        assert_ne!(run("/api/v1/pods", 6, answer(200, "7", 10, 1)).await, reference);
        assert_ne!(run("/api/v1/pods", 5, answer(201, "7", 10, 1)).await, reference);
        assert_ne!(run("/api/v1/pods", 5, answer(200, "8", 10, 1)).await, reference);
        assert_ne!(run("/api/v1/pods", 5, answer(200, "7", 11, 1)).await, reference);
        assert_ne!(run("/api/v1/pods", 5, answer(200, "7", 10, 2)).await, reference);
        assert_ne!(run("/api/v1/pods", 5, What::Event { bytes: 10, body: 1 }).await, reference);
    }

    #[test]
    fn a_trace_finds_the_requests_that_a_match_selects() {
        let recorder = Recorder::new(Env::seeded(0));
        for path in ["/api/v1/pods", "/api/v1/nodes", "/api/v1/pods?limit=1"] {
            recorder.record(&call(path), What::Sent { body: 0 });
            recorder.record(&call(path), What::Broken("x".into()));
        }
        let trace = recorder.trace();
        assert_eq!(trace.requests(&Match::list("pods")).count(), 2);
        assert_eq!(trace.requests(&Match::list("pods").client("b")).count(), 0);
        let second = Match::list("pods").nth(2);
        let second: Vec<_> = trace.requests(&second).collect();
        assert_eq!(second[0].request.path, "/api/v1/pods?limit=1");
        assert_eq!(second.len(), 1);
    }
}
