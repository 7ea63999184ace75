//! What webhooks are asked, and what becomes of their answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::Metrics;
use setpoint::webhook::{AdmissionRequest, Mutation, Operation, Verdict};

use super::support::{MUTATING, Pair, VALIDATING, map, refusal};

fn value_of(map: &ConfigMap) -> &str {
    map.data.as_ref().and_then(|data| data.get("value")).map_or("", String::as_str)
}

async fn no_secrets(request: AdmissionRequest<ConfigMap>) -> Verdict {
    match request.object.as_ref().map(value_of) {
        Some("secret") => Verdict::deny("secrets belong into Secrets"),
        Some("teapot") => Verdict::deny("short and stout").code(418),
        _ => Verdict::allow(),
    }
}

#[tokio::test]
async fn a_validating_webhook_refuses_in_its_own_words() {
    let pair = Pair::start(|server| server.validate("/check", no_secrets)).await;
    pair.register(VALIDATING, "check", "/check", json!({})).await;

    pair.create("good", "open").await.unwrap();
    let by = "admission webhook \"check.example.com\" denied the request: ";
    assert_eq!(pair.refusal("bad", "secret").await, (403, format!("{by}secrets belong into Secrets")));
    assert_eq!(pair.refusal("odd", "teapot").await, (418, format!("{by}short and stout")));
    assert!(pair.maps().get_opt("bad").await.unwrap().is_none(), "what is refused is not stored");

    let patch = Patch::Merge(json!({"data": {"value": "secret"}}));
    let patched = pair.maps().patch("good", &PatchParams::default(), &patch).await;
    assert_eq!(refusal(patched).0, 403);
    let stored = pair.maps().get("good").await.unwrap();
    assert_eq!(value_of(&stored), "open");
}

#[tokio::test]
async fn calls_are_counted_by_path_code_and_answer() {
    let metrics = Metrics::default();
    let pair = Pair::start(|server| server.metrics(&metrics).validate("/check", no_secrets)).await;
    pair.register(VALIDATING, "check", "/check", json!({})).await;
    pair.create("good", "open").await.unwrap();
    pair.refusal("bad", "secret").await;
    pair.refusal("odd", "teapot").await;
    let value = |name: &str, labels: &[(&str, &str)]| {
        let labels = [&[("webhook", "/check")][..], labels].concat();
        metrics.value(&format!("controller_runtime_webhook_{name}"), &labels)
    };
    assert_eq!(value("requests_total", &[("code", "200")]), Some(3));
    assert_eq!(value("latency_seconds", &[("code", "200")]), Some(3));
    assert_eq!(value("requests_in_flight", &[]), Some(0));
    for (allowed, code) in [("true", "200"), ("false", "403"), ("false", "418")] {
        let labels = [("allowed", allowed), ("admission_code", code)];
        assert_eq!(value("admission_responses_total", &labels), Some(1), "{code}");
    }
    assert_eq!(metrics.value("controller_runtime_webhook_panics_total", &[]), Some(0));
}

#[tokio::test]
async fn a_mutating_webhook_changes_what_is_stored_and_nothing_else() {
    let label = |request: AdmissionRequest<ConfigMap>| async move {
        let Some(mut map) = request.object else { return Mutation::none() };
        map.metadata
            .labels
            .get_or_insert_default()
            .insert("seen".into(), request.user_info.username.unwrap());
        Mutation::to(map).warn("it was seen")
    };
    let pair = Pair::start(|server| server.mutate("/label", label)).await;
    pair.register(MUTATING, "label", "/label", json!({})).await;

    let created = pair.create("a", "1").await.unwrap();
    assert_eq!(created.metadata.labels.unwrap()["seen"], "kubernetes-admin");
    assert_eq!(pair.maps().get("a").await.unwrap().data, map("a", "1").data);
}

#[tokio::test]
async fn mutations_come_before_validation() {
    let reveal = |request: AdmissionRequest<ConfigMap>| async move {
        let Some(mut map) = request.object else { return Mutation::none() };
        map.data = Some([("value".to_owned(), "secret".to_owned())].into());
        Mutation::to(map)
    };
    let pair = Pair::start(|server| server.mutate("/reveal", reveal).validate("/check", no_secrets)).await;
    pair.register(VALIDATING, "check", "/check", json!({})).await;
    pair.register(MUTATING, "reveal", "/reveal", json!({})).await;
    assert_eq!(pair.refusal("a", "open").await.0, 403);
}

/// Remembers the questions.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<Value>>>);

impl Asked {
    fn handler<K>(
        &self,
    ) -> impl Fn(AdmissionRequest<K>) -> std::future::Ready<Verdict> + Send + Sync + 'static
    where
        K: kube::Resource + serde::Serialize,
    {
        let asked = self.clone();
        move |request| {
            asked.0.lock().push(serde_json::to_value(&request).unwrap());
            std::future::ready(Verdict::allow())
        }
    }

    fn take(&self) -> Vec<Value> {
        std::mem::take(&mut self.0.lock())
    }
}

#[tokio::test]
async fn the_question_says_who_does_what_to_which_object() {
    let asked = Asked::default();
    let pair = Pair::start(|server| server.validate("/ask", asked.handler::<ConfigMap>())).await;
    pair.register(VALIDATING, "ask", "/ask", json!({})).await;

    pair.create("a", "1").await.unwrap();
    let patch = Patch::Merge(json!({"data": {"value": "2"}}));
    pair.maps().patch("a", &PatchParams::default().dry_run(), &patch).await.unwrap();
    pair.maps().delete("a", &DeleteParams::default()).await.unwrap();

    let [create, update, delete] = asked.take().try_into().unwrap();
    assert_eq!(create["operation"], "CREATE");
    assert_eq!(create["kind"], json!({"group": "", "version": "v1", "kind": "ConfigMap"}));
    assert_eq!(create["resource"]["resource"], "configmaps");
    assert_eq!((&create["name"], &create["namespace"]), (&json!("a"), &json!("default")));
    assert_eq!(create["userInfo"]["groups"][0], "system:masters");
    assert_eq!((&create["object"]["data"]["value"], &create["oldObject"]), (&json!("1"), &Value::Null));
    assert_eq!((&update["operation"], &update["dryRun"]), (&json!("UPDATE"), &json!(true)));
    assert_eq!(update["oldObject"]["data"]["value"], "1");
    assert_eq!(update["object"]["data"]["value"], "2");
    assert_eq!(delete["operation"], "DELETE");
    assert_eq!((&delete["object"], &delete["oldObject"]["data"]["value"]), (&Value::Null, &json!("1")));
}

#[tokio::test]
async fn a_refused_delete_deletes_nothing() {
    let keep = |request: AdmissionRequest<ConfigMap>| async move {
        if request.operation == Operation::Delete { Verdict::deny("it stays") } else { Verdict::allow() }
    };
    let pair = Pair::start(|server| server.validate("/keep", keep)).await;
    pair.register(VALIDATING, "keep", "/keep", json!({})).await;
    pair.create("a", "1").await.unwrap();
    assert_eq!(refusal(pair.maps().delete("a", &DeleteParams::default()).await).0, 403);
    let all = pair.maps().delete_collection(&DeleteParams::default(), &Default::default()).await;
    assert_eq!(refusal(all).0, 403);
    pair.maps().get("a").await.unwrap();
}

#[tokio::test]
async fn only_what_rules_and_selectors_name_is_asked_about() {
    let asked = Asked::default();
    let pair = Pair::start(|server| server.validate("/ask", asked.handler::<ConfigMap>())).await;
    let selectors = json!({
        "namespaceSelector": {"matchLabels": {"checked": "yes"}},
        "objectSelector": {"matchExpressions": [{"key": "skip", "operator": "DoesNotExist"}]}
    });
    pair.register(VALIDATING, "ask", "/ask", selectors).await;

    pair.create("elsewhere", "1").await.unwrap();
    assert_eq!(asked.take().len(), 0, "the namespace is not selected");
    let namespaces: Api<Namespace> = Api::all(pair.server.client());
    let labels = Patch::Merge(json!({"metadata": {"labels": {"checked": "yes"}}}));
    namespaces.patch("default", &PatchParams::default(), &labels).await.unwrap();
    pair.create("here", "1").await.unwrap();
    assert_eq!(asked.take().len(), 1, "a new label counts in the very next request");
    let mut skipped = map("skipped", "1");
    skipped.metadata.labels = Some([("skip".to_owned(), String::new())].into());
    pair.maps().create(&PostParams::default(), &skipped).await.unwrap();
    assert_eq!(asked.take().len(), 0, "the object is not selected");
}

#[tokio::test]
async fn a_webhook_that_asks_for_it_sees_what_a_later_one_changed() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = {
        let calls = Arc::clone(&calls);
        move |request: AdmissionRequest<ConfigMap>| {
            let call = calls.fetch_add(1, Ordering::SeqCst) + 1;
            async move {
                let mut map = request.object.unwrap();
                let fields = map.data.as_ref().unwrap().len().to_string();
                map.metadata.labels.get_or_insert_default().insert(format!("call-{call}"), fields);
                Mutation::to(map)
            }
        }
    };
    let add = |request: AdmissionRequest<ConfigMap>| async move {
        let mut map = request.object.unwrap();
        map.data.get_or_insert_default().insert("more".into(), "x".into());
        Mutation::to(map)
    };
    let pair = Pair::start(|server| server.mutate("/count", count).mutate("/add", add)).await;
    pair.register(MUTATING, "a-count", "/count", json!({"reinvocationPolicy": "IfNeeded"})).await;
    pair.register(MUTATING, "b-add", "/add", json!({})).await;

    let created = pair.create("a", "1").await.unwrap();
    let labels = created.metadata.labels.unwrap();
    assert_eq!((labels["call-1"].as_str(), labels["call-2"].as_str()), ("1", "2"));
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_scale_is_asked_about_as_a_scale() {
    let asked = Asked::default();
    let double = |request: AdmissionRequest<Scale>| async move {
        let mut scale = request.object.unwrap();
        let spec = scale.spec.get_or_insert_default();
        spec.replicas = spec.replicas.map(|replicas| replicas * 2);
        Mutation::to(scale)
    };
    let pair =
        Pair::start(|server| server.mutate("/double", double).validate("/ask", asked.handler::<Scale>()))
            .await;
    let rules = json!({"rules": [{
        "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments/scale"], "operations": ["UPDATE"]
    }]});
    pair.register(MUTATING, "double", "/double", rules.clone()).await;
    pair.register(VALIDATING, "ask", "/ask", rules).await;

    let deployments: Api<Deployment> = Api::default_namespaced(pair.server.client());
    let web: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}}
    }))
    .unwrap();
    deployments.create(&PostParams::default(), &web).await.unwrap();
    assert_eq!(asked.take().len(), 0);
    let patch = Patch::Merge(json!({"spec": {"replicas": 3}}));
    deployments.patch_scale("web", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(deployments.get("web").await.unwrap().spec.replicas, Some(6));
    let [question] = asked.take().try_into().unwrap();
    assert_eq!(question["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
    assert_eq!(question["subResource"], "scale");
    assert_eq!(question["oldObject"]["spec"]["replicas"], 1);
}

#[tokio::test]
async fn a_service_is_called_by_its_name_in_the_cluster() {
    let pair = Pair::start(|server| server.validate("/check", no_secrets)).await;
    let client = pair.server.client();
    let service = serde_json::from_value(json!({
        "metadata": {"name": "hooks"}, "spec": {"ports": [{"name": "https", "port": 443}]}
    }));
    let services: Api<k8s_openapi::api::core::v1::Service> = Api::default_namespaced(client.clone());
    services.create(&PostParams::default(), &service.unwrap()).await.unwrap();
    let at = json!({"service": {"name": "hooks", "namespace": "default", "path": "/check"}});
    pair.register_at(VALIDATING, "check", at, json!({"timeoutSeconds": 1})).await;
    let (code, message) = pair.refusal("a", "1").await;
    assert_eq!(code, 500);
    let url = "Post \"https://hooks.default.svc/check?timeout=1s\"";
    assert!(message.contains(url), "{message}");
}

#[tokio::test]
async fn configurations_of_webhooks_are_not_subject_to_webhooks() {
    let deny = |_: AdmissionRequest<kube::core::DynamicObject>| async { Verdict::deny("nothing may happen") };
    let pair = Pair::start(|server| server.validate("/deny", deny)).await;
    let everything = json!({"rules": [{
        "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]
    }]});
    pair.register(VALIDATING, "deny", "/deny", everything.clone()).await;
    assert_eq!(pair.refusal("a", "1").await.0, 403);
    pair.register(VALIDATING, "second", "/deny", everything).await;
}
