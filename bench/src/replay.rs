//! The server of the informer benchmark: Pods from memory over plain HTTP/1.1, as cheaply as possible.
//!
//! It knows lists in pages, streaming lists and watches, in JSON or in protobuf. The events of a watch begin when the client
//! has asked for `/go?events=N`. Each event is a chunk of its own, as an API server writes them. Clients come one after
//! another: whoever lists begins anew.

mod format;

use std::sync::Arc;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) use self::format::Format;
use crate::pods::PodText;

/// Where the versions of the Pods of the list begin. All versions have nine digits: in protobuf, every length around
/// a version depends on its own.
const ITEM_VERSION: u64 = 100_000_000;
/// Where the versions of the events begin.
const LIST_VERSION: u64 = 200_000_000;

/// How much is written at once.
const BUFFER: usize = 256 << 10;

pub(crate) struct Replay {
    format: Format,
    pods: Vec<PodText>,
    /// How many events are asked for.
    go: watch::Sender<Option<u64>>,
}

/// The version of the last event.
pub(crate) fn last_version(events: u64) -> u64 {
    LIST_VERSION + events
}

impl Replay {
    pub(crate) fn new(format: Format, objects: usize) -> Replay {
        let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
        let part = objects.div_ceil(threads).max(1);
        let pods = std::thread::scope(|scope| {
            let make =
                |from: usize| move || (from..objects.min(from + part)).map(|n| format.pod(n)).collect();
            let parts: Vec<_> = (0..objects).step_by(part).map(|from| scope.spawn(make(from))).collect();
            let join =
                |part: std::thread::ScopedJoinHandle<'_, Vec<PodText>>| part.join().expect("Pods are made");
            parts.into_iter().flat_map(join).collect()
        });
        Replay { format, pods, go: watch::Sender::new(None) }
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
            self.go.send_replace(param("events").and_then(|events| events.parse().ok()));
            return Ok(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await?);
        }
        if param("watch").is_none() {
            let limit = param("limit").and_then(|limit| limit.parse().ok());
            let skip = param("continue").and_then(|token| token.parse().ok()).unwrap_or(0);
            if skip == 0 {
                self.go.send_replace(None);
            }
            return self.list(stream, skip, limit.unwrap_or(usize::MAX)).await;
        }
        let with_list = param("sendInitialEvents").is_some();
        if with_list {
            self.go.send_replace(None);
        }
        self.watch(stream, with_list).await
    }

    async fn list(&self, stream: &mut TcpStream, skip: usize, limit: usize) -> anyhow::Result<()> {
        let end = skip.saturating_add(limit).min(self.pods.len());
        let next = if end < self.pods.len() { end.to_string() } else { String::new() };
        let body = self.format.list(self.items().take(end).skip(skip), &next);
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {}\r\ncontent-length: {}\r\n\r\n",
            self.format.content_type(false),
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        Ok(stream.write_all(&body).await?)
    }

    /// The Pods of the list, with their versions.
    fn items(&self) -> impl Iterator<Item = (u64, &PodText)> + Clone {
        (ITEM_VERSION + 1..).zip(&self.pods)
    }

    async fn watch(&self, stream: &mut TcpStream, with_list: bool) -> anyhow::Result<()> {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {}\r\ntransfer-encoding: chunked\r\n\r\n",
            self.format.content_type(true)
        );
        stream.write_all(head.as_bytes()).await?;
        let mut out = Vec::with_capacity(2 * BUFFER);
        if with_list {
            for (version, pod) in self.items() {
                chunk(&mut out, |out| self.format.event(out, "ADDED", version, pod));
                flush_if_full(&mut out, stream).await?;
            }
            chunk(&mut out, |out| self.format.bookmark(out));
            stream.write_all(&out).await?;
            out.clear();
        }
        let events = self.go.subscribe().wait_for(Option::is_some).await?.unwrap_or_default();
        for event in 0..events {
            // A stride that visits every Pod, but not one after the other.
            let pod = &self.pods[(event as usize).wrapping_mul(7919) % self.pods.len()];
            chunk(&mut out, |out| self.format.event(out, "MODIFIED", LIST_VERSION + event + 1, pod));
            flush_if_full(&mut out, stream).await?;
        }
        stream.write_all(&out).await?;
        std::future::pending().await
    }
}

/// Appends what `write` appends, as a chunk.
fn chunk(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let size_at = out.len();
    out.extend_from_slice(b"00000000\r\n");
    write(out);
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
