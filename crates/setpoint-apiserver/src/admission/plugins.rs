//! The server's own admission plugins: which there are, in which order they run, and which are switched on.

mod classes;
mod limit_ranger;
mod pods;
mod priority;
mod resource_quota;
mod runtime_class;
mod service_account;
mod storage;
mod table;
mod tolerations;

use serde_json::{Value, json};

use self::table::{Row, TABLE};
use super::{Attributes, Operation, certificates};
use crate::resource::Resource;
use crate::server::Core;
use crate::status::{Result, Status};
pub(crate) use resource_quota::Charge;
pub(crate) use table::Plugin;

/// Which admission plugins run. Unless told otherwise those of kube-apiserver's default set.
///
/// Plugins run in one order, whatever order they are named in. Those that kube-apiserver has and this server does not
/// can be named, and do nothing: the server says so in its log when it starts.
///
/// ```
/// use setpoint_apiserver::AdmissionPlugins;
///
/// let plugins = AdmissionPlugins::new(["AlwaysPullImages"], ["ServiceAccount"])?;
/// assert!(plugins.contains("AlwaysPullImages") && plugins.contains("Priority"));
/// assert!(!plugins.contains("ServiceAccount"));
/// # Ok::<(), setpoint_apiserver::PluginError>(())
/// ```
#[derive(Clone, Debug)]
pub struct AdmissionPlugins {
    /// A bit for each row of the table.
    enabled: u64,
    /// Named by hand, so somebody counts on them.
    named: u64,
}

/// Names that cannot be switched, in kube-apiserver's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PluginError(String);

impl Default for AdmissionPlugins {
    fn default() -> AdmissionPlugins {
        AdmissionPlugins { enabled: bits(|row| row.is_default), named: 0 }
    }
}

/// The bits of the rows that are meant.
fn bits(is_meant: impl Fn(&Row) -> bool) -> u64 {
    TABLE.iter().enumerate().filter(|(_, row)| is_meant(row)).fold(0, |bits, (at, _)| bits | 1 << at)
}

impl AdmissionPlugins {
    /// The default set with some more and some less, as with `--enable-admission-plugins` and
    /// `--disable-admission-plugins`.
    ///
    /// # Errors
    /// If a name is none of kube-apiserver's plugins, or is on both lists.
    pub fn new<E, D>(enable: E, disable: D) -> Result<AdmissionPlugins, PluginError>
    where
        E: IntoIterator<Item: AsRef<str>>,
        D: IntoIterator<Item: AsRef<str>>,
    {
        let mut problems = Vec::new();
        let enable = named(enable, "enable-admission-plugins", &mut problems);
        let disable = named(disable, "disable-admission-plugins", &mut problems);
        let mut both: Vec<&str> = enable.iter().copied().filter(|name| disable.contains(name)).collect();
        if !both.is_empty() {
            both.sort_unstable();
            let names = both.join(" ");
            problems.push(format!(
                "[{names}] in enable-admission-plugins and disable-admission-plugins overlapped"
            ));
        }
        checked(problems)?;
        let (on, off) = (bits(|row| enable.contains(&row.name)), bits(|row| disable.contains(&row.name)));
        Ok(AdmissionPlugins { enabled: (AdmissionPlugins::default().enabled | on) & !off, named: on })
    }

    /// These and no others, as with `--admission-control`.
    ///
    /// # Errors
    /// If a name is none of kube-apiserver's plugins.
    pub fn only<N>(names: N) -> Result<AdmissionPlugins, PluginError>
    where
        N: IntoIterator<Item: AsRef<str>>,
    {
        let mut problems = Vec::new();
        let names = named(names, "admission-control", &mut problems);
        checked(problems)?;
        let on = bits(|row| names.contains(&row.name));
        Ok(AdmissionPlugins { enabled: on, named: on })
    }

    /// Whether the plugin of this name is switched on.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.enabled & bits(|row| row.name == name) != 0
    }

    /// The names of all plugins that can be switched, in the order in which they run.
    pub fn names() -> impl Iterator<Item = &'static str> {
        TABLE.iter().map(|row| row.name)
    }

    /// Switches one plugin.
    pub(crate) fn switch(&mut self, plugin: Plugin, is_on: bool) {
        let bit = bits(|row| row.plugin == Some(plugin));
        self.enabled = if is_on { self.enabled | bit } else { self.enabled & !bit };
    }
}

/// The rows' own names for those that are given; what is not one is a problem.
fn named<N>(names: N, option: &str, problems: &mut Vec<String>) -> Vec<&'static str>
where
    N: IntoIterator<Item: AsRef<str>>,
{
    let mut found = Vec::new();
    for name in names {
        let name = name.as_ref();
        match TABLE.iter().find(|row| row.name == name) {
            Some(row) => found.push(row.name),
            None => problems.push(format!("{option} plugin {name:?} is unknown")),
        }
    }
    found
}

fn checked(problems: Vec<String>) -> Result<(), PluginError> {
    match &problems[..] {
        [] => Ok(()),
        [one] => Err(PluginError(one.clone())),
        several => Err(PluginError(format!("[{}]", several.join(", ")))),
    }
}

/// Those that run in a server, found by what they look at.
#[derive(Debug)]
pub(crate) struct Plugins {
    enabled: u64,
    mutating: Vec<Looking>,
    validating: Vec<Looking>,
}

/// Who looks at one kind, in order.
#[derive(Debug)]
struct Looking {
    group: &'static str,
    plural: &'static str,
    plugins: Vec<Plugin>,
}

impl Plugins {
    pub(crate) fn new(chosen: &AdmissionPlugins) -> Plugins {
        let rows = || TABLE.iter().enumerate().filter(|(at, _)| chosen.enabled & 1 << at != 0);
        let idle: Vec<&str> = rows()
            .filter(|(at, row)| row.plugin.is_none() && chosen.named & 1 << at != 0)
            .map(|(_, row)| row.name)
            .collect();
        if !idle.is_empty() {
            tracing::warn!(
                plugins = idle.join(","),
                "these admission plugins are not implemented and have no effect"
            );
        }
        let running = || rows().filter_map(|(_, row)| Some((row, row.plugin?)));
        let enabled = running().fold(0, |bits, (_, plugin)| bits | plugin.bit());
        let looking = |of: fn(&Row) -> &'static [(&'static str, &'static str)]| {
            let mut found: Vec<Looking> = Vec::new();
            for (row, plugin) in running() {
                for &(group, plural) in of(row) {
                    match found.iter_mut().find(|one| (one.group, one.plural) == (group, plural)) {
                        Some(one) => one.plugins.push(plugin),
                        None => found.push(Looking { group, plural, plugins: vec![plugin] }),
                    }
                }
            }
            found
        };
        Plugins { enabled, mutating: looking(|row| row.mutates), validating: looking(|row| row.validates) }
    }

    pub(crate) fn has(&self, plugin: Plugin) -> bool {
        self.enabled & plugin.bit() != 0
    }
}

fn looking_at<'p>(all: &'p [Looking], resource: &Resource) -> &'p [Plugin] {
    let is_meant = |one: &&Looking| one.plural == resource.plural() && one.group == resource.group();
    all.iter().find(is_meant).map_or(&[], |one| &one.plugins)
}

/// Fills in what the plugins know about an object that is about to be written. It has its defaults.
pub(super) async fn mutate(core: &Core, attributes: &Attributes<'_>, object: &mut Value) -> Result<()> {
    for plugin in looking_at(&core.plugins.mutating, &attributes.request.resource) {
        let is_new = attributes.operation == Operation::Create;
        match plugin {
            Plugin::LimitRanger => limit_ranger::fill(core, attributes, object).await?,
            _ if !attributes.subresource().is_empty() => {}
            Plugin::ServiceAccount if is_new => service_account::admit(core, attributes, object).await?,
            Plugin::TaintNodesByCondition if is_new => taint(object),
            Plugin::AlwaysPullImages => pods::pull_always(attributes, object),
            Plugin::Priority if is_new => priority::resolve(core, attributes, object).await?,
            Plugin::Priority => priority::keep(attributes, object),
            Plugin::DefaultTolerationSeconds => tolerations::add_defaults(object),
            Plugin::DefaultStorageClass if is_new => classes::storage(core, object).await?,
            Plugin::StorageObjectInUseProtection if is_new => {
                storage::protect(attributes.request.resource.plural(), object);
            }
            Plugin::RuntimeClass if is_new => runtime_class::admit(core, attributes, object).await?,
            Plugin::DefaultIngressClass if is_new => classes::ingress(core, object).await?,
            _ => {}
        }
    }
    Ok(())
}

/// Asks the plugins whether an object may be written as it is now.
pub(super) async fn validate(core: &Core, attributes: &Attributes<'_>, object: &Value) -> Result<()> {
    for plugin in looking_at(&core.plugins.validating, &attributes.request.resource) {
        let subresource = attributes.subresource();
        match plugin {
            Plugin::LimitRanger => limit_ranger::check(core, attributes, object).await?,
            Plugin::AlwaysPullImages if subresource.is_empty() => {
                pods::must_pull_always(attributes, object)?;
            }
            Plugin::Priority if subresource.is_empty() => {
                priority::validate_class(core, attributes, object).await?;
            }
            Plugin::PersistentVolumeClaimResize if subresource.is_empty() => {
                storage::may_grow(core, attributes, object).await?;
            }
            Plugin::RuntimeClass if subresource.is_empty() => {
                runtime_class::validate(core, attributes, object).await?;
            }
            Plugin::CertificateApproval => certificates::approve(core, attributes).await?,
            Plugin::CertificateSigning => certificates::sign(core, attributes, object).await?,
            Plugin::ClusterTrustBundleAttest => certificates::attest(core, attributes, object).await?,
            Plugin::CertificateSubjectRestriction => certificates::restrict_subject(attributes, object)?,
            Plugin::DenyServiceExternalIPs if subresource.is_empty() => {
                deny_external_ips(attributes, object)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Charges an object that everybody else has let pass to the quotas of its namespace.
pub(super) async fn charge(core: &Core, attributes: &Attributes<'_>, object: &Value) -> Result<Charge> {
    if core.plugins.has(Plugin::ResourceQuota) {
        return resource_quota::charge(core, attributes, object).await;
    }
    Ok(Charge::default())
}

/// What runs last, and takes nothing.
pub(super) fn deny(core: &Core, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<()> {
    if core.plugins.has(Plugin::AlwaysDeny) {
        return Err(attributes.forbidden(object, "admission control is denying all modifications"));
    }
    Ok(())
}

/// A new node gets no pods until it says that it is ready.
fn taint(node: &mut Value) {
    const NOT_READY: &str = "node.kubernetes.io/not-ready";
    let Some(node) = node.as_object_mut() else { return };
    let Some(spec) = node.entry("spec").or_insert_with(|| json!({})).as_object_mut() else { return };
    let Some(taints) = spec.entry("taints").or_insert_with(|| json!([])).as_array_mut() else { return };
    if !taints.iter().any(|taint| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule") {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
}

/// Addresses from outside can be kept, not added.
fn deny_external_ips(attributes: &Attributes<'_>, service: &Value) -> Result<()> {
    let of = |service: &Value| service["spec"]["externalIPs"].as_array().cloned().unwrap_or_default();
    let before = attributes.old.map(of).unwrap_or_default();
    if of(service).iter().all(|ip| before.contains(ip)) {
        return Ok(());
    }
    Err(attributes.forbidden(Some(service), "Use of external IPs is denied by admission control"))
}

impl Attributes<'_> {
    /// A refusal by a plugin. An object that gets its name from the server is called by the beginning of it.
    pub(super) fn forbidden(&self, object: Option<&Value>, why: &str) -> Status {
        let name = match self.name(object) {
            "" => object.and_then(|object| object["metadata"]["generateName"].as_str()).unwrap_or_default(),
            name => name,
        };
        Status::forbidden(self.request.resource.group_resource(), name, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_switched_as_in_kube_apiserver() {
        let plugins = AdmissionPlugins::new(["AlwaysPullImages", "Priority"], ["ServiceAccount"]).unwrap();
        let is_on = |name| plugins.contains(name);
        assert!(is_on("AlwaysPullImages") && is_on("Priority") && is_on("ResourceQuota"));
        assert!(!is_on("ServiceAccount") && !is_on("NodeRestriction") && !is_on("Nothing"));
        let only = AdmissionPlugins::only(["Priority"]).unwrap();
        assert!(only.contains("Priority") && !only.contains("MutatingAdmissionWebhook"));
    }

    #[test]
    fn a_name_that_is_no_plugin_is_refused_in_kube_apiservers_words() {
        let none = || std::iter::empty::<&str>();
        for (outcome, words) in [
            (
                AdmissionPlugins::new(["Nothing"], none()),
                "enable-admission-plugins plugin \"Nothing\" is unknown",
            ),
            (
                AdmissionPlugins::new(["Priority", "LimitRanger"], ["X", "Priority", "LimitRanger"]),
                "[disable-admission-plugins plugin \"X\" is unknown, [LimitRanger Priority] in \
                 enable-admission-plugins and disable-admission-plugins overlapped]",
            ),
            (AdmissionPlugins::only(["X"]), "admission-control plugin \"X\" is unknown"),
        ] {
            assert_eq!(outcome.unwrap_err().to_string(), words);
        }
    }

    #[test]
    fn the_table_has_each_plugin_once_and_they_fit_into_a_word() {
        assert!(TABLE.len() <= 64);
        for (at, row) in TABLE.iter().enumerate() {
            assert!(TABLE[..at].iter().all(|other| other.name != row.name), "{}", row.name);
            if let Some(plugin) = row.plugin {
                assert_eq!(format!("{plugin:?}"), row.name);
            }
            assert!(row.plugin.is_some() || row.mutates.is_empty() && row.validates.is_empty());
        }
    }
}
