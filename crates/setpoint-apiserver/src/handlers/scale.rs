//! `/scale`: the replicas of a workload as an `autoscaling/v1` Scale.

use http::Response;
use serde_json::{Map, Value, json};
use setpoint_kinds::{Type, Verb};

use super::get::find;
use super::update::{self, Ownership};
use crate::answer::{Answer, Payload};
use crate::convert;
use crate::field_error::FieldError;
use crate::label_query;
use crate::managed_fields::{self, Apply, ScaleOwners, ScalePath, Target};
use crate::object;
use crate::options::{FieldValidation, WriteOptions};
use crate::patch::{self, PatchType, Patched};
use crate::request::{Draft, Expected, Form, ResourceRequest};
use crate::resource::Resource;
use crate::response::Body;
use crate::server::Core;
use crate::status::{GroupResource, Result, Status};
use crate::strategy::Part;

/// The replicas of a custom resource that has none: no number that a Scale may have.
const UNSET: i64 = i32::MIN as i64;

pub(crate) async fn handle(core: &Core, request: &ResourceRequest) -> Result<Response<Body>> {
    let resource = &*request.resource;
    let payload = match request.verb {
        Verb::Get => {
            let record = find(core, request).await?;
            let stored = object::decode(&record.value, record.revision);
            let object = convert::webhook::to_served(core, resource, stored).await?;
            return Answer::ok(Payload::Other(scale_of(resource, &object)?)).respond(request);
        }
        Verb::Update => {
            let options = WriteOptions::parse(&request.query, "UpdateOptions")?;
            let wanted = request.decode(expected(), options.field_validation)?.object;
            change(core, request, &options, |current| {
                let mut wanted = wanted.clone();
                let manager = request.manager(&options);
                managed_fields::update(target(), current, &mut wanted, &manager, &update::now(core));
                Ok(wanted)
            })
            .await?
        }
        Verb::Patch => {
            let kind = PatchType::of(request)?;
            let options = WriteOptions::parse_patch(&request.query, kind)?;
            change(core, request, &options, |current| patched(core, request, kind, &options, current)).await?
        }
        _ => return Err(Status::method_not_allowed()),
    };
    let object = match payload {
        Payload::Stored(record) => {
            let stored = object::decode(&record.value, record.revision);
            convert::webhook::to_served(core, resource, stored).await?
        }
        Payload::Object(object) | Payload::Other(object) => object,
    };
    Answer::ok(Payload::Other(scale_of(resource, &object)?)).respond(request)
}

/// Changes the workload by what `modify` makes of its Scale, the owners of its replicas included.
async fn change(
    core: &Core,
    request: &ResourceRequest,
    options: &WriteOptions,
    mut modify: impl FnMut(&Value) -> Result<Value>,
) -> Result<Payload> {
    update::change(core, request, Part::Scale, options, Ownership::Given, |old| {
        let resource = &*request.resource;
        let owners = ScaleOwners::of(old, replicas_path(resource));
        let mut current = scale_before(resource, old);
        managed_fields::set(&mut current, owners.of_scale());
        let wanted = modify(&current)?;
        update::check_name(request, &wanted)?;
        let mut new = scaled(resource, old.clone(), &wanted)?;
        managed_fields::set(&mut new, owners.of_workload(wanted["metadata"].get("managedFields")));
        Ok(new)
    })
    .await
}

/// What a patch makes of a Scale.
fn patched(
    core: &Core,
    request: &ResourceRequest,
    kind: PatchType,
    options: &WriteOptions,
    current: &Value,
) -> Result<Value> {
    // A patch depends on the version only if it says so itself.
    let mut live = current.clone();
    object::metadata_mut(&mut live).remove("resourceVersion");
    let (manager, now) = (request.manager(options), update::now(core));
    if kind == PatchType::Apply {
        let (applied, _) = patch::decode_applied(&request.body, options.field_validation)?;
        let wish = Apply { manager: &manager, force: options.force, now: &now };
        let value = managed_fields::apply(target(), &live, &applied, wish)?;
        let merged = Patched::applied(&live, value)?;
        return Ok(Draft::from(merged).finish(expected(), FieldValidation::Ignore)?.object);
    }
    let patched = patch::apply(kind, Some(scale_type()), &live, &request.body)?;
    let mut new = Draft::from(patched).finish(expected(), options.field_validation)?.object;
    request.set_namespace(&mut new)?;
    managed_fields::update(target(), current, &mut new, &manager, &now);
    Ok(new)
}

fn target() -> Target<'static> {
    Target::scale(scale_type())
}

/// Where a workload has its replicas.
fn replicas_path(resource: &Resource) -> ScalePath {
    let custom = resource.definition().and_then(|custom| custom.scale.as_ref());
    let names = custom.map(|paths| paths.spec_replicas.iter().map(String::as_str).collect::<Vec<_>>());
    ScalePath::new(resource.api_version(), names.as_deref().unwrap_or(&["spec", "replicas"]))
}

fn expected() -> Expected<'static> {
    Expected { api_version: "autoscaling/v1", kind: "Scale", form: Form::Typed(scale_type()) }
}

fn scale_type() -> &'static Type {
    setpoint_kinds::table().type_named("autoscaling.v1.Scale").expect("the table has it")
}

/// The workload with the replicas of a Scale.
pub(super) fn scaled(resource: &Resource, mut object: Value, scale: &Value) -> Result<Value> {
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    // Custom resources are checked as a whole, under the path that their definition gives.
    if replicas < 0 && resource.definition().is_none() {
        let error = FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
        let kind = GroupResource { group: "autoscaling", resource: "Scale" };
        return Err(Status::invalid(kind, object::name(&object), &[error]));
    }
    match resource.definition().and_then(|custom| custom.scale.as_ref()) {
        Some(paths) if replicas == UNSET => {
            let path = paths.spec_replicas.join(".");
            return Err(Status::bad_request(format!("the spec replicas field \".{path}\" cannot be empty")));
        }
        Some(paths) => set(&mut object, &paths.spec_replicas, replicas)?,
        None => object["spec"]["replicas"] = replicas.into(),
    }
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

/// Sets a number in an object, and makes the objects that it is in.
fn set(object: &mut Value, path: &[String], number: i64) -> Result<()> {
    let mut place = object;
    for name in path {
        if place.is_null() {
            *place = Value::Object(Map::new());
        }
        let Value::Object(fields) = place else {
            return Err(Status::internal(format!("the replicas have no place: {name} is in no object")));
        };
        place = fields.entry(name.as_str()).or_insert(Value::Null);
    }
    *place = number.into();
    Ok(())
}

/// The Scale of a workload. A custom resource whose replicas are nowhere has none: 500, as in kube-apiserver.
pub(super) fn scale_of(resource: &Resource, object: &Value) -> Result<Value> {
    let counts = Counts::of(resource, object);
    let Some(wanted) = counts.wanted else {
        let paths = resource.definition().and_then(|custom| custom.scale.as_ref());
        let path = paths.map(|paths| paths.spec_replicas.join(".")).unwrap_or_default();
        return Err(Status::internal(format!("the spec replicas field \".{path}\" does not exist")));
    };
    Ok(counts.scale(object, wanted))
}

/// The Scale that a write begins with: replicas that are nowhere can be set.
pub(super) fn scale_before(resource: &Resource, object: &Value) -> Value {
    let counts = Counts::of(resource, object);
    let wanted = counts.wanted.unwrap_or(UNSET);
    counts.scale(object, wanted)
}

/// What a Scale tells.
struct Counts {
    /// None if a custom resource has no replicas.
    wanted: Option<i64>,
    found: i64,
    selector: String,
}

impl Counts {
    fn of(resource: &Resource, object: &Value) -> Counts {
        let Some(paths) = resource.definition().and_then(|custom| custom.scale.as_ref()) else {
            return Counts {
                wanted: Some(object["spec"]["replicas"].as_i64().unwrap_or(0)),
                found: object["status"]["replicas"].as_i64().unwrap_or(0),
                selector: label_query::of(&object["spec"]["selector"]),
            };
        };
        let at = |path: &[String]| path.iter().try_fold(object, |value, name| value.get(name));
        let wanted = at(&paths.spec_replicas).and_then(Value::as_i64);
        let selector = paths.selector.as_deref().and_then(at).and_then(Value::as_str).unwrap_or_default();
        let found = at(&paths.status_replicas).and_then(Value::as_i64).unwrap_or(0);
        Counts { wanted, found, selector: selector.to_owned() }
    }

    fn scale(self, object: &Value, wanted: i64) -> Value {
        let mut metadata = json!({});
        for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let Some(value) = object["metadata"].get(field) {
                metadata[field] = value.clone();
            }
        }
        let mut spec = json!({});
        if wanted != 0 {
            spec["replicas"] = wanted.into();
        }
        let mut status = json!({"replicas": self.found});
        if !self.selector.is_empty() {
            status["selector"] = self.selector.into();
        }
        json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status
        })
    }
}
