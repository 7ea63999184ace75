//! Every lab, as its README says.

use std::process::Command;

use anyhow::{Result, ensure};

use super::Programs;
use super::stage::{LIMIT, Stage};
use crate::real::process::{self, Lines};

pub(crate) const NAME: &str = "labs: each prints what its README says";

pub(crate) fn run(stage: &Stage, programs: &Programs) -> Result<()> {
    let command = |name: &str| -> Command {
        let mut command = programs.command(name);
        command.env("KUBECONFIG", stage.kubeconfig());
        command
    };
    let prints = |name: &str, arguments: &[&str], words: &[&str]| -> Result<()> {
        let mut command = command(name);
        command.args(arguments);
        let done = process::run(command, None, LIMIT)?;
        ensure!(done.status.success(), "{name}: {}", done.stderr);
        for word in words {
            ensure!(done.stdout.contains(word), "{name} does not print {word:?}:\n{}", done.stdout);
        }
        Ok(())
    };
    let mut informer = Lines::start(command("lab-informer"))?;
    informer.until("synced", LIMIT)?;
    let mut queue = Lines::start(command("lab-informer-workqueue"))?;
    let mut watch = Lines::start(command("lab-list-watch"))?;
    watch.until("watching from", LIMIT)?;

    stage.kubectl("run test --image=nginx")?;
    informer.until("added default/test", LIMIT)?;
    watch.until("ADDED test", LIMIT)?;
    queue.until("default/test is Running", LIMIT)?;
    prints("lab-rest-client", &[], &["default test Running", "pods at resourceVersion"])?;
    prints(
        "lab-typed-client",
        &["test"],
        &["pod default/test is Running on", "test runs nginx", "pods run", " Ready"],
    )?;
    prints("lab-dynamic-client", &["v1", "pods"], &["Pod default/test"])?;
    prints("lab-discovery-client", &[], &["apps/v1", "pods v1 Pod namespaced"])?;

    stage.kubectl("delete pod test")?;
    informer.until("deleted default/test", LIMIT)?;
    watch.until("DELETED test", LIMIT)?;
    queue.until("default/test is gone", LIMIT).map(drop)
}
