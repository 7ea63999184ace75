//! The body of a watch: one event a frame, which begins with its length in four bytes.

use bytes::{Bytes, BytesMut};
use setpoint_kinds::protobuf::WatchEvent;

use super::{metadata, plain, printable, status};
use crate::Object;
use crate::reflector::decode::{Decoded, Decoder, Metadata, Scratch, Skipped};
use crate::reflector::error::excerpt;
use crate::reflector::watch::Event;

/// Collects chunks until there are whole frames.
pub(in crate::reflector) struct FrameSplitter {
    buffer: BytesMut,
    longest: usize,
}

/// A frame is longer than is taken: probably it is no frame.
#[derive(Debug)]
pub(in crate::reflector) struct TooLong;

impl FrameSplitter {
    pub(in crate::reflector) fn new(longest: usize) -> FrameSplitter {
        FrameSplitter { buffer: BytesMut::new(), longest }
    }

    /// Takes a chunk, and gives the whole frames that are there now.
    pub(in crate::reflector) fn feed(&mut self, chunk: Bytes) -> Result<Option<Bytes>, TooLong> {
        if self.buffer.is_empty() {
            let end = self.end_of_frames(&chunk)?;
            self.buffer.extend_from_slice(&chunk[end..]);
            return Ok((end > 0).then(|| chunk.slice(..end)));
        }
        self.buffer.extend_from_slice(&chunk);
        let end = self.end_of_frames(&self.buffer)?;
        Ok((end > 0).then(|| self.buffer.split_to(end).freeze()))
    }

    /// What came after the last frame when the stream ended: nothing, if all is well.
    pub(in crate::reflector) fn rest(&self) -> &[u8] {
        &self.buffer
    }

    fn end_of_frames(&self, bytes: &[u8]) -> Result<usize, TooLong> {
        let mut end = 0;
        while let Some((length, rest)) = length(&bytes[end..]) {
            if length > self.longest {
                // What came before it is handed out first.
                return if end > 0 { Ok(end) } else { Err(TooLong) };
            }
            if rest.len() < length {
                break;
            }
            end += 4 + length;
        }
        Ok(end)
    }
}

/// The length that a frame begins with, and what comes after it.
fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*length) as usize, rest))
}

/// Decodes whole frames.
pub(in crate::reflector) fn decode_frames<T: Object>(decoder: &Decoder<T>, frames: &[u8]) -> Vec<Event<T>> {
    let mut scratch = Scratch::default();
    let mut events = Vec::new();
    let mut frames = frames;
    while let Some((length, rest)) = length(frames) {
        let (frame, rest) = rest.split_at(length.min(rest.len()));
        events.push(decode_frame(decoder, frame, &mut scratch));
        frames = rest;
    }
    events
}

fn decode_frame<T: Object>(decoder: &Decoder<T>, frame: &[u8], scratch: &mut Scratch) -> Event<T> {
    event(decoder, frame, scratch).unwrap_or_else(|| Event::Malformed(excerpt(&printable(frame))))
}

fn event<T: Object>(decoder: &Decoder<T>, frame: &[u8], scratch: &mut Scratch) -> Option<Event<T>> {
    let WatchEvent { kind, object, .. } = WatchEvent::parse(frame).ok()?;
    let envelope = plain(object)?;
    let decode = |scratch| match decoder.wire_kind().and_then(|kind| kind.mismatch(&envelope)) {
        None => decoder.decode_protobuf(envelope.raw, scratch),
        Some(message) => {
            let metadata: Metadata = metadata(envelope.raw).unwrap_or_default();
            Decoded::Skipped(Skipped { key: metadata.key(), version: metadata.version(), message })
        }
    };
    Some(match kind {
        b"ADDED" => Event::Added(decode(scratch)),
        b"MODIFIED" => Event::Modified(decode(scratch)),
        b"DELETED" => Event::Deleted(decode(scratch)),
        b"BOOKMARK" => {
            let metadata: Metadata = metadata(envelope.raw).ok()?;
            let (version, ends_initial_events) = (metadata.version()?, metadata.ends_initial_events());
            Event::Bookmark { version, ends_initial_events }
        }
        b"ERROR" => Event::Error(Box::new(status(object)?)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::ApiResource;
    use serde_json::{Value, json};
    use setpoint_kinds::protobuf::{append_event, encode};

    use super::super::WireKind;
    use super::*;
    use crate::reflector::decode::Keep;

    fn decoder() -> Decoder<ConfigMap> {
        let kind = WireKind::of(&ApiResource::erase::<ConfigMap>(&()), false);
        Decoder::new(false, Keep::Lazy, kind, Arc::new(|map: ConfigMap| map))
    }

    fn frame(kind: &str, object: &Value) -> Vec<u8> {
        let mut frame = Vec::new();
        append_event(kind, &encode(object).unwrap(), &mut frame);
        frame
    }

    fn map(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "resourceVersion": "5"}})
    }

    #[test]
    fn frames_are_whole_whatever_the_chunks() {
        let stream = [frame("ADDED", &map("a")), frame("MODIFIED", &map("b")), vec![0; 4]].concat();
        let cut = [&stream[..], b"\0\0\0\x09half"].concat();
        for size in 1..=cut.len() {
            let mut splitter = FrameSplitter::new(1 << 20);
            let mut frames = Vec::new();
            for chunk in cut.chunks(size) {
                frames.extend(splitter.feed(Bytes::copy_from_slice(chunk)).unwrap().into_iter().flatten());
            }
            assert_eq!((frames.as_slice(), splitter.rest()), (&stream[..], &b"\0\0\0\x09half"[..]));
        }
    }

    #[test]
    fn a_frame_that_is_too_long_is_refused_before_it_comes() {
        let mut splitter = FrameSplitter::new(1000);
        assert!(splitter.feed(Bytes::from_static(b"\0\0\x03\xe8")).unwrap().is_none());
        assert!(FrameSplitter::new(1000).feed(Bytes::from_static(b"\0\0\x03\xe9")).is_err());
        assert!(FrameSplitter::new(1000).feed(Bytes::from_static(b"{\"type\":\"ADDED\"")).is_err());
    }

    #[test]
    fn what_came_before_a_frame_that_is_too_long_is_handed_out() {
        let good = frame("ADDED", &map("a"));
        let mut splitter = FrameSplitter::new(1000);
        let chunk = [&good[..], b"\xff\xff\xff\xff"].concat();
        assert_eq!(splitter.feed(chunk.into()).unwrap().as_deref(), Some(&good[..]));
        assert!(splitter.feed(Bytes::from_static(b"\0")).is_err());
    }

    #[test]
    fn events_are_read() {
        let annotations = json!({"k8s.io/initial-events-end": "true"});
        let end = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"resourceVersion": "7", "annotations": annotations}});
        let gone = json!({"apiVersion": "v1", "kind": "Status", "code": 410, "reason": "Expired"});
        let stream = [
            frame("ADDED", &map("a")),
            frame("MODIFIED", &map("b")),
            frame("DELETED", &map("c")),
            frame("BOOKMARK", &end),
            frame("ERROR", &gone),
        ];
        let events = decode_frames(&decoder(), &stream.concat());
        let [added, modified, deleted, bookmark, error] = &events[..] else { panic!("{events:?}") };
        assert!(matches!(added, Event::Added(Decoded::Object(map)) if *map.key() == "a".into()));
        assert!(matches!(modified, Event::Modified(Decoded::Object(map)) if *map.key() == "b".into()));
        assert!(matches!(deleted, Event::Deleted(Decoded::Object(map)) if *map.key() == "c".into()));
        assert!(
            matches!(bookmark, Event::Bookmark { version, ends_initial_events: true } if *version == "7".into())
        );
        assert!(matches!(error, Event::Error(status) if status.code == Some(410)));
    }

    #[test]
    fn an_object_of_another_kind_is_skipped_with_its_key() {
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "n"}});
        let events = decode_frames(&decoder(), &frame("ADDED", &secret));
        let [Event::Added(Decoded::Skipped(skipped))] = &events[..] else { panic!("{events:?}") };
        assert_eq!(skipped.key, Some("n/s".into()));
        assert_eq!(skipped.message, "it is a Secret of \"v1\", expected ConfigMap of \"v1\"");
    }

    #[test]
    fn a_frame_that_is_no_event_is_kept_as_what_the_server_said() {
        let unknown = frame("NEW", &map("a"));
        for (frame, words) in [
            (&b"\0\0\0\x02no"[..], "no"),
            (b"\0\0\0\0", ""),
            (&unknown, "..NEW."),
            (b"\0\0\0\x0f\x0a\x05ADDED\x12\x06\x0a\x04json", "..ADDED....json"),
        ] {
            let events = decode_frames(&decoder(), frame);
            assert!(
                matches!(&events[..], [Event::Malformed(found)] if found.starts_with(words)),
                "{events:?}"
            );
        }
    }
}
