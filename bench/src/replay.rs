//! The server of the informer benchmark: Pods from memory over plain HTTP/1.1, as cheaply as possible.
//!
//! It knows lists in pages, streaming lists and watches. The events of a watch begin when somebody has asked
//! for `/go`. Each event is a chunk of its own, as an API server writes them.

use std::sync::Arc;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::pods::PodText;

/// Where the versions of the list and of the events begin.
const LIST_VERSION: u64 = 1_000_000;

/// How much is written at once.
const BUFFER: usize = 256 << 10;

pub(crate) struct Replay {
    pods: Vec<PodText>,
    events: u64,
    go: watch::Sender<bool>,
}

/// The version of the last event.
pub(crate) fn last_version(events: u64) -> u64 {
    LIST_VERSION + events
}

impl Replay {
    pub(crate) fn new(objects: usize, events: u64) -> Replay {
        Replay { pods: (0..objects).map(PodText::new).collect(), events, go: watch::Sender::new(false) }
    }

    /// Serves until it is killed. Says on which port on the first line of its output.
    pub(crate) async fn serve(self) -> anyhow::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?.port());
        let replay = Arc::new(self);
        loop {
            let (stream, _) = listener.accept().await?;
            let replay = replay.clone();
            tokio::spawn(async move { replay.connection(stream).await });
        }
    }

    async fn connection(&self, mut stream: TcpStream) -> anyhow::Result<()> {
        stream.set_nodelay(true)?;
        let mut buffer = Vec::new();
        loop {
            let end = loop {
                if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                    break end + 4;
                }
                if stream.read_buf(&mut buffer).await? == 0 {
                    return Ok(());
                }
            };
            let head: Vec<u8> = buffer.drain(..end).collect();
            let head = String::from_utf8(head)?;
            let target = head.split(' ').nth(1).context("a request line")?.to_owned();
            self.answer(&target, &mut stream).await?;
        }
    }

    async fn answer(&self, target: &str, stream: &mut TcpStream) -> anyhow::Result<()> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let param = |name: &str| {
            query
                .split('&')
                .find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name))
                .map(|(_, v)| v)
        };
        if path == "/go" {
            self.go.send_replace(true);
            return Ok(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await?);
        }
        if param("watch").is_none() {
            let limit = param("limit").and_then(|limit| limit.parse().ok());
            let skip = param("continue").and_then(|token| token.parse().ok()).unwrap_or(0);
            return self.list(stream, skip, limit.unwrap_or(usize::MAX)).await;
        }
        self.watch(stream, param("sendInitialEvents").is_some()).await
    }

    async fn list(&self, stream: &mut TcpStream, skip: usize, limit: usize) -> anyhow::Result<()> {
        let mut body = Vec::new();
        let end = skip.saturating_add(limit).min(self.pods.len());
        let next = if end < self.pods.len() { end.to_string() } else { String::new() };
        let metadata = format!(r#"{{"resourceVersion":"{LIST_VERSION}","continue":"{next}"}}"#);
        body.extend_from_slice(
            format!(r#"{{"kind":"PodList","apiVersion":"v1","metadata":{metadata},"items":["#).as_bytes(),
        );
        for (n, pod) in self.pods[skip..end].iter().enumerate() {
            if n > 0 {
                body.push(b',');
            }
            pod.write((skip + n + 1) as u64, &mut body);
        }
        body.extend_from_slice(b"]}");
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        Ok(stream.write_all(&body).await?)
    }

    async fn watch(&self, stream: &mut TcpStream, with_list: bool) -> anyhow::Result<()> {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        let mut out = Vec::with_capacity(2 * BUFFER);
        if with_list {
            for (n, pod) in self.pods.iter().enumerate() {
                chunk(&mut out, "ADDED", |line| pod.write(n as u64 + 1, line));
                flush_if_full(&mut out, stream).await?;
            }
            let bookmark = format!(
                r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"resourceVersion":"{LIST_VERSION}","annotations":{{"k8s.io/initial-events-end":"true"}}}}}}"#
            );
            chunk(&mut out, "BOOKMARK", |line| line.extend_from_slice(bookmark.as_bytes()));
            stream.write_all(&out).await?;
            out.clear();
        }
        self.go.subscribe().wait_for(|go| *go).await?;
        for event in 0..self.events {
            // A stride that visits every Pod, but not one after the other.
            let pod = &self.pods[(event as usize).wrapping_mul(7919) % self.pods.len()];
            chunk(&mut out, "MODIFIED", |line| pod.write(LIST_VERSION + event + 1, line));
            flush_if_full(&mut out, stream).await?;
        }
        stream.write_all(&out).await?;
        std::future::pending().await
    }
}

/// Appends an event as a chunk.
fn chunk(out: &mut Vec<u8>, kind: &str, object: impl FnOnce(&mut Vec<u8>)) {
    let size_at = out.len();
    out.extend_from_slice(b"00000000\r\n{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    object(out);
    out.extend_from_slice(b"}\n");
    let size = format!("{:08x}", out.len() - size_at - 10);
    out[size_at..size_at + 8].copy_from_slice(size.as_bytes());
    out.extend_from_slice(b"\r\n");
}

async fn flush_if_full(out: &mut Vec<u8>, stream: &mut TcpStream) -> anyhow::Result<()> {
    if out.len() >= BUFFER {
        stream.write_all(out).await?;
        out.clear();
    }
    Ok(())
}
