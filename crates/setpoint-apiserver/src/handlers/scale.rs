//! `/scale`: the replicas of a workload as an `autoscaling/v1` Scale.

use http::Response;
use serde_json::{Value, json};

use super::get::find;
use super::update;
use crate::answer::{Answer, Payload};
use crate::convert;
use crate::field_error::FieldError;
use crate::label_query;
use crate::object;
use crate::options::WriteOptions;
use crate::patch::{self, PatchType};
use crate::request::{Draft, Expected, ResourceRequest};
use crate::response::Body;
use crate::routes::Verb;
use crate::server::Core;
use crate::status::{GroupResource, Result, Status};
use crate::strategy::Part;

pub(crate) async fn handle(core: &Core, request: &ResourceRequest) -> Result<Response<Body>> {
    let payload = match request.verb {
        Verb::Get => {
            let record = find(core, request).await?;
            let object = object::decode(&record.value, record.revision);
            return Answer::ok(Payload::Other(scale_of(&object))).respond(request);
        }
        Verb::Update => {
            let options = WriteOptions::parse(&request.query, "UpdateOptions")?;
            let wanted = request.decode(expected(), options.field_validation)?.object;
            update::change(core, request, Part::Main, &options, |old| scaled(old, &wanted)).await?
        }
        Verb::Patch => {
            let options = WriteOptions::parse(&request.query, "PatchOptions")?;
            let kind = PatchType::from_content_type(request.content_type.as_deref().unwrap_or_default())?;
            update::change(core, request, Part::Main, &options, |old| {
                let mut current = scale_of(&old);
                // A patch depends on the version only if it says so itself.
                object::metadata_mut(&mut current).remove("resourceVersion");
                let patched = patch::apply(kind, expected().ty, &current, &request.body)?;
                let input = Draft::from(patched).finish(expected(), options.field_validation)?;
                scaled(old, &input.object)
            })
            .await?
        }
        _ => return Err(Status::method_not_allowed()),
    };
    let object = match payload {
        Payload::Stored(record) => {
            convert::to_served(&request.resource, object::decode(&record.value, record.revision))
        }
        Payload::Object(object) | Payload::Other(object) => object,
    };
    Answer::ok(Payload::Other(scale_of(&object))).respond(request)
}

fn expected() -> Expected<'static> {
    let ty = setpoint_kinds::table().type_named("autoscaling.v1.Scale").expect("the table has it");
    Expected { api_version: "autoscaling/v1", kind: "Scale", ty }
}

/// The workload with the replicas of a Scale.
pub(super) fn scaled(mut object: Value, scale: &Value) -> Result<Value> {
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 {
        let error = FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
        let kind = GroupResource { group: "autoscaling", resource: "Scale" };
        return Err(Status::invalid(kind, object::name(&object), &[error]));
    }
    object["spec"]["replicas"] = replicas.into();
    let metadata = object::metadata_mut(&mut object);
    match scale["metadata"].get("resourceVersion").filter(|version| version.is_string()) {
        Some(version) => metadata.insert("resourceVersion".into(), version.clone()),
        None => metadata.remove("resourceVersion"),
    };
    if let Some(uid) = scale["metadata"].get("uid").filter(|uid| uid.is_string()) {
        metadata.insert("uid".into(), uid.clone());
    }
    Ok(object)
}

/// The Scale of a workload.
pub(super) fn scale_of(object: &Value) -> Value {
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    let mut spec = json!({});
    if let Some(replicas) = object["spec"]["replicas"].as_i64().filter(|replicas| *replicas != 0) {
        spec["replicas"] = replicas.into();
    }
    let mut status = json!({"replicas": object["status"]["replicas"].as_i64().unwrap_or(0)});
    let selector = label_query::of(&object["spec"]["selector"]);
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}
