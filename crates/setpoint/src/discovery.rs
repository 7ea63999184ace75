//! Which kinds a server has right now, for controllers of kinds that are known only at run time.
//!
//! Like `kube::discovery`, with two differences that matter where API servers are aggregated: `null` is read as an empty list, as Go
//! writes it, and a group whose server is away costs that group, not all of them ([`unknown`] names them).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http::header::ACCEPT;
use kube::Client;
use kube::core::discovery::v2::{
    ACCEPT_AGGREGATED_DISCOVERY_V2, APIGroupDiscovery, APIGroupDiscoveryList, APIResourceDiscovery,
};
use kube::core::{ApiResource, GroupVersion, Version};
use serde_json::Value;
use tokio::time::timeout;

use crate::ScopedResource;

/// How long the server may take to answer.
const LIMIT: Duration = Duration::from_secs(30);

/// A resource that the server has, in its most stable version: a [`ScopedResource`], and what can be done with it.
#[derive(Clone, Debug)]
pub struct ServedResource {
    resource: ScopedResource,
    verbs: Vec<String>,
}

impl Deref for ServedResource {
    type Target = ScopedResource;

    fn deref(&self) -> &ScopedResource {
        &self.resource
    }
}

impl ServedResource {
    /// Whether the server does this with it: one of [`kube::discovery::verbs`].
    pub fn has(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }
}

/// The group-versions whose kinds the server does not know at the moment, because whoever answers for them is away.
pub async fn unknown(client: &Client) -> Result<Vec<String>, kube::Error> {
    let mut unknown = Vec::new();
    for group in groups(client, "/apis").await? {
        let name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
        let versions = group.versions.into_iter();
        let stale = versions.filter(|version| version.freshness.as_deref() == Some("Stale"));
        unknown.extend(stale.map(|version| format!("{name}/{}", version.version.unwrap_or_default())));
    }
    unknown.sort();
    Ok(unknown)
}

/// All resources that have objects, ordered by name.
pub async fn served(client: &Client) -> Result<Vec<Arc<ServedResource>>, kube::Error> {
    let mut resources = BTreeMap::new();
    for path in ["/api", "/apis"] {
        for group in groups(client, path).await? {
            let name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
            let mut versions = group.versions;
            versions.sort_by_cached_key(|version| Reverse(stability(version.version.as_deref())));
            for version in versions {
                let group_version = GroupVersion::gv(&name, &version.version.unwrap_or_default());
                for resource in version.resources.into_iter().filter_map(|found| read(found, &group_version))
                {
                    resources.entry(resource.name()).or_insert_with(|| Arc::new(resource));
                }
            }
        }
    }
    Ok(resources.into_values().collect())
}

fn stability(version: Option<&str>) -> impl Ord + use<> {
    Version::parse(version.unwrap_or_default()).priority()
}

/// None if it has no objects of its own, only parts.
fn read(found: APIResourceDiscovery, version: &GroupVersion) -> Option<ServedResource> {
    let kind = found.response_kind?.kind.filter(|kind| !kind.is_empty())?;
    let api = ApiResource {
        group: version.group.clone(),
        version: version.version.clone(),
        api_version: version.api_version(),
        kind,
        plural: found.resource?,
    };
    let is_namespaced = found.scope.as_deref() == Some("Namespaced");
    Some(ServedResource { resource: ScopedResource { api, is_namespaced }, verbs: found.verbs })
}

/// The groups of one of the two documents of discovery. kube's own functions want lists where kube-apiserver has `null`: it hands on
/// what the server of an APIService has said, and Go writes a list without items so.
async fn groups(client: &Client, path: &str) -> Result<Vec<APIGroupDiscovery>, kube::Error> {
    let request = Request::get(path).header(ACCEPT, ACCEPT_AGGREGATED_DISCOVERY_V2);
    let request = request.body(Vec::new()).map_err(kube::Error::HttpError)?;
    let asked = timeout(LIMIT, client.request::<Value>(request)).await;
    let mut document = asked.map_err(|late| kube::Error::Service(late.into()))??;
    if document["kind"] != "APIGroupDiscoveryList" {
        let why = format!("{path} is answered with {}, not an APIGroupDiscoveryList", document["kind"]);
        return Err(kube::Error::Service(why.into()));
    }
    drop_nulls(&mut document);
    let list: APIGroupDiscoveryList = serde_json::from_value(document).map_err(kube::Error::SerdeError)?;
    Ok(list.items)
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use http::Response;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// A client of a server that has these groups beside the one of pods.
    fn client(groups: Value) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| {
            let pods = json!({"resource": "pods", "responseKind": {"group": "", "version": "", "kind": "Pod"},
                "scope": "Namespaced", "singularResource": "pod", "verbs": ["list"]});
            let core =
                json!([{"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": [pods]}]}]);
            let items = if request.uri().path() == "/api" { core } else { groups.clone() };
            let list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items});
            let answer = Response::new(Body::from(list.to_string().into_bytes()));
            std::future::ready(Ok::<_, std::convert::Infallible>(answer))
        });
        Client::new(service, "default")
    }

    /// KubeVirt lists its subresources so, and kube-apiserver says what it says.
    #[tokio::test]
    async fn null_in_discovery_hides_no_kinds() {
        let empty = json!({"group": "", "version": "", "kind": ""});
        let part = json!({"subresource": "vnc", "responseKind": empty, "verbs": null});
        let whole = json!({"resource": "things", "responseKind": empty, "scope": "Namespaced", "singularResource": "",
            "verbs": null, "subresources": [part]});
        let client = client(json!([
            {"metadata": {"name": "g"}, "versions": [{"version": "v1", "resources": [whole], "freshness": "Current"}]},
            {"metadata": {"name": "h"}, "versions": [{"version": "v1", "resources": null, "freshness": "Stale"}]},
        ]));
        let names: Vec<String> = served(&client).await.unwrap().iter().map(|found| found.name()).collect();
        assert_eq!(names, ["pods"]);
        assert_eq!(unknown(&client).await.unwrap(), ["h/v1"]);
    }

    #[tokio::test]
    async fn a_kind_is_taken_in_its_most_stable_version_and_two_resources_may_have_one_kind() {
        let resource = |name: &str| {
            json!({"resource": name, "responseKind": {"group": "", "version": "", "kind": "Thing"}, "scope": "Cluster",
                "singularResource": "", "verbs": ["list"]})
        };
        let client = client(json!([{"metadata": {"name": "g"}, "versions": [
            {"version": "v2beta1", "resources": [resource("things"), resource("old-things")]},
            {"version": "v1", "resources": [resource("things"), resource("more-things")]},
        ]}]));
        let found = served(&client).await.unwrap();
        let found: Vec<_> =
            found.iter().map(|found| format!("{} {}", found.name(), found.api.version)).collect();
        assert_eq!(found, ["more-things.g v1", "old-things.g v2beta1", "pods v1", "things.g v1"]);
    }
}
