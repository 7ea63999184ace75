//! Writers that patch one object at the same time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};
use tempfile::TempDir;

use super::latencies::Latencies;
use super::server::Server;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many clients patch the object.
    #[arg(long, default_value_t = 24)]
    writers: usize,
    /// How many patches each of them sends.
    #[arg(long, default_value_t = 40)]
    patches: usize,
    /// Keep everything in memory, to compare with.
    #[arg(long)]
    memory: bool,
}

/// Each patch sets a field of its own, so whatever is lost is missing at the end.
pub(crate) fn run(options: &Options, binary: &Path, on: &Path) -> Result<()> {
    let folder = TempDir::new_in(on)?;
    let server = Server::start(binary, &folder, options.memory)?;
    let (collection, path) =
        ("/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/configmaps/contested");
    let (status, _) = server.connect()?.send("POST", collection, br#"{"metadata":{"name":"contested"}}"#)?;
    ensure!(status == 201, "the object was not created: {status}");
    let barrier = Barrier::new(options.writers);
    let begun = Instant::now();
    let outcomes: Vec<_> = thread::scope(|scope| {
        let writers: Vec<_> = (0..options.writers)
            .map(|writer| {
                let (server, barrier) = (&server, &barrier);
                scope.spawn(move || -> Result<Vec<_>> {
                    let mut connection = server.connect()?;
                    barrier.wait();
                    let patch = |n| format!(r#"{{"data":{{"w{writer}-{n}":"x"}}}}"#);
                    (0..options.patches)
                        .map(|n| {
                            let sent = Instant::now();
                            let kind = "application/merge-patch+json";
                            let (status, _) = connection.send_as("PATCH", path, kind, patch(n).as_bytes())?;
                            Ok((status, sent.elapsed()))
                        })
                        .collect()
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().expect("a writer panicked")).collect::<Result<_>>()
    })?;
    let took = begun.elapsed().as_secs_f64();
    let mut codes = BTreeMap::new();
    let mut times = Vec::new();
    for (status, time) in outcomes.into_iter().flatten() {
        *codes.entry(status).or_insert(0_usize) += 1;
        times.push(time);
    }
    let total = options.writers * options.patches;
    println!("{} writers × {} patches in {took:.2} s: {codes:?}", options.writers, options.patches);
    Latencies::new(times).print("a patch");
    let mut connection = server.connect()?;
    let (_, answer) = connection.send("GET", path, b"")?;
    let object: serde_json::Value = serde_json::from_slice(answer)?;
    let kept = object["data"].as_object().map_or(0, serde_json::Map::len);
    println!("{kept} of {total} are in the object");
    ensure!(codes.get(&200) == Some(&total) && kept == total, "a patch was refused or lost");
    Ok(())
}
