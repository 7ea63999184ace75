//! Lease renewals, events and updates for a long time.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::connection::{Connection, resource_version};
use super::server::Server;
use super::svg::{self, Chart};

/// Connections of each of the three kinds of work.
const CONNECTIONS: usize = 8;
/// How many leases and ConfigMaps each connection has.
const OBJECTS: usize = 500;
/// How many events of each connection are there at a time.
const EVENTS: usize = 1_000;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Where the samples go.
    #[arg(long, default_value = "target/soak.csv")]
    csv: PathBuf,
    /// Where the plot goes.
    #[arg(long, default_value = "docs/img/soak.svg")]
    svg: PathBuf,
}

#[derive(Default)]
struct Progress {
    stop: AtomicBool,
    leases: AtomicU64,
    events: AtomicU64,
    updates: AtomicU64,
}

/// What was seen at one moment.
struct Sample {
    second: f64,
    resident: f64,
    length: f64,
    used: f64,
    writes: [u64; 3],
}

pub(crate) fn run(options: &Options, binary: &Path, on: &Path) -> Result<()> {
    let folder = TempDir::new_in(on)?;
    let server = Server::start(binary, &folder, false)?;
    let progress = Progress::default();
    let samples = thread::scope(|scope| {
        let mut workers = Vec::new();
        for number in 0..CONNECTIONS {
            let (server, progress) = (&server, &progress);
            workers.push(
                scope.spawn(move || renew(server.connect()?, number, &LEASE, progress, &progress.leases)),
            );
            workers.push(
                scope.spawn(move || renew(server.connect()?, number, &MAP, progress, &progress.updates)),
            );
            workers.push(scope.spawn(move || tell(server.connect()?, number, progress)));
        }
        let samples = watch(&server, &progress, options.seconds);
        progress.stop.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().expect("a worker panicked")?;
        }
        samples
    })?;
    report(&samples, options)
}

fn watch(server: &Server, progress: &Progress, seconds: u64) -> Result<Vec<Sample>> {
    let begun = Instant::now();
    let mut samples = Vec::new();
    while begun.elapsed() < Duration::from_secs(seconds) {
        let (length, used) = server.file()?;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        samples.push(Sample {
            second: begun.elapsed().as_secs_f64(),
            resident: server.resident()?,
            length,
            used,
            writes: [count(&progress.leases), count(&progress.events), count(&progress.updates)],
        });
        thread::sleep(Duration::from_secs(1));
    }
    Ok(samples)
}

/// A kind of object that is updated again and again.
struct Kind {
    path: &'static str,
    body: fn(name: &str, version: &str, count: u64) -> String,
}

const LEASE: Kind = Kind {
    path: "/apis/coordination.k8s.io/v1/namespaces/default/leases",
    body: |name, version, count| {
        format!(
            r#"{{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{{"name":"{name}"{version}}},"spec":{{"holderIdentity":"{name}","leaseDurationSeconds":40,"leaseTransitions":{count}}}}}"#
        )
    },
};

const MAP: Kind = Kind {
    path: "/api/v1/namespaces/default/configmaps",
    body: |name, version, count| {
        let text = "x".repeat(800 + (count as usize * 37) % 400);
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"{version}}},"data":{{"count":"{count}","text":"{text}"}}}}"#
        )
    },
};

fn renew(
    mut connection: Connection,
    number: usize,
    kind: &Kind,
    progress: &Progress,
    done: &AtomicU64,
) -> Result<()> {
    let mut versions = Vec::new();
    for object in 0..OBJECTS {
        let body = (kind.body)(&format!("soak-{number}-{object}"), "", 0);
        versions.push(send(&mut connection, "POST", kind.path, &body)?);
    }
    for count in 1.. {
        for (object, version) in versions.iter_mut().enumerate() {
            if progress.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let name = format!("soak-{number}-{object}");
            let body = (kind.body)(&name, &format!(r#","resourceVersion":"{version}""#), count);
            *version = send(&mut connection, "PUT", &format!("{}/{name}", kind.path), &body)?;
            done.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Creates events; the oldest are deleted as if their time were over.
fn tell(mut connection: Connection, number: usize, progress: &Progress) -> Result<()> {
    let path = "/api/v1/namespaces/default/events";
    let mut count = 0;
    while !progress.stop.load(Ordering::Relaxed) {
        let body = format!(
            r#"{{"apiVersion":"v1","kind":"Event","metadata":{{"name":"soak-{number}-{count}"}},"involvedObject":{{"kind":"Pod","namespace":"default","name":"web-{count}"}},"reason":"Started","message":"Started container web","type":"Normal","count":1,"source":{{"component":"kubelet"}}}}"#
        );
        send(&mut connection, "POST", path, &body)?;
        if count >= EVENTS {
            let (status, answer) =
                connection.send("DELETE", &format!("{path}/soak-{number}-{}", count - EVENTS), b"")?;
            ensure!(status == 200, "{status}: {}", String::from_utf8_lossy(answer));
        }
        count += 1;
        progress.events.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Gives the resourceVersion of the answer.
fn send(connection: &mut Connection, method: &str, path: &str, body: &str) -> Result<String> {
    let (status, answer) = connection.send(method, path, body.as_bytes())?;
    ensure!(status < 300, "{method} {path}: {status}: {}", String::from_utf8_lossy(answer));
    Ok(resource_version(answer).context("an answer without resourceVersion")?.to_owned())
}

fn report(samples: &[Sample], options: &Options) -> Result<()> {
    let mut csv = "second,resident_mib,file_mib,file_on_disk_mib,lease_renewals,events,updates\n".to_owned();
    for Sample { second, resident, length, used, writes: [leases, events, updates] } in samples {
        let _ = writeln!(csv, "{second:.1},{resident:.1},{length:.1},{used:.1},{leases},{events},{updates}");
    }
    for path in [&options.csv, &options.svg] {
        std::fs::create_dir_all(path.parent().context("a file in no folder")?)?;
    }
    std::fs::write(&options.csv, csv)?;
    let column = |value: fn(&Sample) -> f64| samples.iter().map(value).collect::<Vec<f64>>();
    let total = |sample: &Sample| sample.writes.iter().sum::<u64>() as f64;
    let mut rate = vec![0.0];
    for pair in samples.windows(2) {
        rate.push((total(&pair[1]) - total(&pair[0])) / (pair[1].second - pair[0].second));
    }
    let charts = [
        Chart { title: "Resident memory, MiB", lines: vec![("resident", column(|s| s.resident))] },
        Chart {
            title: "File of the store, MiB",
            lines: vec![("length", column(|s| s.length)), ("on the disk", column(|s| s.used))],
        },
        Chart { title: "Lease renewals, events and updates a second", lines: vec![("writes/s", rate)] },
    ];
    std::fs::write(&options.svg, svg::draw(&charts, &column(|s| s.second)))?;
    for share in [1, 2, 3, 4] {
        let sample = &samples[samples.len() * share / 4 - 1];
        println!(
            "after {:.0} s: {:.0} writes, {:.0} MiB resident, file {:.0} MiB long, {:.0} MiB on the disk",
            sample.second,
            total(sample),
            sample.resident,
            sample.length,
            sample.used
        );
    }
    Ok(())
}
