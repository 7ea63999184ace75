//! Which handler answers a request.

use std::sync::Arc;

use http::{HeaderMap, Response};
use setpoint_kinds::Verb;

use crate::aggregation;
use crate::definitions::{self, Custom};
use crate::extension;
use crate::handlers::{
    binding, component_status, create, delete, eviction, get, list, log, patch, review, scale, token_request,
    update, watch,
};
use crate::metrics::Own;
use crate::options::Query;
use crate::request::ResourceRequest;
use crate::resource::Resource;
use crate::response::{Body, add_warnings};
use crate::server::Core;
use crate::status::{Result, Status};
use crate::strategy::Part;
use crate::strategy::subresources::Speaks;
use crate::{discovery, health, openapi, openid};

/// Requests about the server itself.
pub(crate) fn server(
    core: &Core,
    segments: &[String],
    query: &Query,
    headers: &HeaderMap,
) -> Result<Response<Body>> {
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    match segments.as_slice() {
        ["metrics"] => {
            let audit = core.audit.as_ref().map(|audit| audit.counts().read());
            let own = Own { panics: core.background.panics(), audit };
            Ok(core.metrics.respond(&core.storage.stats(), &own))
        }
        ["version"] => Ok(discovery::version()),
        ["healthz" | "livez" | "readyz", ..] => health::respond(core, &segments, query),
        ["api" | "apis", ..] => {
            let served = core.definitions.served();
            if core.is_limited() {
                return served.own_discovery().respond(&segments, headers, core.has_aggregated_discovery);
            }
            if core.aggregation.registered().is_empty() {
                return served.discovery().respond(&segments, headers, core.has_aggregated_discovery);
            }
            let discovery = core.aggregation.discovery(&served);
            discovery.respond(&segments, headers, core.has_aggregated_discovery)
        }
        [".well-known", "openid-configuration"] => Ok(openid::configuration(core)),
        ["openid", "v1", "jwks"] => Ok(openid::keys(core)),
        ["openapi", ..] => {
            let backends = core.aggregation.registered().open_api();
            let others = openapi::Others { backends: &backends, is_alone: core.is_limited() };
            openapi::respond(&core.definitions.served(), others, &segments, query, headers)
        }
        _ => Err(Status::no_such_path()),
    }
}

/// Requests about resources.
pub(crate) async fn resource(core: &Arc<Core>, request: &ResourceRequest) -> Result<Response<Body>> {
    check_scope(request)?;
    let answer = async {
        match request.subresource.as_deref() {
            None => whole(core, request).await,
            Some(name) => part(core, request, name).await,
        }
    };
    let mut response = if core.storage.is_foreign(request.resource.collection()) {
        // Whoever keeps the objects may want to know who asks.
        extension::asked_by(&request.user, answer).await?
    } else {
        answer.await?
    };
    if request.verb.is_write() {
        after_write(core, &request.resource).await?;
    }
    if let Some(warning) = request.resource.definition().and_then(|custom| custom.deprecation.as_ref()) {
        add_warnings(&mut response, std::slice::from_ref(warning));
    }
    Ok(response)
}

/// A definition is in force when its writer has the answer.
async fn after_write(core: &Core, resource: &Resource) -> Result<()> {
    if definitions::concerns(resource) {
        definitions::sync(core).await?;
    }
    if aggregation::concerns(resource) {
        aggregation::sync(core).await?;
    }
    if resource.definition().is_some_and(Custom::is_terminating) {
        core.definitions.wake();
    }
    Ok(())
}

/// Namespaced resources are reached through their namespace, others are not.
fn check_scope(request: &ResourceRequest) -> Result<()> {
    let resource = &request.resource;
    match (resource.is_namespaced(), &request.namespace) {
        (false, Some(_)) => Err(Status::no_such_path()),
        (true, None) if matches!(request.verb, Verb::Create | Verb::DeleteCollection) => {
            Err(Status::method_not_allowed())
        }
        (true, None) if request.name.is_some() => Err(Status::no_such_path()),
        _ => Ok(()),
    }
}

async fn whole(core: &Arc<Core>, request: &ResourceRequest) -> Result<Response<Body>> {
    let resource = &request.resource;
    if !resource.has_verb(request.verb.as_str()) && !request.is_own {
        return Err(Status::method_not_allowed());
    }
    match request.verb {
        Verb::Get if component_status::is_component_status(resource) => {
            component_status::get(core, request).await
        }
        Verb::List if component_status::is_component_status(resource) => {
            component_status::list(core, request).await
        }
        Verb::Get => get::handle(core, request).await,
        Verb::List => list::handle(core, request).await,
        Verb::Watch => watch::handle(core, request).await,
        Verb::Create if request.name.is_some() => Err(Status::method_not_allowed()),
        Verb::Create if review::is_review(resource.group(), resource.plural()) => {
            review::handle(core, request).await
        }
        Verb::Create if resource.plural() == "bindings" => binding::handle(core, request).await,
        Verb::Create => create::handle(core, request).await,
        Verb::Update | Verb::Patch if request.name.is_none() => Err(Status::method_not_allowed()),
        Verb::Update => update::handle(core, request, Part::Main).await,
        Verb::Patch => patch::handle(core, request, Part::Main).await,
        Verb::Delete => delete::handle(core, request).await,
        Verb::DeleteCollection => delete::handle_collection(core, request).await,
    }
}

async fn part(core: &Arc<Core>, request: &ResourceRequest, name: &str) -> Result<Response<Body>> {
    let resource = &request.resource;
    let (Some(verbs), Some(path)) = (resource.subresource_verbs(name), resource.subresource(name)) else {
        return Err(Status::no_such_path());
    };
    if let ("log", Some(source), Verb::Get) = (name, &core.logs, request.verb) {
        return log::handle(core, source, request).await;
    }
    if matches!(path.speaks, Speaks::Kubelet) {
        return Err(no_kubelet(core, request, name).await);
    }
    if !verbs.contains(&request.verb.as_str()) {
        return Err(Status::method_not_allowed());
    }
    match (path.speaks, request.verb) {
        (Speaks::Part(..), Verb::Get) => get::handle(core, request).await,
        (Speaks::Part(part, _), Verb::Update) => update::handle(core, request, part).await,
        (Speaks::Part(part, _), Verb::Patch) => patch::handle(core, request, part).await,
        (Speaks::Scale, _) => scale::handle(core, request).await,
        (Speaks::Binding, _) => binding::handle(core, request).await,
        (Speaks::Eviction, _) => eviction::handle(core, request).await,
        (Speaks::Token, _) => token_request::handle(core, request).await,
        (Speaks::Part(..) | Speaks::Kubelet, _) => Err(Status::method_not_allowed()),
    }
}

/// What runs containers in a cluster is not part of an API server.
async fn no_kubelet(core: &Core, request: &ResourceRequest, name: &str) -> Status {
    if let Err(status) = get::find(core, request).await {
        return status;
    }
    Status::unavailable(format!(
        "{}/{name} needs a kubelet, and there is none: this server runs no containers",
        request.resource.plural()
    ))
}
