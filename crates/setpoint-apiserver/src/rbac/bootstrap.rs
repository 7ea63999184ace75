//! The roles and bindings that a server starts with.

use futures::future::try_join_all;
use serde_json::{Value, json};

use super::rule::{Missing, Rule, missing};
use crate::handlers::get::read;
use crate::object;
use crate::resource::Registry;
use crate::server::Core;
use crate::status::Result;
use crate::storage::{Action, Change, Expect};
use crate::strategy;

const TABLE: &str = include_str!("bootstrap.txt");
const AGGREGATE: &str = "rbac.authorization.k8s.io/aggregate-to-";
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// Creates what is missing, and gives back what somebody has taken from the roles and bindings of the system,
/// as kube-apiserver does when it starts. Whoever wants to keep an object as it is sets its annotation
/// `rbac.authorization.kubernetes.io/autoupdate` to `false`.
pub(super) async fn run(core: &Core) -> Result<()> {
    // At once, so that a store on a disk makes them durable together.
    try_join_all(objects(TABLE).into_iter().map(|object| reconcile(core, object))).await?;
    super::gather(core).await
}

async fn reconcile(core: &Core, mut wanted: Value) -> Result<()> {
    let plural = format!("{}s", wanted["kind"].as_str().unwrap_or_default().to_lowercase());
    let resource = Registry::built_in().expect(super::GROUP, "v1", &plural);
    let namespace = object::text(&wanted, &["metadata", "namespace"]).map(str::to_owned);
    let key = resource.key(namespace.as_deref(), object::name(&wanted));
    let (expect, object) = match read(core, &key).await? {
        None => {
            wanted["metadata"]["uid"] = core.env.uuid().into();
            wanted["metadata"]["creationTimestamp"] = strategy::timestamp(core.env.now());
            (Expect::Absent, wanted)
        }
        Some(record) => {
            let found = object::decode(&record.value, record.revision);
            let Some(object) = repaired(found, &wanted) else { return Ok(()) };
            (Expect::Revision(record.revision), object)
        }
    };
    let action = Action::Put { value: object::encode(&object), ttl: None };
    match core.storage.commit(Change { key, expect, action }).await {
        Ok(_) => Ok(()),
        // Somebody was faster, and has the last word.
        Err(error) => Ok(error.into_current().map(drop)?),
    }
}

/// The object with everything that it should have, if it lacks something.
fn repaired(mut found: Value, wanted: &Value) -> Option<Value> {
    if found["metadata"]["annotations"][AUTOUPDATE] == "false" {
        return None;
    }
    let list = if wanted.get("roleRef").is_some() { "subjects" } else { "rules" };
    let is_aggregated = wanted.get("aggregationRule").is_some();
    if is_aggregated || found.get("roleRef") != wanted.get("roleRef") {
        return None;
    }
    let old = found[list].as_array().cloned().unwrap_or_default();
    let rules: Vec<Rule> = serde_json::from_value(found[list].clone()).unwrap_or_default();
    let lacks = |item: &&Value| match list {
        "subjects" => !old.contains(item),
        _ => {
            let rule: Rule = serde_json::from_value((*item).clone()).unwrap_or_default();
            missing(&rules, &[rule]) != Missing::Nothing
        }
    };
    let lacking: Vec<Value> = wanted[list].as_array()?.iter().filter(lacks).cloned().collect();
    if lacking.is_empty() {
        return None;
    }
    found[list] = old.into_iter().chain(lacking).collect();
    Some(found)
}

/// The objects of the table.
fn objects(table: &str) -> Vec<Value> {
    let mut objects: Vec<Value> = Vec::new();
    let mut bindings = Vec::new();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [verbs, rest @ ..] if line.starts_with(' ') => {
                let role = objects.last_mut().expect("rules follow their role");
                role["rules"].as_array_mut().expect("roles have rules").push(rule(verbs, rest));
            }
            ["Controller", name] => {
                let role = format!("system:controller:{name}");
                bindings.push(binding(
                    "ClusterRoleBinding",
                    &role,
                    &format!("ClusterRole:{role}"),
                    &[&format!("ServiceAccount:kube-system/{name}")],
                ));
                objects.push(self::role("ClusterRole", &role, &[]));
            }
            [kind @ ("ClusterRole" | "Role"), name, marks @ ..] => objects.push(role(kind, name, marks)),
            [kind @ ("ClusterRoleBinding" | "RoleBinding"), name, role, subjects @ ..] => {
                bindings.push(binding(kind, name, role, subjects));
            }
            _ => unreachable!("the table has no other lines"),
        }
    }
    objects.extend(bindings);
    objects
}

fn skeleton(kind: &str, name: &str) -> Value {
    let (namespace, name) = match name.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, name),
    };
    let mut object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {AUTOUPDATE: "true"}
        }
    });
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = namespace.into();
    }
    object
}

fn role(kind: &str, name: &str, marks: &[&str]) -> Value {
    let mut role = skeleton(kind, name);
    role["rules"] = json!([]);
    for mark in marks {
        let label = format!("{AGGREGATE}{}", &mark[1..]);
        if mark.starts_with('+') {
            role["metadata"]["labels"][label] = "true".into();
        } else {
            role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
        }
    }
    role
}

fn rule(verbs: &str, rest: &[&str]) -> Value {
    let list = |text: &str| -> Vec<String> {
        text.split(',').map(|item| if item == "core" { "" } else { item }.to_owned()).collect()
    };
    let mut rule = Rule { verbs: list(verbs), ..Rule::default() };
    match rest {
        [paths] => rule.non_resource_urls = list(paths),
        [groups, resources, names @ ..] => {
            rule.api_groups = list(groups);
            rule.resources = list(resources);
            rule.resource_names = names.first().map(|names| list(names)).unwrap_or_default();
        }
        [] => unreachable!("a rule is about something"),
    }
    serde_json::to_value(rule).expect("rules are made of texts")
}

fn binding(kind: &str, name: &str, role: &str, subjects: &[&str]) -> Value {
    let mut binding = skeleton(kind, name);
    let (role_kind, role) = role.split_once(':').expect("a role has a kind");
    binding["roleRef"] = json!({"apiGroup": super::GROUP, "kind": role_kind, "name": role});
    if !subjects.is_empty() {
        binding["subjects"] = subjects.iter().map(|subject| self::subject(subject)).collect();
    }
    binding
}

fn subject(text: &str) -> Value {
    let (kind, name) = text.split_once(':').expect("a subject has a kind");
    match name.split_once('/').filter(|_| kind == "ServiceAccount") {
        Some((namespace, name)) => json!({"kind": kind, "namespace": namespace, "name": name}),
        None => json!({"apiGroup": super::GROUP, "kind": kind, "name": name}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_binding_of_the_table_names_a_role_of_it() {
        let objects = objects(TABLE);
        for binding in objects.iter().filter(|object| object.get("roleRef").is_some()) {
            let role = &binding["roleRef"];
            let found = objects.iter().any(|object| {
                object["kind"] == role["kind"]
                    && object["metadata"]["name"] == role["name"]
                    && (role["kind"] == "ClusterRole"
                        || object["metadata"]["namespace"] == binding["metadata"]["namespace"])
            });
            assert!(found, "{binding}");
        }
    }

    #[test]
    fn what_was_taken_from_a_role_is_given_back_unless_its_owner_says_no() {
        let wanted = &objects("ClusterRole a\n  get,list core pods\n  get /healthz\n")[0];
        let mut found = wanted.clone();
        assert_eq!(repaired(found.clone(), wanted), None);
        found["rules"] = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
        let repaired_rules = &repaired(found.clone(), wanted).unwrap()["rules"];
        assert_eq!(repaired_rules[1], json!({"verbs": ["get"], "nonResourceURLs": ["/healthz"]}));
        found["metadata"]["annotations"][AUTOUPDATE] = "false".into();
        assert_eq!(repaired(found, wanted), None);
    }
}
