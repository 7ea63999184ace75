//! What the servers of a test program use: processor time and memory, read from `/proc` while they run.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow};

/// How often it looks. What a server uses after the last look before its end is not counted.
const LOOK: Duration = Duration::from_millis(50);
/// How long servers may outlive the program that has started them.
const GRACE: Duration = Duration::from_secs(5);
/// What the kernel counts processor time in, for every program on Linux.
const TICK: Duration = Duration::from_millis(10);

/// What servers have used.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    wall: Duration,
    cpu: Duration,
    /// The most memory that all of them had at one moment.
    peak_kib: u64,
    left_over: usize,
}

impl Usage {
    /// Adds a program that ran after the others.
    pub(super) fn add(&mut self, wall: Duration, other: &Usage) {
        self.wall += wall;
        self.cpu += other.cpu;
        self.peak_kib = self.peak_kib.max(other.peak_kib);
    }

    pub(super) fn wall(&self) -> Duration {
        self.wall
    }

    /// How many of them were still there some time after the program had ended.
    pub(super) fn left_over(&self) -> usize {
        self.left_over
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mebibytes = self.peak_kib / 1024;
        write!(f, "{:.1} s of processor time, at most {mebibytes} MiB at once", self.cpu.as_secs_f64())
    }
}

/// Looks at the servers of a program.
pub(super) struct Watcher {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Usage>,
}

impl Watcher {
    pub(super) fn start(program: u32) -> Watcher {
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let is_over = Arc::clone(&is_over);
            move || look_until(program, &is_over)
        });
        Watcher { is_over, thread }
    }

    /// Call it when the program has ended.
    pub(super) fn finish(self) -> Result<Usage> {
        self.is_over.store(true, Ordering::Release);
        self.thread.join().map_err(|_| anyhow!("the watcher of the servers has panicked"))
    }
}

fn look_until(program: u32, is_over: &AtomicBool) -> Usage {
    let mut seen: BTreeMap<u32, Duration> = BTreeMap::new();
    let mut peak_kib = 0;
    while !is_over.load(Ordering::Acquire) {
        let servers = servers_of(program);
        peak_kib = peak_kib.max(servers.iter().map(|server| server.resident_kib).sum());
        seen.extend(servers.into_iter().map(|server| (server.id, server.cpu)));
        thread::sleep(LOOK);
    }
    let mut waited = Duration::ZERO;
    let left = || seen.keys().filter(|id| Server::read(**id).is_some()).count();
    while left() > 0 && waited < GRACE {
        thread::sleep(LOOK);
        waited += LOOK;
    }
    Usage { wall: Duration::ZERO, cpu: seen.values().sum(), peak_kib, left_over: left() }
}

struct Server {
    id: u32,
    parent: u32,
    cpu: Duration,
    resident_kib: u64,
}

impl Server {
    /// The process of this number, if it is a server that runs.
    fn read(id: u32) -> Option<Server> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let (head, tail) = stat.rsplit_once(") ")?;
        let name = head.split_once('(')?.1;
        let fields: Vec<&str> = tail.split(' ').collect();
        if !matches!(name, "kube-apiserver" | "etcd") {
            return None;
        }
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        if fields.first() == Some(&"Z") {
            return None;
        }
        let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(Server {
            id,
            parent: number(1)?.try_into().ok()?,
            cpu: TICK * u32::try_from(number(11)? + number(12)?).ok()?,
            resident_kib: resident.split_whitespace().next()?.parse().ok()?,
        })
    }
}

fn servers_of(program: u32) -> Vec<Server> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(Server::read).filter(|server| server.parent == program).collect()
}
