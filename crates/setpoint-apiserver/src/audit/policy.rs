//! What is written about which request.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::authorize::Attributes;
use crate::user::User;

/// Why a policy cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// It cannot be read.
    #[error("cannot read the audit policy {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not a policy.
    #[error("the audit policy is not an audit.k8s.io/v1 Policy: {why}")]
    Invalid {
        /// What is wrong.
        why: String,
    },
}

/// An `audit.k8s.io/v1` Policy: of its rules the first one that matches a request counts. A request that none matches
/// is not written.
///
/// ```
/// use setpoint_apiserver::audit::Policy;
///
/// let policy = Policy::parse(
///     "apiVersion: audit.k8s.io/v1
/// kind: Policy
/// omitStages: [RequestReceived]
/// rules:
/// - level: None
///   verbs: [get, list, watch]
/// - level: Metadata
///   resources: [{group: '', resources: [secrets]}]
/// - level: RequestResponse
/// ",
/// )?;
/// # let _ = policy;
/// # Ok::<(), setpoint_apiserver::audit::PolicyError>(())
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    api_version: String,
    kind: String,
    #[serde(default)]
    #[expect(dead_code, reason = "it may be there, and says nothing")]
    metadata: serde_json::Value,
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    #[serde(default)]
    omit_managed_fields: bool,
}

/// How much of a request is written: each level has what the ones before it have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(crate) enum Level {
    None,
    Metadata,
    Request,
    RequestResponse,
}

impl Level {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Stage {
    RequestReceived,
    ResponseStarted,
    ResponseComplete,
    Panic,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    level: Level,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<Resources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    omit_managed_fields: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Resources {
    #[serde(default)]
    group: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

/// What the policy says about one request.
#[derive(Debug)]
pub(super) struct Decision {
    pub level: Level,
    /// The stages that are not written.
    pub omitted: Vec<&'static str>,
    pub omit_managed_fields: bool,
}

impl Default for Policy {
    /// The metadata of every request, once it is answered.
    fn default() -> Policy {
        let text = "{apiVersion: audit.k8s.io/v1, kind: Policy, omitStages: [RequestReceived], rules: [{level: Metadata}]}";
        Policy::parse(text).expect("the text is a policy")
    }
}

impl Policy {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Policy, PolicyError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| PolicyError::Read { path: path.to_owned(), source })?;
        Policy::parse(&text)
    }

    /// The same for its text: YAML or JSON.
    pub fn parse(text: &str) -> Result<Policy, PolicyError> {
        let invalid = |why: String| PolicyError::Invalid { why };
        let policy: Policy = serde_saphyr::from_str(text)
            .map_err(|error| invalid(error.to_string().lines().next().unwrap_or_default().to_owned()))?;
        if (policy.api_version.as_str(), policy.kind.as_str()) != ("audit.k8s.io/v1", "Policy") {
            return Err(invalid(format!("it is a {} of {}", policy.kind, policy.api_version)));
        }
        if policy.rules.is_empty() {
            return Err(invalid("it has no rules".to_owned()));
        }
        let has_both = |rule: &&Rule| {
            let has_resources = !rule.resources.is_empty() || !rule.namespaces.is_empty();
            has_resources && !rule.non_resource_urls.is_empty()
        };
        if policy.rules.iter().any(|rule| has_both(&rule)) {
            return Err(invalid(
                "rules cannot apply to both regular resources and non-resource URLs".to_owned(),
            ));
        }
        Ok(policy)
    }

    pub(super) fn decide(&self, user: Option<&User>, attributes: &Attributes) -> Decision {
        let rule = self.rules.iter().find(|rule| rule.matches(user, attributes));
        let stages = rule.map_or(&[][..], |rule| &rule.omit_stages).iter().chain(&self.omit_stages);
        Decision {
            level: rule.map_or(Level::None, |rule| rule.level),
            omitted: stages.map(|stage| stage.as_str()).collect(),
            omit_managed_fields: rule
                .and_then(|rule| rule.omit_managed_fields)
                .unwrap_or(self.omit_managed_fields),
        }
    }
}

impl Stage {
    fn as_str(self) -> &'static str {
        match self {
            Stage::RequestReceived => "RequestReceived",
            Stage::ResponseStarted => "ResponseStarted",
            Stage::ResponseComplete => "ResponseComplete",
            Stage::Panic => "Panic",
        }
    }
}

impl Rule {
    fn matches(&self, user: Option<&User>, attributes: &Attributes) -> bool {
        let has = |list: &[String], item: &String| list.is_empty() || list.contains(item);
        let is_user = self.users.is_empty() || user.is_some_and(|user| self.users.contains(&user.name));
        let is_in_group = self.user_groups.is_empty()
            || user.is_some_and(|user| user.groups.iter().any(|group| self.user_groups.contains(group)));
        if !(is_user && is_in_group && has(&self.verbs, &attributes.verb)) {
            return false;
        }
        match &attributes.path {
            Some(path) if self.namespaces.is_empty() && self.resources.is_empty() => {
                self.non_resource_urls.is_empty()
                    || self.non_resource_urls.iter().any(|url| covers(url, path))
            }
            Some(_) => false,
            None => {
                self.non_resource_urls.is_empty()
                    && has(&self.namespaces, &attributes.namespace)
                    && (self.resources.is_empty()
                        || self.resources.iter().any(|some| some.matches(attributes)))
            }
        }
    }
}

fn covers(url: &str, path: &str) -> bool {
    url == path || url.ends_with('*') && path.starts_with(url.trim_end_matches('*'))
}

impl Resources {
    fn matches(&self, attributes: &Attributes) -> bool {
        let Attributes { group, resource, subresource, name, .. } = attributes;
        if self.group != *group && self.group != "*" {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        let is_named = self.resource_names.is_empty() || self.resource_names.contains(name);
        is_named
            && self.resources.iter().any(|item| match (item.as_str(), item.split_once('/')) {
                ("*", _) => true,
                (_, Some((of, "*"))) => of == resource,
                (_, Some((of, part))) => part == subresource && (of == "*" || of == resource),
                (item, None) => subresource.is_empty() && item == resource,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: [system:kube-proxy]
  verbs: [watch]
- level: Metadata
  resources:
  - group: ''
    resources: [secrets, pods/*, '*/status']
  - group: apps
    resources: [deployments]
    resourceNames: [web]
- level: Request
  namespaces: [prod]
  omitStages: [ResponseStarted]
- level: None
  nonResourceURLs: [/healthz*, /version]
- level: RequestResponse
  userGroups: [admins]
";

    #[test]
    fn the_first_rule_that_matches_counts() {
        let policy = Policy::parse(TEXT).unwrap();
        let check = |user: &User, text: &str, level: Level| {
            let mut words = text.split(' ').map(|word| if word == "-" { "" } else { word }.to_owned());
            let mut next = || words.next().unwrap_or_default();
            let (verb, namespace, group, resource, subresource, name) =
                (next(), next(), next(), next(), next(), next());
            let path = resource.starts_with('/').then(|| resource.clone());
            let attributes = Attributes { verb, group, resource, subresource, namespace, name, path };
            assert_eq!(policy.decide(Some(user), &attributes).level, level, "{text}");
        };
        let (proxy, jane) = (User::new("system:kube-proxy", [""; 0]), User::new("jane", ["admins"]));
        check(&proxy, "watch - - services", Level::None);
        check(&proxy, "get - - services", Level::None);
        check(&jane, "get dev - secrets", Level::Metadata);
        check(&jane, "get dev - pods", Level::Metadata);
        check(&jane, "get dev - services", Level::RequestResponse);
        check(&jane, "get dev - pods log", Level::Metadata);
        check(&jane, "update dev - nodes status", Level::Metadata);
        check(&jane, "get dev apps deployments - web", Level::Metadata);
        check(&jane, "get dev apps deployments - api", Level::RequestResponse);
        check(&jane, "get prod apps deployments - api", Level::Request);
        check(&jane, "get - - /healthz/ping", Level::None);
        check(&jane, "get - - /metrics", Level::RequestResponse);
    }

    #[test]
    fn a_wrong_policy_is_refused_with_a_reason() {
        for (text, hint) in [
            ("kind: Policy\napiVersion: audit.k8s.io/v1\n", "no rules"),
            ("kind: Pod\napiVersion: v1\nrules: []\n", "a Pod of v1"),
            ("kind: Policy\napiVersion: audit.k8s.io/v1\nrules: [{level: All}]\n", "All"),
            ("kind: Policy\napiVersion: audit.k8s.io/v1\nrules: [{level: None, verb: [get]}]\n", "verb"),
            ("nonsense", ""),
        ] {
            let error = Policy::parse(text).unwrap_err().to_string();
            assert!(error.contains(hint) && !error.contains('\n'), "{error}");
        }
    }
}
