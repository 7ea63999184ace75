//! The table of controllers: one line each, by the name that kube-controller-manager gives it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use setpoint::Manager;
use setpoint::kube::Client;
use setpoint_apiserver::TokenSigner;
use setpoint_apiserver::pki::CertificateAuthority;
use setpoint_env::Env;

use crate::{
    certificates, cron_job, daemon_set, deployment, disruption, endpoint_slice, endpoint_slice_mirroring,
    endpoints, ephemeral_volume, garbage_collector, horizontal_pod_autoscaler, job, namespace,
    node_lifecycle, persistent_volume_binder, pod_gc, replica_set, replication_controller, resource_quota,
    root_ca, scheduler, service_account, service_account_token, stateful_set, taint_eviction,
    ttl_after_finished, volume_protection,
};

/// What a controller may need besides the manager that it is added to.
pub(crate) struct Setup {
    pub(crate) client: Client,
    /// Time and randomness.
    pub(crate) env: Env,
    /// The certificate of the server's authority, as PEM, if it is known.
    pub(crate) root_ca: Option<String>,
    /// The authority itself, if certificates are signed.
    pub(crate) signer: Option<Arc<CertificateAuthority>>,
    /// What signs the tokens of service accounts' secrets, if they are signed.
    pub(crate) token_signer: Option<TokenSigner>,
}

/// Adds a controller to a manager. A controller takes its caches from [`Manager::informers`].
type Add = fn(Manager, &Setup) -> Manager;

/// Every controller. One of the API's own kinds is `("name", |manager, _| manager.controller(file::controller()))`.
const TABLE: &[(&str, Add)] = &[
    ("deployment-controller", |manager, _| {
        let controller = deployment::controller(manager.informers());
        manager.controller(controller)
    }),
    ("replicaset-controller", |manager, _| {
        let controller = replica_set::controller(manager.informers());
        manager.controller(controller)
    }),
    ("replicationcontroller-controller", |manager, _| {
        let controller = replication_controller::controller(manager.informers());
        manager.controller(controller)
    }),
    ("statefulset-controller", |manager, _| {
        let controller = stateful_set::controller(manager.informers());
        manager.controller(controller)
    }),
    ("daemonset-controller", |manager, _| {
        let controller = daemon_set::controller(manager.informers());
        manager.controller(controller)
    }),
    ("disruption-controller", |manager, _| {
        let controller = disruption::controller(manager.informers());
        manager.controller(controller)
    }),
    ("horizontal-pod-autoscaler-controller", |manager, _| {
        manager.controller(horizontal_pod_autoscaler::controller())
    }),
    ("job-controller", |manager, _| {
        let controller = job::controller(manager.informers());
        manager.controller(controller)
    }),
    ("cronjob-controller", |manager, _| {
        let controller = cron_job::controller(manager.informers());
        manager.controller(controller)
    }),
    ("ttl-after-finished-controller", |manager, _| manager.controller(ttl_after_finished::controller())),
    ("endpoints-controller", |manager, _| {
        let controller = endpoints::controller(manager.informers());
        manager.controller(controller)
    }),
    ("endpointslice-controller", |manager, _| {
        let controller = endpoint_slice::controller(manager.informers());
        manager.controller(controller)
    }),
    ("endpointslice-mirroring-controller", |manager, _| {
        manager.controller(endpoint_slice_mirroring::controller())
    }),
    ("garbage-collector-controller", garbage_collector::add_to),
    ("namespace-controller", |manager, _| manager.controller(namespace::controller())),
    ("node-lifecycle-controller", |manager, _| node_lifecycle::add_to(manager)),
    ("taint-eviction-controller", |manager, _| {
        let controller = taint_eviction::controller(manager.informers());
        manager.controller(controller)
    }),
    ("pod-garbage-collector-controller", |manager, _| {
        let controller = pod_gc::controller(manager.informers());
        manager.controller(controller)
    }),
    ("persistentvolume-binder-controller", persistent_volume_binder::add_to),
    ("persistentvolumeclaim-protection-controller", |manager, _| {
        let controller = volume_protection::of_claims(manager.informers());
        manager.controller(controller)
    }),
    ("persistentvolume-protection-controller", |manager, _| {
        manager.controller(volume_protection::of_volumes())
    }),
    ("ephemeral-volume-controller", |manager, _| manager.controller(ephemeral_volume::controller())),
    ("certificatesigningrequest-approving-controller", |manager, _| {
        manager.controller(certificates::approving())
    }),
    ("certificatesigningrequest-cleaner-controller", |manager, _| {
        manager.controller(certificates::cleaning())
    }),
    ("certificatesigningrequest-signing-controller", |manager, setup| match &setup.signer {
        Some(signer) => manager.controller(certificates::signing(signer.clone())),
        None => manager,
    }),
    ("resourcequota-controller", resource_quota::add_to),
    ("root-ca-certificate-publisher-controller", |manager, setup| match &setup.root_ca {
        Some(certificate) => manager.controller(root_ca::controller(certificate)),
        None => manager,
    }),
    ("scheduler", |manager, _| scheduler::add_to(manager)),
    ("serviceaccount-controller", |manager, _| manager.controller(service_account::controller())),
    ("serviceaccount-token-controller", service_account_token::add_to),
];

/// The end that most names have, and that nobody needs to type.
const SUFFIX: &str = "-controller";

/// A choice of controllers.
///
/// ```
/// use setpoint_cluster::Controllers;
///
/// assert!(Controllers::parse("no-such-controller").is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controllers(BTreeSet<&'static str>);

/// The error of an unknown controller name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown controller {name:?}; the controllers are: {}", Controllers::names().collect::<Vec<_>>().join(", "))]
pub struct UnknownController {
    /// The name.
    pub name: String,
}

impl Controllers {
    /// All controllers.
    pub fn all() -> Controllers {
        Controllers(Controllers::names().collect())
    }

    /// No controllers.
    pub fn none() -> Controllers {
        Controllers(BTreeSet::new())
    }

    /// Parses a list of names as kube-controller-manager does: `a,b` is these two, `-c` is all but this one, `*` is
    /// all, an empty list is none. The suffix `-controller` of a name may be omitted.
    pub fn parse(list: &str) -> Result<Controllers, UnknownController> {
        let items = || list.split(',').map(str::trim).filter(|item| !item.is_empty());
        let is_subtraction =
            items().next().is_some() && items().all(|item| item.starts_with('-') || item == "*");
        let mut chosen = if is_subtraction { Controllers::all() } else { Controllers::none() };
        for item in items() {
            match item.strip_prefix('-') {
                _ if item == "*" => chosen.0.extend(Controllers::names()),
                Some(name) => drop(chosen.0.remove(find(name)?)),
                None => drop(chosen.0.insert(find(item)?)),
            }
        }
        Ok(chosen)
    }

    /// Whether the controller of this name runs.
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// The names of all controllers.
    pub fn names() -> impl Iterator<Item = &'static str> {
        TABLE.iter().map(|(name, _)| *name)
    }

    /// Adds those that are chosen to a manager.
    pub(crate) fn add_to(&self, manager: Manager, setup: &Setup) -> Manager {
        let chosen = TABLE.iter().filter(|(name, _)| self.contains(name));
        chosen.fold(manager, |manager, (_, add)| add(manager, setup))
    }
}

impl Default for Controllers {
    fn default() -> Controllers {
        Controllers::all()
    }
}

impl fmt::Display for Controllers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().copied().collect::<Vec<_>>().join(","))
    }
}

fn find(name: &str) -> Result<&'static str, UnknownController> {
    let is_it = |known: &&'static str| *known == name || known.strip_suffix(SUFFIX) == Some(name);
    Controllers::names().find(is_it).ok_or_else(|| UnknownController { name: name.to_owned() })
}
