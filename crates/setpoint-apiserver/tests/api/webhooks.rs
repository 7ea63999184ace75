//! What mutating and validating webhooks may do, and what they are asked about.

use std::convert::Infallible;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_apiserver::pki::CertificateAuthority;
use setpoint_apiserver::serve;
use setpoint_env::{Env, Task};
use tokio::net::TcpListener;

use crate::support::{Api, MAPS, PODS, map, pod};

pub(crate) const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
pub(crate) const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

/// A webhook that remembers its questions, and answers all of them with one patch.
pub(crate) struct Webhook {
    url: String,
    ca_bundle: String,
    asked: Arc<Mutex<Vec<Value>>>,
    _serving: Task<()>,
}

impl Webhook {
    pub(crate) async fn start(patch: Value) -> Webhook {
        Webhook::answering(move |response| {
            if !patch.is_null() {
                response["patchType"] = "JSONPatch".into();
                response["patch"] = STANDARD.encode(patch.to_string()).into();
            }
        })
        .await
    }

    /// One that puts what it likes into its answers.
    async fn answering(answer: impl Fn(&mut Value) + Send + Sync + 'static) -> Webhook {
        let answer = Arc::new(answer);
        let env = Env::system();
        let ca = CertificateAuthority::generate(&env).unwrap();
        let tls = ca.server_config(&ca.issue_server(["127.0.0.1"]).unwrap()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let service = {
            let asked = Arc::clone(&asked);
            tower::service_fn(move |request: Request<hyper::body::Incoming>| {
                let (asked, answer) = (Arc::clone(&asked), Arc::clone(&answer));
                async move {
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    let review: Value = serde_json::from_slice(&body).unwrap();
                    let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
                    answer(&mut response);
                    asked.lock().push(review["request"].clone());
                    let answer = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
                        "response": response});
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(answer.to_string()))))
                }
            })
        };
        let options = serve::Options { env: env.clone(), ..serve::Options::default() };
        let serving = env.spawn(serve::serve(service, listener, tls, options));
        Webhook { url, ca_bundle: STANDARD.encode(ca.certificate_pem()), asked, _serving: serving }
    }

    pub(crate) async fn register(&self, api: &Api, at: &str, resource: &str) {
        let webhook = json!({
            "name": "hook.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": self.url, "caBundle": self.ca_bundle},
            "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": [resource], "operations": ["*"]}]
        });
        api.post(at, &json!({"metadata": {"name": "hook"}, "webhooks": [webhook]})).await.ok();
    }

    pub(crate) fn asked(&self) -> Vec<Value> {
        std::mem::take(&mut self.asked.lock())
    }
}

const MISMATCH: &str =
    "the namespace of the provided object does not match the namespace sent on the request";

#[tokio::test]
async fn a_webhook_cannot_move_an_object_to_another_namespace() {
    let api = Api::new();
    api.post(MAPS, &map("old", "x")).await.ok();
    let patch = json!([{"op": "replace", "path": "/metadata/namespace", "value": "kube-system"}]);
    let webhook = Webhook::start(patch).await;
    webhook.register(&api, MUTATING, "configmaps").await;
    api.post(MAPS, &map("new", "x")).await.refused(400, MISMATCH);
    api.put(&format!("{MAPS}/old"), &map("old", "y")).await.refused(400, MISMATCH);
    api.merge(&format!("{MAPS}/old"), &json!({"data": {"key": "y"}})).await.refused(400, MISMATCH);
    assert_eq!(webhook.asked().len(), 3);
    assert_eq!(api.get("/api/v1/configmaps").await.names(), ["old"]);
    assert_eq!(api.get(&format!("{MAPS}/old")).await.ok()["data"]["key"], "x");
}

#[tokio::test]
async fn a_namespace_that_a_webhook_takes_away_or_invents_is_put_right() {
    let api = Api::new();
    let gone = Webhook::start(json!([{"op": "remove", "path": "/metadata/namespace"}])).await;
    gone.register(&api, MUTATING, "configmaps").await;
    assert_eq!(api.post(MAPS, &map("a", "x")).await.ok()["metadata"]["namespace"], "default");
    assert_eq!(api.get(&format!("{MAPS}/a")).await.ok()["metadata"]["namespace"], "default");

    let api = Api::new();
    let invented = json!([{"op": "add", "path": "/metadata/namespace", "value": "default"}]);
    let webhook = Webhook::start(invented).await;
    webhook.register(&api, MUTATING, "clusterroles").await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let made = api.post(roles, &json!({"metadata": {"name": "a"}})).await.ok();
    assert!(made["metadata"].get("namespace").is_none(), "{made}");
}

#[tokio::test]
async fn a_webhook_may_name_a_new_object_and_rename_none() {
    let api = Api::new();
    api.post(MAPS, &map("old", "x")).await.ok();
    let webhook =
        Webhook::start(json!([{"op": "replace", "path": "/metadata/name", "value": "other"}])).await;
    webhook.register(&api, MUTATING, "configmaps").await;
    assert_eq!(api.post(MAPS, &map("new", "x")).await.ok()["metadata"]["name"], "other");
    let renamed = api.put(&format!("{MAPS}/old"), &map("old", "y")).await;
    assert_eq!(renamed.code, 422, "{}", renamed.body);
    assert!(renamed.message().contains("metadata.name: Invalid value: \"other\": field is immutable"));
    assert_eq!(api.get(MAPS).await.names(), ["old", "other"]);
}

#[tokio::test]
async fn a_webhook_cannot_rename_what_a_put_creates() {
    let api = Api::new();
    let webhook =
        Webhook::start(json!([{"op": "replace", "path": "/metadata/name", "value": "other"}])).await;
    webhook.register(&api, MUTATING, "leases").await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = json!({"metadata": {"name": "a"}, "spec": {}});
    let why = "the name of the object (other) does not match the name on the URL (a)";
    api.put(&format!("{leases}/a"), &lease).await.refused(400, why);
    assert!(api.get(leases).await.names().is_empty());
}

#[tokio::test]
async fn webhooks_are_asked_about_tokens() {
    let api = Api::new();
    api.post(ACCOUNTS, &json!({"metadata": {"name": "builder"}})).await.ok();
    let mutating =
        Webhook::start(json!([{"op": "add", "path": "/spec/audiences", "value": ["vault"]}])).await;
    mutating.register(&api, MUTATING, "serviceaccounts/token").await;
    let validating = Webhook::start(Value::Null).await;
    validating.register(&api, VALIDATING, "serviceaccounts/*").await;
    let path = format!("{ACCOUNTS}/builder/token");
    let made = api.post(&path, &json!({"spec": {"expirationSeconds": 600}})).await.ok();
    assert_eq!(made["spec"]["audiences"], json!(["vault"]));

    let [question] = mutating.asked().try_into().unwrap();
    assert_eq!(question["kind"]["kind"], "TokenRequest");
    assert_eq!((&question["operation"], &question["subResource"]), (&json!("CREATE"), &json!("token")));
    assert_eq!((&question["name"], &question["namespace"]), (&json!("builder"), &json!("default")));
    let [question] = validating.asked().try_into().unwrap();
    assert_eq!(question["object"]["spec"]["audiences"], json!(["vault"]), "they see what the others made");
    assert!(question["object"]["status"]["token"].is_null(), "nobody is shown the token");
    // A dry run is asked about as such.
    api.post(&format!("{path}?dryRun=All"), &json!({"spec": {}})).await.ok();
    assert_eq!(validating.asked()[0]["dryRun"], true);
}

#[tokio::test]
async fn a_webhook_cannot_make_a_token_of_another_account() {
    let api = Api::new();
    api.post(ACCOUNTS, &json!({"metadata": {"name": "builder"}})).await.ok();
    api.post(ACCOUNTS, &json!({"metadata": {"name": "admin"}})).await.ok();
    let webhook = Webhook::start(json!([{"op": "add", "path": "/metadata/name", "value": "admin"}])).await;
    webhook.register(&api, MUTATING, "serviceaccounts/token").await;
    let refused = api.post(&format!("{ACCOUNTS}/builder/token"), &json!({"spec": {}})).await;
    assert_eq!(refused.code, 422, "{}", refused.body);
    assert!(refused.message().contains("must match the service account name if specified"));
}

#[tokio::test]
async fn policies_decide_about_tokens() {
    let api = Api::new();
    api.post(ACCOUNTS, &json!({"metadata": {"name": "builder"}})).await.ok();
    let group = "/apis/admissionregistration.k8s.io/v1";
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["serviceaccounts/token"]}]);
    let policy = json!({"metadata": {"name": "short"}, "spec": {"matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": "object.spec.expirationSeconds <= 900", "message": "too long"}]}});
    api.post(&format!("{group}/validatingadmissionpolicies"), &policy).await.ok();
    let binding = json!({"metadata": {"name": "short"},
        "spec": {"policyName": "short", "validationActions": ["Deny"]}});
    api.post(&format!("{group}/validatingadmissionpolicybindings"), &binding).await.ok();
    let path = format!("{ACCOUNTS}/builder/token");
    api.post(&path, &json!({"spec": {"expirationSeconds": 600}})).await.ok();
    // The default, an hour, is filled in before anybody decides.
    let refused = api.post(&path, &json!({"spec": {}})).await;
    assert_eq!(refused.code, 422, "{}", refused.body);
    assert!(refused.message().contains("too long"), "{}", refused.message());
}

#[tokio::test]
async fn a_token_is_not_made_in_a_namespace_that_is_being_terminated() {
    let api = Api::new();
    let namespace = json!({"metadata": {"name": "leaving"}});
    api.post("/api/v1/namespaces", &namespace).await.ok();
    let accounts = "/api/v1/namespaces/leaving/serviceaccounts";
    api.post(accounts, &json!({"metadata": {"name": "builder"}})).await.ok();
    api.delete("/api/v1/namespaces/leaving", &Value::Null).await.ok();
    let refused = api.post(&format!("{accounts}/builder/token"), &json!({"spec": {}})).await;
    assert_eq!(refused.code, 403, "{}", refused.body);
}

#[tokio::test]
async fn an_eviction_is_asked_about_as_an_eviction_alone() {
    let api = Api::new();
    api.post(PODS, &pod("web")).await.ok();
    let webhook = Webhook::start(Value::Null).await;
    webhook.register(&api, VALIDATING, "*/*").await;
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}});
    api.post(&format!("{PODS}/web/eviction"), &eviction).await.ok();
    let asked = webhook.asked();
    let told: Vec<_> =
        asked.iter().map(|question| (&question["operation"], &question["subResource"])).collect();
    assert_eq!(told, [(&json!("CREATE"), &json!("eviction"))], "the delete is part of it");
}

#[tokio::test]
async fn what_a_webhook_makes_of_an_eviction_has_the_form_of_one() {
    let api = Api::new();
    api.post(PODS, &pod("web")).await.ok();
    let patch = json!([{"op": "add", "path": "/deleteOptions", "value": {"gracePeriodSeconds": "soon"}}]);
    let webhook = Webhook::start(patch).await;
    webhook.register(&api, MUTATING, "pods/eviction").await;
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}});
    let refused = api.post(&format!("{PODS}/web/eviction"), &eviction).await;
    assert!(refused.code >= 400, "{}", refused.body);
    api.get(&format!("{PODS}/web")).await.ok();
}

#[tokio::test]
async fn an_answer_is_bounded_in_values() {
    let api = Api::new();
    // The review, the response and its fields are ten at most.
    for (values, code) in [(999_990, 201), (1_000_000, 500)] {
        let webhook = Webhook::answering(move |response| response["x"] = json!(vec![0; values])).await;
        webhook.register(&api, VALIDATING, "configmaps").await;
        let answer = api.post(MAPS, &map("a", "x")).await;
        assert_eq!(answer.code, code, "{}", answer.body);
        if code == 500 {
            assert!(answer.message().ends_with("it has more than 1000000 values"), "{}", answer.message());
        }
        api.delete(&format!("{VALIDATING}/hook"), &Value::Null).await.ok();
    }
}

#[tokio::test]
async fn what_a_webhook_makes_of_an_object_is_bounded() {
    let api = Api::new();
    let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }));
    let values = |count: usize| {
        let data: serde_json::Map<String, Value> = (0..count).map(|n| (format!("k{n}"), json!(""))).collect();
        json!([{"op": "replace", "path": "/data", "value": data}])
    };
    // The kind drops what it does not have, but only after it was made.
    for (name, patch, is_good) in [
        ("deepest", json!([{"op": "add", "path": "/x", "value": nested(118)}]), true),
        ("deeper", json!([{"op": "add", "path": "/x", "value": nested(119)}]), false),
        ("many", values(100_000), true),
        ("too-many", values(250_000), false),
        ("none", json!([{"op": "replace", "path": "", "value": []}]), false),
    ] {
        let webhook = Webhook::start(patch).await;
        webhook.register(&api, MUTATING, "configmaps").await;
        let answer = api.post(MAPS, &map(name, "x")).await;
        assert_eq!(answer.code < 300, is_good, "{name}: {:.300}", answer.body.to_string());
        assert!(!answer.message().contains("panicked"), "{name}");
        api.delete(&format!("{MUTATING}/hook"), &Value::Null).await.ok();
    }
    assert_eq!(api.get(MAPS).await.names(), ["deepest", "many"]);
}

#[tokio::test]
async fn large_objects_that_wait_for_a_webhook_are_bounded_in_sum() {
    let api = Api::new();
    // It is connected to, and never says anything.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let webhook = json!({
        "name": "hook.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": format!("https://{}/", silent.local_addr().unwrap())},
        "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["configmaps"], "operations": ["*"]}]
    });
    api.post(MUTATING, &json!({"metadata": {"name": "hook"}, "webhooks": [webhook]})).await.ok();
    let large = map("large", &"x".repeat(2_900_000));
    let path = format!("{MAPS}?timeout=3s");
    let answers = futures::future::join_all((0..30).map(|_| api.post(&path, &large))).await;
    let refused = answers.iter().filter(|answer| answer.code == 429).count();
    assert_eq!(refused, 30 - 64 * 1024 * 1024 / 2_900_000, "{:?}", answers[29]);
    // What ends gives its room back.
    assert_ne!(api.post(&path, &large).await.code, 429);
}
