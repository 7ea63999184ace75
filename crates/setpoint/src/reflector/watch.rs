//! The body of a watch: one event a line.

use bytes::{Bytes, BytesMut};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;

use super::decode::{Decoded, Decoder, Metadata, Scratch};
use super::scan::{Members, skip_space};
use crate::{Object, ResourceVersion};

/// An event of a watch.
#[derive(Debug)]
pub(super) enum Event<T> {
    Added(Decoded<T>),
    Modified(Decoded<T>),
    Deleted(Decoded<T>),
    Bookmark {
        version: ResourceVersion,
        ends_initial_events: bool,
    },
    Error(Box<Status>),
    /// A line that is no event: what the server said instead.
    Malformed(String),
}

/// Collects chunks until there are whole lines.
#[derive(Default)]
pub(super) struct LineSplitter {
    buffer: BytesMut,
}

impl LineSplitter {
    /// Takes a chunk, and gives the whole lines that are there now.
    pub(super) fn feed(&mut self, chunk: Bytes) -> Option<Bytes> {
        let end = memchr::memrchr(b'\n', &chunk).map(|newline| newline + 1);
        let Some(end) = end else {
            self.buffer.extend_from_slice(&chunk);
            return None;
        };
        if self.buffer.is_empty() && end == chunk.len() {
            return Some(chunk);
        }
        self.buffer.extend_from_slice(&chunk[..end]);
        let lines = self.buffer.split().freeze();
        self.buffer.extend_from_slice(&chunk[end..]);
        Some(lines)
    }

    /// What came after the last line when the stream ended: nothing, if all is well.
    pub(super) fn rest(&self) -> &[u8] {
        self.buffer.trim_ascii()
    }
}

/// Decodes whole lines.
pub(super) fn decode_lines<T: Object>(decoder: &Decoder<T>, lines: &[u8]) -> Vec<Event<T>> {
    let mut scratch = Scratch::default();
    let mut events = Vec::new();
    let mut start = 0;
    for end in memchr::memchr_iter(b'\n', lines) {
        let line = lines[start..end].trim_ascii();
        if !line.is_empty() {
            events.push(decode_line(decoder, line, &mut scratch));
        }
        start = end + 1;
    }
    events
}

fn decode_line<T: Object>(decoder: &Decoder<T>, line: &[u8], scratch: &mut Scratch) -> Event<T> {
    let malformed = || Event::Malformed(super::error::excerpt(line));
    let Some(Envelope { kind, object }) = Envelope::read(line) else { return malformed() };
    let mut decode = || match decoder.decode(object, scratch) {
        Decoded::Skipped(skipped) => match Envelope::read_any(line) {
            Some(envelope) if envelope.object.len() < object.len() => {
                decoder.decode(envelope.object, scratch)
            }
            _ => Decoded::Skipped(skipped),
        },
        decoded => decoded,
    };
    match kind {
        b"ADDED" => Event::Added(decode()),
        b"MODIFIED" => Event::Modified(decode()),
        b"DELETED" => Event::Deleted(decode()),
        b"BOOKMARK" => match Metadata::read(object) {
            Ok(metadata) => match metadata.version() {
                Some(version) => {
                    Event::Bookmark { version, ends_initial_events: metadata.ends_initial_events() }
                }
                None => malformed(),
            },
            Err(_) => malformed(),
        },
        b"ERROR" => {
            serde_json::from_slice(object).map_or_else(|_| malformed(), |s| Event::Error(Box::new(s)))
        }
        _ => malformed(),
    }
}

/// The two members of a line: `{"type": …, "object": …}`.
struct Envelope<'a> {
    kind: &'a [u8],
    object: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn read(line: &'a [u8]) -> Option<Envelope<'a>> {
        Envelope::read_usual(line).or_else(|| Envelope::read_any(line))
    }

    /// Type first, object second and last, as Kubernetes writes it: the object need not be walked through
    /// to find its end. (If it is not the last member after all, it does not decode, and is read again.)
    fn read_usual(line: &'a [u8]) -> Option<Envelope<'a>> {
        let mut members = Members::of(line, 0)?;
        let kind = members.next().filter(|member| member.key == b"type")?.value;
        let end = members.skip_value()?;
        let object = members.next().filter(|member| member.key == b"object")?.value;
        let rest = line[object..].strip_suffix(b"}")?;
        Some(Envelope { kind: unquote(&line[kind..end])?, object: rest })
    }

    fn read_any(line: &'a [u8]) -> Option<Envelope<'a>> {
        let mut members = Members::of(line, 0)?;
        let (mut kind, mut object) = (None, None);
        while let Some(member) = members.next() {
            let value = member.value..members.skip_value()?;
            match member.key {
                b"type" => kind = unquote(&line[value]),
                b"object" => object = Some(&line[value]),
                _ => {}
            }
        }
        Some(Envelope { kind: kind?, object: object? })
    }
}

fn unquote(value: &[u8]) -> Option<&[u8]> {
    let value = &value[skip_space(value, 0)..];
    value.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Pod;

    use super::super::decode::Keep;
    use super::*;

    fn decode(line: &str) -> Event<Pod> {
        let decoder = Decoder::new(false, Keep::Lazy, None, Arc::new(|pod: Pod| pod));
        let mut events = decode_lines(&decoder, format!("{line}\n").as_bytes());
        assert_eq!(events.len(), 1);
        events.remove(0)
    }

    #[test]
    fn an_event_is_read_whatever_the_order_of_its_members() {
        for line in [
            r#"{"type":"ADDED","object":{"metadata":{"name":"a"}}}"#,
            r#" { "type" : "ADDED" , "object" : {"metadata":{"name":"a"}} } "#,
            r#"{"object":{"metadata":{"name":"a"}},"type":"ADDED"}"#,
            r#"{"type":"ADDED","object":{"metadata":{"name":"a"}},"more":{}}"#,
        ] {
            assert!(
                matches!(decode(line), Event::Added(Decoded::Object(pod)) if *pod.key() == "a".into()),
                "{line}"
            );
        }
    }

    #[test]
    fn a_bookmark_may_end_the_initial_events() {
        let line = r#"{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
        assert!(
            matches!(decode(line), Event::Bookmark { version, ends_initial_events: true } if version == "7".into())
        );
    }

    #[test]
    fn a_line_that_is_no_event_is_kept_as_what_the_server_said() {
        for line in ["<html>no</html>", "{\"type\":\"ADDED\"}", "{\"type\":\"NEW\",\"object\":{}}", "{"] {
            assert!(matches!(decode(line), Event::Malformed(words) if words == line), "{line}");
        }
    }

    #[test]
    fn lines_are_whole_whatever_the_chunks() {
        let text = b"one\ntwo\n\nthree\nfo";
        for size in 1..=text.len() {
            let mut splitter = LineSplitter::default();
            let mut lines = Vec::new();
            for chunk in text.chunks(size) {
                lines.extend(splitter.feed(Bytes::copy_from_slice(chunk)).into_iter().flatten());
            }
            assert_eq!((lines.as_slice(), splitter.rest()), (&b"one\ntwo\n\nthree\n"[..], &b"fo"[..]));
        }
    }
}
