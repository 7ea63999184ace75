//! A watch over a connection: an answer that goes on, a line at a time.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::net::TcpStream;

use anyhow::{Context, Result, bail, ensure};
use rustls::{ClientConnection, StreamOwned};

use super::{Connection, find};

/// How much is read at once.
const PIECE: usize = 64 * 1024;

/// A connection that has become a watch.
pub(crate) struct Watch {
    stream: StreamOwned<ClientConnection, TcpStream>,
    /// What has been received, as it came: chunks and the lines that say how long they are.
    received: Vec<u8>,
    /// How much of it is used up.
    used: usize,
    /// How much of the current chunk is still to come.
    left: usize,
}

impl Connection {
    /// Asks for a watch.
    pub(crate) fn watch(mut self, path: &str) -> Result<Watch> {
        write!(self.stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        self.stream.flush()?;
        // Nobody knows when something happens.
        self.stream.sock.set_read_timeout(None)?;
        let mut watch = Watch { stream: self.stream, received: Vec::new(), used: 0, left: 0 };
        let head = watch.until(b"\r\n\r\n")?.to_ascii_lowercase();
        let head = String::from_utf8(head).context("an answer that is no HTTP")?;
        ensure!(head.starts_with("http/1.1 200"), "the server refuses to watch {path}: {head}");
        ensure!(head.contains("transfer-encoding: chunked"), "a watch that is not sent in chunks: {head}");
        Ok(watch)
    }
}

impl Watch {
    /// What ends the watch from another thread: the read that waits fails then.
    pub(crate) fn end(&self) -> Result<impl FnOnce() + use<>> {
        let socket = self.stream.sock.try_clone()?;
        Ok(move || drop(socket.shutdown(Shutdown::Both)))
    }

    /// Reads the next line into `line`; false at the end of the watch.
    pub(crate) fn next(&mut self, line: &mut Vec<u8>) -> Result<bool> {
        line.clear();
        loop {
            if self.left == 0 && !self.next_chunk()? {
                return Ok(false);
            }
            if self.used == self.received.len() {
                self.receive()?;
            }
            let there = &self.received[self.used..];
            let there = &there[..there.len().min(self.left)];
            let end = there.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(there.len(), |end| end + 1);
            line.extend_from_slice(&there[..end.unwrap_or(taken)]);
            self.used += taken;
            self.left -= taken;
            if self.left == 0 {
                self.until(b"\r\n")?;
            }
            if end.is_some() {
                return Ok(true);
            }
        }
    }

    /// Reads how long the next chunk is; false after the last one.
    fn next_chunk(&mut self) -> Result<bool> {
        let head = self.until(b"\r\n")?;
        let size = String::from_utf8(head).context("a chunk without a length")?;
        self.left = usize::from_str_radix(size.trim(), 16).with_context(|| format!("a chunk of {size:?}"))?;
        Ok(self.left > 0)
    }

    /// What comes before a text, which is used up as well.
    fn until(&mut self, text: &[u8]) -> Result<Vec<u8>> {
        loop {
            if let Some(at) = find(&self.received[self.used..], text) {
                let found = self.received[self.used..self.used + at].to_vec();
                self.used += at + text.len();
                return Ok(found);
            }
            self.receive()?;
        }
    }

    fn receive(&mut self) -> Result<()> {
        self.received.drain(..self.used);
        self.used = 0;
        let before = self.received.len();
        self.received.resize(before + PIECE, 0);
        let count = self.stream.read(&mut self.received[before..])?;
        self.received.truncate(before + count);
        if count == 0 {
            bail!("the server has closed the watch");
        }
        Ok(())
    }
}
