//! What the server keeps about itself in the store, whoever deletes it: the service `kubernetes` with its Endpoints and
//! EndpointSlice, which lead to it, and the ConfigMap `extension-apiserver-authentication`, which says whom it trusts.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::bootstrap;
use crate::handlers::get::read;
use crate::object;
use crate::resource::Registry;
use crate::server::Core;
use crate::status::Result;
use crate::storage::{Action, Change, Expect};
use crate::strategy::{self, Part};

/// How often is looked whether all three are as they should be.
const INTERVAL: Duration = Duration::from_secs(10);
/// Where the service is, with all that belongs to it.
const SERVICE: Place = (Some("default"), NAME);
const AUTHENTICATION: Place = (Some("kube-system"), "extension-apiserver-authentication");
const NAME: &str = "kubernetes";

/// A namespace, if there is one, and a name.
type Place = (Option<&'static str>, &'static str);

/// Where others find this server.
#[derive(Debug, Default)]
pub(crate) struct Advertised {
    address: Mutex<Address>,
    changed: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct Address {
    /// Chosen by whoever set the server up.
    ip: Option<IpAddr>,
    /// Where it listens.
    served: Option<SocketAddr>,
}

impl Advertised {
    /// One that names this address, whatever the server listens on.
    pub(crate) fn at(ip: Option<IpAddr>) -> Advertised {
        Advertised { address: Mutex::new(Address { ip, served: None }), changed: Notify::new() }
    }

    /// The server listens here.
    pub(crate) fn listen(&self, address: SocketAddr) {
        self.address.lock().served = Some(address);
        self.changed.notify_one();
    }

    /// What to tell others, if there is a way in at all. An address that leads nowhere from outside gives way to that of
    /// this machine.
    fn find(&self) -> Option<SocketAddr> {
        let Address { ip, served } = *self.address.lock();
        let served = served?;
        let is_local = served.ip().is_unspecified() || served.ip().is_loopback();
        let ip = ip.or_else(|| if is_local { outward(served) } else { None });
        Some(SocketAddr::new(ip.unwrap_or(served.ip()), served.port()))
    }
}

/// The address that this machine has for others. Nothing is sent to find it out.
fn outward(served: SocketAddr) -> Option<IpAddr> {
    let (from, to) =
        if served.is_ipv4() { ("0.0.0.0:0", "192.0.2.1:9") } else { ("[::]:0", "[2001:db8::1]:9") };
    let socket = UdpSocket::bind(from).ok()?;
    socket.connect(to).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_unspecified() && !ip.is_loopback()).then_some(ip)
}

/// Keeps the objects as they should be, until the server has gone.
pub(crate) async fn upkeep(core: Weak<Core>) {
    loop {
        let Some(running) = core.upgrade() else { return };
        let advertised = Arc::clone(&running.advertised);
        let address = advertised.find();
        if let Err(error) = reconcile(&running, address).await {
            tracing::warn!(%error, "cannot update the objects that describe this server");
        }
        // A server that nobody can reach, and that has nothing to tell, leaves the clock alone.
        let is_idle = address.is_none() && running.authenticator.trust().published().is_none();
        drop(running);
        let pause = async {
            if is_idle {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(INTERVAL).await;
        };
        tokio::select! {
            biased;
            () = advertised.changed.notified() => {}
            () = pause => {}
        }
    }
}

/// Brings all of them to what they should be.
async fn reconcile(core: &Core, address: Option<SocketAddr>) -> Result<()> {
    settings(core).await?;
    match address {
        Some(address) => service(core, address).await,
        None => Ok(()),
    }
}

/// Publishes whom the server trusts, and where the addresses of services come from now. A service keeps its own.
pub(crate) async fn settings(core: &Core) -> Result<()> {
    let cidrs: Vec<String> = core.service_ranges.iter().map(|range| range.to_string()).collect();
    let ranges = json!({"spec": {"cidrs": cidrs}});
    ensure(core, ("networking.k8s.io", "v1", "servicecidrs"), (None, NAME), ranges).await?;
    let Some(data) = core.authenticator.trust().published() else { return Ok(()) };
    ensure(core, ("", "v1", "configmaps"), AUTHENTICATION, json!({"data": data})).await
}

async fn service(core: &Core, address: SocketAddr) -> Result<()> {
    bootstrap::services(core).await?;
    let (ip, port) = (address.ip().to_string(), address.port());
    let ports = json!([{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}]);
    ensure(core, ("", "v1", "services"), SERVICE, json!({"spec": {"ports": ports}})).await?;
    let endpoints = json!({
        "metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": ip}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}]
    });
    ensure(core, ("", "v1", "endpoints"), SERVICE, endpoints).await?;
    let slice = json!({
        "metadata": {"labels": {"kubernetes.io/service-name": NAME}},
        "addressType": if address.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{"addresses": [ip], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "protocol": "TCP", "port": port}]
    });
    ensure(core, ("discovery.k8s.io", "v1", "endpointslices"), SERVICE, slice).await
}

/// Creates an object, or puts back what is not as wanted.
async fn ensure(
    core: &Core,
    (group, version, plural): (&str, &str, &str),
    (namespace, name): Place,
    wanted: Value,
) -> Result<()> {
    let resource = Registry::built_in().expect(group, version, plural);
    let key = resource.key(namespace, name);
    let Some(record) = read(core, &key).await? else {
        let mut object = json!({"metadata": {"name": name}});
        if let Some(namespace) = namespace {
            object["metadata"]["namespace"] = namespace.into();
        }
        merge(&mut object, &wanted);
        return Ok(bootstrap::create(core, (group, version, plural), object).await?);
    };
    let old = object::decode(&record.value, record.revision);
    let mut new = old.clone();
    // The kind of its addresses cannot change, so another slice takes its place.
    let is_other = plural == "endpointslices" && old["addressType"] != wanted["addressType"];
    merge(&mut new, &wanted);
    if new == old {
        return Ok(());
    }
    let action = if is_other {
        Action::Delete
    } else {
        strategy::prepare_update(resource, Part::Main, &old, &mut new, &core.env);
        if let Some(metadata) = new["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        Action::Put { value: object::encode(&new), ttl: None }
    };
    let change = Change { key, expect: Expect::Revision(record.revision), action };
    // Whoever was faster is put right next time.
    match core.storage.commit(change).await {
        Ok(_) => Ok(()),
        Err(error) => Ok(error.into_current().map(drop)?),
    }
}

/// Lays `over` over `base`; lists are taken as a whole.
fn merge(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (name, value) in over {
                merge(base.entry(name).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_was_chosen_or_that_others_can_reach_is_told() {
        let told = |ip: Option<&str>, served: &str| {
            let advertised = Advertised::at(ip.map(|ip| ip.parse().unwrap()));
            assert_eq!(advertised.find(), None);
            advertised.listen(served.parse().unwrap());
            advertised.find().unwrap().to_string()
        };
        assert_eq!(told(Some("192.0.2.7"), "127.0.0.1:6443"), "192.0.2.7:6443");
        assert_eq!(told(None, "192.0.2.8:6443"), "192.0.2.8:6443");
        assert!(told(None, "127.0.0.1:6443").ends_with(":6443"));
    }
}
