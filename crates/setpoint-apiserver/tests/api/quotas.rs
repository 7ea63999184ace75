//! ResourceQuotas and LimitRanges in admission.

use futures::future::join_all;
use serde_json::{Value, json};
use setpoint_apiserver::{AdmissionPlugins, ApiServer};
use setpoint_env::Env;

use crate::support::{Answer, Api, MAPS, PODS};

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const RANGES: &str = "/api/v1/namespaces/default/limitranges";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn server() -> Api {
    // Nobody makes accounts here.
    let plugins = AdmissionPlugins::new([""; 0], ["ServiceAccount"]).unwrap();
    Api::with(ApiServer::builder().env(Env::seeded(1)).admission_plugins(plugins).build())
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

/// A quota whose status somebody has computed: nothing is in use.
async fn quota(api: &Api, name: &str, spec: Value) {
    let mut used = spec["hard"].clone();
    used.as_object_mut().unwrap().values_mut().for_each(|amount| *amount = "0".into());
    api.post(QUOTAS, &json!({"metadata": {"name": name}, "spec": spec})).await.ok();
    let status = json!({"status": {"hard": spec["hard"], "used": used}});
    api.merge(&format!("{QUOTAS}/{name}/status"), &status).await.ok();
}

async fn used(api: &Api, name: &str) -> Value {
    api.get(&format!("{QUOTAS}/{name}")).await.ok()["status"]["used"].clone()
}

fn pod(name: &str, resources: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "a", "image": "b", "resources": resources}]}})
}

async fn create(api: &Api, name: &str, cpu: &str) -> Answer {
    api.post(PODS, &pod(name, &json!({"requests": {"cpu": cpu}}))).await
}

#[tokio::test]
async fn what_is_created_is_charged_until_a_quota_is_used_up() {
    let api = server();
    quota(&api, "small", json!({"hard": {"requests.cpu": "1", "pods": "3", "services": "1"}})).await;
    create(&api, "a", "300m").await.ok();
    create(&api, "b", "500m").await.ok();
    assert_eq!(used(&api, "small").await, json!({"requests.cpu": "800m", "pods": "2", "services": "0"}));
    create(&api, "c", "300m").await.refused(
        403,
        "pods \"c\" is forbidden: exceeded quota: small, requested: requests.cpu=300m, used: requests.cpu=800m, limited: \
         requests.cpu=1",
    );
    create(&api, "c", "200m").await.ok();
    create(&api, "d", "1m").await.refused(
        403,
        "pods \"d\" is forbidden: exceeded quota: small, requested: pods=1,requests.cpu=1m, used: pods=3,requests.cpu=1, \
         limited: pods=3,requests.cpu=1",
    );
    // What takes nothing is not refused.
    api.merge(&format!("{PODS}/a"), &json!({"metadata": {"labels": {"x": "y"}}})).await.ok();
}

#[tokio::test]
async fn containers_must_say_what_is_limited_and_a_quota_what_it_knows() {
    let api = server();
    quota(&api, "cpu", json!({"hard": {"limits.cpu": "1", "requests.cpu": "1"}})).await;
    api.post(PODS, &pod("a", &json!({"requests": {"cpu": "1"}})))
        .await
        .refused(403, "pods \"a\" is forbidden: failed quota: cpu: must specify limits.cpu for: a");
    let api = server();
    api.post(QUOTAS, &json!({"metadata": {"name": "new"}, "spec": {"hard": {"pods": "1"}}})).await.ok();
    create(&api, "a", "1").await.ok();
    let status = json!({"status": {"hard": {"pods": "1"}}});
    api.merge(&format!("{QUOTAS}/new/status"), &status).await.ok();
    create(&api, "b", "1")
        .await
        .refused(403, "pods \"b\" is forbidden: status unknown for quota: new, resources: pods");
}

#[tokio::test]
async fn a_dry_run_is_checked_and_costs_nothing() {
    let api = server();
    quota(&api, "one", json!({"hard": {"configmaps": "1"}})).await;
    api.post(&format!("{MAPS}?dryRun=All"), &map("a")).await.ok();
    assert_eq!(used(&api, "one").await, json!({"configmaps": "0"}));
    api.post(MAPS, &map("a")).await.ok();
    let refused = api.post(&format!("{MAPS}?dryRun=All"), &map("b")).await;
    assert_eq!(refused.code, 403, "{}", refused.body);
    assert_eq!(used(&api, "one").await, json!({"configmaps": "1"}));
}

#[tokio::test]
async fn what_is_not_stored_gives_back_what_it_took() {
    let api = server();
    quota(&api, "a-roomy", json!({"hard": {"configmaps": "5"}})).await;
    quota(&api, "b-small", json!({"hard": {"count/configmaps": "2"}})).await;
    api.post(MAPS, &map("a")).await.ok();
    // The name is taken.
    assert_eq!(api.post(MAPS, &map("a")).await.code, 409);
    assert_eq!(used(&api, "a-roomy").await, json!({"configmaps": "1"}));
    assert_eq!(used(&api, "b-small").await, json!({"count/configmaps": "1"}));
    api.post(MAPS, &map("b")).await.ok();
    // The second quota has no room: the first is not charged.
    assert_eq!(api.post(MAPS, &map("c")).await.code, 403);
    assert_eq!(used(&api, "a-roomy").await, json!({"configmaps": "2"}));
}

#[tokio::test]
async fn updates_are_charged_for_what_is_new() {
    let api = server();
    quota(&api, "net", json!({"hard": {"services.nodeports": "2", "services": "5"}})).await;
    let spec = json!({"type": "ClusterIP", "ports": [{"port": 80}]});
    api.post(SERVICES, &json!({"metadata": {"name": "a"}, "spec": spec})).await.ok();
    let path = format!("{SERVICES}/a");
    api.merge(&path, &json!({"spec": {"type": "NodePort"}})).await.ok();
    assert_eq!(used(&api, "net").await, json!({"services.nodeports": "1", "services": "1"}));
    let three = json!([{"name": "a", "port": 80}, {"name": "b", "port": 81}, {"name": "c", "port": 82}]);
    api.merge(&path, &json!({"spec": {"ports": three}})).await.refused(
        403,
        "services \"a\" is forbidden: exceeded quota: net, requested: services.nodeports=2, used: services.nodeports=1, \
         limited: services.nodeports=2",
    );
    // Less is not given back by admission.
    api.merge(&path, &json!({"spec": {"type": "ClusterIP"}})).await.ok();
    assert_eq!(used(&api, "net").await, json!({"services.nodeports": "1", "services": "1"}));
}

#[tokio::test]
async fn scopes_say_whom_a_quota_means() {
    let api = server();
    quota(&api, "idle", json!({"hard": {"pods": "0"}, "scopes": ["BestEffort"]})).await;
    create(&api, "busy", "1").await.ok();
    assert_eq!(api.post(PODS, &pod("idle", &json!({}))).await.code, 403);
    let expression =
        json!({"scopeName": "PriorityClass", "operator": "In", "values": ["system-cluster-critical"]});
    let selector = json!({"matchExpressions": [expression]});
    quota(&api, "high", json!({"hard": {"pods": "0"}, "scopeSelector": selector})).await;
    create(&api, "low", "1").await.ok();
    let mut high = pod("high", &json!({"requests": {"cpu": "1"}}));
    high["spec"]["priorityClassName"] = "system-cluster-critical".into();
    let refused = api.post(PODS, &high).await;
    assert!(refused.message().contains("exceeded quota: high, requested: pods=1"), "{}", refused.body);
}

#[tokio::test]
async fn claims_and_any_kind_are_counted() {
    let api = server();
    quota(
        &api,
        "all",
        json!({"hard": {
            "requests.storage": "10Gi", "gold.storageclass.storage.k8s.io/requests.storage": "1Gi",
            "count/deployments.apps": "1"
        }}),
    )
    .await;
    let claim = |name: &str, class: &str| {
        json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": {"requests": {"storage": "2Gi"}}}})
    };
    api.post(CLAIMS, &claim("a", "silver")).await.ok();
    let refused = api.post(CLAIMS, &claim("b", "gold")).await;
    assert!(
        refused
            .message()
            .contains("requested: gold.storageclass.storage.k8s.io/requests.storage=2Gi, used: gold"),
        "{}",
        refused.body
    );
    let labels = json!({"app": "a"});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "b"}]}});
    let deployment = |name: &str| json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": template}});
    api.post(DEPLOYMENTS, &deployment("a")).await.ok();
    api.post(DEPLOYMENTS, &deployment("b")).await.refused(
        403,
        "deployments.apps \"b\" is forbidden: exceeded quota: all, requested: count/deployments.apps=1, used: \
         count/deployments.apps=1, limited: count/deployments.apps=1",
    );
}

#[tokio::test]
async fn many_at_once_never_get_more_than_there_is() {
    let api = server();
    quota(&api, "ten", json!({"hard": {"configmaps": "10"}})).await;
    let names: Vec<Value> = (0..40).map(|n| map(&format!("m{n}"))).collect();
    let answers = join_all(names.iter().map(|map| api.post(MAPS, map))).await;
    let made = answers.iter().filter(|answer| answer.code == 201).count();
    assert_eq!(made, 10, "{:?}", answers.iter().map(|answer| answer.code).collect::<Vec<_>>());
    assert!(answers.iter().all(|answer| matches!(answer.code, 201 | 403)));
    assert_eq!(used(&api, "ten").await, json!({"configmaps": "10"}));
}

#[tokio::test]
async fn two_servers_over_one_quota_share_it() {
    // Both charge by compare-and-swap on the status: a charge that another server made in between is seen.
    let api = server();
    quota(&api, "two", json!({"hard": {"configmaps": "2"}})).await;
    api.post(MAPS, &map("a")).await.ok();
    api.merge(&format!("{QUOTAS}/two/status"), &json!({"status": {"used": {"configmaps": "2"}}})).await.ok();
    assert_eq!(api.post(MAPS, &map("b")).await.code, 403);
}

#[tokio::test]
async fn limit_ranges_fill_in_and_refuse() {
    let api = server();
    let limits = json!([
        {"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "200m"}, "max": {"cpu": "1"}},
        {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}, "min": {"storage": "1Mi"}}
    ]);
    api.post(RANGES, &json!({"metadata": {"name": "limits"}, "spec": {"limits": limits}})).await.ok();
    let made = api.post(PODS, &pod("a", &json!({}))).await.ok();
    assert_eq!(
        made["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "200m"}})
    );
    let note = "LimitRanger plugin set: cpu request for container a; cpu limit for container a";
    assert_eq!(made["metadata"]["annotations"]["kubernetes.io/limit-ranger"], note);
    api.post(PODS, &pod("b", &json!({"limits": {"cpu": "2"}})))
        .await
        .refused(403, "pods \"b\" is forbidden: maximum cpu usage per Container is 1, but limit is 2");
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "2Gi"}}}});
    api.post(CLAIMS, &claim).await.refused(
        403,
        "persistentvolumeclaims \"c\" is forbidden: maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi",
    );
    // A quota sees what a range has filled in.
    quota(&api, "cpu", json!({"hard": {"limits.cpu": "1"}})).await;
    api.post(PODS, &pod("d", &json!({}))).await.ok();
    assert_eq!(used(&api, "cpu").await, json!({"limits.cpu": "500m"}));
}
