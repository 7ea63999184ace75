//! The suite `access`: who may do what on our server and on kube-apiserver, under the same roles and bindings.
//!
//! The objects and the matrix are those of the in-process test; callers are known by bearer tokens. A
//! kube-controller-manager fills the aggregated roles of kube-apiserver, which ours does by itself.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::http::Client;
use super::process::{self, poll};
use super::report::Report;
use super::servers::Server;
use crate::kubeconfig::Kubeconfig;

pub(crate) const SUITE: &str = "access";

/// The names of the checks, for `--list`.
pub(crate) const NAMES: [&str; 6] = [
    "the roles and bindings from the start",
    "the matrix of callers and requests",
    "nobody grants more than they have",
    "reviews",
    "tokens and impersonation",
    "kubectl auth",
];

const OBJECTS: &str = include_str!("../../../crates/setpoint-apiserver/tests/api/access/objects.json");
const MATRIX: &str = include_str!("../../../crates/setpoint-apiserver/tests/api/access/matrix.txt");
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// How long kube-controller-manager may take to fill the aggregated roles.
const AGGREGATION_LIMIT: Duration = Duration::from_secs(60);
const REVIEWS: &str = "/apis/authorization.k8s.io/v1";

/// The callers of the matrix, in its order: token, name, groups.
const CALLERS: [(&str, &str, &str); 9] = [
    ("token-admin", "admin", "system:masters"),
    ("token-root", "root", ""),
    ("token-boss", "boss", ""),
    ("token-editor", "editor", ""),
    ("token-viewer", "viewer", "viewers"),
    ("token-named", "named", ""),
    ("token-operator", "operator", "operators"),
    (
        "token-robot",
        "system:serviceaccount:team-a:robot",
        "system:serviceaccounts,system:serviceaccounts:team-a",
    ),
    ("token-stranger", "stranger", ""),
];

/// The callers as a file for `--token-file` and `--token-auth-file`.
pub(crate) fn token_file() -> String {
    let line = |(token, name, groups): &(&str, &str, &str)| match *groups {
        "" => format!("{token},{name},uid-{name}\n"),
        groups => format!("{token},{name},uid-{name},\"{groups}\"\n"),
    };
    CALLERS.iter().map(line).collect()
}

/// Both servers.
struct Pair {
    ours: Kubeconfig,
    theirs: Kubeconfig,
}

/// Compares our server with the reference; `kubectl` is used on ours if it is there.
pub(crate) fn run(report: &mut Report, ours: &Server, theirs: &Server, kubectl: Option<&Path>) {
    let both: Result<Pair> = (|| {
        Ok(Pair {
            ours: Kubeconfig::read(ours.kubeconfig())?,
            theirs: Kubeconfig::read(theirs.kubeconfig())?,
        })
    })();
    let pair = match both {
        Ok(pair) => pair,
        Err(error) => return report.record(SUITE, "both servers are ready", Duration::ZERO, Err(error)),
    };
    let [roles, matrix, escalation, reviews, tokens, auth] = NAMES;
    report.check(SUITE, roles, || same_roles(&pair));
    let prepared = pair.create_objects();
    report.record(SUITE, "the same objects are made", Duration::ZERO, prepared);
    report.check(SUITE, matrix, || same_matrix(&pair));
    report.check(SUITE, escalation, || same_escalation(&pair));
    report.check(SUITE, reviews, || same_reviews(&pair));
    report.check(SUITE, tokens, || same_tokens(&pair));
    match kubectl {
        Some(kubectl) => report.check(SUITE, auth, || kubectl_auth(kubectl, ours.kubeconfig())),
        None => report.skip(SUITE, "kubectl is not there"),
    }
}

impl Pair {
    fn admin(&self) -> Result<(Client, Client)> {
        Ok((Client::admin(&self.ours)?, Client::admin(&self.theirs)?))
    }

    fn caller(&self, name: &str) -> Result<(Client, Client)> {
        let (token, ..) =
            CALLERS.iter().find(|(token, ..)| token.ends_with(name)).context("a known caller")?;
        Ok((Client::with_token(&self.ours, token)?, Client::with_token(&self.theirs, token)?))
    }

    fn create_objects(&self) -> Result<()> {
        let (ours, theirs) = self.admin()?;
        for object in serde_json::from_str::<Vec<Value>>(OBJECTS)? {
            let path = collection(&object)?;
            for client in [&ours, &theirs] {
                let response = client.post(&path, &object)?;
                let status = response.status;
                ensure!(status == 201, "POST {path} answered {status}: {}", response.text()?);
            }
        }
        // The authorizer of kube-apiserver reads from caches, one for each kind and each in order: these two
        // callers are allowed by the last objects of all four.
        for (token, path) in
            [("token-robot", "/api/v1/namespaces/team-a/pods"), ("token-operator", "/metrics")]
        {
            let caller = Client::with_token(&self.theirs, token)?;
            let seen = || Ok((caller.get(path)?.status == 200).then_some(()));
            poll(Duration::from_secs(60), seen)?.context("kube-apiserver does not see the bindings")?;
        }
        Ok(())
    }
}

fn collection(object: &Value) -> Result<String> {
    let version = object["apiVersion"].as_str().context("apiVersion")?;
    let kind = object["kind"].as_str().context("kind")?;
    let prefix = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
    let namespace = object["metadata"]["namespace"].as_str();
    let namespace = namespace.map(|name| format!("/namespaces/{name}")).unwrap_or_default();
    Ok(format!("{prefix}{namespace}/{}s", kind.to_lowercase()))
}

/// Waits until the roles are the same: the other server fills its aggregated roles in several steps.
fn same_roles(pair: &Pair) -> Result<()> {
    let clients = pair.admin()?;
    let mut wrong = Vec::new();
    poll(AGGREGATION_LIMIT, || {
        wrong = differing_roles(&clients)?;
        Ok(wrong.is_empty().then_some(()))
    })?;
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn differing_roles((ours, theirs): &(Client, Client)) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for plural in ["clusterroles", "clusterrolebindings", "roles", "rolebindings"] {
        let facts = |client: &Client| -> Result<BTreeMap<String, String>> {
            let list = client.get_json(&format!("{RBAC}/{plural}"), "application/json")?;
            let items = list["items"].as_array().context("no items")?.iter();
            Ok(items.map(role_facts).collect())
        };
        let (ours, theirs) = (facts(ours)?, facts(theirs)?);
        let names: std::collections::BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
        for name in names {
            if ours.get(name) != theirs.get(name) {
                let (a, b) = (ours.get(name), theirs.get(name));
                wrong.push(format!("{plural} {name}:\n  ours   {a:?}\n  theirs {b:?}"));
            }
        }
    }
    Ok(wrong)
}

fn role_facts(object: &Value) -> (String, String) {
    let metadata = &object["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    let facts = json!([
        metadata["labels"],
        metadata["annotations"],
        object["rules"],
        object["aggregationRule"],
        object["roleRef"],
        object["subjects"]
    ]);
    (format!("{}/{}", text("namespace"), text("name")), facts.to_string())
}

/// What a refusal says; none if the request was allowed.
fn refusal(client: &Client, method: &str, path: &str, body: Option<&Value>) -> Result<Option<(u16, String)>> {
    let response = client.exchange(method, path, "application/json", body)?;
    let status = response.status;
    if !matches!(status, 401 | 403) {
        return Ok(None);
    }
    let body: Value = serde_json::from_str(&response.text()?)?;
    Ok(Some((status, body["message"].as_str().unwrap_or_default().to_owned())))
}

fn same_matrix(pair: &Pair) -> Result<()> {
    let mut wrong = Vec::new();
    let clients: Vec<_> = CALLERS
        .iter()
        .map(|(token, ..)| {
            Ok((Client::with_token(&pair.ours, token)?, Client::with_token(&pair.theirs, token)?))
        })
        .collect::<Result<_>>()?;
    let anonymous = (Client::anonymous(&pair.ours)?, Client::anonymous(&pair.theirs)?);
    for line in MATRIX.lines().filter(|line| !line.starts_with('#')) {
        let [expect, method, path] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            bail!("a row has three parts: {line}");
        };
        let columns = clients.iter().zip(CALLERS).zip(expect.chars());
        for (((ours, theirs), (_, name, _)), expect) in columns {
            let (ours, theirs) = (refusal(ours, method, path, None)?, refusal(theirs, method, path, None)?);
            if ours != theirs || ours.is_some() != (expect == '-') {
                wrong.push(format!(
                    "{name} {method} {path}: ours {ours:?}, theirs {theirs:?}, table {expect}"
                ));
            }
        }
        let (ours, theirs) =
            (refusal(&anonymous.0, method, path, None)?, refusal(&anonymous.1, method, path, None)?);
        if ours != theirs {
            wrong.push(format!("nobody {method} {path}: ours {ours:?}, theirs {theirs:?}"));
        }
    }
    ensure!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

/// Code and message of an answer.
fn answer(client: &Client, method: &str, path: &str, body: &Value) -> Result<(u16, Value)> {
    let response = client.exchange(method, path, "application/json", Some(body))?;
    let status = response.status;
    Ok((status, serde_json::from_str(&response.text()?)?))
}

fn same_escalation(pair: &Pair) -> Result<()> {
    let roles = format!("{RBAC}/namespaces/team-a/roles");
    let bindings = format!("{RBAC}/namespaces/team-a/rolebindings");
    let cluster_roles = format!("{RBAC}/clusterroles");
    let role = |name: &str, rules: Value| json!({"metadata": {"name": name}, "rules": rules});
    let bind = |kind: &str, role: &str| {
        json!({
            "metadata": {"name": format!("to-{role}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "stranger"}]
        })
    };
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let some = json!([
        {"apiGroups": ["", "apps"], "resources": ["pods", "secrets", "pods/log"], "verbs": ["get", "list", "delete"]},
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a", "b"], "verbs": ["get", "update"]}
    ]);
    let held = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]);
    let cases = [
        ("robot", &roles, role("more", all.clone())),
        ("robot", &roles, role("some", some.clone())),
        ("robot", &roles, role("held", held)),
        ("robot", &bindings, bind("ClusterRole", "cluster-admin")),
        ("robot", &bindings, bind("ClusterRole", "view")),
        ("robot", &bindings, bind("Role", "none")),
        ("robot", &bindings, bind("Role", "robot")),
        ("boss", &bindings, bind("ClusterRole", "edit")),
        ("boss", &bindings, bind("ClusterRole", "system:node")),
        ("boss", &cluster_roles, role("more", all)),
        ("root", &cluster_roles, role("more", some)),
    ];
    let mut wrong = Vec::new();
    for (caller, path, body) in cases {
        let (ours, theirs) = pair.caller(caller)?;
        let (ours, theirs) = (answer(&ours, "POST", path, &body)?, answer(&theirs, "POST", path, &body)?);
        if (ours.0, &ours.1["message"]) != (theirs.0, &theirs.1["message"]) {
            wrong.push(format!(
                "{caller} {path}:\n  ours   {} {}\n  theirs {} {}",
                ours.0, ours.1["message"], theirs.0, theirs.1["message"]
            ));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn same_reviews(pair: &Pair) -> Result<()> {
    let resource = |verb: &str, resource: &str, namespace: &str| json!({"resourceAttributes": {"verb": verb, "resource": resource, "namespace": namespace}});
    let of = |user: &str, groups: &[&str], mut spec: Value| {
        spec["user"] = user.into();
        spec["groups"] = json!(groups);
        json!({"spec": spec})
    };
    let sar = format!("{REVIEWS}/subjectaccessreviews");
    let own = format!("{REVIEWS}/selfsubjectaccessreviews");
    let local = format!("{REVIEWS}/namespaces/team-a/localsubjectaccessreviews");
    let rules = format!("{REVIEWS}/selfsubjectrulesreviews");
    let path = json!({"nonResourceAttributes": {"verb": "get", "path": "/metrics"}});
    let cases = [
        ("admin", &sar, of("viewer", &["viewers"], resource("list", "pods", "team-a"))),
        ("admin", &sar, of("viewer", &["viewers"], resource("list", "secrets", "team-a"))),
        ("admin", &sar, of("x", &["system:masters"], resource("delete", "nodes", ""))),
        ("admin", &sar, of("root", &[], resource("delete", "nodes", ""))),
        ("admin", &sar, of("x", &["operators"], path.clone())),
        ("admin", &sar, of("named", &[], resource("list", "pods", "team-b"))),
        ("admin", &sar, of("", &[], resource("list", "pods", "team-b"))),
        ("admin", &sar, json!({"spec": {"user": "x"}})),
        ("admin", &local, {
            let mut body = of("viewer", &["viewers"], resource("list", "pods", "team-a"));
            body["metadata"] = json!({"namespace": "team-a"});
            body
        }),
        ("boss", &sar, of("viewer", &["viewers"], resource("list", "pods", "team-a"))),
        ("stranger", &own, json!({"spec": resource("delete", "nodes", "")})),
        ("stranger", &own, json!({"spec": {}})),
        ("operator", &own, json!({"spec": path})),
        ("stranger", &rules, json!({"spec": {}})),
        ("named", &rules, json!({"spec": {"namespace": "team-b"}})),
        ("operator", &rules, json!({"spec": {"namespace": "default"}})),
    ];
    let mut wrong = Vec::new();
    for (caller, path, body) in cases {
        let (ours, theirs) = pair.caller(caller)?;
        let told = |(status, body): (u16, Value)| {
            let mut said = if status == 201 { body["status"].clone() } else { body["message"].clone() };
            for list in ["resourceRules", "nonResourceRules"] {
                if let Some(list) = said.get_mut(list).and_then(Value::as_array_mut) {
                    list.sort_by_key(Value::to_string);
                }
            }
            (status, said)
        };
        let ours = told(answer(&ours, "POST", path, &body)?);
        let theirs = told(answer(&theirs, "POST", path, &body)?);
        if ours != theirs {
            wrong.push(format!("{caller} {path} {body}:\n  ours   {ours:?}\n  theirs {theirs:?}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn same_tokens(pair: &Pair) -> Result<()> {
    let mut wrong = Vec::new();
    let token = "/api/v1/namespaces/team-a/serviceaccounts/robot/token";
    let review = "/apis/authentication.k8s.io/v1/tokenreviews";
    let who = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let cases = [
        (token, json!({"spec": {"expirationSeconds": 5}})),
        (token, json!({"spec": {"expirationSeconds": 5_000_000_000_i64}})),
        (token, json!({"metadata": {"name": "other"}, "spec": {}})),
        (token, json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "none"}}})),
        (token, json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}}})),
        ("/api/v1/namespaces/team-a/serviceaccounts/none/token", json!({"spec": {}})),
        (review, json!({"spec": {}})),
        (review, json!({"spec": {"token": "nonsense"}})),
        (review, json!({"spec": {"token": "a.b.c"}})),
        (review, json!({"spec": {"token": "token-boss"}})),
        (review, json!({"spec": {"token": "token-boss", "audiences": ["other"]}})),
        (who, json!({})),
    ];
    let (ours, theirs) = pair.admin()?;
    for (path, body) in cases {
        let told = |client: &Client| -> Result<(u16, Value)> {
            let (status, body) = answer(client, "POST", path, &body)?;
            let mut said = if status == 201 { body["status"].clone() } else { body["message"].clone() };
            // The issuers have different names, and so have the administrators.
            if let Some(status) = said.as_object_mut() {
                status.remove("audiences");
                if path == who {
                    status.remove("userInfo");
                }
            }
            Ok((status, said))
        };
        let (ours, theirs) = (told(&ours)?, told(&theirs)?);
        if ours != theirs {
            wrong.push(format!("{path} {body}:\n  ours   {ours:?}\n  theirs {theirs:?}"));
        }
    }
    for (caller, headers) in [
        ("admin", "Impersonate-Group: a"),
        (
            "admin",
            "Impersonate-User: jane\r\nImpersonate-Group: a\r\nImpersonate-Extra-x%2Fy: z\r\nImpersonate-Uid: 7",
        ),
        ("admin", "Impersonate-User: system:serviceaccount:a:b"),
        ("admin", "Impersonate-User: system:anonymous"),
        ("stranger", "Impersonate-User: root"),
        ("stranger", "Impersonate-User: system:serviceaccount:a:b"),
        ("editor", "Impersonate-User: system:serviceaccount:team-a:b"),
        ("editor", "Impersonate-User: system:serviceaccount:team-a:b\r\nImpersonate-Group: system:masters"),
    ] {
        let (ours, theirs) = pair.caller(caller)?;
        let told = |client: Client| -> Result<(u16, Value)> {
            let (status, body) = answer(&client.with_headers(headers), "POST", who, &json!({}))?;
            Ok((status, if status == 201 { body["status"].clone() } else { body["message"].clone() }))
        };
        let (ours, theirs) = (told(ours)?, told(theirs)?);
        if ours != theirs {
            wrong.push(format!("{caller} {headers}:\n  ours   {ours:?}\n  theirs {theirs:?}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn kubectl_auth(kubectl: &Path, kubeconfig: &Path) -> Result<()> {
    let run = |arguments: &[&str], input: Option<&[u8]>, code: i32, expect: &str| -> Result<String> {
        let mut command = Command::new(kubectl);
        command.arg("--kubeconfig").arg(kubeconfig).args(arguments);
        let done = process::run(command, input, Duration::from_secs(30))?;
        let text = format!("{}{}", done.stdout, done.stderr);
        ensure!(
            done.status.code() == Some(code) && text.contains(expect),
            "kubectl {arguments:?} ended with {} and said:\n{text}",
            done.status
        );
        Ok(done.stdout)
    };
    let viewer = ["--as", "viewer", "--as-group", "viewers", "-n", "team-a"];
    run(&["auth", "whoami"], None, 0, "kubernetes-admin")?;
    run(&[&["auth", "can-i", "list", "pods"], &viewer[..]].concat(), None, 0, "yes")?;
    run(&[&["auth", "can-i", "list", "secrets"], &viewer[..]].concat(), None, 1, "no")?;
    let list = run(&[&["auth", "can-i", "--list"], &viewer[..]].concat(), None, 0, "pods/log")?;
    ensure!(list.contains("selfsubjectaccessreviews") && !list.contains("secrets"), "{list}");
    run(&["get", "pods", "-n", "team-b", "--as", "stranger"], None, 1, "cannot list resource \"pods\"")?;
    let token = run(&["create", "token", "robot", "-n", "team-a", "--duration", "1h"], None, 0, ".")?;
    ensure!(token.trim().split('.').count() == 3, "not a token: {token}");
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reconciled"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    });
    let text = role.to_string();
    run(&["auth", "reconcile", "-f", "-"], Some(text.as_bytes()), 0, "reconciled")?;
    let stored =
        run(&["get", "clusterrole", "reconciled", "-o", "jsonpath={.rules[0].verbs[0]}"], None, 0, "get")?;
    ensure!(stored == "get", "{stored}");
    Ok(())
}
