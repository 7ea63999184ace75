//! Objects → responses, in the version and representation that the client asked for.

mod list;
pub(crate) mod protobuf;

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use self::list::List;
use crate::convert;
use crate::indent::indent;
use crate::negotiate::{Media, MetaVersion, Representation, Shape};
use crate::object::{self, ListMeta};
use crate::request::ResourceRequest;
use crate::resource::Resource;
use crate::response::{Body, add_warnings, respond};
use crate::status::{Result, Status};
use crate::storage::Record;
use crate::table::{self, Tabulator};

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
    /// An object of the resource's kind that is at hand: what a dry run would have written, or what was written.
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
        let mut response = match protobuf_body(request, &self.payload) {
            Some(body) => respond(self.code, protobuf::MEDIA_TYPE, body),
            None => {
                let body = text_body(request, self.payload)?;
                respond(self.code, representation.media.text_type(), body)
            }
        };
        add_warnings(&mut response, &[self.warnings, request.take_warnings()].concat());
        Ok(response)
    }
}

fn protobuf_body(request: &ResourceRequest, payload: &Payload) -> Option<Vec<u8>> {
    (request.representation.media == Media::Protobuf).then(|| protobuf::payload(request, payload))?
}

/// The outcome of a request in JSON or YAML.
fn text_body(request: &ResourceRequest, payload: Payload) -> Result<Bytes> {
    let representation = &request.representation;
    let resource = &request.resource;
    let mut out = Vec::new();
    match (payload, representation.shape) {
        (Payload::Stored(record), Shape::Table(shape)) => {
            let tabulator = Tabulator::new(resource, shape, request.received);
            tabulator.write_one(&record.value, record.revision, true, &mut out);
        }
        (Payload::Stored(record), shape) => {
            write_object(resource, shape, &record.value, record.revision, &mut out);
        }
        (Payload::Object(object), Shape::Table(shape)) => {
            Tabulator::new(resource, shape, request.received).write_unstored(object, &mut out);
        }
        (Payload::Object(object), Shape::PartialMetadata(version)) => {
            object::append_object(&mut out, &partial_metadata(object, version));
        }
        // A Status is what it is.
        (Payload::Other(object), Shape::PartialMetadata(version)) if object["kind"] != "Status" => {
            object::append_object(&mut out, &partial_metadata(object, version));
        }
        (Payload::Other(object), Shape::Table(shape)) if object["kind"] == "Scale" => {
            table::write_scale(&object, shape, request.received, &mut out);
        }
        (Payload::Object(object) | Payload::Other(object), _) => object::append_object(&mut out, &object),
    }
    finish(representation, out)
}

/// The JSON that a client gets for a stored object, if it is not a table.
pub(crate) fn write_object(
    resource: &Resource,
    shape: Shape,
    value: &[u8],
    revision: u64,
    out: &mut Vec<u8>,
) {
    match shape {
        Shape::PartialMetadata(version) if resource.definition().is_none() && !resource.is_converted() => {
            object::write_metadata(value, revision, version.api_version(), out);
        }
        Shape::PartialMetadata(version) => {
            let object = convert::to_served(resource, object::decode(value, revision));
            object::append_object(out, &partial_metadata(object, version));
        }
        _ if resource.is_converted() => {
            object::append_object(out, &convert::to_served(resource, object::decode(value, revision)));
        }
        _ => object::write(value, revision, out),
    }
}

fn partial_metadata(mut object: Value, version: MetaVersion) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": version.api_version(),
        "metadata": object["metadata"].take(),
    })
}

/// A list of stored objects as a response.
pub(crate) async fn respond_list(
    request: &ResourceRequest,
    records: Vec<Arc<Record>>,
    meta: &ListMeta,
) -> Result<Response<Body>> {
    let representation = request.representation;
    if representation.media == Media::Protobuf
        && let Some(list) = protobuf::List::new(request, &records, meta).await
    {
        return Ok(respond_protobuf(list));
    }
    let media_type = representation.media.text_type();
    let mut list = List::new(request, records, meta);
    let first = list.next().unwrap_or_default();
    if list.is_written() {
        return Ok(respond(StatusCode::OK, media_type, first));
    }
    Ok(respond_in_pieces(media_type, std::iter::once(first).chain(list)))
}

/// A list in protobuf: a short one is sent as a whole.
fn respond_protobuf(list: protobuf::List) -> Response<Body> {
    if list.length() <= list::PIECE {
        let whole = list.pieces().collect::<Vec<_>>().concat();
        return respond(StatusCode::OK, protobuf::MEDIA_TYPE, whole);
    }
    respond_in_pieces(protobuf::MEDIA_TYPE, list.pieces())
}

/// What is long is written piece by piece, as fast as the client reads, and others get their turn in between.
fn respond_in_pieces(
    media_type: &'static str,
    pieces: impl Iterator<Item = Bytes> + Send + 'static,
) -> Response<Body> {
    let mut response = respond(StatusCode::OK, media_type, Bytes::new());
    *response.body_mut() = Body::stream(futures::stream::unfold(pieces, |mut pieces| async move {
        tokio::task::yield_now().await;
        let piece = pieces.next()?;
        Some((piece, pieces))
    }));
    response
}

/// JSON as the client wants it: as it is, indented, or as YAML.
pub(crate) fn finish(representation: &Representation, json: impl Into<Bytes>) -> Result<Bytes> {
    let json = json.into();
    if representation.media != Media::Yaml && !representation.pretty {
        return Ok(json);
    }
    if representation.media != Media::Yaml {
        return Ok(indent(&json).into());
    }
    // Go, too, writes YAML in alphabetical order.
    let value: Value = serde_json::from_slice(&json).map_err(Status::internal)?;
    Ok(serde_saphyr::to_string(&value).map_err(Status::internal)?.into())
}
