//! Who may do what. The objects and the matrix are also put to a real kube-apiserver, in the suite `access` of
//! `cargo xtask real`.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};
use setpoint_apiserver::{ApiServer, User};
use setpoint_env::Env;
use tower::ServiceExt;

use crate::support::{Answer, Api, map};

const OBJECTS: &str = include_str!("access/objects.json");
const MATRIX: &str = include_str!("access/matrix.txt");
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// The callers of the matrix.
fn users() -> [User; 9] {
    [
        User::new("admin", ["system:masters"]),
        User::new("root", [""; 0]),
        User::new("boss", [""; 0]),
        User::new("editor", [""; 0]),
        User::new("viewer", ["viewers"]),
        User::new("named", [""; 0]),
        User::new("operator", ["operators"]),
        User::new(
            User::service_account_name("team-a", "robot"),
            ["system:serviceaccounts", "system:serviceaccounts:team-a"],
        ),
        User::new("stranger", [""; 0]),
    ]
}

/// The path of the collection that an object is created in.
fn collection(object: &Value) -> String {
    let (version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
    let prefix = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
    let namespace = object["metadata"]["namespace"].as_str();
    let namespace = namespace.map(|name| format!("/namespaces/{name}")).unwrap_or_default();
    format!("{prefix}{namespace}/{}s", kind.to_lowercase())
}

struct World {
    server: ApiServer,
    admin: Api,
}

impl World {
    async fn new() -> World {
        let server = ApiServer::builder().env(Env::seeded(1)).build();
        let admin = Api::with(server.clone());
        for object in serde_json::from_str::<Vec<Value>>(OBJECTS).unwrap() {
            admin.post(&collection(&object), &object).await.ok();
        }
        World { server, admin }
    }

    fn user(&self, name: &str) -> Api {
        let user = users().into_iter().find(|user| user.name == name || user.name.ends_with(name)).unwrap();
        Api::as_user(self.server.clone(), user)
    }
}

#[tokio::test(start_paused = true)]
async fn the_matrix_of_callers_and_requests_holds() {
    let world = World::new().await;
    let apis = users().map(|user| Api::as_user(world.server.clone(), user));
    let mut wrong = Vec::new();
    let mut rows = 0;
    for line in MATRIX.lines().filter(|line| !line.starts_with('#')) {
        let [expect, method, path] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("a row has three parts: {line}")
        };
        let mut found = String::new();
        for api in &apis {
            let Answer { code, .. } = api.call(method, path, "application/json", "").await;
            found.push(if code == 403 { '-' } else { '+' });
        }
        rows += 1;
        if found != expect {
            wrong.push(format!("{found} instead of {expect}: {method} {path}"));
        }
        let request = Request::builder().method(method).uri(path).body(Full::<Bytes>::default()).unwrap();
        let anonymous = world.server.clone().oneshot(request).await.unwrap();
        assert_eq!(anonymous.status(), 401, "{method} {path}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(rows > 50);
}

#[tokio::test]
async fn a_binding_works_in_the_very_next_request() {
    let world = World::new().await;
    let stranger = world.user("stranger");
    let path = "/api/v1/namespaces/team-b/pods";
    stranger.get(path).await.refused(
        403,
        "pods is forbidden: User \"stranger\" cannot list resource \"pods\" in API group \"\" in the namespace \
         \"team-b\"",
    );
    let binding = json!({
        "metadata": {"name": "more"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "stranger"}]
    });
    let bindings = format!("{RBAC}/namespaces/team-b/rolebindings");
    world.admin.post(&bindings, &binding).await.ok();
    stranger.get(path).await.ok();
    world.admin.delete(&format!("{bindings}/more"), &Value::Null).await.ok();
    assert_eq!(stranger.get(path).await.code, 403);
}

#[tokio::test]
async fn a_role_that_is_missing_is_named_in_the_refusal() {
    let world = World::new().await;
    world.user("named").get("/api/v1/namespaces/team-b/configmaps/a").await.refused(
        403,
        "configmaps \"a\" is forbidden: User \"named\" cannot get resource \"configmaps\" in API group \"\" in \
         the namespace \"team-b\": rbac: RBAC: role.rbac.authorization.k8s.io \"missing\" not found",
    );
}

#[tokio::test]
async fn nobody_grants_more_than_they_have() {
    let world = World::new().await;
    let robot = world.user("robot");
    let roles = format!("{RBAC}/namespaces/team-a/roles");
    let bindings = format!("{RBAC}/namespaces/team-a/rolebindings");
    let role = |name: &str, verbs: Value| {
        let rule = json!({"apiGroups": [""], "resources": ["pods", "secrets"], "verbs": verbs});
        json!({"metadata": {"name": name}, "rules": [rule]})
    };
    robot.post(&roles, &role("more", json!(["get", "list"]))).await.refused(
        403,
        "roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"system:serviceaccount:team-a:robot\" \
         (groups=[\"system:serviceaccounts\" \"system:serviceaccounts:team-a\" \"system:authenticated\"]) is \
         attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}",
    );
    let mut less = role("less", json!(["get"]));
    less["rules"][0]["resources"] = json!(["pods"]);
    robot.post(&roles, &less).await.ok();
    let change = json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    let refused = robot.merge(&format!("{roles}/less"), &change).await;
    assert!(refused.code == 403 && refused.message().contains("not currently held"), "{}", refused.body);

    let bind = |kind: &str, role: &str| {
        json!({
            "metadata": {"name": format!("to-{role}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"kind": "User", "name": "stranger"}]
        })
    };
    assert_eq!(robot.post(&bindings, &bind("ClusterRole", "cluster-admin")).await.code, 403);
    assert_eq!(robot.post(&bindings, &bind("Role", "none")).await.code, 404);
    robot.post(&bindings, &bind("Role", "less")).await.ok();
    assert_eq!(world.user("stranger").get("/api/v1/namespaces/team-a/pods/none").await.code, 404);

    // A right to bind, or to escalate, is a right to grant.
    let powers = json!({
        "metadata": {"name": "powers"},
        "rules": [
            {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["bind"],
             "resourceNames": ["view"]},
            {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["escalate"]}
        ]
    });
    world.admin.post(&roles, &powers).await.ok();
    let mut to_robot = bind("Role", "powers");
    to_robot["subjects"] = json!([{"kind": "ServiceAccount", "name": "robot"}]);
    world.admin.post(&bindings, &to_robot).await.ok();
    robot.post(&bindings, &bind("ClusterRole", "view")).await.ok();
    assert_eq!(robot.post(&bindings, &bind("ClusterRole", "edit")).await.code, 403);
    robot.post(&roles, &role("more", json!(["*"]))).await.ok();
}

#[tokio::test]
async fn whoever_may_change_objects_may_not_therefore_make_new_ones() {
    let world = World::new().await;
    // `named` may update the map, and create it in theory; but no create has a name in its path.
    let settings = "/api/v1/namespaces/team-a/configmaps/settings";
    assert_eq!(world.user("named").put(settings, &map("settings", "x")).await.code, 404);
    let lease = "/apis/coordination.k8s.io/v1/namespaces/team-a/leases/a";
    let role = json!({
        "metadata": {"name": "leases"},
        "rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["update"]}]
    });
    world.admin.post(&format!("{RBAC}/namespaces/team-a/roles"), &role).await.ok();
    let binding = json!({
        "metadata": {"name": "leases"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "leases"},
        "subjects": [{"kind": "User", "name": "stranger"}]
    });
    world.admin.post(&format!("{RBAC}/namespaces/team-a/rolebindings"), &binding).await.ok();
    let object = json!({"metadata": {"name": "a"}, "spec": {}});
    world.user("stranger").put(lease, &object).await.refused(
        403,
        "leases.coordination.k8s.io \"a\" is forbidden: User \"stranger\" cannot create resource \"leases\" in API \
         group \"coordination.k8s.io\" in the namespace \"team-a\"",
    );
}

#[tokio::test]
async fn an_aggregated_role_gathers_its_rules_at_once() {
    let world = World::new().await;
    let editor = world.user("editor");
    let widgets = "/apis/example.com/v1/namespaces/team-a/widgets";
    assert_eq!(editor.get(widgets).await.code, 403);
    let role = json!({
        "metadata": {"name": "widgets", "labels": {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}},
        "rules": [{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["*"]}]
    });
    let roles = format!("{RBAC}/clusterroles");
    world.admin.post(&roles, &role).await.ok();
    assert_eq!(editor.get(widgets).await.code, 404, "allowed, though there are no widgets");
    assert_eq!(world.user("boss").get(widgets).await.code, 404, "what edit has, admin has");
    let admin = world.admin.get(&format!("{roles}/admin")).await.ok();
    assert!(admin["rules"].to_string().contains("widgets"));
    world.admin.delete(&format!("{roles}/widgets"), &Value::Null).await.ok();
    assert_eq!(editor.get(widgets).await.code, 403);
}

#[tokio::test]
async fn reviews_answer_as_requests_would_be() {
    let world = World::new().await;
    let ask = |about: Value| json!({"spec": {"user": "viewer", "groups": ["viewers"], "resourceAttributes": about}});
    let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let pods = json!({"verb": "list", "resource": "pods", "namespace": "team-a"});
    let answer = world.admin.post(reviews, &ask(pods)).await.ok();
    assert_eq!(
        answer["status"],
        json!({
            "allowed": true,
            "reason": "RBAC: allowed by RoleBinding \"viewers/team-a\" of ClusterRole \"view\" to Group \"viewers\""
        })
    );
    let secrets = json!({"verb": "list", "resource": "secrets", "namespace": "team-a"});
    assert_eq!(world.admin.post(reviews, &ask(secrets)).await.ok()["status"], json!({"allowed": false}));
    let own = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let both = json!({"spec": {}});
    world.user("viewer").post(own, &both).await.refused(
        422,
        ".authorization.k8s.io \"\" is invalid: spec: Invalid value: null: exactly one of \
         nonResourceAttributes or resourceAttributes must be specified",
    );
    let path = json!({"spec": {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}});
    let operator = world.user("operator").post(own, &path).await.ok();
    assert_eq!(operator["status"]["allowed"], true);
    let rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let named = world.user("named").post(rules, &json!({"spec": {"namespace": "team-a"}})).await.ok();
    let one_map = json!({
        "verbs": ["get", "update", "list", "watch", "create"], "apiGroups": [""], "resources": ["configmaps"],
        "resourceNames": ["settings"]
    });
    assert!(named["status"]["resourceRules"].as_array().unwrap().contains(&one_map), "{named}");
}
