//! Addresses and node ports of services.
//!
//! What is taken is in the store: an IPAddress object for a cluster IP, and a bit in one object for all node ports
//! ([`super::node_ports`]), both as kube-apiserver keeps them. To take an address is to create its object, so two services
//! never get the same, whatever happens at the same time. One whose service does not use it any more (the server died
//! between two writes) is taken over by the next one who wants it.

use std::sync::Arc;

use serde_json::{Value, json};
use setpoint_env::Later;

use super::super::at::{At, Errors, items};
use super::node_ports::{self, PORTS};
use super::{families, is_headless, may_have_node_ports, needs_cluster_ip, needs_health_check};
use crate::contention::Attempts;
use crate::field_error::FieldError;
use crate::handlers::get::read;
use crate::object;
use crate::resource::{Registry, Resource};
use crate::server::Core;
use crate::status::{Result, Status};
use crate::storage::{Action, Change, Expect, Key, Record};
use crate::strategy;

/// Ports below this are left to those who choose their own.
const FIRST_RANDOM_PORT: u64 = 30086;
/// How often a random choice is tried before all are looked at.
const TRIES: usize = 16;

/// What a write has taken and what it gives up if it succeeds.
#[derive(Debug, Default)]
pub(crate) struct Allocation {
    taken: Held,
    given_up: Held,
}

/// Addresses and ports of a service.
#[derive(Debug, Default)]
struct Held {
    /// The keys of their objects.
    addresses: Vec<Key>,
    ports: Vec<u64>,
}

impl Allocation {
    /// The write has happened.
    pub(crate) async fn commit(self, core: &Core) {
        release(core, self.given_up).await;
    }

    /// The write has not happened.
    pub(crate) async fn revert(self, core: &Core) {
        release(core, self.taken).await;
    }
}

async fn release(core: &Core, held: Held) {
    node_ports::release(core, services(), &held.ports).await;
    for key in held.addresses {
        let Ok(Some(record)) = read(core, &key).await else { continue };
        let action = Action::Delete;
        let change = Change { key, expect: Expect::Revision(record.revision), action };
        // Whoever was faster has it now.
        let _ = core.storage.commit(change).await;
    }
}

/// Gives back what a service that is gone had.
pub(crate) async fn release_all(core: &Core, service: &Value) {
    release(core, held_by(&service["spec"])).await;
}

/// Everything that a service has.
fn held_by(spec: &Value) -> Held {
    let mut held = Held { addresses: Vec::new(), ports: ports_of(spec) };
    if needs_cluster_ip(spec) && !is_headless(spec) {
        held.addresses.extend(items(&spec["clusterIPs"]).iter().filter_map(Value::as_str).map(ip_key));
    }
    held
}

pub(super) fn ports_of(spec: &Value) -> Vec<u64> {
    let mut ports: Vec<u64> = Vec::new();
    if may_have_node_ports(spec) {
        ports.extend(items(&spec["ports"]).iter().filter_map(|port| port["nodePort"].as_u64()));
    }
    if needs_health_check(spec) {
        ports.extend(spec["healthCheckNodePort"].as_u64());
    }
    ports.retain(|port| *port != 0);
    ports.sort_unstable();
    ports.dedup();
    ports
}

fn addresses() -> &'static Arc<Resource> {
    Registry::built_in().expect("networking.k8s.io", "v1", "ipaddresses")
}

fn services() -> &'static Arc<Resource> {
    Registry::built_in().expect("", "v1", "services")
}

fn ip_key(ip: &str) -> Key {
    addresses().key(None, ip)
}

/// Gives a service what it needs before it is written. On a failure nothing stays taken.
pub(crate) async fn allocate(
    core: &Core,
    services: &Resource,
    service: &mut Value,
    old: Option<&Value>,
    dry_run: bool,
) -> Result<Allocation> {
    normalize(service, old);
    let mut allocation = Allocation::default();
    let outcome = fill(core, services, service, old, dry_run, &mut allocation).await;
    match outcome {
        Ok(()) if dry_run => Ok(Allocation::default()),
        Ok(()) => {
            let kept = held_by(&service["spec"]);
            let mut before = old.map(|old| held_by(&old["spec"])).unwrap_or_default();
            before.addresses.retain(|key| !kept.addresses.contains(key));
            before.ports.retain(|port| !kept.ports.contains(port));
            allocation.given_up = before;
            Ok(allocation)
        }
        Err(status) => {
            allocation.revert(core).await;
            Err(status)
        }
    }
}

/// The first address has two names; on an update what is left out stays.
fn normalize(service: &mut Value, old: Option<&Value>) {
    let Some(spec) = service["spec"].as_object_mut() else { return };
    let is_empty = |value: Option<&Value>| match value {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    };
    let Some(old) = old.map(|old| &old["spec"]) else {
        if !is_empty(spec.get("clusterIP")) && is_empty(spec.get("clusterIPs")) {
            let ip = spec["clusterIP"].clone();
            spec.insert("clusterIPs".to_owned(), json!([ip]));
        }
        return;
    };
    let stays = needs_cluster_ip(old) && spec.get("type").is_none_or(|kind| kind != "ExternalName");
    if stays {
        for field in ["clusterIP", "clusterIPs"] {
            if is_empty(spec.get(field))
                && let Some(value) = old.get(field)
            {
                spec.insert(field.to_owned(), value.clone());
            }
        }
    }
    if spec.get("clusterIP") != old.get("clusterIP") && spec.get("clusterIPs") == old.get("clusterIPs") {
        match spec.get("clusterIP").cloned() {
            Some(ip) if !is_empty(Some(&ip)) => drop(spec.insert("clusterIPs".to_owned(), json!([ip]))),
            _ => drop(spec.remove("clusterIPs")),
        }
    }
    trim_families(spec, old);
    keep_node_ports(spec, old);
}

/// Whoever gives up the second family need not say which address goes with it.
fn trim_families(spec: &mut serde_json::Map<String, Value>, old: &Value) {
    let is_single = spec.get("ipFamilyPolicy").is_some_and(|policy| policy == "SingleStack");
    if !is_single || old["ipFamilyPolicy"] == "SingleStack" || is_headless(old) {
        return;
    }
    for field in ["clusterIPs", "ipFamilies"] {
        if items(&old[field]).len() == 2
            && spec.get(field) == old.get(field)
            && let Some(Value::Array(list)) = spec.get_mut(field)
        {
            list.truncate(1);
        }
    }
}

fn keep_node_ports(spec: &mut serde_json::Map<String, Value>, old: &Value) {
    let new = Value::Object(spec.clone());
    if !allocates_ports(&new) || !allocates_ports(old) {
        if needs_health_check(&new) && needs_health_check(old) {
            keep_health_check(spec, old);
        }
        return;
    }
    let used: Vec<u64> = ports_of(&new);
    for port in super::super::fill::each(spec, "ports") {
        if port.get("nodePort").and_then(Value::as_u64).unwrap_or(0) != 0 {
            continue;
        }
        let name = port.get("name").cloned().unwrap_or(Value::Null);
        let before = items(&old["ports"]).iter().find(|old| old["name"] == name);
        if let Some(number) =
            before.and_then(|old| old["nodePort"].as_u64()).filter(|number| !used.contains(number))
        {
            port.insert("nodePort".to_owned(), number.into());
        }
    }
    if needs_health_check(&new) && needs_health_check(old) {
        keep_health_check(spec, old);
    }
}

fn keep_health_check(spec: &mut serde_json::Map<String, Value>, old: &Value) {
    if spec.get("healthCheckNodePort").and_then(Value::as_u64).unwrap_or(0) == 0
        && let Some(port) = old.get("healthCheckNodePort")
    {
        spec.insert("healthCheckNodePort".to_owned(), port.clone());
    }
}

fn allocates_ports(spec: &Value) -> bool {
    spec["type"] == "NodePort"
        || spec["type"] == "LoadBalancer" && spec["allocateLoadBalancerNodePorts"] != false
}

async fn fill(
    core: &Core,
    services: &Resource,
    service: &mut Value,
    old: Option<&Value>,
    dry_run: bool,
    allocation: &mut Allocation,
) -> Result<()> {
    let errors = Errors::default();
    let completed = {
        let root = At::root(service, &errors);
        families::complete(&root.field("spec"), old.map(|old| &old["spec"]), &core.service_ranges)
    };
    let problems = errors.into_vec();
    if !problems.is_empty() {
        return Err(Status::invalid(services.group_kind(), object::name(service), &problems));
    }
    if let Some((list, policy)) = completed {
        service["spec"]["ipFamilies"] = list;
        service["spec"]["ipFamilyPolicy"] = policy;
    }
    let mut taker = Taker { core, services, dry_run, taken: &mut allocation.taken };
    taker.cluster_ips(service, old).await?;
    taker.node_ports(service, old).await
}

struct Taker<'a> {
    core: &'a Core,
    services: &'a Resource,
    dry_run: bool,
    taken: &'a mut Held,
}

impl Taker<'_> {
    fn invalid(&self, service: &Value, error: FieldError) -> Status {
        Status::invalid(self.services.group_kind(), object::name(service), &[error])
    }

    /// Takes an address of each family that the service has none of yet.
    async fn cluster_ips(&mut self, service: &mut Value, old: Option<&Value>) -> Result<()> {
        let spec = &service["spec"];
        if !needs_cluster_ip(spec) || is_headless(spec) {
            return Ok(());
        }
        let old = old.map(|old| &old["spec"]).filter(|old| needs_cluster_ip(old));
        if old.is_some_and(is_headless) {
            // It stays so, as validation sees to.
            return Ok(());
        }
        let owned = old.map_or(0, |old| items(&old["clusterIPs"]).len());
        let wanted = items(&spec["clusterIPs"]).to_vec();
        let mut ips: Vec<Value> = Vec::new();
        for (index, family) in items(&spec["ipFamilies"]).to_vec().iter().enumerate() {
            let family = family.as_str().unwrap_or_default();
            match wanted.get(index) {
                // A service keeps what it has, even if it is of no range any more; validation says so.
                _ if index < owned => {}
                Some(ip) => self.wanted_ip(service, family, ip.as_str().unwrap_or_default()).await?,
                None => {
                    ips.push(self.free_ip(service, family).await?.into());
                    continue;
                }
            }
            ips.extend(wanted.get(index).cloned());
        }
        if ips.len() > wanted.len() {
            service["spec"]["clusterIP"] = ips[0].clone();
            service["spec"]["clusterIPs"] = ips.into();
        }
        Ok(())
    }

    async fn wanted_ip(&mut self, service: &Value, family: &str, ip: &str) -> Result<()> {
        let is_ours = self.core.service_ranges.of(family).is_some_and(|range| range.contains(ip));
        let error = if !is_ours {
            "the provided network does not match the current range"
        } else if self.take(ip_key(ip), ip_record(self.core, ip, service)).await? {
            return Ok(());
        } else {
            "provided IP is already allocated"
        };
        let shown = service["spec"]["clusterIPs"].clone();
        let detail = format!("failed to allocate IP {ip}: {error}");
        Err(self.invalid(service, FieldError::invalid("spec.clusterIPs", shown, detail)))
    }

    async fn free_ip(&mut self, service: &Value, family: &str) -> Result<String> {
        let core = self.core;
        if let Some(range) = core.service_ranges.of(family) {
            let chosen = (0..TRIES).map(|_| range.choose(|most| core.env.random_range(0..=most)));
            for ip in chosen.chain(range.all()) {
                let ip = ip.to_string();
                if self.take(ip_key(&ip), ip_record(self.core, &ip, service)).await? {
                    return Ok(ip);
                }
            }
        }
        let name = object::name(service);
        Err(Status::internal(format!("failed to allocate a serviceIP for Service {name:?}: range is full")))
    }

    async fn node_ports(&mut self, service: &mut Value, old: Option<&Value>) -> Result<()> {
        let owned = old.map(|old| ports_of(&old["spec"])).unwrap_or_default();
        if may_have_node_ports(&service["spec"]) {
            self.ports_of_list(service, &owned).await?;
        }
        if !needs_health_check(&service["spec"]) {
            return Ok(());
        }
        let wanted = service["spec"]["healthCheckNodePort"].as_u64().unwrap_or(0);
        if wanted == 0 {
            service["spec"]["healthCheckNodePort"] = self.free_port().await?.into();
        } else if !owned.contains(&wanted)
            && let Some(error) = self.wanted_port(wanted).await?
        {
            return Err(Status::internal(format!(
                "failed to allocate requested HealthCheck NodePort {wanted}: {error}"
            )));
        }
        Ok(())
    }

    /// Two ports with the same number and different protocols share a node port.
    async fn ports_of_list(&mut self, service: &mut Value, owned: &[u64]) -> Result<()> {
        let count = items(&service["spec"]["ports"]).len();
        let wants_all = allocates_ports(&service["spec"]);
        let mut by_port: Vec<(u64, u64)> = Vec::new();
        let mut done: Vec<u64> = owned.to_vec();
        for index in 0..count {
            let port = &service["spec"]["ports"][index];
            let (number, wanted) =
                (port["port"].as_u64().unwrap_or(0), port["nodePort"].as_u64().unwrap_or(0));
            if wanted == 0 && !wants_all {
                continue;
            }
            let shared = by_port.iter().find(|(port, _)| *port == number).map(|(_, node)| *node);
            let later = items(&service["spec"]["ports"])
                .iter()
                .filter(|other| other["port"].as_u64() == Some(number))
                .find_map(|other| other["nodePort"].as_u64().filter(|node| *node != 0));
            let wanted = if wanted != 0 { wanted } else { shared.or(later).unwrap_or(0) };
            let node = if wanted == 0 {
                self.free_port().await?
            } else {
                if !done.contains(&wanted)
                    && let Some(error) = self.wanted_port(wanted).await?
                {
                    let field = format!("spec.ports[{index}].nodePort");
                    return Err(self.invalid(service, FieldError::invalid(field, wanted, error)));
                }
                wanted
            };
            done.push(node);
            by_port.push((number, node));
            service["spec"]["ports"][index]["nodePort"] = node.into();
        }
        Ok(())
    }

    /// Takes a port that the service asks for, or says why it cannot have it.
    async fn wanted_port(&mut self, port: u64) -> Result<Option<String>> {
        // As in kube-apiserver, a dry run does not look at the range.
        if !PORTS.contains(&port) && !self.dry_run {
            let (first, last) = (PORTS.start(), PORTS.end());
            return Ok(Some(format!(
                "provided port is not in the valid range. The range of valid ports is {first}-{last}"
            )));
        }
        let taken = self.take_port(port).await?;
        Ok((!taken).then(|| "provided port is already allocated".to_owned()))
    }

    async fn free_port(&mut self) -> Result<u64> {
        for _ in 0..TRIES {
            let port = self.core.env.random_range(FIRST_RANDOM_PORT..=*PORTS.end());
            if self.take_port(port).await? {
                return Ok(port);
            }
        }
        for port in PORTS {
            if self.take_port(port).await? {
                return Ok(port);
            }
        }
        Err(Status::internal("failed to allocate a nodePort: range is full"))
    }

    /// Takes a port, unless somebody has it.
    async fn take_port(&mut self, port: u64) -> Result<bool> {
        if self.taken.ports.contains(&port) {
            return Ok(false);
        }
        if self.dry_run {
            return node_ports::is_free(self.core, self.services, port).await;
        }
        let is_taken = node_ports::take(self.core, self.services, port).await?;
        if is_taken {
            self.taken.ports.push(port);
        }
        Ok(is_taken)
    }

    /// Makes the object of an address, unless somebody has it.
    async fn take(&mut self, key: Key, record: Value) -> Result<bool> {
        if self.taken.addresses.contains(&key) {
            return Ok(false);
        }
        if self.dry_run {
            return Ok(match read(self.core, &key).await? {
                None => true,
                Some(record) => !self.in_use(&record).await?,
            });
        }
        let mut attempts = Attempts::of_server(self.core, key.clone());
        let mut expect = Expect::Absent;
        loop {
            let action = Action::Put { value: object::encode(&record), ttl: None };
            let change = Change { key: key.clone(), expect, action };
            match self.core.storage.commit(change).await {
                Ok(_) => {
                    self.taken.addresses.push(key);
                    return Ok(true);
                }
                Err(error) => error.into_current()?,
            };
            expect = match attempts.next().await? {
                None => Expect::Absent,
                Some(record) if self.in_use(&record).await? => return Ok(false),
                Some(record) => Expect::Revision(record.revision),
            };
        }
    }

    /// Whether the service that a record is for still has what the record stands for.
    async fn in_use(&self, record: &Record) -> Result<bool> {
        let holder = object::decode(&record.value, record.revision);
        let parent = &holder["spec"]["parentRef"];
        let text = |field: &str| parent[field].as_str().unwrap_or_default();
        if text("resource") != "services" {
            return Ok(true);
        }
        let Some(service) =
            read(self.core, &self.services.key(Some(text("namespace")), text("name"))).await?
        else {
            // The service may be about to be written.
            return Ok(!is_old(self.core, &holder));
        };
        let service = object::decode(&service.value, service.revision);
        let key = object::name(&holder);
        let has_ip = items(&service["spec"]["clusterIPs"]).iter().any(|ip| ip == key);
        Ok(has_ip || !is_old(self.core, &holder))
    }
}

/// Whether a record has been there for so long that its service must have been written.
fn is_old(core: &Core, holder: &Value) -> bool {
    const AGE: std::time::Duration = std::time::Duration::from_secs(60);
    let made = object::text(holder, &["metadata", "creationTimestamp"]);
    made.and_then(|time| time.parse::<jiff::Timestamp>().ok())
        .is_none_or(|time| time.later(AGE) < core.env.now())
}

fn parent(service: &Value) -> Value {
    let metadata = &service["metadata"];
    json!({"resource": "services", "namespace": metadata["namespace"], "name": metadata["name"]})
}

/// The object that says who has an address.
pub(crate) fn ip_record(core: &Core, ip: &str, service: &Value) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IPAddress",
        "metadata": {
            "name": ip,
            "uid": core.env.uuid(),
            "creationTimestamp": strategy::timestamp(core.env.now()),
            "labels": {
                "ipaddress.kubernetes.io/ip-family": if ip.contains(':') { "IPv6" } else { "IPv4" },
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"
            }
        },
        "spec": {"parentRef": parent(service)}
    })
}
