//! What an outside watch has seen of each pod.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::Mutex;
use std::thread;

use anyhow::{Result, bail};

use crate::load::connection::{Watch, find};
use crate::load::server::Server;

/// How many pods came how far; each is counted once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) created: usize,
    pub(super) bound: usize,
    pub(super) ready: usize,
    /// Pods whose events say so.
    pub(super) scheduled: usize,
    pub(super) started: usize,
    /// Changes of pods, and of events, in all.
    changes: usize,
    events: usize,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} created, {} bound, {} ready, {} Scheduled, {} Started; {} changes of pods, {} of events",
            self.created, self.bound, self.ready, self.scheduled, self.started, self.changes, self.events
        )
    }
}

const CREATED: u8 = 1;
const BOUND: u8 = 2;
const READY: u8 = 4;
const SCHEDULED: u8 = 1;
const STARTED: u8 = 2;

/// Two watches, one of pods and one of events, each read by a thread of its own.
pub(super) struct Tally {
    shared: Arc<Shared>,
    ends: Vec<Box<dyn FnOnce()>>,
    threads: Vec<thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Seen>,
    failure: Mutex<Option<String>>,
}

impl Tally {
    pub(super) fn start(server: &Server) -> Result<Tally> {
        let mut tally = Tally { shared: Arc::default(), ends: Vec::new(), threads: Vec::new() };
        tally.follow(server, "/api/v1/namespaces/default/pods?watch=true", see_pod)?;
        tally.follow(server, "/api/v1/namespaces/default/events?watch=true", see_event)?;
        Ok(tally)
    }

    fn follow(&mut self, server: &Server, path: &str, see: See) -> Result<()> {
        let watch = server.connect()?.watch(path)?;
        self.ends.push(Box::new(watch.end()?));
        let shared = Arc::clone(&self.shared);
        self.threads.push(thread::spawn(move || {
            if let Err(error) = read(watch, &shared, see) {
                *shared.failure.lock().expect("no holder panics") = Some(format!("{error:#}"));
            }
        }));
        Ok(())
    }

    pub(super) fn seen(&self) -> Seen {
        self.shared.seen.lock().expect("no holder panics").clone()
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.shared.failure.lock().expect("no holder panics").clone()
    }

    /// Ends the watches.
    pub(super) fn end(self) {
        self.ends.into_iter().for_each(|end| end());
        for thread in self.threads {
            // One that has panicked has said so.
            let _panicked = thread.join();
        }
    }
}

/// Counts a line; the second is what is known of each pod.
type See = fn(&[u8], &mut HashMap<Box<[u8]>, u8>, &mut Seen) -> Result<()>;

fn read(mut watch: Watch, shared: &Shared, see: See) -> Result<()> {
    let (mut line, mut known) = (Vec::new(), HashMap::new());
    while watch.next(&mut line)? {
        see(&line, &mut known, &mut shared.seen.lock().expect("no holder panics"))?;
    }
    bail!("the server has ended it")
}

fn see_pod(line: &[u8], known: &mut HashMap<Box<[u8]>, u8>, seen: &mut Seen) -> Result<()> {
    check(line)?;
    seen.changes += 1;
    let Some(name) = after(line, b"\"name\":\"") else { return Ok(()) };
    let state = state_of(known, name);
    count(state, CREATED, &mut seen.created);
    if *state & BOUND == 0 && find(line, b"\"nodeName\":\"").is_some() {
        count(state, BOUND, &mut seen.bound);
    }
    if *state & READY == 0 && find(line, b"\"status\":\"True\",\"type\":\"Ready\"").is_some() {
        count(state, READY, &mut seen.ready);
    }
    Ok(())
}

fn see_event(line: &[u8], known: &mut HashMap<Box<[u8]>, u8>, seen: &mut Seen) -> Result<()> {
    check(line)?;
    seen.events += 1;
    // An event is called as its object is, with a dot and a number after it.
    let Some(name) = after(line, b"\"name\":\"") else { return Ok(()) };
    let Some(dot) = name.iter().position(|byte| *byte == b'.') else { return Ok(()) };
    let counted = match after(line, b"\"reason\":\"") {
        Some(b"Scheduled") => (SCHEDULED, &mut seen.scheduled),
        Some(b"Started") => (STARTED, &mut seen.started),
        _ => return Ok(()),
    };
    count(state_of(known, &name[..dot]), counted.0, counted.1);
    Ok(())
}

fn check(line: &[u8]) -> Result<()> {
    if line.starts_with(b"{\"type\":\"ERROR\"") {
        bail!("{}", String::from_utf8_lossy(line));
    }
    Ok(())
}

/// The text between a beginning and the next quote.
fn after<'a>(line: &'a [u8], beginning: &[u8]) -> Option<&'a [u8]> {
    let rest = &line[find(line, beginning)? + beginning.len()..];
    rest.iter().position(|byte| *byte == b'"').map(|end| &rest[..end])
}

fn state_of<'a>(known: &'a mut HashMap<Box<[u8]>, u8>, name: &[u8]) -> &'a mut u8 {
    if !known.contains_key(name) {
        known.insert(name.into(), 0);
    }
    known.get_mut(name).expect("it is there now")
}

/// Counts a pod that has come so far for the first time.
fn count(state: &mut u8, step: u8, counter: &mut usize) {
    if *state & step == 0 {
        *state |= step;
        *counter += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pod_is_counted_once_for_each_step() {
        let (mut known, mut seen) = (HashMap::new(), Seen::default());
        let mut see = |line: &str| see_pod(line.as_bytes(), &mut known, &mut seen).unwrap();
        see(r#"{"type":"ADDED","object":{"metadata":{"name":"a","uid":"1"},"spec":{}}}"#);
        see(r#"{"type":"MODIFIED","object":{"metadata":{"name":"a"},"spec":{"nodeName":"n"}}}"#);
        for _ in 0..2 {
            see(
                r#"{"type":"MODIFIED","object":{"metadata":{"name":"a"},"spec":{"nodeName":"n"},"status":{"conditions":[{"status":"True","type":"Ready"}]}}}"#,
            );
        }
        see(r#"{"type":"ADDED","object":{"metadata":{"name":"b"},"spec":{}}}"#);
        assert_eq!((seen.created, seen.bound, seen.ready, seen.changes), (2, 1, 1, 5));
    }

    #[test]
    fn events_are_counted_by_their_pod() {
        let (mut known, mut seen) = (HashMap::new(), Seen::default());
        for (name, reason) in
            [("a.1", "Scheduled"), ("a.2", "Started"), ("a.3", "Started"), ("b.1", "Pulled")]
        {
            let line = format!(
                r#"{{"type":"ADDED","object":{{"metadata":{{"name":"{name}"}},"reason":"{reason}"}}}}"#
            );
            see_event(line.as_bytes(), &mut known, &mut seen).unwrap();
        }
        assert_eq!((seen.scheduled, seen.started, seen.events), (1, 1, 4));
        assert!(see_event(br#"{"type":"ERROR","object":{}}"#, &mut known, &mut seen).is_err());
    }
}
