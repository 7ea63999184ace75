//! The events of a watch, as they come.

use std::time::Duration;

use bytes::Bytes;
use setpoint_env::Env;

use super::{BLOCK, ByteStream, LONGEST, Pipeline};
use crate::Object;
use crate::reflector::decode::Decoder;
use crate::reflector::error::ReflectorFailure;
use crate::reflector::format::Format;
use crate::reflector::protobuf::{FrameSplitter, decode_frames};
use crate::reflector::watch::{Event, LineSplitter, decode_lines};

/// Events that follow each other faster than this are a burst.
const BURST: Duration = Duration::from_micros(50);

/// Some events, and how many bytes they came in.
pub(in crate::reflector) struct Events<T> {
    pub(in crate::reflector) events: Vec<Event<T>>,
    pub(in crate::reflector) bytes: usize,
}

/// The events of a watch.
pub(in crate::reflector) struct EventStream<T> {
    bytes: ByteStream,
    decoder: Decoder<T>,
    splitter: Splitter,
    /// Whole lines or frames that wait for a free place in the pipeline.
    pieces: Vec<Bytes>,
    waiting: usize,
    /// Whether the last bytes came soon after they were waited for.
    is_burst: bool,
    pipeline: Pipeline<Events<T>>,
    /// Events that were handed out too early.
    returned: Option<Events<T>>,
    /// How the stream ended. What came before is handed out first.
    end: Option<Result<(), ReflectorFailure>>,
}

impl<T: Object> EventStream<T> {
    pub(in crate::reflector) fn new(bytes: ByteStream, decoder: Decoder<T>, env: Env) -> EventStream<T> {
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
    pub(in crate::reflector) fn set_silence(&mut self, silence: Duration) {
        self.bytes.silence = silence;
    }

    /// Takes back what was handed out too early: it comes next.
    pub(in crate::reflector) fn give_back(&mut self, events: Events<T>) {
        self.returned = (!events.events.is_empty()).then_some(events);
    }

    /// The next events; `None` when the server closed the stream after a whole one.
    pub(in crate::reflector) async fn next(&mut self) -> Result<Option<Events<T>>, ReflectorFailure> {
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
    fn take(&mut self, chunk: Result<Option<Bytes>, ReflectorFailure>) {
        let chunk = match chunk {
            Ok(Some(chunk)) => chunk,
            Ok(None) if self.splitter.rest().is_empty() => return self.end = Some(Ok(())),
            Ok(None) => return self.end = Some(Err(ReflectorFailure::CutOff(self.splitter.expects()))),
            Err(failure) => return self.end = Some(Err(failure)),
        };
        match self.splitter.feed(chunk) {
            Ok(None) => {}
            Ok(Some(piece)) => {
                self.waiting += piece.len();
                self.pieces.push(piece);
            }
            Err(words) => {
                self.end = Some(Err(ReflectorFailure::Malformed { expected: "a watch event", words }))
            }
        }
    }

    fn decode_pieces(&mut self) -> Events<T> {
        let (format, bytes) = (self.bytes.format, std::mem::take(&mut self.waiting));
        let pieces = self.pieces.drain(..);
        Events {
            events: pieces.flat_map(|piece| decode_events(format, &self.decoder, &piece)).collect(),
            bytes,
        }
    }

    fn start_decoding(&mut self) {
        let (pieces, decoder) = (std::mem::take(&mut self.pieces), self.decoder.clone());
        let (format, bytes) = (self.bytes.format, std::mem::take(&mut self.waiting));
        self.pipeline.start(move || {
            let events = pieces.iter().flat_map(|piece| decode_events(format, &decoder, piece)).collect();
            Events { events, bytes }
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
