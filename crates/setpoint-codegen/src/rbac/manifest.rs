//! Roles that are already written.

use serde::Deserialize;
use serde_json::Value;

use super::{Rules, Target};
use crate::error::{Error, FieldPath};
use crate::yaml;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PolicyRule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    verbs: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    urls: Vec<String>,
}

pub(super) fn read(text: &str) -> Result<Rules, Error> {
    let mut all = Rules::default();
    for (index, document) in yaml::documents(text)?.iter().enumerate() {
        let kind = document.get("kind").and_then(Value::as_str).unwrap_or_default();
        if !matches!(kind, "Role" | "ClusterRole") {
            continue;
        }
        let path = FieldPath::root(format!("document {}", index + 1)).field("rules");
        let rules = document.get("rules").cloned().unwrap_or_else(|| Value::Array(Vec::new()));
        let rules: Vec<PolicyRule> =
            serde_json::from_value(rules).map_err(|error| Error::new(&path, error))?;
        rules.iter().for_each(|rule| add(&mut all, rule));
    }
    Ok(all)
}

fn add(all: &mut Rules, rule: &PolicyRule) {
    for verb in &rule.verbs {
        for group in &rule.api_groups {
            rule.resources.iter().for_each(|resource| all.add(group, resource, verb));
        }
        for url in &rule.urls {
            all.verbs.entry(Target::Url(url.clone())).or_default().insert(verb.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use setpoint::permissions::{Permissions, Verb};

    use crate::rbac::{Rules, manifests};

    fn declared() -> Permissions {
        let mut needs = Permissions::default();
        needs.add("example.com", "foos", &[Verb::List, Verb::Watch]);
        needs.add("example.com", "foos/status", &[Verb::Patch]);
        needs.add("", "configmaps", &[Verb::List, Verb::Watch]);
        needs.lease = Some(("system".to_owned(), "foo".to_owned()));
        needs.certificates.insert(("system".to_owned(), "foo-tls".to_owned()));
        needs
    }

    #[test]
    fn what_is_written_allows_what_is_declared_and_no_more() -> Result<(), crate::Error> {
        let text = manifests("foo", "system", &declared())?;
        let read = Rules::from_manifests("rbac.yaml", &text)?;
        assert_eq!(read, Rules::from(&declared()));
        Ok(())
    }

    #[test]
    fn the_difference_to_an_audit_log_is_named_both_ways() -> Result<(), crate::Error> {
        let log = concat!(
            r#"{"kind":"Event","verb":"list","user":{"username":"foo"},"objectRef":{"apiGroup":"example.com","resource":"foos"}}"#,
            "\n",
            r#"{"kind":"Event","verb":"delete","user":{"username":"foo"},"objectRef":{"resource":"secrets","namespace":"a"}}"#,
            "\n",
            r#"{"kind":"Event","verb":"get","user":{"username":"foo"},"requestURI":"/version?x=1"}"#,
            "\n",
            r#"{"kind":"Event","verb":"get","user":{"username":"other"},"objectRef":{"resource":"pods"}}"#,
            "\n",
        );
        let used = Rules::from_audit("audit.log", log, Some("foo"))?;
        let declared = Rules::from(&declared());
        assert_eq!(used.beyond(&declared), ["delete secrets"]);
        let unused = declared.beyond(&used);
        assert!(unused.contains(&"patch foos.example.com/status".to_owned()), "{unused:?}");
        assert!(!unused.contains(&"list foos.example.com".to_owned()));
        let error = Rules::from_audit("audit.log", "{}", None).map_err(|error| error.to_string());
        assert_eq!(error, Err("audit.log: line 1: not an Event of audit.k8s.io/v1".to_owned()));
        Ok(())
    }
}
