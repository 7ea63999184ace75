//! kubectl get in every format, with every selector.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Kubectl, Scenario};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "get for people: columns, wide, labels", run: columns },
    Scenario { name: "get -o yaml and json", run: yaml_and_json },
    Scenario { name: "get -o name, jsonpath, go-template, custom-columns", run: templates },
    Scenario { name: "get -l", run: by_label },
    Scenario { name: "get --field-selector", run: by_field },
    Scenario { name: "get -A", run: everywhere },
    Scenario { name: "get in chunks", run: chunks },
    Scenario { name: "get several kinds", run: several_kinds },
    Scenario { name: "get events of both versions", run: events },
];

fn three(k: &Kubectl) -> Result<()> {
    for (name, tier) in [("one", "front"), ("two", "back"), ("three", "back")] {
        k.ok(&format!("create configmap {name} --from-literal=name={name}"))?;
        k.ok(&format!("label cm {name} tier={tier} n={name}"))?;
    }
    Ok(())
}

/// Which columns there are is left open: NAME first and AGE last is what a
/// server without tables gives too.
fn columns(k: &Kubectl) -> Result<()> {
    three(k)?;
    for line in ["get configmaps", "get cm -o wide", "get cm --sort-by=.metadata.name"] {
        let printed = k.ok(line)?;
        let rows: Vec<Vec<&str>> = printed.lines().map(|row| row.split_whitespace().collect()).collect();
        ensure!(rows.len() == 4, "{line} printed\n{printed}");
        ensure!(
            rows[0].first() == Some(&"NAME") && rows[0].last() == Some(&"AGE"),
            "{line} printed\n{printed}"
        );
        let names: Vec<&str> = rows[1..].iter().map(|row| row[0]).collect();
        ensure!(names == ["one", "three", "two"], "{line} printed\n{printed}");
    }
    k.mentions("get cm one --show-labels", &["NAME", "LABELS", "one", "n=one,tier=front"])?;
    k.mentions("get cm -L tier", &["TIER", "one", "front", "three", "back"])?;
    let bare = k.ok("get cm one --no-headers")?;
    ensure!(bare.starts_with("one ") && bare.lines().count() == 1, "--no-headers printed\n{bare}");
    Ok(())
}

fn yaml_and_json(k: &Kubectl) -> Result<()> {
    three(k)?;
    k.mentions(
        "get cm one -o yaml",
        &[
            "apiVersion: v1\n",
            "data:\n  name: one\n",
            "kind: ConfigMap\n",
            "metadata:\n",
            "  name: one\n  namespace: {ns}\n",
        ],
    )?;
    let one: Value = serde_json::from_str(&k.ok("get cm one -o json")?)?;
    ensure!(one["kind"] == "ConfigMap" && one["apiVersion"] == "v1" && one["data"]["name"] == "one", "{one}");
    let metadata = &one["metadata"];
    for name in ["uid", "resourceVersion", "creationTimestamp"] {
        ensure!(metadata[name].as_str().is_some_and(|text| !text.is_empty()), "no {name} in {one}");
    }
    ensure!(metadata.get("generation").is_none(), "configmaps have no generation: {one}");
    ensure!(metadata.get("managedFields").is_none(), "kubectl hides managedFields: {one}");
    let all: Value = serde_json::from_str(&k.ok("get cm -o json")?)?;
    let items = all["items"].as_array().context("no items")?;
    ensure!(all["kind"] == "List" && items.len() == 3, "{all}");
    ensure!(items.iter().all(|item| item["kind"] == "ConfigMap" && item["apiVersion"] == "v1"), "{all}");
    Ok(())
}

fn templates(k: &Kubectl) -> Result<()> {
    three(k)?;
    k.says("get cm -o name", "configmap/one\nconfigmap/three\nconfigmap/two")?;
    k.says("get cm one two -o jsonpath='{.items[*].data.name}'", "one two")?;
    k.says(
        "get cm -o jsonpath='{range .items[?(@.metadata.labels.tier==\"back\")]}{.metadata.name};{end}'",
        "three;two;",
    )?;
    k.says("get cm one -o go-template='{{.metadata.name}} {{len .data}}'", "one 1")?;
    k.says(
        "get cm -o custom-columns=N:.metadata.name,T:.metadata.labels.tier",
        "N       T\none     front\nthree   back\ntwo     back",
    )
}

fn by_label(k: &Kubectl) -> Result<()> {
    three(k)?;
    for (selector, names) in [
        ("tier=front", "configmap/one"),
        ("tier==back,n!=two", "configmap/three"),
        ("tier in (front,back),n notin (one)", "configmap/three\nconfigmap/two"),
        ("n,!missing", "configmap/one\nconfigmap/three\nconfigmap/two"),
        ("missing!=x,tier=front", "configmap/one"),
        ("!tier", ""),
    ] {
        k.says(&format!("get cm -o name -l '{selector}'"), names)?;
    }
    Ok(())
}

fn by_field(k: &Kubectl) -> Result<()> {
    three(k)?;
    k.says("get cm --field-selector metadata.name=one -o name", "configmap/one")?;
    k.says("get cm --field-selector metadata.name!=one -o name", "configmap/three\nconfigmap/two")?;
    k.says("get cm -l tier=back --field-selector metadata.name!=two -o name", "configmap/three")?;
    k.ok("run a --image=nginx")?;
    k.ok("run b --image=nginx --overrides='{\"spec\":{\"nodeName\":\"node-1\"}}'")?;
    k.says("get pods --field-selector spec.nodeName=node-1 -o name", "pod/b")?;
    k.says("get pods --field-selector spec.nodeName= -o name", "pod/a")?;
    k.says(
        "get pods --field-selector spec.restartPolicy=Always,status.phase!=Running -o name",
        "pod/a\npod/b",
    )?;
    k.ok("create secret generic s")?;
    k.says("get secrets --field-selector type=Opaque -o name", "secret/s")
}

fn everywhere(k: &Kubectl) -> Result<()> {
    k.ok("create namespace {ns}-other")?;
    k.ok("create cm here")?;
    k.ok("create cm there -n {ns}-other")?;
    k.ok("label cm here mine={ns}")?;
    k.ok("label cm there mine={ns} -n {ns}-other")?;
    // In the order of namespace/name, where "-" is before "/".
    k.says("get cm -A -l mine={ns} -o name", "configmap/there\nconfigmap/here")?;
    k.says(
        "get cm -A -l mine={ns} -o jsonpath='{range .items[*]}{.metadata.namespace}/{.metadata.name} {end}'",
        "{ns}-other/there {ns}/here ",
    )?;
    k.says("get cm -A --field-selector metadata.namespace={ns}-other -o name", "configmap/there")?;
    k.mentions("get cm -A -l mine={ns}", &["NAMESPACE", "NAME", "{ns}-other ", "there", "{ns} ", "here"])?;
    k.mentions("get svc -n default -o name", &["service/kubernetes"])
}

fn chunks(k: &Kubectl) -> Result<()> {
    three(k)?;
    k.says("get cm --chunk-size=1 -o name", "configmap/one\nconfigmap/three\nconfigmap/two")?;
    k.says("get cm --chunk-size=2 -l tier=back -o name", "configmap/three\nconfigmap/two")
}

fn several_kinds(k: &Kubectl) -> Result<()> {
    three(k)?;
    k.ok("create deployment web --image=nginx")?;
    k.ok("create secret generic s")?;
    k.says("get deploy,secret -o name", "deployment.apps/web\nsecret/s")?;
    k.says("get deployments.v1.apps web -o name", "deployment.apps/web")?;
    k.says("get all -o name", "deployment.apps/web")?;
    k.says("get cm/one secret/s -o name", "configmap/one\nsecret/s")
}

const EVENT: &str = r#"{"apiVersion":"v1","kind":"Event","metadata":{"name":"p.1"},"reason":"Tested",
    "involvedObject":{"kind":"Pod","namespace":"{ns}","name":"p"},"message":"it was tested","type":"Normal",
    "source":{"component":"xtask"},"count":2}"#;

fn events(k: &Kubectl) -> Result<()> {
    k.says_given("create --validate=false -f -", EVENT, "event/p.1 created")?;
    let printed = k.ok("get events")?;
    ensure!(printed.contains("pod/p ") || printed.contains("p.1 "), "neither table nor name:\n{printed}");
    k.says("get events --field-selector involvedObject.name=p,reason=Tested -o name", "event/p.1")?;
    k.says("get events --field-selector involvedObject.kind=Node -o name", "")?;
    k.says(
        "get events.events.k8s.io p.1 -o jsonpath='{.apiVersion} {.note} {.regarding.name} {.deprecatedCount}'",
        "events.k8s.io/v1 it was tested p 2",
    )?;
    k.says("delete events.events.k8s.io p.1", "event.events.k8s.io \"p.1\" deleted from {ns} namespace")?;
    k.fails("get event p.1", "Error from server (NotFound): events \"p.1\" not found")
}
