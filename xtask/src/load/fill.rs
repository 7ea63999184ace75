//! Many objects.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tempfile::TempDir;

use super::server::Server;

/// Enough to keep the disk busy.
const CONNECTIONS: usize = 64;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Pods of about 5 KB.
    #[arg(long, default_value_t = 50_000)]
    pods: usize,
    /// ConfigMaps of about 1 KB.
    #[arg(long, default_value_t = 120_000)]
    config_maps: usize,
    /// Keep everything in memory, to compare with.
    #[arg(long)]
    memory: bool,
}

pub(crate) fn run(options: &Options, binary: &Path, on: &Path) -> Result<()> {
    let folder = TempDir::new_in(on)?;
    let server = Server::start(binary, &folder, options.memory)?;
    let begun = Instant::now();
    create(&server, options.pods, "pods", &pod)?;
    config_maps(&server, options.config_maps)?;
    let count = options.pods + options.config_maps;
    println!(
        "{count} objects in {:.1} s, {:.0} MiB resident",
        begun.elapsed().as_secs_f64(),
        server.resident()?
    );
    if options.memory {
        return Ok(());
    }
    let (length, used) = server.file()?;
    println!("file: {length:.0} MiB long, {used:.0} MiB on the disk");
    server.kill()?;
    for how in ["kill -9", "kill -9 again"] {
        let server = Server::start(binary, &folder, false)?;
        println!(
            "after {how}: ready in {:.2} s, {:.0} MiB resident",
            server.started_in.as_secs_f64(),
            server.resident()?
        );
        server.kill()?;
    }
    let server = Server::start(binary, &folder, false)?;
    let stopped = server.stop()?;
    let server = Server::start(binary, &folder, false)?;
    println!(
        "SIGTERM took {:.2} s; after it: ready in {:.2} s, {:.0} MiB resident",
        stopped.as_secs_f64(),
        server.started_in.as_secs_f64(),
        server.resident()?
    );
    thread::sleep(Duration::from_secs(2));
    println!("two seconds later: {:.0} MiB resident", server.resident()?);
    Ok(())
}

/// Many ConfigMaps.
pub(super) fn config_maps(server: &Server, count: usize) -> Result<()> {
    create(server, count, "configmaps", &config_map)
}

fn create(
    server: &Server,
    count: usize,
    plural: &str,
    body: &(dyn Fn(usize) -> String + Sync),
) -> Result<()> {
    let path = format!("/api/v1/namespaces/default/{plural}");
    let path = &path;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..CONNECTIONS)
            .map(|first| {
                scope.spawn(move || -> Result<()> {
                    let mut connection = server.connect()?;
                    for number in (first..count).step_by(CONNECTIONS) {
                        let (status, answer) = connection.send("POST", path, body(number).as_bytes())?;
                        ensure!(status == 201, "{status}: {}", String::from_utf8_lossy(answer));
                    }
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker panicked"))
    })
}

fn pod(number: usize) -> String {
    let text = "x".repeat(4_000);
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"pod-{number:06}","labels":{{"app":"web","shard":"{}"}},"annotations":{{"example.com/notes":"{text}"}}}},"spec":{{"nodeName":"node-{}","containers":[{{"name":"web","image":"registry.example/web:1.2.3","ports":[{{"containerPort":8080}}],"env":[{{"name":"A","value":"b"}}]}}]}}}}"#,
        number % 100,
        number % 500
    )
}

fn config_map(number: usize) -> String {
    let text = "x".repeat(600);
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"map-{number:06}","labels":{{"app":"web"}}}},"data":{{"text":"{text}"}}}}"#
    )
}
