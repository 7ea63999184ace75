//! The bytes of an answer, decoded on several cores and handed on in order.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http_body_util::BodyExt;
use kube::client::Body;
use setpoint_env::{Env, Task};

use super::decode::{Decoded, Decoder, Scratch};
use super::error::Failure;
use super::format::Format;
use super::list::{Envelope, Found, ListScanner, NotAList};
use super::protobuf::{self, FrameSplitter, decode_frames};
use super::watch::{Event, LineSplitter, decode_lines};
use crate::Object;
use crate::metrics::Counter;

/// The most pieces of decoding that may be under way. It does not depend on the machine, since a run must be
/// the same everywhere. It is as many cores as one reader can keep busy; while all are at work, what arrives
/// is collected into larger pieces.
const IN_FLIGHT: usize = 4;

/// How many bytes are decoded in one piece of work, if that many have come.
const BLOCK: usize = 128 << 10;

/// Events that follow each other faster than this are a burst.
const BURST: Duration = Duration::from_micros(50);

/// The longest line or list item that is taken. Kubernetes refuses objects above 3 MiB.
const LONGEST: usize = 64 << 20;

/// The body of an answer, watched for silence.
pub(super) struct ByteStream {
    body: Body,
    format: Format,
    received: Counter,
    silence: Duration,
}

impl ByteStream {
    pub(super) fn new(body: Body, format: Format, received: Counter, silence: Duration) -> ByteStream {
        ByteStream { body, format, received, silence }
    }

    /// The next bytes; `None` at the end. Nothing for longer than allowed is a failure.
    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        // A timer only if there is something to wait for.
        match self.next_now() {
            Some(next) => next,
            None => {
                let silence = self.silence;
                let next = tokio::time::timeout(silence, self.wait_for_next()).await;
                next.unwrap_or(Err(Failure::Silent(silence)))
            }
        }
    }

    /// The next bytes, if they are there without waiting.
    fn next_now(&mut self) -> Option<Result<Option<Bytes>, Failure>> {
        self.wait_for_next().now_or_never()
    }

    async fn wait_for_next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(Failure::Connection(super::words(&error))),
                Some(Ok(frame)) => {
                    // Anything but data is trailers, which say nothing here.
                    if let Ok(bytes) = frame.into_data() {
                        self.received.add(bytes.len() as u64);
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }

    /// Up to `most` bytes of the body, for telling what the server said.
    pub(super) async fn read_up_to(mut self, most: usize) -> Vec<u8> {
        let mut words = Vec::new();
        while words.len() < most
            && let Ok(Some(chunk)) = self.next().await
        {
            words.extend_from_slice(&chunk);
        }
        words.truncate(most);
        words
    }
}

/// Work that runs beside the reader, with results in the order in which it was started.
struct Pipeline<R> {
    env: Env,
    in_flight: VecDeque<Task<R>>,
}

impl<R: Send + 'static> Pipeline<R> {
    fn new(env: Env) -> Pipeline<R> {
        Pipeline { env, in_flight: VecDeque::new() }
    }

    fn has_room(&self) -> bool {
        self.in_flight.len() < IN_FLIGHT
    }

    fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    fn start(&mut self, work: impl FnOnce() -> R + Send + 'static) {
        self.in_flight.push_back(self.env.spawn(async move { work() }));
    }

    /// The result of the oldest work. Waits for ever if there is none.
    async fn next(&mut self) -> Result<R, Failure> {
        let Some(oldest) = self.in_flight.front_mut() else { return std::future::pending().await };
        let result = oldest.await;
        self.in_flight.pop_front();
        // Decoding catches panics; only a runtime that is shutting down ends the task.
        result.map_err(|error| Failure::Connection(error.to_string()))
    }
}

/// The events of a watch.
pub(super) struct EventStream<T> {
    bytes: ByteStream,
    decoder: Decoder<T>,
    splitter: Splitter,
    /// Whole lines or frames that wait for a free place in the pipeline.
    pieces: Vec<Bytes>,
    waiting: usize,
    /// Whether the last bytes came soon after they were waited for.
    is_burst: bool,
    pipeline: Pipeline<Vec<Event<T>>>,
    /// Events that were handed out too early.
    returned: Option<Vec<Event<T>>>,
    /// How the stream ended. What came before is handed out first.
    end: Option<Result<(), Failure>>,
}

impl<T: Object> EventStream<T> {
    pub(super) fn new(bytes: ByteStream, decoder: Decoder<T>, env: Env) -> EventStream<T> {
        let (splitter, pipeline) = (Splitter::new(bytes.format), Pipeline::new(env));
        EventStream {
            bytes,
            decoder,
            splitter,
            pieces: Vec::new(),
            waiting: 0,
            is_burst: false,
            pipeline,
            returned: None,
            end: None,
        }
    }

    /// Changes for how long the stream may be silent.
    pub(super) fn set_silence(&mut self, silence: Duration) {
        self.bytes.silence = silence;
    }

    /// Takes back what was handed out too early: it comes next.
    pub(super) fn give_back(&mut self, events: Vec<Event<T>>) {
        self.returned = (!events.is_empty()).then_some(events);
    }

    /// The next events; `None` when the server closed the stream after a whole one.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Event<T>>>, Failure> {
        if let Some(events) = self.returned.take() {
            return Ok(Some(events));
        }
        loop {
            if self.waiting > 0 && self.pipeline.has_room() {
                self.gather().await;
                // A few events are decoded here and now, a burst beside the reader.
                if self.pipeline.is_empty() && self.waiting < BLOCK / 4 {
                    return Ok(Some(self.decode_pieces()));
                }
                self.start_decoding();
            }
            if self.pipeline.is_empty()
                && let Some(end) = self.end.take()
            {
                return end.map(|()| None);
            }
            let may_read = self.end.is_none() && self.waiting < BLOCK;
            let asked = self.pipeline.env.instant();
            tokio::select! {
                biased;
                events = self.pipeline.next() => return events.map(Some),
                chunk = self.bytes.next(), if may_read => {
                    self.is_burst = asked.elapsed() < BURST;
                    self.take(chunk);
                }
            }
        }
    }

    /// Takes what comes without waiting. A connection hands over one event at a time, and the next one when its
    /// task has run; without this every event of a burst would travel through all stages alone. One that comes
    /// by itself is handed on at once: to let others run first might take longer than all the rest of its way.
    async fn gather(&mut self) {
        let mut has_yielded = !self.is_burst;
        while self.waiting < BLOCK && self.end.is_none() {
            match self.bytes.next_now() {
                Some(chunk) => {
                    self.take(chunk);
                    has_yielded = !self.is_burst;
                }
                None if has_yielded => return,
                None => {
                    tokio::task::yield_now().await;
                    has_yielded = true;
                }
            }
        }
    }

    /// Takes what the body gave.
    fn take(&mut self, chunk: Result<Option<Bytes>, Failure>) {
        let chunk = match chunk {
            Ok(Some(chunk)) => chunk,
            Ok(None) if self.splitter.rest().is_empty() => return self.end = Some(Ok(())),
            Ok(None) => return self.end = Some(Err(Failure::CutOff(self.splitter.expects()))),
            Err(failure) => return self.end = Some(Err(failure)),
        };
        match self.splitter.feed(chunk) {
            Ok(None) => {}
            Ok(Some(piece)) => {
                self.waiting += piece.len();
                self.pieces.push(piece);
            }
            Err(words) => self.end = Some(Err(Failure::Malformed { expected: "a watch event", words })),
        }
    }

    fn decode_pieces(&mut self) -> Vec<Event<T>> {
        self.waiting = 0;
        let format = self.bytes.format;
        self.pieces.drain(..).flat_map(|piece| decode_events(format, &self.decoder, &piece)).collect()
    }

    fn start_decoding(&mut self) {
        let (pieces, decoder) = (std::mem::take(&mut self.pieces), self.decoder.clone());
        let format = self.bytes.format;
        self.waiting = 0;
        self.pipeline.start(move || {
            pieces.iter().flat_map(|piece| decode_events(format, &decoder, piece)).collect::<Vec<_>>()
        });
    }
}

fn decode_events<T: Object>(format: Format, decoder: &Decoder<T>, piece: &[u8]) -> Vec<Event<T>> {
    match format {
        Format::Json => decode_lines(decoder, piece),
        Format::Protobuf => decode_frames(decoder, piece),
    }
}

/// Finds where events end.
enum Splitter {
    Lines(LineSplitter),
    Frames(FrameSplitter),
}

impl Splitter {
    fn new(format: Format) -> Splitter {
        match format {
            Format::Json => Splitter::Lines(LineSplitter::default()),
            Format::Protobuf => Splitter::Frames(FrameSplitter::new(LONGEST)),
        }
    }

    /// Takes a chunk, and gives the whole events that are there now. The error is what came instead.
    fn feed(&mut self, chunk: Bytes) -> Result<Option<Bytes>, String> {
        match self {
            Splitter::Lines(lines) => match lines.feed(chunk) {
                None if lines.rest().len() > LONGEST => Err(Format::Json.excerpt(lines.rest())),
                lines => Ok(lines),
            },
            Splitter::Frames(frames) => {
                let start = chunk.clone();
                frames.feed(chunk).map_err(|_| Format::Protobuf.excerpt(&start))
            }
        }
    }

    fn rest(&self) -> &[u8] {
        match self {
            Splitter::Lines(lines) => lines.rest(),
            Splitter::Frames(frames) => frames.rest(),
        }
    }

    fn expects(&self) -> &'static str {
        match self {
            Splitter::Lines(_) => "a line",
            Splitter::Frames(_) => "a frame",
        }
    }
}

/// The items of a list, or of a page of one.
pub(super) struct ItemStream<T> {
    bytes: ByteStream,
    decoder: Decoder<T>,
    scanner: Scanner,
    items: Vec<Bytes>,
    waiting: usize,
    pipeline: Pipeline<Vec<Decoded<T>>>,
    ended: bool,
}

impl<T: Object> ItemStream<T> {
    pub(super) fn new(bytes: ByteStream, decoder: Decoder<T>, env: Env) -> ItemStream<T> {
        let (scanner, pipeline) = (Scanner::new(bytes.format), Pipeline::new(env));
        ItemStream { bytes, decoder, scanner, items: Vec::new(), waiting: 0, pipeline, ended: false }
    }

    /// The next items; `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Decoded<T>>>, Failure> {
        loop {
            let is_block = self.waiting >= BLOCK || (self.ended && !self.items.is_empty());
            if is_block && self.pipeline.has_room() {
                self.start_decoding();
            }
            if self.ended && self.items.is_empty() && self.pipeline.is_empty() {
                return Ok(None);
            }
            let may_read = !self.ended && self.waiting < BLOCK;
            tokio::select! {
                biased;
                items = self.pipeline.next() => return items.map(Some),
                chunk = self.bytes.next(), if may_read => match chunk? {
                    Some(chunk) => self.take(&chunk)?,
                    None => self.ended = true,
                }
            }
        }
    }

    fn take(&mut self, chunk: &[u8]) -> Result<(), Failure> {
        self.scanner.feed(chunk);
        loop {
            match self.scanner.next() {
                Ok(Found::Item(item)) => {
                    self.waiting += item.len();
                    self.items.push(item);
                }
                Ok(Found::NeedsMore) if self.scanner.held().len() <= LONGEST => return Ok(()),
                Ok(Found::NeedsMore) | Err(NotAList) => {
                    let words = self.bytes.format.excerpt(self.scanner.held());
                    return Err(Failure::Malformed { expected: "a list", words });
                }
            }
        }
    }

    fn start_decoding(&mut self) {
        let (items, decoder) = (std::mem::take(&mut self.items), self.decoder.clone());
        let format = self.bytes.format;
        self.waiting = 0;
        self.pipeline.start(move || {
            let mut scratch = Scratch::default();
            let decode = |item: &Bytes| match format {
                Format::Json => decoder.decode(item, &mut scratch),
                Format::Protobuf => decoder.decode_protobuf(item, &mut scratch),
            };
            items.iter().map(decode).collect()
        });
    }

    /// What the list said about itself.
    pub(super) fn finish(self) -> Result<Envelope, Failure> {
        self.scanner.finish()
    }
}

/// Takes a list apart.
enum Scanner {
    Json(ListScanner),
    Protobuf(protobuf::ListScanner),
}

impl Scanner {
    fn new(format: Format) -> Scanner {
        match format {
            Format::Json => Scanner::Json(ListScanner::default()),
            Format::Protobuf => Scanner::Protobuf(protobuf::ListScanner::default()),
        }
    }

    fn feed(&mut self, chunk: &[u8]) {
        match self {
            Scanner::Json(list) => list.feed(chunk),
            Scanner::Protobuf(list) => list.feed(chunk),
        }
    }

    fn next(&mut self) -> Result<Found, NotAList> {
        match self {
            Scanner::Json(list) => list.next(),
            Scanner::Protobuf(list) => list.next(),
        }
    }

    fn held(&self) -> &[u8] {
        match self {
            Scanner::Json(list) => list.held(),
            Scanner::Protobuf(list) => list.held(),
        }
    }

    fn finish(self) -> Result<Envelope, Failure> {
        match self {
            Scanner::Json(list) => list.finish(),
            Scanner::Protobuf(list) => list.finish(),
        }
    }
}
