//! What a process used: time, CPU, memory. Shared by all clients.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// One allocator for all: decoding on several threads and freeing on others shows the locks of glibc's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A run of a client, from its start.
pub(crate) struct Run {
    start: Instant,
    synced: Option<Phase>,
}

struct Phase {
    time: Duration,
    cpu: Duration,
    rss: u64,
}

impl Run {
    pub(crate) fn start() -> Run {
        Run { start: Instant::now(), synced: None }
    }

    fn phase(&self) -> Phase {
        Phase { time: self.start.elapsed(), cpu: cpu(), rss: status("VmRSS") }
    }

    /// The first list is cached.
    pub(crate) fn synced(&mut self) {
        self.synced = Some(self.phase());
    }

    /// The last event has come.
    pub(crate) fn finish(&self, objects: usize, events: u64, told: u64) -> Value {
        let end = self.phase();
        let synced = self.synced.as_ref().expect("synced before the end");
        let events_time = (end.time - synced.time).as_secs_f64();
        json!({
            "objects": objects,
            "sync_seconds": synced.time.as_secs_f64(),
            "sync_cpu_seconds": synced.cpu.as_secs_f64(),
            "sync_rss_mb": synced.rss / 1024,
            "events_per_second": (events as f64 / events_time).round(),
            "events_seconds": events_time,
            "events_cpu_seconds": (end.cpu - synced.cpu).as_secs_f64(),
            "told": told,
            "rss_mb": end.rss / 1024,
            "peak_rss_mb": status("VmHWM") / 1024,
        })
    }
}

/// User and system time of this process.
pub(crate) fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks =
        |field: usize| fields.get(field).and_then(|ticks| ticks.parse::<u64>().ok()).unwrap_or_default();
    // A tick is a hundredth of a second on every Linux that we know.
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

/// A line of /proc/self/status, in kB.
pub(crate) fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}
