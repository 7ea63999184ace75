//! List and watch by plain HTTP: what a reflector does, without the reflector.

use anyhow::{Context, bail};
use http::Request;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

use crate::Print;

/// Longer than any object that a server stores. A line that goes on is no event.
const LONGEST_LINE: usize = 8 << 20;

/// Lists the pods of a namespace, then prints each change since then: one line of JSON an event, as long as
/// the server keeps the connection. Ends after `most` events, or when the server ends the watch.
pub async fn pods(client: &Client, namespace: &str, most: usize, print: &Print) -> anyhow::Result<()> {
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let list: Value = client.request(Request::get(&path).body(Vec::new())?).await?;
    for pod in list["items"].as_array().into_iter().flatten() {
        print(format!("LISTED {}", describe(pod)));
    }
    let version = list["metadata"]["resourceVersion"].as_str().context("the list has no version")?;
    print(format!("watching from {version}"));

    let watch = Request::get(format!("{path}?watch=true&resourceVersion={version}"))
        // Some servers compress each event by itself, which no line reader can read.
        .header("accept-encoding", "identity")
        .body(Body::empty())?;
    let response = client.send(watch).await?;
    if !response.status().is_success() {
        bail!("the server refuses the watch: {}", response.status());
    }
    let mut body = response.into_body();
    let (mut pending, mut told) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let Ok(chunk) = frame?.into_data() else { continue };
        pending.extend_from_slice(&chunk);
        // A chunk is no event: it may hold several, or the half of one.
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            print_event(&line, print)?;
            told += 1;
            if told == most {
                return Ok(());
            }
        }
        if pending.len() > LONGEST_LINE {
            bail!("the server sends a line without an end");
        }
    }
    print("the server ended the watch".to_owned());
    Ok(())
}

fn print_event(line: &[u8], print: &Print) -> anyhow::Result<()> {
    let event: Value = serde_json::from_slice(line).context("an event is no JSON")?;
    let what = event["type"].as_str().unwrap_or("?");
    if what == "ERROR" {
        bail!("the watch failed: {}", event["object"]["message"].as_str().unwrap_or("no reason given"));
    }
    print(format!("{what} {}", describe(&event["object"])));
    Ok(())
}

/// Name, version and phase.
fn describe(pod: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let meta = &pod["metadata"];
    let (name, version) = (text(&meta["name"]), text(&meta["resourceVersion"]));
    format!("{name} at {version}, {}", text(&pod["status"]["phase"]))
}
