//! kubectl proxy and plain HTTP, as the lab of the seeds does with curl.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Kubectl, Scenario};
use crate::real::http::{Client, Response};
use crate::real::process::Lines;

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "proxy: list pods, then watch them from that version", run: list_then_watch },
    Scenario { name: "proxy: the legacy watch paths", run: legacy_paths },
    Scenario { name: "proxy: what counts as watch=true", run: truthy },
    Scenario { name: "proxy: a streaming list ends with its bookmark", run: streaming_list },
    Scenario { name: "proxy: errors are Status objects", run: errors },
];

/// Starts a proxy on a free port and returns a client of it.
pub(super) fn proxy(k: &Kubectl) -> Result<(Lines, Client)> {
    let mut process = k.start("proxy --port=0")?;
    let line = process.until("Starting to serve on ", Duration::from_secs(30))?;
    let address = line.rsplit(' ').next().context("no address")?;
    Ok((process, Client::plain(address)))
}

fn watch(client: &Client, path: &str) -> Result<Response> {
    let response = client.get(path)?;
    let status = response.status;
    ensure!(status == 200, "{path} answered {status}: {}", response.text()?);
    ensure!(response.is_chunked(), "{path} is not chunked");
    ensure!(
        response.header("content-type") == Some("application/json"),
        "{:?}",
        response.header("content-type")
    );
    Ok(response)
}

/// The next event is of this type and about this object.
fn next_is(watch: &mut Response, kind: &str, name: &str) -> Result<Value> {
    let event = watch.event()?;
    ensure!(
        event["type"] == kind && event["object"]["metadata"]["name"] == name,
        "expected {kind} of {name}, got {event}"
    );
    Ok(event["object"].clone())
}

fn list_then_watch(k: &Kubectl) -> Result<()> {
    let (_process, client) = proxy(k)?;
    let path = k.fill("/api/v1/namespaces/{ns}/pods");
    let list = client.get_json(&path, "*/*")?;
    ensure!(list["kind"] == "PodList" && list["apiVersion"] == "v1", "{list}");
    ensure!(list["items"].as_array().is_some_and(Vec::is_empty), "{list}");
    let version = list["metadata"]["resourceVersion"].as_str().context("no resourceVersion")?;

    let mut events = watch(&client, &format!("{path}?watch=true&resourceVersion={version}"))?;
    k.ok("run test --image=nginx --image-pull-policy=IfNotPresent")?;
    k.ok("delete pod test")?;
    let added = next_is(&mut events, "ADDED", "test")?;
    ensure!(added["kind"] == "Pod" && added["spec"]["containers"][0]["image"] == "nginx", "{added}");
    let modified = next_is(&mut events, "MODIFIED", "test")?;
    ensure!(modified["metadata"]["deletionTimestamp"].is_string(), "{modified}");
    next_is(&mut events, "DELETED", "test")?;

    // The same version again gives the same events again.
    let mut again = watch(&client, &format!("{path}?watch=true&resourceVersion={version}"))?;
    ensure!(next_is(&mut again, "ADDED", "test")? == added, "the first event changed");
    next_is(&mut again, "MODIFIED", "test")?;
    next_is(&mut again, "DELETED", "test").map(drop)
}

fn legacy_paths(k: &Kubectl) -> Result<()> {
    let (_process, client) = proxy(k)?;
    k.ok("run a --image=nginx")?;
    k.ok("run b --image=nginx")?;
    k.ok("create deployment web --image=nginx")?;
    let mut all = watch(&client, "/api/v1/watch/pods?watch=yes")?;
    while all.event()?["object"]["metadata"]["namespace"] != k.namespace.as_str() {}
    let mut some = watch(&client, &k.fill("/api/v1/watch/namespaces/{ns}/pods"))?;
    next_is(&mut some, "ADDED", "a")?;
    next_is(&mut some, "ADDED", "b")?;
    let mut one = watch(&client, &k.fill("/api/v1/watch/namespaces/{ns}/pods/b"))?;
    next_is(&mut one, "ADDED", "b")?;
    k.ok("label pod a b seen=yes")?;
    next_is(&mut some, "MODIFIED", "a")?;
    next_is(&mut one, "MODIFIED", "b")?;
    let mut namespace = watch(&client, &k.fill("/api/v1/watch/namespaces/{ns}"))?;
    next_is(&mut namespace, "ADDED", &k.namespace)?;
    let mut grouped = watch(&client, &k.fill("/apis/apps/v1/watch/namespaces/{ns}/deployments"))?;
    next_is(&mut grouped, "ADDED", "web").map(drop)
}

fn truthy(k: &Kubectl) -> Result<()> {
    let (_process, client) = proxy(k)?;
    k.ok("create cm c")?;
    let path = k.fill("/api/v1/namespaces/{ns}/configmaps");
    for value in ["true", "1", "yes", ""] {
        let mut events = watch(&client, &format!("{path}?watch={value}"))?;
        next_is(&mut events, "ADDED", "c")?;
    }
    for value in ["false", "0"] {
        let list = client.get_json(&format!("{path}?watch={value}"), "application/json")?;
        ensure!(list["kind"] == "ConfigMapList", "watch={value} answered {list}");
    }
    let mut short = watch(&client, &format!("{path}?watch=1&timeoutSeconds=1"))?;
    next_is(&mut short, "ADDED", "c")?;
    let end = short.event();
    ensure!(
        end.is_err_and(|error| error.to_string().contains("the watch ended")),
        "timeoutSeconds=1 did not end it"
    );
    Ok(())
}

fn streaming_list(k: &Kubectl) -> Result<()> {
    let (_process, client) = proxy(k)?;
    k.ok("create cm a")?;
    k.ok("create cm b")?;
    let path = k.fill("/api/v1/namespaces/{ns}/configmaps?watch=true&sendInitialEvents=true");
    let mut events =
        watch(&client, &format!("{path}&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"))?;
    next_is(&mut events, "ADDED", "a")?;
    next_is(&mut events, "ADDED", "b")?;
    let bookmark = events.event()?;
    let metadata = &bookmark["object"]["metadata"];
    ensure!(
        bookmark["type"] == "BOOKMARK"
            && bookmark["object"]["kind"] == "ConfigMap"
            && metadata["annotations"]["k8s.io/initial-events-end"] == "true",
        "{bookmark}"
    );
    k.ok("create cm c")?;
    next_is(&mut events, "ADDED", "c")?;
    let refused = client.get(&path)?;
    ensure!(refused.status == 422, "without resourceVersionMatch: {}", refused.status);
    ensure!(
        refused.text()?.contains("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        "{path}"
    );
    Ok(())
}

fn errors(k: &Kubectl) -> Result<()> {
    let (_process, client) = proxy(k)?;
    for (path, code, reason, message) in [
        ("/api/v1/namespaces/{ns}/pods/none", 404, "NotFound", "pods \"none\" not found"),
        (
            "/api/v1/namespaces/{ns}/nothing",
            404,
            "NotFound",
            "the server could not find the requested resource",
        ),
        ("/api/v1/watch/nothing", 404, "NotFound", "the server could not find the requested resource"),
        (
            "/api/v1/pods?labelSelector=a%20b",
            400,
            "BadRequest",
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
        ),
        (
            "/api/v1/pods?watch=1&timeoutSeconds=x",
            400,
            "BadRequest",
            "strconv.ParseInt: parsing \"x\": invalid syntax",
        ),
    ] {
        let path = k.fill(path);
        let response = client.get(&path)?;
        let status = response.status;
        let body: Value = serde_json::from_str(&response.text()?)?;
        ensure!(
            status == code
                && body["kind"] == "Status"
                && body["code"] == code
                && body["reason"] == reason
                && body["status"] == "Failure"
                && body["message"] == message,
            "{path} answered {status}: {body}"
        );
    }
    Ok(())
}
