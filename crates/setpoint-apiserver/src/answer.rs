//! Objects → responses, in the version and representation that the client asked for.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::convert;
use crate::negotiate::{Media, Representation, Shape};
use crate::object::{self, ListMeta, ListWriter};
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
pub(crate) fn write_object(resource: &Resource, shape: Shape, value: &[u8], revision: u64, out: &mut Vec<u8>) {
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
    records: &[Arc<Record>],
    meta: &ListMeta,
) -> Result<Response<Body>> {
    let resource = &*request.resource;
    let representation = &request.representation;
    let partial = representation.shape == Shape::PartialMetadata;
    let mut list = if partial {
        ListWriter::new("meta.k8s.io/v1", "PartialObjectMetadataList", meta)
    } else {
        ListWriter::new(resource.api_version(), &format!("{}List", resource.kind()), meta)
    };
    for record in records {
        let out = list.item();
        if partial || resource.is_converted() {
            write_object(resource, representation.shape, &record.value, record.revision, out);
        } else {
            object::write_item(&record.value, record.revision, out);
        }
    }
    let body = finish(representation, list.finish())?;
    Ok(respond(StatusCode::OK, representation.media.content_type(), body))
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
