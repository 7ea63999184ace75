//! The least role that a controller needs: from what its builder declares, and from what an audit log shows.

mod audit;
mod manifest;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use setpoint::Permissions;

use crate::error::Error;
use crate::yaml;

/// Verbs by API group and resource, or by URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    verbs: BTreeMap<Target, BTreeSet<String>>,
}

/// What a rule is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Resource { group: String, resource: String },
    Url(String),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Resource { group, resource } if group.is_empty() => f.write_str(resource),
            Target::Resource { group, resource } => {
                let (name, subresource) = resource.split_once('/').unwrap_or((resource, ""));
                let slash = if subresource.is_empty() { "" } else { "/" };
                write!(f, "{name}.{group}{slash}{subresource}")
            }
            Target::Url(url) => f.write_str(url),
        }
    }
}

impl From<&Permissions> for Rules {
    /// All of them, with those for the lease and for certificates.
    fn from(permissions: &Permissions) -> Rules {
        let mut rules = Rules::default();
        for (group, resource, verbs) in permissions.iter() {
            verbs.iter().for_each(|verb| rules.add(group, resource, verb.as_str()));
        }
        let lease = permissions.lease.is_some().then_some(("coordination.k8s.io", "leases"));
        let certificates = (!permissions.certificates.is_empty()).then_some(("", "secrets"));
        for (group, resource) in lease.into_iter().chain(certificates) {
            ["create", "get", "update"].iter().for_each(|verb| rules.add(group, resource, verb));
        }
        rules
    }
}

impl Rules {
    /// Adds one verb on a resource.
    pub fn add(&mut self, group: &str, resource: &str, verb: &str) {
        let target = Target::Resource { group: group.to_owned(), resource: resource.to_owned() };
        self.verbs.entry(target).or_default().insert(verb.to_owned());
    }

    /// What requests in an audit log (JSON lines of audit.k8s.io/v1) needed, those of one user or all.
    pub fn from_audit(file: &str, log: &str, user: Option<&str>) -> Result<Rules, Error> {
        audit::read(log, user).map_err(|error| error.in_file(file))
    }

    /// What the Roles and ClusterRoles of a YAML text allow.
    pub fn from_manifests(file: &str, text: &str) -> Result<Rules, Error> {
        manifest::read(text).map_err(|error| error.in_file(file))
    }

    /// What is in these rules and not in the others, a line each: `patch foos.example.com/status`.
    pub fn beyond(&self, others: &Rules) -> Vec<String> {
        let mut lines = Vec::new();
        for (target, verbs) in &self.verbs {
            for verb in verbs.iter().filter(|verb| !others.allows(target, verb)) {
                lines.push(format!("{verb} {target}"));
            }
        }
        lines
    }

    fn allows(&self, target: &Target, verb: &str) -> bool {
        let has = |verbs: &BTreeSet<String>| verbs.contains(verb) || verbs.contains("*");
        self.verbs.iter().any(|(own, verbs)| has(verbs) && covers(own, target))
    }

    /// As `rules` of a role: resources of a group that have the same verbs are one rule.
    fn render(&self) -> Value {
        let mut together: BTreeMap<(&str, Vec<&str>), Vec<&str>> = BTreeMap::new();
        let mut rules = Vec::new();
        for (target, verbs) in &self.verbs {
            let verbs = in_order(verbs);
            match target {
                Target::Resource { group, resource } => {
                    together.entry((group, verbs)).or_default().push(resource)
                }
                Target::Url(url) => rules.push(json!({"nonResourceURLs": [url], "verbs": verbs})),
            }
        }
        let resources = together.into_iter().map(|((group, verbs), resources)| {
            json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
        });
        resources.chain(rules).collect()
    }

    /// A ClusterRole of these rules.
    pub fn cluster_role(&self, name: &str) -> Result<String, Error> {
        yaml::render(&role("ClusterRole", json!({"name": name}), self.render()))
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.verbs.is_empty()
    }
}

fn covers(own: &Target, target: &Target) -> bool {
    match (own, target) {
        (Target::Resource { group, resource }, Target::Resource { group: g, resource: r }) => {
            (group == "*" || group == g) && (resource == "*" || resource == r)
        }
        (Target::Url(own), Target::Url(url)) => match own.strip_suffix('*') {
            Some(start) => url.starts_with(start),
            None => own == url,
        },
        _ => false,
    }
}

/// The order that people write verbs in.
fn in_order(verbs: &BTreeSet<String>) -> Vec<&str> {
    const ORDER: [&str; 8] =
        ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
    let place = |verb: &&str| ORDER.iter().position(|known| known == verb).unwrap_or(ORDER.len());
    let mut verbs: Vec<&str> = verbs.iter().map(String::as_str).collect();
    verbs.sort_by_key(place);
    verbs
}

fn role(kind: &str, metadata: Value, rules: Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": rules})
}

fn binding(kind: &str, role: &str, name: &str, namespace: Option<&str>, account: (&str, &str)) -> Value {
    let mut metadata = json!({"name": name});
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account.1, "namespace": account.0}],
    })
}

/// To create objects of a kind, and to read and update those of these names.
fn by_name(group: &str, resource: &str, names: &[&str]) -> Value {
    json!([
        {"apiGroups": [group], "resources": [resource], "verbs": ["create"]},
        {"apiGroups": [group], "resources": [resource], "resourceNames": names, "verbs": ["get", "update"]},
    ])
}

/// A service account in a namespace, the least roles for what it needs, and their bindings, as one YAML text.
///
/// Without namespaces it is a ClusterRole; with them, a Role in each. The lease, and the Secrets with certificates of
/// webhooks, have Roles of their own, which name them, but for `create`, which cannot be told names.
pub fn manifests(name: &str, namespace: &str, permissions: &Permissions) -> Result<String, Error> {
    let account = (namespace, name);
    let mut documents = vec![json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace},
    })];
    let mut own = permissions.clone();
    own.lease = None;
    own.certificates.clear();
    let rules = Rules::from(&own).render();
    if permissions.namespaces.is_empty() {
        documents.push(role("ClusterRole", json!({"name": name}), rules));
        documents.push(binding("ClusterRoleBinding", "ClusterRole", name, None, account));
    } else {
        for place in &permissions.namespaces {
            documents.push(role("Role", json!({"name": name, "namespace": place}), rules.clone()));
            documents.push(binding("RoleBinding", "Role", name, Some(place), account));
        }
    }
    if let Some((place, lease)) = &permissions.lease {
        let rules = by_name("coordination.k8s.io", "leases", &[lease]);
        let election = format!("{name}-leader-election");
        documents.push(role("Role", json!({"name": election, "namespace": place}), rules));
        documents.push(binding("RoleBinding", "Role", &election, Some(place), account));
    }
    let mut certificates: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (place, secret) in &permissions.certificates {
        certificates.entry(place).or_default().push(secret);
    }
    for (place, secrets) in certificates {
        let keeper = format!("{name}-certificates");
        let rules = by_name("", "secrets", &secrets);
        documents.push(role("Role", json!({"name": keeper, "namespace": place}), rules));
        documents.push(binding("RoleBinding", "Role", &keeper, Some(place), account));
    }
    let documents = documents.iter().map(yaml::render).collect::<Result<Vec<_>, _>>()?;
    Ok(documents.join("---\n"))
}
