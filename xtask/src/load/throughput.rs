//! Creates a second.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tempfile::TempDir;

use super::server::Server;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many connections write at once; may be given several times.
    #[arg(long, default_values_t = [1, 16, 64])]
    connections: Vec<usize>,
    /// How long.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

pub(crate) fn run(options: &Options, binary: &Path, on: &Path) -> Result<()> {
    let limit = Duration::from_secs(options.seconds);
    println!("disk: {:.0} syncs of 4 KiB a second", syncs(on, Duration::from_secs(2))?);
    for memory in [true, false] {
        for connections in &options.connections {
            let run = measure(binary, on, memory, *connections, limit)?;
            println!(
                "{} with {connections} connections: {:.0} creates/s, p50 {:.1} ms, p99 {:.1} ms, {:.3} ms \
                 server CPU a create, {:.0} MiB resident",
                if memory { "memory" } else { "redb" },
                run.rate,
                run.p50,
                run.p99,
                run.cpu,
                run.resident,
            );
        }
    }
    Ok(())
}

/// What so many connections bring about.
pub(crate) struct Run {
    /// Creates a second.
    pub(crate) rate: f64,
    /// Milliseconds, as the processor time of the server a create.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) cpu: f64,
    /// MiB
    pub(crate) resident: f64,
}

/// Puts load on a server of its own.
pub(crate) fn measure(
    binary: &Path,
    on: &Path,
    memory: bool,
    connections: usize,
    limit: Duration,
) -> Result<Run> {
    let folder = TempDir::new_in(on)?;
    let server = Server::start(binary, &folder, memory)?;
    let before = server.cpu()?;
    let begun = Instant::now();
    let mut times = creates(&server, connections, limit)?;
    let (took, cpu) = (begun.elapsed().as_secs_f64(), server.cpu()? - before);
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    let count = times.len() as f64;
    Ok(Run {
        rate: count / took,
        p50: at(0.5),
        p99: at(0.99),
        cpu: cpu * 1e3 / count,
        resident: server.resident()?,
    })
}

/// How many small writes the disk makes durable a second, tried for so long.
pub(crate) fn syncs(on: &Path, limit: Duration) -> Result<f64> {
    let mut file: File = tempfile::tempfile_in(on)?;
    file.write_all(&vec![1; 1 << 20])?;
    file.sync_all()?;
    let begun = Instant::now();
    let mut count = 0;
    while begun.elapsed() < limit {
        file.rewind()?;
        file.write_all(&[2; 4096])?;
        file.sync_data()?;
        count += 1;
    }
    Ok(f64::from(count) / begun.elapsed().as_secs_f64())
}

/// How long each create took.
fn creates(server: &Server, connections: usize, limit: Duration) -> Result<Vec<Duration>> {
    thread::scope(|scope| {
        let workers: Vec<_> =
            (0..connections).map(|number| scope.spawn(move || work(server, number, limit))).collect();
        let mut times = Vec::new();
        for worker in workers {
            times.extend(worker.join().expect("a worker panicked")?);
        }
        Ok(times)
    })
}

fn work(server: &Server, number: usize, limit: Duration) -> Result<Vec<Duration>> {
    let mut connection = server.connect()?;
    let text = "x".repeat(256);
    let body = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"load-{number:04}-00000000","labels":{{"app":"load"}}}},"data":{{"text":"{text}"}}}}"#
    );
    let at = body.find("00000000\"").expect("the name is there");
    let mut body = body.into_bytes();
    let mut times = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < limit {
        write!(&mut body[at..at + 8], "{:08}", times.len())?;
        let sent = Instant::now();
        let (status, answer) = connection.send("POST", "/api/v1/namespaces/default/configmaps", &body)?;
        ensure!(status == 201, "{status}: {}", String::from_utf8_lossy(answer));
        times.push(sent.elapsed());
    }
    Ok(times)
}
