//! GET of component statuses: what is not stored, but worked out when somebody asks.

use std::sync::Arc;

use http::Response;
use serde_json::{Value, json};
use setpoint_env::Later;

use super::get::read;
use crate::answer::{Answer, Payload, respond_list};
use crate::object::{self, ListMeta};
use crate::options::ListOptions;
use crate::request::ResourceRequest;
use crate::resource::{Registry, Resource};
use crate::response::Body;
use crate::selection::Selection;
use crate::server::Core;
use crate::status::{GroupResource, Result, Status};
use crate::storage::Record;

/// What runs beside a server in a cluster, with the Lease that it keeps and the port where Kubernetes asks it.
const BESIDE: [(&str, &str, u16); 2] =
    [("scheduler", "kube-scheduler", 10259), ("controller-manager", "kube-controller-manager", 10257)];

pub(crate) fn is_component_status(resource: &Resource) -> bool {
    (resource.group(), resource.plural()) == ("", "componentstatuses")
}

pub(crate) async fn get(core: &Core, request: &ResourceRequest) -> Result<Response<Body>> {
    let found = statuses(core).await?.into_iter().find(|status| object::name(status) == request.name());
    let kind = GroupResource { group: "", resource: "componentstatus" };
    let status = found.ok_or_else(|| Status::not_found(kind, request.name()))?;
    Answer::ok(Payload::Object(status)).respond(request)
}

pub(crate) async fn list(core: &Core, request: &ResourceRequest) -> Result<Response<Body>> {
    let options = ListOptions::parse(&request.query, false)?;
    let selection = Selection::new(&request.resource, None, request.name.as_deref(), &options)?;
    let statuses = statuses(core).await?.into_iter();
    let records = statuses.map(|status| {
        // They have no version.
        Arc::new(Record::new(object::name(&status).into(), 0, object::encode(&status)))
    });
    let records = selection.select(core, records.collect()).await?;
    respond_list(request, records, &ListMeta { revision: 0, next: None, remaining: None }).await
}

async fn statuses(core: &Core) -> Result<Vec<Value>> {
    let mut statuses = Vec::new();
    for (name, lease, port) in BESIDE {
        let problem = format!(
            "Get \"https://127.0.0.1:{port}/healthz\": dial tcp 127.0.0.1:{port}: connect: connection refused"
        );
        let problem = if is_held(core, lease).await? { None } else { Some(problem) };
        statuses.push(status(name, problem.as_deref()));
    }
    statuses.push(status("etcd-0", core.storage.failure().as_deref()));
    Ok(statuses)
}

/// Whether somebody holds a lease of the system now.
async fn is_held(core: &Core, name: &str) -> Result<bool> {
    let leases = Registry::built_in().expect("coordination.k8s.io", "v1", "leases");
    let Some(record) = read(core, &leases.key(Some("kube-system"), name)).await? else { return Ok(false) };
    let lease = object::decode(&record.value, record.revision);
    let renewed = lease["spec"]["renewTime"].as_str().and_then(|time| time.parse::<jiff::Timestamp>().ok());
    let seconds = lease["spec"]["leaseDurationSeconds"].as_u64().unwrap_or(0);
    let is_fresh =
        |time: jiff::Timestamp| time.later(std::time::Duration::from_secs(seconds)) > core.env.now();
    Ok(renewed.is_some_and(is_fresh))
}

fn status(name: &str, problem: Option<&str>) -> Value {
    let (state, message) = problem.map_or(("True", "ok"), |problem| ("False", problem));
    json!({
        "kind": "ComponentStatus",
        "apiVersion": "v1",
        "metadata": {"name": name},
        "conditions": [{"type": "Healthy", "status": state, "message": message}]
    })
}
