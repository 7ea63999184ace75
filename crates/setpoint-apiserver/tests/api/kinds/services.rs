use futures::future::join_all;
use serde_json::{Value, json};

use super::Kind;
use crate::support::Api;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";

fn service(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
}

fn services() -> Kind {
    Kind::new(SERVICES, service("web", json!({"ports": [{"port": 80}]})))
}

#[tokio::test]
async fn a_service_gets_an_address_that_is_its_own() {
    let api = Api::new();
    let made = api.post(SERVICES, &service("web", json!({"ports": [{"port": 80}]}))).await.ok();
    let ip = made["spec"]["clusterIP"].as_str().unwrap().to_owned();
    assert_eq!(
        made["spec"],
        json!({
            "clusterIP": ip, "clusterIPs": [ip], "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
            "sessionAffinity": "None", "type": "ClusterIP"
        })
    );
    let address = api.get(&format!("{ADDRESSES}/{ip}")).await.ok();
    assert_eq!(
        address["spec"]["parentRef"],
        json!({"resource": "services", "namespace": "default", "name": "web"})
    );
    api.post(SERVICES, &service("other", json!({"clusterIP": ip, "ports": [{"port": 80}]}))).await.refused(
        422,
        &format!(
            "Service \"other\" is invalid: spec.clusterIPs: Invalid value: [\"{ip}\"]: failed to allocate IP {ip}: \
             provided IP is already allocated"
        ),
    );
    api.delete(&format!("{SERVICES}/web"), &Value::Null).await.ok();
    assert_eq!(api.get(&format!("{ADDRESSES}/{ip}")).await.code, 404);
    api.post(SERVICES, &service("other", json!({"clusterIP": ip, "ports": [{"port": 80}]}))).await.ok();
}

#[tokio::test]
async fn no_two_services_get_the_same_whatever_happens_at_once() {
    let api = Api::new();
    let spec = json!({"type": "NodePort", "ports": [{"port": 80}]});
    let objects: Vec<Value> = (0..50).map(|n| service(&format!("s{n}"), spec.clone())).collect();
    let made = join_all(objects.iter().map(|object| api.post(SERVICES, object))).await;
    let made: Vec<Value> = made.into_iter().map(|answer| answer.ok()).collect();
    let distinct = |pointer: &str| {
        let mut all: Vec<String> = made.iter().map(|one| one.pointer(pointer).unwrap().to_string()).collect();
        all.sort();
        all.dedup();
        all.len()
    };
    assert_eq!((distinct("/spec/clusterIP"), distinct("/spec/ports/0/nodePort")), (50, 50));
    // All want the same port: one gets it.
    let wanted = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30001}]});
    let objects: Vec<Value> = (0..20).map(|n| service(&format!("w{n}"), wanted.clone())).collect();
    let answers = join_all(objects.iter().map(|object| api.post(SERVICES, object))).await;
    assert_eq!(answers.iter().filter(|answer| answer.code == 201).count(), 1);
    let refused = answers.iter().find(|answer| answer.code != 201).unwrap();
    assert!(
        refused
            .message()
            .ends_with("spec.ports[0].nodePort: Invalid value: 30001: provided port is already allocated"),
        "{}",
        refused.message()
    );
}

#[tokio::test]
async fn a_refused_service_takes_nothing() {
    let api = Api::new();
    let bad = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30002, "name": "Bad_"}]});
    assert_eq!(api.post(SERVICES, &service("bad", bad)).await.code, 422);
    let good = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30002}]});
    let path = format!("{SERVICES}?dryRun=All");
    api.post(&path, &service("good", good.clone())).await.ok();
    api.post(SERVICES, &service("good", good)).await.ok();
    let addresses = api.get(ADDRESSES).await.ok();
    assert_eq!(addresses["items"].as_array().unwrap().len(), 2, "that of the server and that of the service");
}

#[tokio::test]
async fn a_service_that_changes_its_type_gives_back_what_it_does_not_need() {
    let api = Api::new();
    let path = format!("{SERVICES}/web");
    let made =
        api.post(SERVICES, &service("web", json!({"type": "NodePort", "ports": [{"port": 80}]}))).await.ok();
    let port = made["spec"]["ports"][0]["nodePort"].as_i64().unwrap();
    let changed = api.merge(&path, &json!({"spec": {"type": "ClusterIP"}})).await.ok();
    assert!(changed["spec"]["ports"][0].get("nodePort").is_none());
    assert!(changed["spec"].get("externalTrafficPolicy").is_none());
    let other = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
    api.post(SERVICES, &service("other", other)).await.ok();
    let named = json!({"spec": {"type": "ExternalName", "externalName": "a.example.com"}});
    let changed = api.merge(&path, &named).await.ok();
    assert!(changed["spec"].get("clusterIP").is_none() && changed["spec"].get("ipFamilies").is_none());
}

#[tokio::test]
async fn what_is_wrong_with_a_service() {
    let services = services();
    services.check(&[("/spec/ports", json!([]))], &["spec.ports: Required value"]).await;
    services
        .check(
            &[("/spec/type", json!("Odd"))],
            &["spec.type: Unsupported value: \"Odd\": supported values: \"ClusterIP\", \"ExternalName\", \
               \"LoadBalancer\", \"NodePort\""],
        )
        .await;
    services
        .check(
            &[("/spec/ipFamilyPolicy", json!("RequireDualStack"))],
            &["spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack \
               services"],
        )
        .await;
    services
        .check(
            &[("/spec/ports/0/nodePort", json!(30003))],
            &["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"],
        )
        .await;
    services.check(&[("/spec/clusterIP", json!("None"))], &[]).await;
    let ip = [("/spec/clusterIP", json!("10.96.0.77"))];
    let answer = {
        services.check_updates(&[]).await;
        let path = format!("{SERVICES}/web");
        let object = super::edited(&services.api.get(&path).await.ok(), &ip);
        services.api.put(&path, &object).await
    };
    assert!(answer.message().contains("may not change once set"), "{}", answer.message());
}
