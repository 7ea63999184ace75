//! Answers in `application/vnd.kubernetes.protobuf`.
//!
//! Stored objects are JSON text, which is encoded straight. Only what is served in another version than it is stored in is
//! read into a value first.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use setpoint_kinds::protobuf::{self, EncodeError, Envelope, Json};
use setpoint_kinds::{Type, table};

use super::Payload;
use super::list::{PIECE, WORK};
use crate::convert;
use crate::negotiate::{MetaVersion, Shape};
use crate::object::{self, ListMeta};
use crate::request::ResourceRequest;
use crate::resource::Resource;
use crate::status::Status;
use crate::storage::{Event, Record};

/// The media type of a body.
pub(super) const MEDIA_TYPE: &str = protobuf::MEDIA_TYPE;

/// The body for the outcome of a request; none if it has no protobuf form.
pub(super) fn payload(request: &ResourceRequest, payload: &Payload) -> Option<Vec<u8>> {
    let (resource, shape) = (&*request.resource, request.representation.shape);
    let body = match payload {
        Payload::Stored(record) => stored(resource, shape, &record.value, record.revision),
        Payload::Object(value) => whole(resource, shape, value.into()),
        Payload::Other(value) if matches!(shape, Shape::PartialMetadata(_)) && value["kind"] != "Status" => {
            whole(resource, shape, value.into())
        }
        Payload::Other(value) => protobuf::encode(value),
    };
    known(body)
}

/// A stored object as a body; none if it has no protobuf form.
pub(crate) fn stored_object(
    resource: &Resource,
    shape: Shape,
    value: &[u8],
    revision: u64,
) -> Option<Vec<u8>> {
    known(stored(resource, shape, value, revision))
}

/// The object of an event as a body. Many watchers ask for it, so it is made once.
pub(crate) fn event_object(resource: &Resource, shape: Shape, event: &Event) -> Option<Bytes> {
    // It is kept for a while, so it takes no more room than it needs.
    let exact = |body: Vec<u8>| Bytes::from(body.into_boxed_slice());
    let encode = || stored_object(resource, shape, &event.record.value, event.revision()).map(exact);
    if shape == Shape::Object && !resource.is_converted() {
        return event.protobuf(encode);
    }
    encode()
}

/// The object of a bookmark as a body.
pub(crate) fn bookmark(resource: &Resource, shape: Shape, metadata: Value) -> Option<Vec<u8>> {
    known(whole(resource, shape, (&json!({ "metadata": metadata })).into()))
}

/// A failure as a body.
pub(crate) fn status(status: &Status) -> Option<Vec<u8>> {
    let value: Value = serde_json::from_slice(&status.to_json()).ok()?;
    known(protobuf::encode(&value))
}

/// A stored object is always of its kind, so this fails only by a mistake of ours. The client takes JSON, too.
fn known(body: Result<Vec<u8>, EncodeError>) -> Option<Vec<u8>> {
    body.inspect_err(|error| tracing::warn!(%error, "an object has no protobuf form")).ok()
}

fn stored(resource: &Resource, shape: Shape, value: &[u8], revision: u64) -> Result<Vec<u8>, EncodeError> {
    served(resource, value, revision, |object| whole(resource, shape, object))
}

/// Calls `encode` with a stored object in the version that is served.
fn served<T>(resource: &Resource, value: &[u8], revision: u64, encode: impl FnOnce(Json<'_>) -> T) -> T {
    if resource.is_converted() {
        return encode((&convert::to_served(resource, object::decode(value, revision))).into());
    }
    let object = Json::text(value);
    // What is not stored has no version.
    encode(if revision == 0 { object } else { object.with_resource_version(revision) })
}

/// An object of a resource, in the version that is served, as a body.
fn whole(resource: &Resource, shape: Shape, object: Json<'_>) -> Result<Vec<u8>, EncodeError> {
    let (api_version, kind) = match shape {
        Shape::PartialMetadata(version) => (version.api_version(), "PartialObjectMetadata"),
        _ => (resource.api_version(), resource.kind()),
    };
    protobuf::encode_as(type_of(resource, shape)?, api_version, kind, object)
}

/// The type of an object as it is served.
fn type_of(resource: &Resource, shape: Shape) -> Result<&'static Type, EncodeError> {
    if let Shape::PartialMetadata(_) = shape {
        return Ok(table().type_named("meta.v1.PartialObjectMetadata").expect("the table has it"));
    }
    resource.ty().ok_or_else(|| EncodeError::Kind {
        api_version: resource.api_version().to_owned(),
        kind: resource.kind().to_owned(),
    })
}

/// A list as a body.
pub(super) struct List {
    /// What is encoded already.
    kept: Vec<Bytes>,
    /// What is encoded when it is sent.
    rest: Rest,
    length: usize,
}

impl List {
    /// How much of a list is kept while a client reads it. What comes after is encoded once to know its length, and
    /// again to be sent: slow readers of long lists shall not fill the memory.
    const KEPT: usize = 16 * 1024 * 1024;

    /// `None` if an item has no protobuf form.
    pub(super) async fn new(
        request: &ResourceRequest,
        records: &[Arc<Record>],
        meta: &ListMeta,
    ) -> Option<List> {
        let (resource, shape) = (&request.resource, request.representation.shape);
        let (api_version, kind) = match shape {
            Shape::PartialMetadata(version) => {
                (version.api_version(), "PartialObjectMetadataList".to_owned())
            }
            _ => (resource.api_version(), resource.list_kind().to_string()),
        };
        let numbers = Numbers::of(shape);
        let mut metadata = Vec::new();
        known_part(protobuf::append_field(numbers.metadata, list_meta(), &meta_value(meta), &mut metadata))?;
        let mut kept = vec![Bytes::new()];
        let mut kept_records = 0;
        let mut length = 0;
        let mut piece = Vec::new();
        let mut work = 0;
        for (index, record) in records.iter().enumerate() {
            known_part(item(resource, shape, numbers.items, record, &mut piece))?;
            work += record.value.len();
            let is_last = index + 1 == records.len();
            if piece.len() < PIECE && work < WORK && !is_last {
                continue;
            }
            work = 0;
            length += piece.len();
            if length <= Self::KEPT {
                kept.push(std::mem::take(&mut piece).into());
                kept_records = index + 1;
            }
            piece.clear();
            if !is_last {
                // A long list is a lot of work, and others want to work, too.
                tokio::task::yield_now().await;
            }
        }
        let mut start = Envelope::start(api_version, &kind, metadata.len() + length);
        start.extend_from_slice(&metadata);
        let length = start.len() + length + Envelope::END.len();
        kept[0] = start.into();
        let later = records[kept_records..].to_vec();
        let rest =
            Rest { resource: Arc::clone(resource), shape, number: numbers.items, records: later.into_iter() };
        Some(List { kept, rest, length })
    }

    /// How many bytes it has.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    pub(super) fn pieces(self) -> impl Iterator<Item = Bytes> + Send + 'static {
        let end = Bytes::from_static(Envelope::END);
        self.kept.into_iter().chain(self.rest).chain(std::iter::once(end))
    }
}

/// The items of a list that are encoded when they are sent.
struct Rest {
    resource: Arc<Resource>,
    shape: Shape,
    number: u32,
    records: std::vec::IntoIter<Arc<Record>>,
}

impl Iterator for Rest {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut piece = Vec::new();
        let mut work = 0;
        while piece.len() < PIECE && work < WORK {
            let Some(record) = self.records.next() else { break };
            work += record.value.len();
            item(&self.resource, self.shape, self.number, &record, &mut piece)
                .expect("it was encoded before, to know its length");
        }
        (!piece.is_empty()).then(|| piece.into())
    }
}

fn known_part(part: Result<(), EncodeError>) -> Option<()> {
    part.inspect_err(|error| tracing::warn!(%error, "an item has no protobuf form")).ok()
}

/// Appends one item of a list.
fn item(
    resource: &Resource,
    shape: Shape,
    number: u32,
    record: &Record,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let ty = type_of(resource, shape)?;
    served(resource, &record.value, record.revision, |object| protobuf::append_field(number, ty, object, out))
}

/// The numbers of the fields of a list.
struct Numbers {
    metadata: u32,
    items: u32,
}

impl Numbers {
    fn of(shape: Shape) -> Numbers {
        match shape {
            Shape::PartialMetadata(MetaVersion::V1Beta1) => Numbers { metadata: 2, items: 1 },
            _ => Numbers { metadata: 1, items: 2 },
        }
    }
}

fn list_meta() -> &'static Type {
    table().type_named("meta.v1.ListMeta").expect("the table has it")
}

fn meta_value(meta: &ListMeta) -> Value {
    let mut value = json!({});
    if meta.revision != 0 {
        value["resourceVersion"] = meta.revision.to_string().into();
    }
    if let Some(next) = &meta.next {
        value["continue"] = next.as_str().into();
    }
    if let Some(remaining) = meta.remaining {
        value["remainingItemCount"] = remaining.into();
    }
    value
}
