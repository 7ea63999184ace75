//! The server's own admission plugins: their order, and what each does.

use serde_json::{Value, json};
use setpoint_apiserver::{AdmissionPlugins, ApiServer};
use setpoint_env::Env;

use crate::support::{Api, MAPS, PODS, map, pod};
use crate::webhooks::{MUTATING, VALIDATING, Webhook};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const STORAGE_CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

fn with(enable: &[&str], disable: &[&str]) -> Api {
    let plugins = AdmissionPlugins::new(enable, disable).unwrap();
    Api::with(ApiServer::builder().env(Env::seeded(1)).admission_plugins(plugins).build())
}

fn claim(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}})
}

#[tokio::test]
async fn webhooks_see_what_the_plugins_fill_in() {
    let api = with(&[], &[]);
    api.post(ACCOUNTS, &json!({"metadata": {"name": "default"}})).await.ok();
    let webhook = Webhook::start(Value::Null).await;
    webhook.register(&api, MUTATING, "pods").await;
    api.post(PODS, &pod("a")).await.ok();
    let asked = webhook.asked();
    let spec = &asked[0]["object"]["spec"];
    assert_eq!(spec["serviceAccountName"], "default");
    assert!(spec["volumes"][0]["name"].as_str().unwrap().starts_with("kube-api-access-"), "{spec}");
    assert!(spec["containers"][0]["volumeMounts"][0]["name"].as_str().is_some());
    assert_eq!((&spec["priority"], &spec["preemptionPolicy"]), (&json!(0), &json!("PreemptLowerPriority")));
    assert_eq!(spec["tolerations"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn plugins_look_again_at_what_a_webhook_has_put_in() {
    let api = with(&[], &[]);
    api.post(ACCOUNTS, &json!({"metadata": {"name": "default"}})).await.ok();
    let sidecar =
        json!([{"op": "add", "path": "/spec/containers/-", "value": {"name": "sidecar", "image": "s"}}]);
    let webhook = Webhook::start(sidecar).await;
    webhook.register(&api, MUTATING, "pods").await;
    let made = api.post(PODS, &pod("a")).await.ok();
    let containers = made["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 2);
    assert_eq!(containers[0]["volumeMounts"], containers[1]["volumeMounts"]);
    assert_eq!(containers[1]["imagePullPolicy"], "Always");
    assert_eq!(made["spec"]["volumes"].as_array().unwrap().len(), 1);

    // It cannot choose an account that is not there.
    let api = with(&[], &[]);
    api.post(ACCOUNTS, &json!({"metadata": {"name": "default"}})).await.ok();
    let account = json!([{"op": "replace", "path": "/spec/serviceAccountName", "value": "none"}]);
    let webhook = Webhook::start(account).await;
    webhook.register(&api, MUTATING, "pods").await;
    let unnamed = json!({"metadata": {"generateName": "a-"}, "spec": pod("a")["spec"]});
    api.post(PODS, &unnamed).await.refused(
        403,
        "pods \"a-\" is forbidden: error looking up service account default/none: serviceaccount \"none\" not found",
    );
}

#[tokio::test]
async fn a_plugin_that_is_off_does_nothing() {
    let off = [
        "ServiceAccount",
        "Priority",
        "DefaultTolerationSeconds",
        "MutatingAdmissionWebhook",
        "ValidatingAdmissionWebhook",
        "NamespaceLifecycle",
    ];
    let api = with(&[], &off);
    let webhook = Webhook::start(Value::Null).await;
    webhook.register(&api, MUTATING, "*").await;
    webhook.register(&api, VALIDATING, "*").await;
    let made = api.post(PODS, &pod("a")).await.ok();
    for field in
        ["serviceAccountName", "serviceAccount", "priority", "preemptionPolicy", "tolerations", "volumes"]
    {
        assert!(made["spec"].get(field).is_none(), "{field}: {made}");
    }
    assert_eq!(webhook.asked().len(), 0);
    api.post("/api/v1/namespaces/nowhere/configmaps", &map("a", "x")).await.ok();
    let namespaces = "/api/v1/namespaces/kube-public";
    api.delete(namespaces, &Value::Null).await.ok();
}

#[tokio::test]
async fn plugins_that_are_off_unless_asked_for_work_when_they_are() {
    let api =
        with(&["AlwaysPullImages", "NamespaceAutoProvision", "DenyServiceExternalIPs"], &["ServiceAccount"]);
    let mut stays = pod("a");
    stays["spec"]["containers"][0]["imagePullPolicy"] = "Never".into();
    let made = api.post("/api/v1/namespaces/new/pods", &stays).await.ok();
    assert_eq!(made["spec"]["containers"][0]["imagePullPolicy"], "Always");
    assert_eq!(api.get("/api/v1/namespaces/new").await.ok()["status"]["phase"], "Active");
    let service =
        json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "externalIPs": ["192.0.2.1"]}});
    let words = "services \"s\" is forbidden: Use of external IPs is denied by admission control";
    api.post("/api/v1/namespaces/default/services", &service).await.refused(403, words);

    let api = with(&["AlwaysDeny"], &[]);
    let words = "configmaps \"a\" is forbidden: admission control is denying all modifications";
    api.post(MAPS, &map("a", "x")).await.refused(403, words);
}

#[tokio::test]
async fn what_names_no_class_gets_the_newest_default_one() {
    let api = Api::new();
    let class = |name: &str, is_default: &str| {
        json!({"metadata": {"name": name, "annotations": {
            "storageclass.kubernetes.io/is-default-class": is_default}}, "provisioner": "x"})
    };
    assert!(api.post(CLAIMS, &claim("before")).await.ok()["spec"].get("storageClassName").is_none());
    for (name, is_default) in [("a", "false"), ("b", "true"), ("c", "true")] {
        api.post(STORAGE_CLASSES, &class(name, is_default)).await.ok();
    }
    assert_eq!(api.post(CLAIMS, &claim("after")).await.ok()["spec"]["storageClassName"], "b");
    let mut none = claim("none");
    none["spec"]["storageClassName"] = "".into();
    assert_eq!(api.post(CLAIMS, &none).await.ok()["spec"]["storageClassName"], "");

    let classes = "/apis/networking.k8s.io/v1/ingressclasses";
    api.post(
        classes,
        &json!({"metadata": {"name": "n", "annotations": {
        "ingressclass.kubernetes.io/is-default-class": "true"}}, "spec": {"controller": "example.com/c"}}),
    )
    .await
    .ok();
    let ingress = json!({"metadata": {"name": "i"}, "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}});
    let made = api.post("/apis/networking.k8s.io/v1/namespaces/default/ingresses", &ingress).await.ok();
    assert_eq!(made["spec"]["ingressClassName"], "n");
}

#[tokio::test]
async fn a_claim_grows_if_its_class_lets_it() {
    let api = Api::new();
    for (name, grows) in [("fixed", false), ("grows", true)] {
        let class = json!({"metadata": {"name": name}, "provisioner": "x", "allowVolumeExpansion": grows});
        api.post(STORAGE_CLASSES, &class).await.ok();
        let mut made = claim(name);
        made["spec"]["storageClassName"] = name.into();
        api.post(CLAIMS, &made).await.ok();
    }
    let larger = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    let status = json!({"status": {"phase": "Bound"}});
    api.merge(&format!("{CLAIMS}/grows/status"), &status).await.ok();
    api.merge(&format!("{CLAIMS}/fixed/status"), &status).await.ok();
    api.merge(&format!("{CLAIMS}/grows"), &json!({"spec": {"volumeName": "v"}})).await.ok();
    api.merge(&format!("{CLAIMS}/fixed"), &json!({"spec": {"volumeName": "v"}})).await.ok();
    api.merge(&format!("{CLAIMS}/grows"), &larger).await.ok();
    api.merge(&format!("{CLAIMS}/fixed"), &larger).await.refused(
        403,
        "persistentvolumeclaims \"fixed\" is forbidden: only dynamically provisioned pvc can be resized and the \
         storageclass that provisions the pvc must support resize",
    );
}

#[tokio::test]
async fn a_pod_takes_what_its_runtime_class_says() {
    let api = Api::new();
    let class = json!({"metadata": {"name": "heavy"}, "handler": "h", "overhead": {"podFixed": {"cpu": "100m"}},
        "scheduling": {"nodeSelector": {"runtime": "heavy"}, "tolerations": [{"key": "heavy", "operator": "Exists"}]}});
    api.post("/apis/node.k8s.io/v1/runtimeclasses", &class).await.ok();
    let mut heavy = pod("a");
    heavy["spec"]["runtimeClassName"] = "heavy".into();
    let made = api.post(PODS, &heavy).await.ok();
    assert_eq!(made["spec"]["overhead"], json!({"cpu": "100m"}));
    assert_eq!(made["spec"]["nodeSelector"], json!({"runtime": "heavy"}));
    assert_eq!(made["spec"]["tolerations"].as_array().unwrap().len(), 3);
    heavy["metadata"]["name"] = "b".into();
    heavy["spec"]["nodeSelector"] = json!({"runtime": "light"});
    api.post(PODS, &heavy).await.refused(
        403,
        "pods \"b\" is forbidden: conflict: runtimeClass.scheduling.nodeSelector[runtime] = heavy; \
         pod.spec.nodeSelector[runtime] = light",
    );
    let mut none = pod("c");
    none["spec"]["runtimeClassName"] = "none".into();
    api.post(PODS, &none)
        .await
        .refused(403, "pods \"c\" is forbidden: pod rejected: RuntimeClass \"none\" not found");
}

#[tokio::test]
async fn one_priority_class_at_most_is_the_default() {
    let api = Api::new();
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let class = |name: &str, is_default: bool| json!({"metadata": {"name": name}, "value": 1, "globalDefault": is_default});
    let made = api.post(classes, &class("a", true)).await.ok();
    let words = |name: &str| {
        format!(
            "priorityclasses.scheduling.k8s.io {name:?} is forbidden: PriorityClass a is already marked as default. \
            Only one default can exist"
        )
    };
    api.post(classes, &class("b", true)).await.refused(403, &words("b"));
    api.post(classes, &class("c", false)).await.ok();
    api.merge(&format!("{classes}/c"), &json!({"globalDefault": true})).await.refused(403, &words("c"));
    api.put(&format!("{classes}/a"), &made).await.ok();
}
