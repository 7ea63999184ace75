//! `/eviction` of a pod: a delete that a disruption budget may refuse.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::update::{self, Ownership};
use super::{delete, get};
use crate::admission::{self, Attributes, Operation};
use crate::answer::{Answer, Payload};
use crate::label_query;
use crate::object;
use crate::options::{DeleteOptions, WriteOptions};
use crate::request::{Expected, Form, ResourceRequest};
use crate::resource::Registry;
use crate::response::Body;
use crate::selector::LabelSelector;
use crate::server::Core;
use crate::status::{Result, Status};
use crate::storage::{ListQuery, Record};
use crate::strategy::{self, Part};

pub(crate) async fn handle(core: &Core, request: &ResourceRequest) -> Result<Response<Body>> {
    let write = WriteOptions::parse(&request.query, "CreateOptions")?;
    let ty = setpoint_kinds::table().type_named("policy.v1.Eviction").expect("the table has it");
    let expected = Expected { api_version: "policy/v1", kind: "Eviction", form: Form::Typed(ty) };
    let eviction = request.decode(expected, write.field_validation)?.object;
    let attributes = Attributes::write(request, Operation::Create, None, &write);
    let eviction = admission::admit(core, &attributes, eviction).await?;
    if object::name(&eviction) != request.name() {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut options = DeleteOptions::from_body(eviction.get("deleteOptions").unwrap_or(&Value::Null))?;
    options.dry_run |= write.dry_run;
    let record = prepare(core, request, &mut options).await?;
    // Whoever may be asked was asked about the eviction, not about the delete as well.
    delete::delete(core, &request.resource, None, record, &options).await?;
    let done =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Answer::new(StatusCode::CREATED, Payload::Other(done)).respond(request)
}

/// Why a pod may go.
enum Leave {
    /// Its phase says that nobody misses it.
    Unguarded,
    /// It is not ready, and the budget of this name lets such pods go.
    Unready(String),
    /// No budget covers it, or the budget was spent.
    Granted,
}

impl Leave {
    /// Whether what was decided about a pod holds for a newer state of it.
    fn holds(&self, pod: &Value) -> bool {
        match self {
            Leave::Unguarded => !is_guarded(pod),
            Leave::Unready(_) => !is_ready(pod),
            Leave::Granted => true,
        }
    }
}

/// Decides whether the pod may go, and notes in it that it does. Returns what is to be deleted.
async fn prepare(core: &Core, request: &ResourceRequest, options: &mut DeleteOptions) -> Result<Arc<Record>> {
    loop {
        request.deadline.check(&core.env)?;
        let record = get::find(core, request).await?;
        let pod = object::decode(&record.value, record.revision);
        let leave = if is_guarded(&pod) {
            spend_budget(core, request, &record, &pod, options.dry_run).await?
        } else {
            Leave::Unguarded
        };
        if options.dry_run {
            return Ok(record);
        }
        let mut is_other = false;
        let marked = mark(core, request, options, |newer| {
            is_other = !leave.holds(newer);
            !is_other
        });
        match (marked.await, &leave) {
            (Err(_), Leave::Unready(budget)) if is_other => return Err(Status::budget_not_ready(budget)),
            // It has begun to run meanwhile: now a budget is asked.
            (Err(_), _) if is_other => {}
            (marked, _) => {
                marked?;
                let record = get::find(core, request).await?;
                if options.resource_version.is_some() {
                    // The version that was asked for is the one before ours.
                    options.resource_version = Some(record.revision.to_string());
                }
                return Ok(record);
            }
        }
    }
}

/// Sets the condition by which others know that the pod goes because somebody wanted it to: a Job, for example, need not
/// count it as a failure.
async fn mark(
    core: &Core,
    request: &ResourceRequest,
    options: &DeleteOptions,
    mut holds: impl FnMut(&Value) -> bool,
) -> Result<()> {
    let namespace = request.namespace.as_deref().unwrap_or_default();
    let change = request.for_object(&request.resource, namespace, request.name());
    let now = strategy::timestamp(core.env.now());
    update::change(core, &change, Part::Whole, &WriteOptions::default(), Ownership::Kept, |pod| {
        delete::check_preconditions(&request.resource, pod, options)?;
        if !holds(pod) {
            return Err(Status::internal("the pod has changed"));
        }
        let mut pod = pod.clone();
        let target = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastTransitionTime": now,
        });
        let conditions = &mut pod["status"]["conditions"];
        if !conditions.is_array() {
            *conditions = json!([]);
        }
        if let Some(conditions) = conditions.as_array_mut() {
            let known = conditions.iter().position(|condition| condition["type"] == "DisruptionTarget");
            let old = known.map(|place| conditions.remove(place));
            let is_set = old.as_ref().is_some_and(|old| old["status"] == "True");
            conditions.push(old.filter(|_| is_set).unwrap_or(target));
        }
        Ok(pod)
    })
    .await
    .map(drop)
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// A pod that has ended, has not begun or is on its way out disrupts nobody by going.
fn is_guarded(pod: &Value) -> bool {
    let phase = object::text(pod, &["status", "phase"]);
    !matches!(phase, Some("Succeeded" | "Failed" | "Pending")) && !object::is_being_deleted(pod)
}

/// Takes one disruption from the budget that covers the pod, or refuses with 429 if there is none left. A pod that is not
/// ready costs nothing where the budget says so, or where enough others are.
async fn spend_budget(
    core: &Core,
    request: &ResourceRequest,
    record: &Record,
    pod: &Value,
    dry_run: bool,
) -> Result<Leave> {
    let budgets = Registry::built_in().expect("policy", "v1", "poddisruptionbudgets");
    let namespace = request.namespace.as_deref().unwrap_or_default();
    let query = ListQuery::all(budgets.collection()).under(format!("{namespace}/"));
    let page = core.storage.list(&query).await?;
    let mut covering = Vec::new();
    for budget in &page.records {
        let object = object::decode(&budget.value, budget.revision);
        // A budget without a selector covers nothing, one with an empty selector everything.
        let Some(selector) = object["spec"].get("selector") else { continue };
        let selector = LabelSelector::parse(&label_query::of(selector))?;
        if selector.matches(|key| record.attributes.label(&record.value, key)) {
            covering.push(object);
        }
    }
    let budget = match covering.as_slice() {
        [] => return Ok(Leave::Granted),
        [one] if !is_ready(pod) && lets_unready_go(one) => {
            return Ok(Leave::Unready(object::name(one).to_owned()));
        }
        [one] => object::name(one).to_owned(),
        _ => {
            let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Status::unknown(why.to_owned()));
        }
    };
    let change = request.for_object(budgets, namespace, &budget);
    let options = WriteOptions { dry_run, ..WriteOptions::default() };
    let now = strategy::timestamp(core.env.now());
    let pod_name = object::name(pod);
    update::change(core, &change, Part::Whole, &options, Ownership::Kept, |old| {
        let allowed = old["status"]["disruptionsAllowed"].as_i64().unwrap_or(0);
        let observed = old["status"]["observedGeneration"].as_i64().unwrap_or(0);
        if observed < old["metadata"]["generation"].as_i64().unwrap_or(0) {
            return Err(Status::budget_not_ready(&budget));
        }
        if allowed <= 0 {
            let healthy = old["status"]["currentHealthy"].as_i64().unwrap_or(0);
            let desired = old["status"]["desiredHealthy"].as_i64().unwrap_or(0);
            return Err(Status::budget_spent(&budget, desired, healthy));
        }
        let mut new = old.clone();
        new["status"]["disruptionsAllowed"] = (allowed - 1).into();
        new["status"]["disruptedPods"][pod_name] = now.clone();
        Ok(new)
    })
    .await?;
    Ok(Leave::Granted)
}

/// Whether a budget lets a pod go that is not ready: always, or as long as enough others are.
fn lets_unready_go(budget: &Value) -> bool {
    let number = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        || (number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0)
}
