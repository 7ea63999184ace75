//! Lists that find nothing among many objects, beside somebody who reads and writes one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tempfile::TempDir;

use super::checks::Checks;
use super::fill;
use super::latencies::Latencies;
use super::server::Server;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many ConfigMaps there are: a run for each number.
    #[arg(long, value_delimiter = ',', default_values_t = [20_000, 60_000, 200_000])]
    objects: Vec<usize>,
    /// How many lists are timed.
    #[arg(long, default_value_t = 20)]
    lists: usize,
}

/// Each with whether it looks at all objects.
const LISTS: [(&str, &str, bool); 3] = [
    ("limit=1, no match", "?limit=1&labelSelector=app%3Dnobody", true),
    ("limit=500, no match", "?limit=500&labelSelector=app%3Dnobody", true),
    ("limit=1", "?limit=1", false),
];
/// How many times longer an object may take among ten times as many: twice leaves room for a cache that they do not fit into; time
/// that grows with the square would be ten times.
const GROWTH: f64 = 2.0;
/// The p99 of another client, in milliseconds.
const OTHERS: f64 = 20.0;
/// So few objects fit into the cache of a processor, where each takes a third of the time: they say nothing about growth.
const TOO_FEW: usize = 50_000;

pub(crate) fn run(options: &Options, binary: &Path, on: &Path, mut checks: Checks) -> Result<()> {
    // How long one object takes, in microseconds, by the title of the list: among how many, and the time.
    let mut first: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
    for count in &options.objects {
        let folder = TempDir::new_in(on)?;
        let server = Server::start(binary, &folder, false)?;
        fill::config_maps(&server, *count)?;
        println!("{count} objects, {:.0} MiB resident", server.resident()?);
        for (title, query, looks_at_all) in LISTS {
            let (lists, other) = time(&server, query, options.lists)?;
            lists.print(title);
            other.print("  another client meanwhile");
            checks.at_most(&format!("  p99 of another client, {title}"), other.at(0.99), OTHERS, "ms");
            if !looks_at_all || *count < TOO_FEW {
                continue;
            }
            let each = lists.at(0.5) * 1000.0 / *count as f64;
            let (fewer, least) = *first.entry(title).or_insert((*count, each));
            if fewer != *count {
                let what = format!("  each of {count}, {each:.3} µs, to each of {fewer}");
                checks.at_most(&what, each / least, GROWTH, "times");
            }
        }
    }
    checks.finish()
}

/// How long lists take, and requests of another client at the same time, one of which in four writes: so no list is of
/// the newest state for long.
fn time(server: &Server, query: &str, count: usize) -> Result<(Latencies, Latencies)> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let other = scope.spawn(|| -> Result<Latencies> {
            let mut connection = server.connect()?;
            let mut times = Vec::new();
            while !done.load(Ordering::Relaxed) {
                times.push(one(&mut connection, times.len())?);
                thread::sleep(Duration::from_millis(1));
            }
            Ok(Latencies::new(times))
        });
        let path = format!("/api/v1/namespaces/default/configmaps{query}");
        let lists = (|| {
            let mut connection = server.connect()?;
            let mut times = Vec::new();
            for _ in 0..count {
                let begun = Instant::now();
                let (status, _) = connection.send("GET", &path, b"")?;
                ensure!(status == 200, "{path}: {status}");
                times.push(begun.elapsed());
            }
            Ok(Latencies::new(times))
        })();
        done.store(true, Ordering::Relaxed);
        let other = other.join().expect("the other client panicked")?;
        Ok((lists?, other))
    })
}

fn one(connection: &mut super::connection::Connection, n: usize) -> Result<Duration> {
    let path = "/api/v1/namespaces/default/configmaps/map-000000";
    let begun = Instant::now();
    let (status, _) = if n % 4 == 3 {
        let body = format!(r#"{{"metadata":{{"name":"map-000000"}},"data":{{"n":"{n}"}}}}"#);
        connection.send("PUT", path, body.as_bytes())?
    } else {
        connection.send("GET", path, b"")?
    };
    ensure!(status == 200, "{path}: {status}");
    Ok(begun.elapsed())
}
