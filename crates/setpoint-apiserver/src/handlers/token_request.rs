//! `/token` of a service account: a signed token for it.

use std::time::Duration;

use http::{Response, StatusCode};
use serde_json::{Value, json};
use setpoint_env::Later;

use super::get::{find, read};
use crate::admission::{self, Attributes, Operation};
use crate::answer::{Answer, Payload};
use crate::authenticate::service_account::{self, Bound, Reference};
use crate::field_error::FieldError;
use crate::object;
use crate::options::WriteOptions;
use crate::request::{Expected, Form, ResourceRequest};
use crate::resource::Registry;
use crate::response::Body;
use crate::server::Core;
use crate::status::{GroupResource, Result, Status};
use crate::strategy;

const KIND: GroupResource<'static> =
    GroupResource { group: "authentication.k8s.io", resource: "TokenRequest" };
const HOUR: i64 = 60 * 60;
const SHORTEST: i64 = 10 * 60;
const LONGEST: i64 = 1 << 32;
/// What kubelets ask for when a pod does not say. Such a token lasts a year, because there are clients that
/// never read a new one; they are told apart by `warnafter`.
const OF_PODS: i64 = HOUR + 7;
const OF_PODS_EXTENDED: i64 = 365 * 24 * HOUR;

pub(crate) async fn handle(core: &Core, request: &ResourceRequest) -> Result<Response<Body>> {
    let options = WriteOptions::parse(&request.query, "CreateOptions")?;
    let ty = setpoint_kinds::table().type_named("authentication.v1.TokenRequest").expect("the table has it");
    let expected =
        Expected { api_version: "authentication.k8s.io/v1", kind: "TokenRequest", form: Form::Typed(ty) };
    let input = request.decode(expected, options.field_validation)?;
    let attributes = Attributes::write(request, Operation::Create, None, &options);
    let mut asked = admission::mutate_virtual(core, &attributes, input.object).await?;
    check_names(request, &asked)?;
    let record = find(core, request).await?;
    let account = object::decode(&record.value, record.revision);
    fill(core, &account, &mut asked)?;

    let mut lifetime = validate(&asked)?;
    let _ = admission::validate(core, &attributes, &asked).await?;
    let namespace = request.namespace.clone().unwrap_or_default();
    let mut bound = Bound { namespace, serviceaccount: Reference::to(&account), ..Bound::default() };
    bind(core, request, &asked["spec"]["boundObjectRef"], &mut bound).await?;
    let audiences: Vec<String> =
        serde_json::from_value(asked["spec"]["audiences"].clone()).unwrap_or_default();
    let ends = core.env.now().later(Duration::from_secs(lifetime.unsigned_abs()));
    if bound.pod.is_some() && lifetime == OF_PODS && audiences == core.authenticator.audiences() {
        bound.warnafter = Some(ends.as_second());
        lifetime = OF_PODS_EXTENDED;
    }
    let token = service_account::issue(core, &bound, &audiences, lifetime);
    asked["status"] = json!({"token": token, "expirationTimestamp": strategy::timestamp(ends)});
    let mut answer = Answer::new(StatusCode::CREATED, Payload::Other(asked));
    answer.warnings = input.warnings;
    answer.respond(request)
}

/// A body may name the account, but no other one.
fn check_names(request: &ResourceRequest, asked: &Value) -> Result<()> {
    for (field, wanted, what) in [
        ("name", request.name(), "name"),
        ("namespace", request.namespace.as_deref().unwrap_or_default(), "namespace"),
    ] {
        let given = object::text(asked, &["metadata", field]).unwrap_or_default();
        if !given.is_empty() && given != wanted {
            let why = format!("must match the service account {what} if specified");
            let error = FieldError::invalid(format!("metadata.{field}"), given, why);
            return Err(Status::invalid(KIND, request.name(), &[error]));
        }
    }
    Ok(())
}

/// Completes the request as it is answered.
fn fill(core: &Core, account: &Value, asked: &mut Value) -> Result<()> {
    let uid = &account["metadata"]["uid"];
    let given = object::text(asked, &["metadata", "uid"]).unwrap_or_default();
    if !given.is_empty() && given != uid {
        let uid = uid.as_str().unwrap_or_default();
        return Err(Status::conflict(
            KIND,
            object::name(account),
            &format!(
                "the UID in the token request ({given}) does not match the UID of the service account ({uid})"
            ),
        ));
    }
    let now = strategy::timestamp(core.env.now());
    let metadata = object::metadata_mut(asked);
    for field in ["name", "namespace", "uid"] {
        metadata.insert(field.to_owned(), account["metadata"][field].clone());
    }
    metadata.insert("creationTimestamp".to_owned(), now);
    // The answer is ours, whatever the request says about it.
    if let Some(fields) = asked.as_object_mut() {
        fields.remove("status");
    }
    if asked["spec"]["audiences"].as_array().is_none_or(Vec::is_empty) {
        asked["spec"]["audiences"] = json!(core.authenticator.audiences());
    }
    if asked["spec"]["expirationSeconds"].is_null() {
        asked["spec"]["expirationSeconds"] = HOUR.into();
    }
    Ok(())
}

/// The lifetime in seconds, if the request is in order.
fn validate(asked: &Value) -> Result<i64> {
    let lifetime = asked["spec"]["expirationSeconds"].as_i64().unwrap_or_default();
    let why = match lifetime {
        ..SHORTEST => "may not specify a duration less than 10 minutes",
        SHORTEST..=LONGEST => return Ok(lifetime),
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    let error = FieldError::invalid("spec.expirationSeconds", lifetime, why);
    Err(Status::invalid(KIND, "", &[error]))
}

/// Binds the token to the object that is asked for.
async fn bind(core: &Core, request: &ResourceRequest, wanted: &Value, bound: &mut Bound) -> Result<()> {
    if wanted.is_null() {
        return Ok(());
    }
    let text = |field: &str| wanted[field].as_str().unwrap_or_default();
    let (version, kind, name) = (text("apiVersion"), text("kind"), text("name"));
    let (group, short) = version.split_once('/').unwrap_or(("", version));
    let plural = match (group, kind) {
        ("", "Pod") => "pods",
        ("", "Node") => "nodes",
        ("", "Secret") => "secrets",
        _ => {
            return Err(Status::bad_request(format!(
                "cannot bind token to object of type {group}/{short}, Kind={kind}"
            )));
        }
    };
    let resource = Registry::built_in().expect("", "v1", plural);
    let namespace = request.namespace.as_deref().filter(|_| plural != "nodes");
    let Some(record) = read(core, &resource.key(namespace, name)).await? else {
        return Err(Status::not_found(resource.group_resource(), name));
    };
    let object = object::decode(&record.value, record.revision);
    let reference = Reference::to(&object);
    if plural == "pods" {
        let account = request.name();
        if object::text(&object, &["spec", "serviceAccountName"]) != Some(account) {
            return Err(Status::bad_request(format!(
                "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
            )));
        }
        bound.node = node_of(core, &object).await?;
    }
    if !text("uid").is_empty() && text("uid") != reference.uid {
        let kind = GroupResource { group: "", resource: kind };
        let why = format!(
            "the UID in the bound object reference ({}) does not match the UID in record. The object might have been \
             deleted and then recreated",
            text("uid")
        );
        return Err(Status::conflict(kind, name, &why));
    }
    *match plural {
        "pods" => &mut bound.pod,
        "nodes" => &mut bound.node,
        _ => &mut bound.secret,
    } = Some(reference);
    Ok(())
}

/// The node that a pod runs on; without a uid if nobody knows it.
async fn node_of(core: &Core, pod: &Value) -> Result<Option<Reference>> {
    let Some(name) = object::text(pod, &["spec", "nodeName"]).filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let nodes = Registry::built_in().expect("", "v1", "nodes");
    Ok(Some(match read(core, &nodes.key(None, name)).await? {
        Some(record) => Reference::to(&object::decode(&record.value, record.revision)),
        None => Reference { name: name.to_owned(), ..Reference::default() },
    }))
}
