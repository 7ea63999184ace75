//! Whether a backend answers, and the condition that says so, in kube-apiserver's words.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method};
use serde_json::{Value, json};

use super::proxy::{Call, Uncalled, nothing};
use super::{Backend, headers, resource};
use crate::contention;
use crate::object::{self, metadata_mut};
use crate::server::Core;
use crate::status::Result;
use crate::storage::Action;
use crate::strategy;
use crate::upstream::{Unlocated, service};
use crate::user::User;

/// How long a backend may take.
const LIMIT: Duration = Duration::from_secs(5);

/// What is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Verdict {
    const LOCAL: (&str, &str) = ("Local", "Local APIServices are always available");

    fn not(reason: &'static str, message: String) -> Verdict {
        Verdict { status: "False", reason, message }
    }

    pub(super) fn is_available(&self) -> bool {
        self.status == "True"
    }
}

/// The user as whom this server asks for itself.
pub(super) fn itself() -> User {
    User::new("system:kube-aggregator", ["system:masters"])
}

/// Looks whether it answers.
pub(super) async fn check(core: &Core, backend: &Backend) -> Verdict {
    let spec = &backend.spec;
    let (namespace, name) = (&spec.namespace, &spec.service);
    let located = match service::locate(core, namespace, name, spec.port).await {
        Ok(located) => located,
        Err(Unlocated::NoService(_)) => {
            let message = format!("service/{name} in {namespace:?} is not present");
            return Verdict::not("ServiceNotFound", message);
        }
        Err(Unlocated::NoPort(_, port)) => {
            let message = format!("service/{name} in {namespace:?} is not listening on port {port}");
            return Verdict::not("ServicePortError", message);
        }
        Err(Unlocated::NoEndpoints { has_slices: false, .. }) => {
            let message = format!("cannot find endpointslices for service/{name} in {namespace:?}");
            return Verdict::not("EndpointsNotFound", message);
        }
        Err(Unlocated::NoEndpoints { port_name, .. }) => {
            let message = format!(
                "endpointslices for service/{name} in {namespace:?} have no addresses with port name {port_name:?}"
            );
            return Verdict::not("MissingEndpoints", message);
        }
        Err(Unlocated::Unread(why)) => {
            let message = format!("service/{name} in {namespace:?} cannot be checked due to: {why}");
            return Verdict { status: "Unknown", reason: "ServiceAccessError", message };
        }
    };
    let url = format!("https://{}{}", located.authority, spec.path());
    match ask(core, backend, &url).await {
        Ok(()) => Verdict { status: "True", reason: "Passed", message: "all checks passed".to_owned() },
        Err(why) => {
            let message = format!("failing or missing response from {url}: {why}");
            Verdict::not("FailedDiscoveryCheck", message)
        }
    }
}

async fn ask(core: &Core, backend: &Backend, url: &str) -> Result<(), String> {
    let call = own_call(backend.spec.path(), "application/json");
    let asked = tokio::time::timeout(LIMIT, backend.call(core, call)).await;
    let called = asked.map_err(|_| format!("Get \"{url}\": context deadline exceeded"))?;
    let (response, _room) = called.map_err(|uncalled| match uncalled {
        Uncalled::Nowhere => "the service leads nowhere".to_owned(),
        Uncalled::Crowded => "too many requests at the same time".to_owned(),
        Uncalled::Unusable(why) => why,
        Uncalled::Failed(why) => format!("Get \"{url}\": {why}"),
    })?;
    match response.status() {
        code if code.is_success() => Ok(()),
        code => Err(format!("bad status from {url}: {}", code.as_u16())),
    }
}

/// A question of this server's own.
pub(super) fn own_call(target: String, accept: &'static str) -> Call {
    let client = HeaderMap::from_iter([(http::header::ACCEPT, HeaderValue::from_static(accept))]);
    let headers = headers::for_backend(&client, &itself(), None, &[]).unwrap_or_default();
    // A backend that has enough to do is asked all the same whether it is well.
    Call { method: Method::GET, target, headers, body: nothing(), is_lasting: true }
}

/// Whether an APIService says that its backend answers.
pub(super) fn is_available(object: &Value) -> bool {
    condition(object).is_some_and(|condition| condition["status"] == "True")
}

fn condition(object: &Value) -> Option<&Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == "Available")
}

/// Whether nobody has said yet that this server answers itself.
pub(super) fn is_unmarked_local(object: &Value) -> bool {
    let is_marked = condition(object).is_some_and(|condition| condition["reason"] == Verdict::LOCAL.0);
    object["spec"]["service"].is_null() && !is_marked
}

/// Says that this server answers itself.
pub(super) async fn mark_local(core: &Core, name: &str) -> Result<()> {
    let (reason, message) = Verdict::LOCAL;
    let verdict = Verdict { status: "True", reason, message: message.to_owned() };
    contention::swap(core, resource().key(None, name), |record| {
        let object = object::decode(&record.value, record.revision);
        if !is_unmarked_local(&object) {
            return None;
        }
        put(core, object, &verdict)
    })
    .await
}

/// Writes down what was found, if it is something new.
pub(super) async fn tell(core: &Core, backend: &Backend, verdict: &Verdict) -> Result<()> {
    contention::swap(core, resource().key(None, &backend.spec.name), |record| {
        let object = object::decode(&record.value, record.revision);
        // Somebody may have changed it since.
        if super::backend::Spec::read(&object).as_ref() != Some(&backend.spec) {
            return None;
        }
        put(core, object, verdict)
    })
    .await
}

/// The object with the condition; none if it has it already.
fn put(core: &Core, mut object: Value, verdict: &Verdict) -> Option<Action> {
    let Verdict { status, reason, message } = verdict;
    let old = condition(&object);
    let is_same = |field: &str, value: &str| old.is_some_and(|old| old[field] == value);
    if is_same("status", status) && is_same("reason", reason) && is_same("message", message) {
        return None;
    }
    let since = old.filter(|old| old["status"] == *status).map(|old| old["lastTransitionTime"].clone());
    let since = since.unwrap_or_else(|| strategy::timestamp(core.env.now()));
    let new = json!({
        "type": "Available", "status": status, "lastTransitionTime": since, "reason": reason, "message": message,
    });
    if !object["status"]["conditions"].is_array() {
        object["status"] = json!({"conditions": []});
    }
    if let Some(all) = object["status"]["conditions"].as_array_mut() {
        all.retain(|condition| condition["type"] != "Available");
        all.push(new);
    }
    metadata_mut(&mut object).remove("resourceVersion");
    Some(Action::Put { value: object::encode(&object), ttl: None })
}
