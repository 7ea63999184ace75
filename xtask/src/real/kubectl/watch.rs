//! kubectl get -w, kubectl wait.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Kubectl, Scenario};
use crate::real::process::Lines;

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "get -w shows what is there and what comes", run: watch_all },
    Scenario { name: "get -w of one object", run: watch_one },
    Scenario { name: "get -w --output-watch-events with a selector", run: watch_events },
    Scenario { name: "wait for a field, for creation, for deletion", run: wait },
];

const SOON: Duration = Duration::from_secs(30);

/// The next line is this one: nothing is missing, nothing comes twice.
fn next_is(lines: &mut Lines, expected: &str) -> Result<()> {
    let line = lines.next(SOON)?;
    ensure!(line == expected, "expected {expected:?}, got {line:?}");
    Ok(())
}

fn watch_all(k: &Kubectl) -> Result<()> {
    k.ok("create cm first")?;
    let mut table = k.start("get configmaps -w")?;
    let mut names = k.start("get cm -w -o name")?;
    table.until("NAME ", SOON)?;
    table.until("first ", SOON)?;
    next_is(&mut names, "configmap/first")?;
    k.ok("create cm second")?;
    table.until("second ", SOON)?;
    next_is(&mut names, "configmap/second")
}

fn watch_one(k: &Kubectl) -> Result<()> {
    k.ok("create cm mine")?;
    let mut mine = k.start("get cm mine -w -o jsonpath='{.metadata.name}={.data.k}{\"\\n\"}'")?;
    next_is(&mut mine, "mine=")?;
    k.ok("create cm other")?;
    k.ok("patch cm mine --type=merge -p '{\"data\":{\"k\":\"v\"}}'")?;
    next_is(&mut mine, "mine=v")
}

/// An object that leaves the selector is DELETED, one that enters is ADDED.
fn watch_events(k: &Kubectl) -> Result<()> {
    k.ok("create cm there")?;
    k.ok("label cm there in=yes")?;
    let mut events = k.start(
        "get cm -l in=yes -w --output-watch-events -o jsonpath='{.type} {.object.metadata.name}{\"\\n\"}'",
    )?;
    next_is(&mut events, "ADDED there")?;
    k.ok("create cm late")?;
    k.ok("label cm late in=yes")?;
    next_is(&mut events, "ADDED late")?;
    k.ok("annotate cm late a=b")?;
    // Writes nothing, so nobody is told.
    k.ok("annotate cm late a=b")?;
    k.ok("label cm late in-")?;
    next_is(&mut events, "MODIFIED late")?;
    next_is(&mut events, "DELETED late")?;
    k.ok("delete cm there")?;
    next_is(&mut events, "DELETED there")
}

fn wait(k: &Kubectl) -> Result<()> {
    k.ok("create cm c --from-literal=state=new")?;
    k.says("wait cm/c --for=jsonpath='{.data.state}'=new --timeout=20s", "configmap/c condition met")?;
    let mut changed = k.start("wait cm/c --for=jsonpath='{.data.state}'=old --timeout=30s")?;
    k.ok("patch cm c --type=merge -p '{\"data\":{\"state\":\"old\"}}'")?;
    next_is(&mut changed, "configmap/c condition met")?;
    let mut made = k.start("wait cm/d --for=create --timeout=30s")?;
    k.ok("create cm d")?;
    next_is(&mut made, "configmap/d condition met")?;
    k.fails(
        "wait cm/c --for=jsonpath='{.data.state}'=never --timeout=1s",
        "error: timed out waiting for the condition on configmaps/c",
    )?;
    // The finalizer keeps it there until kubectl delete watches it.
    k.ok("patch cm c --type=merge -p '{\"metadata\":{\"finalizers\":[\"example.com/hold\"]}}'")?;
    let mut gone = k.start("delete cm c")?;
    next_is(&mut gone, "configmap \"c\" deleted from {ns} namespace".replace("{ns}", &k.namespace).as_str())?;
    k.mentions("get cm c -o jsonpath='{.metadata.deletionTimestamp}'", &["Z"])?;
    k.says(
        "patch cm c --type=json -p '[{\"op\":\"remove\",\"path\":\"/metadata/finalizers\"}]'",
        "configmap/c patched",
    )?;
    ensure!(gone.next(SOON).is_err(), "kubectl delete did not end");
    k.fails("get cm c", "Error from server (NotFound): configmaps \"c\" not found")
}
