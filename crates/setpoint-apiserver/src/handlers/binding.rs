//! `/binding` of a pod, and the older `bindings` resource: gives a pod its node.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::update::{self, Owners, Ownership};
use crate::admission::{self, Attributes, Operation};
use crate::answer::{Answer, Payload};
use crate::field_error::{FieldError, Problem};
use crate::metadata::names;
use crate::object;
use crate::options::WriteOptions;
use crate::request::{Expected, Form, ResourceRequest};
use crate::resource::{Registry, Resource};
use crate::response::Body;
use crate::server::Core;
use crate::status::{GroupResource, Result, Status};
use crate::strategy::{self, Part};

pub(crate) async fn handle(core: &Core, request: &ResourceRequest) -> Result<Response<Body>> {
    let options = WriteOptions::parse(&request.query, "CreateOptions")?;
    let ty = setpoint_kinds::table().type_named("core.v1.Binding").expect("the table has it");
    let expected = Expected { api_version: "v1", kind: "Binding", form: Form::Typed(ty) };
    let binding = request.decode(expected, options.field_validation)?.object;
    let attributes = Attributes::write(request, Operation::Create, None, &options);
    let binding = admission::admit(core, &attributes, binding).await?;
    let name = object::name(&binding).to_owned();
    match &request.name {
        Some(pod) if *pod != name => {
            return Err(Status::bad_request("name in URL does not match name in Binding object"));
        }
        None if name.is_empty() => return Err(Status::bad_request("Name parameter required.")),
        _ => {}
    }
    validate(&binding)?;
    let pods = Registry::built_in().expect("", "v1", "pods");
    let pod = request.for_object(pods, request.namespace.as_deref().unwrap_or_default(), &name);
    let now = strategy::timestamp(core.env.now());
    // A binding writes both the spec and the status: the whole pod, in one step.
    let how = (Ownership::Kept, Owners::Hidden);
    update::change_as(core, &pod, Part::Whole, &options, how, |old| {
        let mut old = old.clone();
        bind(pods, &mut old, &binding, &now)?;
        // A binding may name the version of the pod that it was decided for.
        let metadata = object::metadata_mut(&mut old);
        match object::text(&binding, &["metadata", "resourceVersion"]) {
            Some(version) => metadata.insert("resourceVersion".to_owned(), version.into()),
            None => metadata.remove("resourceVersion"),
        };
        Ok(old)
    })
    .await?;
    let created =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Answer::new(StatusCode::CREATED, Payload::Other(created)).respond(request)
}

fn validate(binding: &Value) -> Result<()> {
    let mut errors = Vec::new();
    let kind = object::text(binding, &["target", "kind"]).unwrap_or_default();
    if !matches!(kind, "" | "Node") {
        let problem = Problem::NotSupported(kind.into(), vec!["Node".into(), "<empty>".into()]);
        errors.push(FieldError::new("target.kind", problem));
    }
    match object::text(binding, &["target", "name"]).unwrap_or_default() {
        "" => errors.push(FieldError::required("target.name", "")),
        node if matches!(kind, "" | "Node") => {
            for problem in names::dns1123_subdomain(node) {
                errors.push(FieldError::invalid("target.name", node, problem));
            }
        }
        _ => {}
    }
    if errors.is_empty() {
        return Ok(());
    }
    let kind = GroupResource { group: "", resource: "Binding" };
    Err(Status::invalid(kind, object::name(binding), &errors))
}

fn bind(pods: &Resource, pod: &mut Value, binding: &Value, now: &Value) -> Result<()> {
    let name = object::name(pod).to_owned();
    let conflict = |why: String| Err(Status::conflict(pods.group_resource(), &name, &why));
    if let Some(uid) = object::text(binding, &["metadata", "uid"]).filter(|uid| !uid.is_empty())
        && pod["metadata"]["uid"] != uid
    {
        return conflict(format!("pod {name} has another UID than the binding names"));
    }
    if object::is_being_deleted(pod) {
        return conflict(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(node) = object::text(pod, &["spec", "nodeName"]).filter(|node| !node.is_empty()) {
        return conflict(format!("pod {name} is already assigned to node {node:?}"));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return conflict(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    pod["spec"]["nodeName"] = binding["target"]["name"].clone();
    if let Some(status) = pod["status"].as_object_mut() {
        // Where the pod might have gone is of no interest any more.
        status.remove("nominatedNodeName");
    }
    for field in ["annotations", "labels"] {
        for (key, value) in binding["metadata"][field].as_object().into_iter().flatten() {
            pod["metadata"][field][key] = value.clone();
        }
    }
    set_scheduled(pod, now);
    Ok(())
}

fn set_scheduled(pod: &mut Value, now: &Value) {
    let condition =
        json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now});
    let conditions = &mut pod["status"]["conditions"];
    let mut list = conditions.as_array().cloned().unwrap_or_default();
    list.retain(|condition| condition["type"] != "PodScheduled");
    list.push(condition);
    *conditions = list.into();
}
