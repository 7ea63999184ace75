//! The informer benchmark: our informer and kube-rs' reflector against the same server.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};

/// A client to measure: a name, and the command line after the port and the number of events.
struct Client<'a> {
    name: &'a str,
    program: &'a Path,
    arguments: &'a [&'a str],
}

pub(crate) fn run(objects: usize, events: u64, rounds: usize, only: Option<&str>) -> anyhow::Result<()> {
    let this = std::env::current_exe()?;
    let peer = build_peer(&this)?;
    let clients = [
        Client {
            name: "setpoint, streaming",
            program: &this,
            arguments: &["informer-client", "--streaming"],
        },
        Client { name: "setpoint, list", program: &this, arguments: &["informer-client"] },
        Client {
            name: "kube-rs, managedFields dropped, streaming",
            program: &peer,
            arguments: &["--drop", "--streaming"],
        },
        Client { name: "kube-rs, managedFields dropped, list", program: &peer, arguments: &["--drop"] },
        Client { name: "kube-rs, whole, list", program: &peer, arguments: &[] },
    ];
    println!("{objects} Pods, then {events} events; best of {rounds}\n");
    println!("| client | sync s | CPU s | RSS MB | events/s | CPU s | told | end RSS MB | peak RSS MB |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for client in clients.iter().filter(|client| only.is_none_or(|only| client.name.contains(only))) {
        let mut best: Option<Value> = None;
        for _ in 0..rounds {
            let result = measure(&this, client, objects, events)?;
            let speed = |result: &Value| result["events_per_second"].as_f64().unwrap_or_default();
            if best.as_ref().is_none_or(|best| speed(&result) > speed(best)) {
                best = Some(result);
            }
        }
        let result = best.context("at least one round")?;
        let number = |name: &str| result[name].as_f64().unwrap_or_default();
        println!(
            "| {} | {:.2} | {:.2} | {:.0} | {:.0} | {:.2} | {:.0} | {:.0} | {:.0} |",
            client.name,
            number("sync_seconds"),
            number("sync_cpu_seconds"),
            number("sync_rss_mb"),
            number("events_per_second"),
            number("events_cpu_seconds"),
            number("told"),
            number("rss_mb"),
            number("peak_rss_mb"),
        );
    }
    Ok(())
}

/// One run: a fresh server, one client.
fn measure(this: &Path, client: &Client<'_>, objects: usize, events: u64) -> anyhow::Result<Value> {
    let mut server = Command::new(this)
        .args(["replay-server", &objects.to_string(), &events.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .context("starting the replay server")?;
    let result = ask(&mut server, client, events);
    server.kill()?;
    server.wait()?;
    result
}

fn ask(server: &mut std::process::Child, client: &Client<'_>, events: u64) -> anyhow::Result<Value> {
    let mut port = String::new();
    BufReader::new(server.stdout.take().context("its output")?).read_line(&mut port)?;
    let output = Command::new(client.program)
        .args(client.arguments)
        .args([port.trim(), &events.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("running {}", client.program.display()))?;
    ensure!(output.status.success(), "{} failed", client.name);
    serde_json::from_slice(&output.stdout).context("reading the client's result")
}

/// Builds the kube-rs client beside this program.
fn build_peer(this: &Path) -> anyhow::Result<std::path::PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--package", "setpoint-bench-kube-rs"]);
    let directory = this.parent().context("the directory of this program")?;
    if directory.ends_with("release") {
        build.arg("--release");
    }
    ensure!(build.status()?.success(), "the kube-rs client does not build");
    Ok(directory.join("setpoint-bench-kube-rs"))
}
