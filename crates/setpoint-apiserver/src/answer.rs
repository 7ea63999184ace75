//! Objects → responses, in the version and representation that the client asked for.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::convert;
use crate::negotiate::{Media, Representation, Shape};
use crate::object::{self, ListMeta};
use crate::request::ResourceRequest;
use crate::resource::Resource;
use crate::response::{Body, add_warnings, respond};
use crate::status::{Result, Status};
use crate::storage::Record;

/// The outcome of a request about one object.
#[derive(Debug)]
pub(crate) struct Answer {
    pub code: StatusCode,
    pub payload: Payload,
    pub warnings: Vec<String>,
}

/// What the outcome is about.
#[derive(Debug)]
pub(crate) enum Payload {
    /// A stored object.
    Stored(Arc<Record>),
    /// An object of the resource's kind that is not stored: what a dry run would have written.
    Object(Value),
    /// An object of some other kind: a Scale, a Status.
    Other(Value),
}

impl Answer {
    pub(crate) fn new(code: StatusCode, payload: Payload) -> Answer {
        Answer { code, payload, warnings: Vec::new() }
    }

    pub(crate) fn ok(payload: Payload) -> Answer {
        Answer::new(StatusCode::OK, payload)
    }

    /// The response to `request`.
    pub(crate) fn respond(self, request: &ResourceRequest) -> Result<Response<Body>> {
        let representation = &request.representation;
        let resource = &*request.resource;
        let body = match self.payload {
            Payload::Stored(record) => {
                let mut out = Vec::new();
                write_object(resource, representation.shape, &record.value, record.revision, &mut out);
                finish(representation, out)?
            }
            Payload::Object(object) if representation.shape == Shape::PartialMetadata => {
                encode(representation, &partial_metadata(object))?
            }
            Payload::Object(object) | Payload::Other(object) => encode(representation, &object)?,
        };
        let mut response = respond(self.code, representation.media.content_type(), body);
        add_warnings(&mut response, &self.warnings);
        Ok(response)
    }
}

/// The JSON that a client gets for a stored object.
pub(crate) fn write_object(
    resource: &Resource,
    shape: Shape,
    value: &[u8],
    revision: u64,
    out: &mut Vec<u8>,
) {
    if shape != Shape::PartialMetadata && !resource.is_converted() {
        return object::write(value, revision, out);
    }
    let mut object = convert::to_served(resource, object::decode(value, revision));
    if shape == Shape::PartialMetadata {
        object = partial_metadata(object);
    }
    serde_json::to_writer(out, &object).expect("JSON values always serialise into memory");
}

fn partial_metadata(mut object: Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"].take(),
    })
}

/// A list of stored objects as a response.
pub(crate) fn respond_list(
    request: &ResourceRequest,
    records: Vec<Arc<Record>>,
    meta: &ListMeta,
) -> Result<Response<Body>> {
    let representation = request.representation;
    let media_type = representation.media.content_type();
    let mut list = List::new(request, records, meta);
    let first = list.next().unwrap_or_default();
    if representation.media == Media::Json && !representation.pretty && !list.is_written() {
        // A long list is written piece by piece, as fast as the client reads.
        let mut response = respond(StatusCode::OK, media_type, Bytes::new());
        *response.body_mut() = Body::stream(futures::stream::iter(std::iter::once(first).chain(list)));
        return Ok(response);
    }
    let json = list.fold(first, |all, piece| [all, piece].concat().into());
    Ok(respond(StatusCode::OK, media_type, finish(&representation, json)?))
}

/// A list as pieces of JSON.
struct List {
    resource: Arc<Resource>,
    shape: Shape,
    start: String,
    records: std::iter::Peekable<std::vec::IntoIter<Arc<Record>>>,
    is_written: bool,
}

impl List {
    /// A piece is given out once it is this long.
    const PIECE: usize = 256 * 1024;

    fn new(request: &ResourceRequest, records: Vec<Arc<Record>>, meta: &ListMeta) -> List {
        let resource = &request.resource;
        let start = if request.representation.shape == Shape::PartialMetadata {
            object::list_start("meta.k8s.io/v1", "PartialObjectMetadataList", meta)
        } else {
            object::list_start(resource.api_version(), &format!("{}List", resource.kind()), meta)
        };
        List {
            resource: Arc::clone(resource),
            shape: request.representation.shape,
            start,
            records: records.into_iter().peekable(),
            is_written: false,
        }
    }

    fn is_written(&self) -> bool {
        self.is_written
    }

    fn write_item(&self, record: &Record, out: &mut Vec<u8>) {
        if self.shape == Shape::PartialMetadata || self.resource.is_converted() {
            write_object(&self.resource, self.shape, &record.value, record.revision, out);
        } else {
            object::write_item(&record.value, record.revision, out);
        }
    }
}

impl Iterator for List {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.is_written {
            return None;
        }
        let mut out = std::mem::take(&mut self.start).into_bytes();
        while out.len() < Self::PIECE {
            let Some(record) = self.records.next() else {
                out.extend_from_slice(object::LIST_END);
                self.is_written = true;
                break;
            };
            self.write_item(&record, &mut out);
            if self.records.peek().is_some() {
                out.push(b',');
            }
        }
        Some(out.into())
    }
}

fn encode(representation: &Representation, object: &Value) -> Result<Bytes> {
    finish(representation, serde_json::to_vec(object).map_err(Status::internal)?)
}

/// JSON as the client wants it: as it is, indented, or as YAML.
fn finish(representation: &Representation, json: impl Into<Bytes>) -> Result<Bytes> {
    let json = json.into();
    if representation.media == Media::Json && !representation.pretty {
        return Ok(json);
    }
    let value: Value = serde_json::from_slice(&json).map_err(Status::internal)?;
    Ok(match representation.media {
        Media::Json => serde_json::to_vec_pretty(&value).map_err(Status::internal)?.into(),
        Media::Yaml => serde_saphyr::to_string(&value).map_err(Status::internal)?.into(),
    })
}
