//! Every kind of object that the server has right now.

use std::sync::Arc;
use std::time::Duration;

use setpoint::kube::core::{ApiResource, DynamicObject};
use setpoint::kube::discovery::{Discovery, Scope, verbs};
use setpoint::kube::{self, Api, Client};
use tokio::time::timeout;

/// How long the server may take to answer.
const LIMIT: Duration = Duration::from_secs(30);

/// A kind, in the version that is the most stable.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    pub(crate) api: ApiResource,
    pub(crate) is_namespaced: bool,
    verbs: Vec<String>,
}

impl Resource {
    pub(crate) fn has(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }

    /// Whether its objects are ones that a garbage collector, or the end of a namespace, can see and delete.
    pub(crate) fn is_collected(&self) -> bool {
        let is_events = self.api.plural == "events" && matches!(&*self.api.group, "" | "events.k8s.io");
        !is_events && [verbs::LIST, verbs::WATCH, verbs::DELETE].into_iter().all(|verb| self.has(verb))
    }

    /// `deployments.apps`.
    pub(crate) fn name(&self) -> String {
        match self.api.group.as_str() {
            "" => self.api.plural.clone(),
            group => format!("{}.{group}", self.api.plural),
        }
    }

    /// The objects in a namespace, or in none.
    pub(crate) fn objects(&self, client: &Client, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace.filter(|_| self.is_namespaced) {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.api),
            None => Api::all_with(client.clone(), &self.api),
        }
    }
}

/// The group-versions whose kinds the server does not know at the moment, because whoever answers for them is away.
pub(crate) async fn unknown(client: &Client) -> Result<Vec<String>, kube::Error> {
    let asked = timeout(LIMIT, client.list_api_groups_aggregated()).await;
    let groups = asked.map_err(|late| kube::Error::Service(late.into()))??.items;
    let mut unknown = Vec::new();
    for group in groups {
        let name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
        let versions = group.versions.into_iter();
        let stale = versions.filter(|version| version.freshness.as_deref() == Some("Stale"));
        unknown.extend(stale.map(|version| format!("{name}/{}", version.version.unwrap_or_default())));
    }
    unknown.sort();
    Ok(unknown)
}

/// Asks the server for all its kinds, ordered by name.
pub(crate) async fn discover(client: &Client) -> Result<Vec<Arc<Resource>>, kube::Error> {
    let asked = timeout(LIMIT, Discovery::new(client.clone()).run_aggregated()).await;
    let discovery = asked.map_err(|late| kube::Error::Service(late.into()))??;
    let mut resources = Vec::new();
    for group in discovery.groups_alphabetical() {
        resources.extend(group.resources_by_stability().into_iter().map(|(api, capabilities)| {
            let is_namespaced = capabilities.scope == Scope::Namespaced;
            Arc::new(Resource { api, is_namespaced, verbs: capabilities.operations })
        }));
    }
    resources.sort_by_key(|resource| resource.name());
    Ok(resources)
}
