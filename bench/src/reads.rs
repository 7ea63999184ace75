//! How long it takes to read everything that an API server has of a kind.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use http::Request;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use memchr::memmem;
use serde_json::json;

/// Objects a page.
const PAGE: usize = 500;

#[derive(clap::ValueEnum, Clone, Copy)]
pub(crate) enum How {
    /// One answer.
    Whole,
    /// One answer, in protobuf.
    Protobuf,
    /// Pages of 500.
    Paged,
    /// The first events of a watch.
    Streamed,
}

#[derive(clap::Args)]
pub(crate) struct Options {
    kubeconfig: PathBuf,
    #[arg(long, value_enum)]
    how: How,
    /// What to read.
    #[arg(long, default_value = "/api/v1/pods")]
    path: String,
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    let client = crate::fill::client(&options.kubeconfig).await?;
    // Connecting is not measured.
    read(&client, "/version", "application/json").await?;
    let begun = Instant::now();
    let path = &options.path;
    let bytes = match options.how {
        How::Whole => count(&client, path, "application/json").await?,
        How::Protobuf => {
            count(&client, path, "application/vnd.kubernetes.protobuf, application/json").await?
        }
        How::Paged => pages(&client, path).await?,
        How::Streamed => events(&client, path).await?,
    };
    println!("{}", json!({"seconds": begun.elapsed().as_secs_f64(), "mb": bytes as f64 / 1e6}));
    Ok(())
}

async fn response(client: &Client, path: &str, accept: &str) -> Result<Body> {
    let request = Request::get(path).header("accept", accept).body(Body::empty())?;
    let response = client.send(request).await?;
    ensure!(response.status() == 200, "{path} was answered with {}", response.status());
    Ok(response.into_body())
}

/// How long an answer is. It is not kept: room for 200 MB takes longer than reading it.
async fn count(client: &Client, path: &str, accept: &str) -> Result<usize> {
    let mut body = response(client, path, accept).await?;
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        bytes += frame?.data_ref().map_or(0, |data| data.len());
    }
    Ok(bytes)
}

/// A whole answer.
async fn read(client: &Client, path: &str, accept: &str) -> Result<Vec<u8>> {
    let mut body = response(client, path, accept).await?;
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame?.data_ref() {
            all.extend_from_slice(data);
        }
    }
    Ok(all)
}

async fn pages(client: &Client, path: &str) -> Result<usize> {
    let (mut bytes, mut token) = (0, String::new());
    loop {
        let page = read(client, &format!("{path}?limit={PAGE}&continue={token}"), "application/json").await?;
        bytes += page.len();
        let metadata = &page[..page.len().min(1000)];
        const FIELD: &[u8] = b"\"continue\":\"";
        let Some(at) = memmem::find(metadata, FIELD) else { return Ok(bytes) };
        let rest = &metadata[at + FIELD.len()..];
        token = String::from_utf8_lossy(&rest[..memchr::memchr(b'"', rest).context("a token")?]).into_owned();
        if token.is_empty() {
            return Ok(bytes);
        }
    }
}

async fn events(client: &Client, path: &str) -> Result<usize> {
    const END: &[u8] = b"k8s.io/initial-events-end";
    let query =
        "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut body = response(client, &format!("{path}?{query}"), "application/json").await?;
    let (mut bytes, mut tail) = (0, Vec::new());
    while let Some(frame) = body.frame().await {
        let frame = frame?;
        let Some(data) = frame.data_ref() else { continue };
        bytes += data.len();
        // The last event is short: it is in the last frame, or begins in the one before.
        let kept = tail.len().min(END.len());
        tail.drain(..tail.len() - kept);
        tail.extend_from_slice(data);
        if memmem::find(&tail, END).is_some() {
            return Ok(bytes);
        }
    }
    anyhow::bail!("the stream ended before its first list did")
}
