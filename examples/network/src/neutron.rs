//! A small typed client of Neutron's API, version 2.0: as much as a network controller needs.
//!
//! What can be repeated without harm is, a few times, when Neutron does not answer or answers with an error of
//! its own. A create cannot: its answer may be lost after it has worked. Look for what it may have made first.

mod error;
mod model;
mod transport;

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
pub use error::NeutronError;
use error::{answer_error, check_json};
use form_urlencoded::Serializer;
use http::{Method, Request, Response, header};
use model::{Link, Networks, OneNetwork, OneSubnet, Pool, Subnets};
pub use model::{Network, NewSubnet, Subnet};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use setpoint::Env;
use tower::ServiceExt;
pub use transport::{Transport, TransportError, https, of_service};

/// How many objects of a list come at once.
const PAGE: usize = 200;
/// More pages than any Neutron has: a list that goes on is a broken server.
const MOST_PAGES: usize = 1000;

/// How requests show who they are from.
#[derive(Clone, Debug)]
pub enum Auth {
    /// Not at all: Neutron's `noauth`.
    None,
    /// With the token in a file, read again for each request: somebody else renews it.
    TokenFile(PathBuf),
}

/// How patient the client is.
#[derive(Clone, Debug)]
pub struct Patience {
    /// How long one request may take.
    pub limit: Duration,
    /// How often a request that can be repeated is sent at most.
    pub tries: u32,
    /// How long to wait before the second; twice as long before each later one.
    pub pause: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { limit: Duration::from_secs(10), tries: 3, pause: Duration::from_millis(200) }
    }
}

/// A client of one Neutron. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Neutron {
    /// Without a slash at its end.
    url: String,
    auth: Auth,
    transport: Transport,
    patience: Patience,
    env: Env,
}

impl Neutron {
    /// A client of the Neutron at `url`, such as `http://127.0.0.1:9696`.
    pub fn new(url: &str, auth: Auth, transport: Transport, env: Env) -> Neutron {
        let url = url.trim_end_matches('/').to_owned();
        Neutron { url, auth, transport, patience: Patience::default(), env }
    }

    /// The same, more or less patient.
    #[must_use]
    pub fn patience(mut self, patience: Patience) -> Neutron {
        self.patience = patience;
        self
    }

    /// Every network with exactly this description.
    pub async fn networks_described(&self, description: &str) -> Result<Vec<Network>, NeutronError> {
        self.pages("networks", &[("description", description)], |page: Networks| (page.networks, page.links))
            .await
    }

    /// Every network that this client may see.
    pub async fn networks(&self) -> Result<Vec<Network>, NeutronError> {
        self.pages("networks", &[], |page: Networks| (page.networks, page.links)).await
    }

    /// The network of this id, if there is one.
    pub async fn network(&self, id: &str) -> Result<Option<Network>, NeutronError> {
        match self.send(Method::GET, &format!("networks/{id}"), None, None).await {
            Ok(bytes) => Ok(Some(check_json::<OneNetwork>(&bytes)?.network)),
            Err(NeutronError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates a network.
    pub async fn create_network(&self, name: &str, description: &str) -> Result<Network, NeutronError> {
        let body = json!({"network": {"name": name, "description": description}});
        Ok(self.write::<OneNetwork>(Method::POST, "networks", &body, None).await?.network)
    }

    /// Changes a network, if it is still at this revision.
    pub async fn update_network(
        &self,
        id: &str,
        revision: u64,
        changes: &Value,
    ) -> Result<Network, NeutronError> {
        let (path, body) = (format!("networks/{id}"), json!({"network": changes}));
        Ok(self.write::<OneNetwork>(Method::PUT, &path, &body, Some(revision)).await?.network)
    }

    /// Deletes a network with its subnets, if it is there.
    pub async fn delete_network(&self, id: &str) -> Result<(), NeutronError> {
        self.delete(&format!("networks/{id}")).await
    }

    /// The subnets of a network.
    pub async fn subnets(&self, network_id: &str) -> Result<Vec<Subnet>, NeutronError> {
        self.pages("subnets", &[("network_id", network_id)], |page: Subnets| (page.subnets, page.links)).await
    }

    /// Creates a subnet.
    pub async fn create_subnet(&self, subnet: &NewSubnet) -> Result<Subnet, NeutronError> {
        let body = json!({"subnet": subnet});
        Ok(self.write::<OneSubnet>(Method::POST, "subnets", &body, None).await?.subnet)
    }

    /// Changes a subnet, if it is still at this revision.
    pub async fn update_subnet(
        &self,
        id: &str,
        revision: u64,
        changes: &Value,
    ) -> Result<Subnet, NeutronError> {
        let (path, body) = (format!("subnets/{id}"), json!({"subnet": changes}));
        Ok(self.write::<OneSubnet>(Method::PUT, &path, &body, Some(revision)).await?.subnet)
    }

    /// Deletes a subnet, if it is there.
    pub async fn delete_subnet(&self, id: &str) -> Result<(), NeutronError> {
        self.delete(&format!("subnets/{id}")).await
    }

    async fn delete(&self, path: &str) -> Result<(), NeutronError> {
        match self.send(Method::DELETE, path, None, None).await {
            Ok(_) | Err(NeutronError::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn write<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
        revision: Option<u64>,
    ) -> Result<T, NeutronError> {
        let body = serde_json::to_vec(body).map_err(NeutronError::Encode)?;
        check_json(&self.send(method, path, Some(body.into()), revision).await?)
    }

    /// A list, page by page. In the order of ids, since a page begins behind the last id of the one before.
    async fn pages<P: DeserializeOwned, T: AsRef<str>>(
        &self,
        resource: &str,
        filter: &[(&str, &str)],
        take: impl Fn(P) -> (Vec<T>, Vec<Link>),
    ) -> Result<Vec<T>, NeutronError> {
        let mut all: Vec<T> = Vec::new();
        for _ in 0..MOST_PAGES {
            let last = all.last().map(AsRef::as_ref);
            let path = format!("{resource}?{}", page_query(filter, last));
            let (items, links) = take(check_json(&self.send(Method::GET, &path, None, None).await?)?);
            let is_last = items.is_empty() || !links.iter().any(|link| link.rel == "next");
            all.extend(items);
            if is_last {
                return Ok(all);
            }
        }
        Err(NeutronError::Endless)
    }

    /// Sends a request, and again if that can do no harm and may help.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        revision: Option<u64>,
    ) -> Result<Bytes, NeutronError> {
        let may_repeat = method != Method::POST;
        let (mut tried, mut pause) = (1, self.patience.pause);
        loop {
            let failed = match self.send_once(&method, path, body.clone(), revision).await {
                Ok(bytes) => return Ok(bytes),
                Err(error) => error,
            };
            if !may_repeat || !failed.may_pass() || tried >= self.patience.tries {
                return Err(failed);
            }
            tracing::debug!(%method, path, error = %failed, "neutron failed; the request is sent again");
            tokio::time::sleep(self.env.jitter(pause, 0.5)).await;
            (tried, pause) = (tried + 1, pause * 2);
        }
    }

    async fn send_once(
        &self,
        method: &Method,
        path: &str,
        body: Option<Bytes>,
        revision: Option<u64>,
    ) -> Result<Bytes, NeutronError> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}/v2.0/{path}", self.url))
            .header(header::ACCEPT, "application/json");
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(revision) = revision {
            request = request.header(header::IF_MATCH, format!("revision_number={revision}"));
        }
        if let Auth::TokenFile(path) = &self.auth {
            request = request.header("x-auth-token", read_token(path).await?);
        }
        let request = request.body(body.unwrap_or_default()).map_err(NeutronError::Request)?;
        let sending = self.transport.clone().oneshot(request);
        let response = match tokio::time::timeout(self.patience.limit, sending).await {
            Err(_) => return Err(NeutronError::Timeout(self.patience.limit)),
            Ok(Err(error)) => return Err(NeutronError::Unreachable { url: self.url.clone(), source: error }),
            Ok(Ok(response)) => response,
        };
        answer(response)
    }
}

fn page_query(filter: &[(&str, &str)], last: Option<&str>) -> String {
    let mut query = Serializer::new(String::new());
    query.extend_pairs(filter).append_pair("limit", &PAGE.to_string());
    query.append_pair("sort_key", "id").append_pair("sort_dir", "asc");
    if let Some(last) = last {
        query.append_pair("marker", last);
    }
    query.finish()
}

fn answer(response: Response<Bytes>) -> Result<Bytes, NeutronError> {
    let (parts, body) = response.into_parts();
    if parts.status.is_success() { Ok(body) } else { Err(answer_error(parts.status, &body)) }
}

async fn read_token(path: &PathBuf) -> Result<String, NeutronError> {
    let text = tokio::fs::read_to_string(path).await;
    let text = text.map_err(|source| NeutronError::TokenFile { path: path.clone(), source })?;
    Ok(text.trim().to_owned())
}

/// The allocation pools of a subnet, for a change.
pub(crate) fn pools_json(pools: &[(std::net::IpAddr, std::net::IpAddr)]) -> Value {
    json!(
        pools
            .iter()
            .map(|(start, end)| Pool { start: start.to_string(), end: end.to_string() })
            .collect::<Vec<_>>()
    )
}
