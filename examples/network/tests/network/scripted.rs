//! A Neutron in this process that behaves as the real one was seen to, and fails as it is told to.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::Arc;

use bytes::Bytes;
use example_network::Cidr;
use example_network::neutron::{Transport, TransportError, of_service};
use http::{Method, Request, Response, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::service_fn;

/// What happens to a request instead of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// This answer, and nothing is done.
    Answer(u16, &'static str),
    /// No answer at all, and nothing is done.
    Hang,
    /// The connection breaks, and nothing is done.
    Refuse,
    /// It is done, and the answer is lost.
    LoseAnswer,
}

#[derive(Default)]
struct State {
    networks: BTreeMap<String, Value>,
    subnets: BTreeMap<String, Value>,
    ports: BTreeMap<String, usize>,
    made: u64,
    requests: Vec<String>,
    /// For the next requests with this method, in order.
    faults: BTreeMap<String, VecDeque<Fault>>,
    /// For every request, until it is taken away.
    outage: Option<Fault>,
    tokens: Vec<Option<String>>,
}

/// Clones are the same Neutron.
#[derive(Clone, Default)]
pub(crate) struct Scripted(Arc<Mutex<State>>);

impl Scripted {
    pub(crate) fn transport(&self) -> Transport {
        let this = self.clone();
        of_service(service_fn(move |request| {
            let this = this.clone();
            async move { this.serve(request).await }
        }))
    }

    /// The next request with this method meets this fault.
    pub(crate) fn fault(&self, method: &str, fault: Fault) {
        self.0.lock().faults.entry(method.to_owned()).or_default().push_back(fault);
    }

    /// Every request meets this fault until it is over.
    pub(crate) fn outage(&self, fault: Option<Fault>) {
        self.0.lock().outage = fault;
    }

    pub(crate) fn networks(&self) -> Vec<Value> {
        self.0.lock().networks.values().cloned().collect()
    }

    pub(crate) fn subnets(&self) -> Vec<Value> {
        self.0.lock().subnets.values().cloned().collect()
    }

    /// `METHOD /path` of every request so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.0.lock().requests.clone()
    }

    pub(crate) fn writes(&self) -> usize {
        self.requests().iter().filter(|request| !request.starts_with("GET")).count()
    }

    pub(crate) fn tokens(&self) -> Vec<Option<String>> {
        self.0.lock().tokens.clone()
    }

    /// Somebody puts ports on a network.
    pub(crate) fn set_ports(&self, network: &str, ports: usize) {
        self.0.lock().ports.insert(network.to_owned(), ports);
    }

    /// Somebody asks Neutron by hand.
    pub(crate) fn by_hand(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let mut state = self.0.lock();
        let (status, answer) = state.handle(&method, path, &body, None);
        (status.as_u16(), answer)
    }

    pub(crate) async fn serve(&self, request: Request<Bytes>) -> Result<Response<Bytes>, TransportError> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map(|path| path.as_str().to_owned()).unwrap_or_default();
        let fault = {
            let mut state = self.0.lock();
            state.requests.push(format!("{} {path}", parts.method));
            let token = parts.headers.get("x-auth-token").and_then(|token| token.to_str().ok());
            state.tokens.push(token.map(str::to_owned));
            let scripted = state.faults.get_mut(parts.method.as_str()).and_then(VecDeque::pop_front);
            scripted.or_else(|| state.outage.clone())
        };
        match fault {
            Some(Fault::Answer(status, text)) => {
                return Ok(Response::builder().status(status).body(text.into())?);
            }
            Some(Fault::Hang) => std::future::pending::<()>().await,
            Some(Fault::Refuse) => return Err("connection refused".into()),
            Some(Fault::LoseAnswer) | None => {}
        }
        let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let if_match = parts.headers.get("if-match").and_then(|value| value.to_str().ok());
        let revision = if_match.and_then(|text| text.strip_prefix("revision_number=")?.parse().ok());
        let (status, answer) = self.0.lock().handle(&parts.method, &path, &body, revision);
        if matches!(fault, Some(Fault::LoseAnswer)) {
            return Err("connection reset".into());
        }
        let text = if answer.is_null() { String::new() } else { answer.to_string() };
        Ok(Response::builder().status(status).body(text.into())?)
    }
}

fn error(status: StatusCode, kind: &str, message: &str) -> (StatusCode, Value) {
    (status, json!({"NeutronError": {"type": kind, "message": message, "detail": ""}}))
}

impl State {
    fn handle(
        &mut self,
        method: &Method,
        path: &str,
        body: &Value,
        revision: Option<u64>,
    ) -> (StatusCode, Value) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let parts: Vec<&str> = path.trim_start_matches("/v2.0/").split('/').collect();
        match (method.as_str(), parts.as_slice()) {
            ("GET", ["networks"]) => (StatusCode::OK, list("networks", &self.networks, query)),
            ("GET", ["subnets"]) => (StatusCode::OK, list("subnets", &self.subnets, query)),
            ("GET", ["networks", id]) => match self.networks.get(*id) {
                Some(network) => (StatusCode::OK, json!({"network": network})),
                None => error(StatusCode::NOT_FOUND, "NetworkNotFound", "Network could not be found."),
            },
            ("POST", ["networks"]) => self.create_network(&body["network"]),
            ("POST", ["subnets"]) => self.create_subnet(&body["subnet"]),
            ("PUT", ["networks", id]) => {
                update("network", &mut self.networks, id, &body["network"], revision)
            }
            ("PUT", ["subnets", id]) => update("subnet", &mut self.subnets, id, &body["subnet"], revision),
            ("DELETE", ["networks", id]) => self.delete_network(id),
            ("DELETE", ["subnets", id]) => match self.subnets.remove(*id) {
                Some(_) => (StatusCode::NO_CONTENT, Value::Null),
                None => error(StatusCode::NOT_FOUND, "SubnetNotFound", "Subnet could not be found."),
            },
            _ => (StatusCode::METHOD_NOT_ALLOWED, Value::Null),
        }
    }

    fn next(&mut self) -> (String, String) {
        self.made += 1;
        (format!("id-{:06}", self.made), format!("2026-01-01T00:00:{:02}Z", self.made % 60))
    }

    fn create_network(&mut self, wanted: &Value) -> (StatusCode, Value) {
        if wanted.get("id").is_some() || wanted.get("tags").is_some() {
            return error(StatusCode::BAD_REQUEST, "HTTPBadRequest", "Attribute not allowed in POST");
        }
        if self.networks.len() >= 100 {
            return error(StatusCode::CONFLICT, "OverQuota", "Quota exceeded for resources: ['network'].");
        }
        let (id, created_at) = self.next();
        let network = json!({
            "id": id, "created_at": created_at, "revision_number": 1, "status": "ACTIVE",
            "name": wanted["name"], "description": wanted["description"].as_str().unwrap_or(""),
        });
        self.networks.insert(id, network.clone());
        (StatusCode::CREATED, json!({"network": network}))
    }

    fn create_subnet(&mut self, wanted: &Value) -> (StatusCode, Value) {
        let network_id = wanted["network_id"].as_str().unwrap_or("").to_owned();
        let Ok(cidr) = wanted["cidr"].as_str().unwrap_or("").parse::<Cidr>() else {
            return error(
                StatusCode::BAD_REQUEST,
                "InvalidInput",
                "Invalid input for operation: not a valid IP subnet.",
            );
        };
        if !self.networks.contains_key(&network_id) {
            return error(StatusCode::NOT_FOUND, "NetworkNotFound", "Network could not be found.");
        }
        let on_it = self.subnets.values().filter(|subnet| subnet["network_id"] == json!(network_id));
        let mut taken = on_it.filter_map(|subnet| subnet["cidr"].as_str()?.parse::<Cidr>().ok());
        if let Some(other) = taken.find(|other| overlap(&cidr, other)) {
            let message = format!(
                "Invalid input for operation: Requested subnet with cidr: {cidr} for network: {network_id} overlaps with another subnet. Subnet overlaps with {other}."
            );
            return error(StatusCode::BAD_REQUEST, "InvalidInput", &message);
        }
        let (id, created_at) = self.next();
        let first = cidr.pools_without(Ipv4Addr::UNSPECIFIED.into()).first().map(|pool| pool.0.to_string());
        let gateway = wanted["gateway_ip"].as_str().map(str::to_owned).or(first);
        let subnet = json!({
            "id": id, "created_at": created_at, "revision_number": 0, "network_id": network_id,
            "name": wanted["name"], "description": wanted["description"].as_str().unwrap_or(""),
            "cidr": cidr.to_string(), "gateway_ip": gateway,
        });
        self.subnets.insert(id, subnet.clone());
        bump(self.networks.get_mut(&network_id));
        (StatusCode::CREATED, json!({"subnet": subnet}))
    }

    fn delete_network(&mut self, id: &str) -> (StatusCode, Value) {
        if self.ports.get(id).is_some_and(|ports| *ports > 0) {
            let message =
                "Unable to complete operation on network. There are one or more ports still in use.";
            return error(StatusCode::CONFLICT, "NetworkInUse", message);
        }
        if self.networks.remove(id).is_none() {
            return error(StatusCode::NOT_FOUND, "NetworkNotFound", "Network could not be found.");
        }
        self.subnets.retain(|_, subnet| subnet["network_id"] != json!(id));
        (StatusCode::NO_CONTENT, Value::Null)
    }
}

fn overlap(a: &Cidr, b: &Cidr) -> bool {
    let first = |cidr: &Cidr| cidr.to_string().split('/').next().unwrap().parse().unwrap();
    a.contains(first(b)) || b.contains(first(a))
}

fn bump(object: Option<&mut Value>) {
    if let Some(object) = object {
        object["revision_number"] = json!(object["revision_number"].as_u64().unwrap_or(0) + 1);
    }
}

fn update(
    kind: &str,
    all: &mut BTreeMap<String, Value>,
    id: &str,
    changes: &Value,
    revision: Option<u64>,
) -> (StatusCode, Value) {
    let Some(object) = all.get_mut(id) else {
        return error(StatusCode::NOT_FOUND, "NotFound", "could not be found.");
    };
    if revision.is_some() && revision != object["revision_number"].as_u64() {
        return error(StatusCode::PRECONDITION_FAILED, "RevisionNumberConstraintFailed", "Constraint failed");
    }
    if changes.get("cidr").is_some() {
        return error(StatusCode::BAD_REQUEST, "HTTPBadRequest", "Cannot update read-only attribute cidr");
    }
    let before = object.clone();
    for (field, value) in changes.as_object().into_iter().flatten() {
        object[field] = value.clone();
    }
    if *object != before {
        bump(Some(object));
    }
    (StatusCode::OK, json!({kind: object}))
}

/// A page of a list: filtered, in the order of ids, behind the marker.
fn list(kind: &str, all: &BTreeMap<String, Value>, query: &str) -> Value {
    let (mut limit, mut marker, mut filters) = (usize::MAX, String::new(), Vec::new());
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "limit" => limit = value.parse().unwrap_or(usize::MAX),
            "marker" => marker = value.into_owned(),
            "sort_key" | "sort_dir" => {}
            _ => filters.push((name.into_owned(), value.into_owned())),
        }
    }
    let is_wanted = |object: &&Value| {
        object["id"].as_str().unwrap_or("") > marker.as_str()
            && filters.iter().all(|(name, value)| object[name.as_str()] == json!(value))
    };
    let mut found: Vec<&Value> = all.values().filter(is_wanted).collect();
    let has_more = found.len() > limit;
    found.truncate(limit);
    let mut page = json!({kind: found});
    if has_more {
        page[format!("{kind}_links")] = json!([{"rel": "next", "href": "…"}]);
    }
    page
}
