//! The body of a list, item by item as the bytes arrive.

use bytes::{Buf, Bytes, BytesMut};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;

use super::error::ReflectorFailure;
use super::scan::{Place, skip_space};

/// Takes the bytes of a list apart. Only the item that is arriving is held.
#[derive(Default)]
pub(super) struct ListScanner {
    buffer: BytesMut,
    state: State,
    envelope: Envelope,
}

/// What a list says about itself.
#[derive(Debug, Default)]
pub(super) struct Envelope {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) metadata: ListMeta,
}

#[derive(Default)]
enum State {
    /// Nothing but white space has come.
    #[default]
    Start,
    /// Between two members of the list object.
    Members,
    /// Inside the value of a member; the buffer begins at the value.
    Value { key: Key, place: Place },
    /// Between two items.
    Items,
    /// Inside an item; the buffer begins at the item.
    Item { place: Place },
    /// The list is complete.
    End,
}

#[derive(Clone, Copy)]
enum Key {
    ApiVersion,
    Kind,
    Metadata,
    Other,
}

/// The bytes are not a list.
#[derive(Debug)]
pub(super) struct NotAList;

/// What the bytes that have come so far gave.
pub(super) enum Found {
    /// An item of the list.
    Item(Bytes),
    /// Nothing more until more bytes come.
    NeedsMore,
}

impl ListScanner {
    pub(super) fn feed(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next item.
    pub(super) fn next(&mut self) -> Result<Found, NotAList> {
        loop {
            match &mut self.state {
                State::Start => {
                    self.skip_space();
                    match self.buffer.first() {
                        None => return Ok(Found::NeedsMore),
                        Some(b'{') => self.step(1, State::Members),
                        Some(_) => return Err(NotAList),
                    }
                }
                State::Members => {
                    self.skip_space();
                    match self.buffer.first().copied() {
                        None => return Ok(Found::NeedsMore),
                        Some(b',') => self.buffer.advance(1),
                        Some(b'}') => self.step(1, State::End),
                        Some(b'"') if !self.begin_member()? => return Ok(Found::NeedsMore),
                        Some(b'"') => {}
                        Some(_) => return Err(NotAList),
                    }
                }
                State::Value { key, place } => {
                    if !place.skip_value(&self.buffer) {
                        return Ok(Found::NeedsMore);
                    }
                    let (key, end) = (*key, place.at);
                    let value = self.buffer.split_to(end);
                    self.envelope.read(key, &value)?;
                    self.state = State::Members;
                }
                State::Items => {
                    self.skip_space();
                    match self.buffer.first() {
                        None => return Ok(Found::NeedsMore),
                        Some(b',') => self.buffer.advance(1),
                        Some(b']') => self.step(1, State::Members),
                        Some(b'{') => self.state = State::Item { place: Place::new(0) },
                        Some(_) => return Err(NotAList),
                    }
                }
                State::Item { place } => {
                    if !place.skip_value(&self.buffer) {
                        return Ok(Found::NeedsMore);
                    }
                    let item = self.buffer.split_to(place.at).freeze();
                    self.state = State::Items;
                    return Ok(Found::Item(item));
                }
                State::End => return Ok(Found::NeedsMore),
            }
        }
    }

    /// What the list said about itself.
    pub(super) fn finish(self) -> Result<Envelope, ReflectorFailure> {
        match self.state {
            State::End => Ok(self.envelope),
            _ => Err(ReflectorFailure::CutOff("a list")),
        }
    }

    /// The bytes that are held, for telling what the server said instead of a list.
    pub(super) fn held(&self) -> &[u8] {
        &self.buffer
    }

    fn skip_space(&mut self) {
        let space = skip_space(&self.buffer, 0);
        self.buffer.advance(space);
    }

    fn step(&mut self, by: usize, state: State) {
        self.buffer.advance(by);
        self.state = state;
    }

    /// Reads `"key":` and, for `items`, the opening bracket. False if more bytes are needed.
    fn begin_member(&mut self) -> Result<bool, NotAList> {
        let mut place = Place::new(0);
        if !place.skip_value(&self.buffer) {
            return Ok(false);
        }
        let colon = skip_space(&self.buffer, place.at);
        let value = skip_space(&self.buffer, colon + 1);
        if value >= self.buffer.len() {
            return Ok(false);
        }
        if self.buffer[colon] != b':' {
            return Err(NotAList);
        }
        let key = match &self.buffer[1..place.at - 1] {
            b"items" if self.buffer[value] == b'[' => {
                self.step(value + 1, State::Items);
                return Ok(true);
            }
            b"apiVersion" => Key::ApiVersion,
            b"kind" => Key::Kind,
            b"metadata" => Key::Metadata,
            _ => Key::Other,
        };
        self.step(value, State::Value { key, place: Place::new(0) });
        Ok(true)
    }
}

impl Envelope {
    fn read(&mut self, key: Key, value: &[u8]) -> Result<(), NotAList> {
        let parsed = match key {
            Key::ApiVersion => serde_json::from_slice(value).map(|text| self.api_version = text),
            Key::Kind => serde_json::from_slice(value).map(|text| self.kind = text),
            Key::Metadata => serde_json::from_slice(value).map(|metadata| self.metadata = metadata),
            Key::Other => Ok(()),
        };
        parsed.map_err(|_| NotAList)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Feeds `text` in chunks of `size`, and gives the items and the envelope.
    fn scan(text: &str, size: usize) -> Result<(Vec<String>, Result<Envelope, ReflectorFailure>), NotAList> {
        let mut scanner = ListScanner::default();
        let mut items = Vec::new();
        for chunk in text.as_bytes().chunks(size) {
            scanner.feed(chunk);
            while let Found::Item(item) = scanner.next()? {
                items.push(String::from_utf8(item.to_vec()).unwrap());
            }
        }
        Ok((items, scanner.finish()))
    }

    const TYPED: &str = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"12","continue":"x"},
        "items":[{"metadata":{"name":"a"},"s":"]}"} , {"n":[1,{}]}]}"#;
    const SORTED: &str =
        r#" {"apiVersion":"x/v1","items":[{"a":1}],"kind":"FooList","metadata":{"resourceVersion":"3"}} "#;

    proptest! {
        #[test]
        fn a_list_is_taken_apart_whatever_the_chunks(size in 1..200usize) {
            let (items, envelope) = scan(TYPED, size).unwrap();
            prop_assert_eq!(items, [r#"{"metadata":{"name":"a"},"s":"]}"}"#, r#"{"n":[1,{}]}"#]);
            let envelope = envelope.unwrap();
            prop_assert_eq!(envelope.kind, "PodList");
            prop_assert_eq!(envelope.metadata.continue_.as_deref(), Some("x"));

            let (items, envelope) = scan(SORTED, size).unwrap();
            prop_assert_eq!(items, [r#"{"a":1}"#]);
            let envelope = envelope.unwrap();
            prop_assert_eq!(envelope.metadata.resource_version.as_deref(), Some("3"));
        }

        #[test]
        fn a_list_that_is_cut_off_has_no_envelope(end in 0..TYPED.len()) {
            let envelope = scan(&TYPED[..end], 7).unwrap().1;
            prop_assert!(matches!(envelope, Err(ReflectorFailure::CutOff("a list"))));
        }
    }

    #[test]
    fn a_list_may_say_null_for_no_items() {
        let (items, envelope) = scan(r#"{"kind":"PodList","items":null,"metadata":{}}"#, 5).unwrap();
        assert!(items.is_empty() && envelope.is_ok());
    }

    #[test]
    fn html_is_no_list() {
        assert!(scan("<html>", 3).is_err());
        assert!(scan(r#"{"items":["a"]}"#, 3).is_err());
    }
}
