//! The items of a list, as they come.

use bytes::Bytes;
use setpoint_env::Env;

use super::{BLOCK, ByteStream, LONGEST, Pipeline};
use crate::Object;
use crate::reflector::decode::{Decoded, Decoder, Scratch};
use crate::reflector::error::ReflectorFailure;
use crate::reflector::format::Format;
use crate::reflector::list::{Envelope, Found, ListScanner, NotAList};
use crate::reflector::protobuf;

/// The items of a list, or of a page of one.
pub(in crate::reflector) struct ItemStream<T> {
    bytes: ByteStream,
    decoder: Decoder<T>,
    scanner: Scanner,
    items: Vec<Bytes>,
    waiting: usize,
    pipeline: Pipeline<Vec<Decoded<T>>>,
    ended: bool,
}

impl<T: Object> ItemStream<T> {
    pub(in crate::reflector) fn new(bytes: ByteStream, decoder: Decoder<T>, env: Env) -> ItemStream<T> {
        let (scanner, pipeline) = (Scanner::new(bytes.format), Pipeline::new(env));
        ItemStream { bytes, decoder, scanner, items: Vec::new(), waiting: 0, pipeline, ended: false }
    }

    /// The next items; `None` after the last.
    pub(in crate::reflector) async fn next(&mut self) -> Result<Option<Vec<Decoded<T>>>, ReflectorFailure> {
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

    fn take(&mut self, chunk: &[u8]) -> Result<(), ReflectorFailure> {
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
                    return Err(ReflectorFailure::Malformed { expected: "a list", words });
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
    pub(in crate::reflector) fn finish(self) -> Result<Envelope, ReflectorFailure> {
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

    fn finish(self) -> Result<Envelope, ReflectorFailure> {
        match self {
            Scanner::Json(list) => list.finish(),
            Scanner::Protobuf(list) => list.finish(),
        }
    }
}
