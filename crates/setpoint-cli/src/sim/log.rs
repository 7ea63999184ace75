//! What was seen and what was done, as it happens and in the end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use parking_lot::Mutex;
use setpoint_sim::{Entry, Verb, What};

/// How many faults the summary tells; the log has all.
const TOLD: usize = 50;

pub(super) struct Log {
    file: Option<Mutex<File>>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    requests: u64,
    writes: u64,
    watches: u64,
    events: u64,
    /// By the first digit of the status.
    answers: BTreeMap<u16, u64>,
    broken: u64,
    faults: u64,
    told: Vec<String>,
    starts: u64,
    kills: u64,
    ends: u64,
}

impl Log {
    pub(super) fn open(path: Option<&Path>) -> anyhow::Result<Log> {
        let open = |path: &Path| {
            File::create(path).with_context(|| format!("cannot write the log {}", path.display()))
        };
        Ok(Log { file: path.map(open).transpose()?.map(Mutex::new), seen: Mutex::default() })
    }

    /// Something happened to a request.
    pub(super) fn entry(&self, entry: &Entry) {
        let at = entry.at.as_secs_f64();
        let request = format!("#{} {} {}", entry.number, entry.request.method, entry.request.path);
        let mut seen = self.seen.lock();
        let line = match &entry.what {
            What::Sent { .. } => {
                seen.requests += 1;
                seen.writes += u64::from(entry.request.verb.is_write());
                seen.watches += u64::from(entry.request.verb == Verb::Watch);
                return;
            }
            What::Event { .. } => {
                seen.events += 1;
                return;
            }
            What::Answered { status, bytes, .. } => {
                *seen.answers.entry(status / 100).or_default() += 1;
                format!("{request}: {status}, {bytes} bytes")
            }
            What::Fault(prose) => {
                seen.faults += 1;
                let line = format!("{at:9.3}s {prose}");
                if seen.told.len() < TOLD {
                    seen.told.push(line.clone());
                }
                drop(seen);
                return self.tell(&format!("{line} (#{})", entry.number), true);
            }
            What::Watching => format!("{request}: watching"),
            What::Ended => format!("{request}: the watch ended"),
            What::Broken(error) => {
                seen.broken += 1;
                format!("{request}: broken: {error}")
            }
            What::Abandoned => format!("{request}: the controller disconnected"),
            _ => return,
        };
        drop(seen);
        self.tell(&format!("{at:9.3}s {line}"), false);
    }

    pub(super) fn started(&self) {
        self.seen.lock().starts += 1;
        self.tell("the command starts", true);
    }

    pub(super) fn killed(&self) {
        self.seen.lock().kills += 1;
        self.tell("the command was killed", true);
    }

    pub(super) fn ended(&self, status: &str) {
        self.seen.lock().ends += 1;
        self.tell(&format!("the command ended by itself: {status}"), true);
    }

    /// Everything goes to the file; without one, what matters goes to standard error.
    fn tell(&self, line: &str, matters: bool) {
        let line = format!("{line}\n");
        // Nobody is left to tell if this fails.
        let _written = match &self.file {
            Some(file) => file.lock().write_all(line.as_bytes()),
            None if matters => std::io::stderr().write_all(line.as_bytes()),
            None => Ok(()),
        };
    }

    /// What a run has come to.
    pub(super) fn summary(&self) -> String {
        let seen = self.seen.lock();
        let Seen { requests, writes, watches, events, broken, faults, starts, kills, ends, .. } = *seen;
        let mut text = format!(
            "{requests} requests ({writes} writes; {watches} watches with {events} events; {broken} broken), "
        );
        let answers: Vec<String> =
            seen.answers.iter().map(|(digit, count)| format!("{count} × {digit}xx")).collect();
        let _never = writeln!(
            text,
            "answered {}",
            if answers.is_empty() { "none".to_owned() } else { answers.join(", ") }
        );
        if starts > 0 {
            let _never = writeln!(
                text,
                "the command was started {starts} times, killed {kills} times, ended by itself {ends} times"
            );
        }
        let _never = writeln!(text, "{faults} faults");
        seen.told.iter().for_each(|line| {
            let _never = writeln!(text, "{line}");
        });
        if faults > seen.told.len() as u64 {
            let _never = writeln!(text, "  … and {} more", faults - seen.told.len() as u64);
        }
        text
    }
}
