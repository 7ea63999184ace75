//! The body of a list, item by item as the bytes arrive.

use bytes::{Buf, Bytes, BytesMut};
use setpoint_kinds::protobuf::{FieldHead, Fields, MAGIC, MEDIA_TYPE, from_message, text};

use super::type_named;
use crate::reflector::error::ReflectorFailure;
use crate::reflector::format::Format;
use crate::reflector::list::{Envelope, Found, NotAList};

/// Takes the bytes of a list apart: the message around it, and the list in it. Only the item that is arriving is held.
#[derive(Default)]
pub(in crate::reflector) struct ListScanner {
    buffer: BytesMut,
    state: State,
    envelope: Envelope,
    /// The metadata, in one part or in several: a message in parts is all of them, one after the other.
    metadata: Vec<u8>,
    has_list: bool,
}

#[derive(Clone, Copy, Default)]
enum State {
    /// Before the magic bytes.
    #[default]
    Start,
    /// Between two fields of the message around the list.
    Around,
    /// Between two fields of the list, of which this much is left.
    List { left: usize },
}

impl ListScanner {
    pub(in crate::reflector) fn feed(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next item.
    pub(in crate::reflector) fn next(&mut self) -> Result<Found, NotAList> {
        loop {
            match self.state {
                State::Start => {
                    let Some(magic) = self.buffer.get(..MAGIC.len()) else { return Ok(Found::NeedsMore) };
                    if magic != MAGIC {
                        return Err(NotAList);
                    }
                    self.buffer.advance(MAGIC.len());
                    self.state = State::Around;
                }
                State::List { left: 0 } => self.state = State::Around,
                State::Around => {
                    let Some(head) = self.head()? else { return Ok(Found::NeedsMore) };
                    if head.number == 2 && head.is_bytes {
                        if std::mem::replace(&mut self.has_list, true) {
                            return Err(NotAList);
                        }
                        self.buffer.advance(head.size);
                        self.state = State::List { left: head.length };
                        continue;
                    }
                    let Some(bytes) = self.take(&head) else { return Ok(Found::NeedsMore) };
                    self.read_around(&head, &bytes)?;
                }
                State::List { left } => {
                    let Some(head) = self.head()? else { return Ok(Found::NeedsMore) };
                    let left = head.size.checked_add(head.length).and_then(|length| left.checked_sub(length));
                    let left = left.ok_or(NotAList)?;
                    let Some(bytes) = self.take(&head) else { return Ok(Found::NeedsMore) };
                    self.state = State::List { left };
                    match (head.number, head.is_bytes) {
                        (1, true) => self.metadata.extend_from_slice(&bytes),
                        (2, true) => return Ok(Found::Item(bytes)),
                        (1 | 2, false) => return Err(NotAList),
                        _ => {}
                    }
                }
            }
        }
    }

    /// What the list said about itself.
    pub(in crate::reflector) fn finish(self) -> Result<Envelope, ReflectorFailure> {
        let is_whole = matches!(self.state, State::Around | State::List { left: 0 });
        if !is_whole || !self.has_list || !self.buffer.is_empty() {
            return Err(ReflectorFailure::CutOff("a list"));
        }
        let malformed = |_| ReflectorFailure::Malformed {
            expected: "the metadata of a list",
            words: Format::Protobuf.excerpt(&self.metadata),
        };
        let metadata =
            from_message(type_named("meta.v1.ListMeta"), None, &self.metadata).map_err(malformed)?;
        Ok(Envelope { metadata, ..self.envelope })
    }

    /// The bytes that are held, for telling what the server said instead of a list.
    pub(in crate::reflector) fn held(&self) -> &[u8] {
        &self.buffer
    }

    /// The beginning of the next field, if all of it is there.
    fn head(&self) -> Result<Option<FieldHead>, NotAList> {
        FieldHead::read(&self.buffer).map_err(|_| NotAList)
    }

    /// What the field holds, if all of it is there.
    fn take(&mut self, head: &FieldHead) -> Option<Bytes> {
        if self.buffer.len() - head.size < head.length {
            return None;
        }
        self.buffer.advance(head.size);
        Some(self.buffer.split_to(head.length).freeze())
    }

    /// Reads a field of the message around the list.
    fn read_around(&mut self, head: &FieldHead, bytes: &[u8]) -> Result<(), NotAList> {
        match (head.number, head.is_bytes) {
            (1, true) => {
                for field in Fields::of(bytes) {
                    let field = field.map_err(|_| NotAList)?;
                    let text = || text(field.bytes.unwrap_or_default()).into_owned();
                    match field.number {
                        1 => self.envelope.api_version = text(),
                        2 => self.envelope.kind = text(),
                        _ => {}
                    }
                }
                Ok(())
            }
            // How the list is encoded: as plain protobuf, or it cannot be read.
            (3, true) if !bytes.is_empty() => Err(NotAList),
            (4, true) if !bytes.is_empty() && bytes != MEDIA_TYPE.as_bytes() => Err(NotAList),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use setpoint_kinds::protobuf::encode;

    use super::*;

    fn scan(body: &[u8], size: usize) -> Result<(Vec<Bytes>, Result<Envelope, ReflectorFailure>), NotAList> {
        let mut scanner = ListScanner::default();
        let mut items = Vec::new();
        for chunk in body.chunks(size) {
            scanner.feed(chunk);
            while let Found::Item(item) = scanner.next()? {
                items.push(item);
            }
        }
        Ok((items, scanner.finish()))
    }

    fn list() -> Vec<u8> {
        let maps: Vec<_> = (0..3)
            .map(|n| json!({"metadata": {"name": n.to_string()}, "data": {"a": "x".repeat(n * 100)}}))
            .collect();
        let metadata = json!({"resourceVersion": "12", "continue": "next", "remainingItemCount": 7});
        encode(&json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": metadata, "items": maps}))
            .unwrap()
    }

    #[test]
    fn a_list_is_taken_apart_whatever_the_chunks() {
        let body = list();
        let (whole, _) = scan(&body, body.len()).unwrap();
        for size in 1..=body.len() {
            let (items, envelope) = scan(&body, size).unwrap();
            assert_eq!(items, whole);
            let envelope = envelope.unwrap();
            assert_eq!((&*envelope.api_version, &*envelope.kind), ("v1", "ConfigMapList"));
            assert_eq!(envelope.metadata.resource_version.as_deref(), Some("12"));
            assert_eq!(envelope.metadata.continue_.as_deref(), Some("next"));
            assert_eq!(envelope.metadata.remaining_item_count, Some(7));
        }
        assert_eq!(whole.len(), 3);
        let name: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta =
            super::super::metadata(&whole[2]).unwrap();
        assert_eq!(name.name.as_deref(), Some("2"));
    }

    #[test]
    fn a_list_that_is_cut_off_has_no_envelope() {
        let body = list();
        // The last four bytes say that nothing is unusual: they may be missing.
        for end in 0..body.len() - 4 {
            assert!(
                matches!(scan(&body[..end], 7).unwrap().1, Err(ReflectorFailure::CutOff("a list"))),
                "{end}"
            );
        }
        assert!(scan(&body[..body.len() - 4], 7).unwrap().1.is_ok());
    }

    #[test]
    fn a_whole_list_whose_metadata_cannot_be_read_is_not_cut_off() {
        // The resourceVersion is a number; a field begins and does not end.
        for (metadata, words) in [(&b"\x10\x07"[..], ".."), (b"\x12\x09many", "..many")] {
            let mut list = vec![0x0a, metadata.len() as u8];
            list.extend_from_slice(metadata);
            let body = [&b"k8s\0\x12"[..], &[list.len() as u8], &list].concat();
            let failure = scan(&body, 3).unwrap().1.unwrap_err();
            assert_eq!(
                failure.to_string(),
                format!("the server sent something that is not the metadata of a list: {words}")
            );
        }
    }

    #[test]
    fn the_order_of_fields_does_not_matter() {
        // The list before what it is, an item before the metadata, metadata in two parts, fields that nobody knows.
        let list = b"\x12\x03\x0a\x01a\x0a\x03\x12\x018\x18\x05\x0a\x03\x1a\x01c\x25abcd\x19abcdefgh";
        let mut body = b"k8s\0\x12".to_vec();
        body.push(list.len() as u8);
        body.extend_from_slice(list);
        body.extend_from_slice(b"\x0a\x08\x0a\x02v1\x12\x02Xs\x28\x01");
        for size in 1..=body.len() {
            let (items, envelope) = scan(&body, size).unwrap();
            let envelope = envelope.unwrap();
            assert_eq!((items.len(), &*envelope.kind), (1, "Xs"));
            assert_eq!(envelope.metadata.resource_version.as_deref(), Some("8"));
            assert_eq!(envelope.metadata.continue_.as_deref(), Some("c"));
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for body in [
            &b"{\"kind\":\"PodList\"}"[..],
            b"k8s\0\x12\x04\x12\x7f....",
            b"k8s\0\x12\x02\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            b"k8s\0\x13",
            b"k8s\0\x02\x01",
            b"k8s\0\x12\x02\x10\x01",
            b"k8s\0\x12\x00\x12\x00",
            b"k8s\0\x1a\x04gzip",
            b"k8s\0\x22\x04json",
            b"k8s\0\x0a\x02\x0a\x09",
        ] {
            for size in [1, 3, 100] {
                assert!(scan(body, size).is_err(), "{body:?}");
            }
        }
    }
}
