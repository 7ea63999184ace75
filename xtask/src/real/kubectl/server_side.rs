//! kubectl apply --server-side: conflicts, force, and the way there from client-side apply.

use anyhow::{Result, ensure};

use super::{Kubectl, Scenario};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "server-side apply: a conflict, and --force-conflicts", run: conflict },
    Scenario { name: "server-side apply: fields that leave the file leave the object", run: prune },
    Scenario { name: "server-side apply: after client-side apply", run: migrate },
    Scenario { name: "server-side apply: --show-managed-fields", run: show },
];

fn map(data: &str) -> String {
    format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"c"}},"data":{{{data}}}}}"#)
}

fn conflict(k: &Kubectl) -> Result<()> {
    k.says_given("apply --server-side -f -", &map(r#""a":"1""#), "configmap/c serverside-applied")?;
    // What follows are kubectl's own words about what to do now.
    k.complains_given(
        "apply --server-side --field-manager=other -f -",
        &map(r#""a":"2""#),
        "error: Apply failed with 1 conflict: conflict with \"kubectl\": .data.a\nPlease review the fields above",
    )?;
    k.says("get cm c -o jsonpath='{.data.a}'", "1")?;
    k.says_given(
        "apply --server-side --field-manager=other --force-conflicts -f -",
        &map(r#""a":"2""#),
        "configmap/c serverside-applied",
    )?;
    k.says("get cm c -o jsonpath='{.data.a}'", "2")
}

fn prune(k: &Kubectl) -> Result<()> {
    k.ok("create cm c --from-literal=mine=1")?;
    k.says_given("apply --server-side -f -", &map(r#""a":"1","b":"2""#), "configmap/c serverside-applied")?;
    k.says_given("apply --server-side -f -", &map(r#""b":"2""#), "configmap/c serverside-applied")?;
    k.says("get cm c -o jsonpath='{.data}'", r#"{"b":"2","mine":"1"}"#)
}

fn migrate(k: &Kubectl) -> Result<()> {
    k.says_given("apply -f -", &map(r#""a":"1""#), "configmap/c created")?;
    k.says_given("apply --server-side -f -", &map(r#""a":"2""#), "configmap/c serverside-applied")?;
    let last = k.ok(
        r"get cm c -o jsonpath='{.metadata.annotations.kubectl\.kubernetes\.io/last-applied-configuration}'",
    )?;
    ensure!(last.contains(r#""a":"2""#), "the annotation is not up to date: {last}");
    k.says_given("apply -f -", &map(r#""a":"3""#), "configmap/c configured")?;
    k.says("get cm c -o jsonpath='{.data.a}'", "3")
}

fn show(k: &Kubectl) -> Result<()> {
    k.says_given("apply --server-side -f -", &map(r#""a":"1""#), "configmap/c serverside-applied")?;
    let hidden = k.ok("get cm c -o yaml")?;
    ensure!(!hidden.contains("managedFields"), "kubectl hides them: {hidden}");
    let shown = k.ok("get cm c -o yaml --show-managed-fields")?;
    ensure!(shown.contains("f:a: {}") && shown.contains("operation: Apply"), "it shows them: {shown}");
    Ok(())
}
