use futures::future::join_all;
use serde_json::{Value, json};
use setpoint_apiserver::ApiServer;
use setpoint_env::Env;

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

fn with_ranges(ranges: &str) -> Api {
    let builder = ApiServer::builder().env(Env::seeded(1));
    Api::with(builder.service_cluster_ip_ranges(ranges.parse().unwrap()).build())
}

#[tokio::test]
async fn addresses_come_from_the_range_that_the_server_is_given() {
    let api = with_ranges("10.0.0.0/24");
    assert_eq!(api.get(&format!("{SERVICES}/kubernetes")).await.ok()["spec"]["clusterIP"], "10.0.0.1");
    let network = api.get("/apis/networking.k8s.io/v1/servicecidrs/kubernetes").await.ok();
    assert_eq!(network["spec"]["cidrs"], json!(["10.0.0.0/24"]));
    let made = api.post(SERVICES, &service("a", json!({"ports": [{"port": 80}]}))).await.ok();
    assert!(made["spec"]["clusterIP"].as_str().unwrap().starts_with("10.0.0."), "{made}");
    for ip in ["10.99.0.5", "10.0.0.0", "10.0.0.255"] {
        let words = format!(
            "Service \"b\" is invalid: spec.clusterIPs: Invalid value: [\"{ip}\"]: failed to allocate IP {ip}: the \
             provided network does not match the current range"
        );
        api.post(SERVICES, &service("b", json!({"clusterIP": ip, "ports": [{"port": 80}]})))
            .await
            .refused(422, &words);
    }
    let six = with_ranges("fd00::/112");
    let made = six.post(SERVICES, &service("a", json!({"ports": [{"port": 80}]}))).await.ok();
    assert_eq!(made["spec"]["ipFamilies"], json!(["IPv6"]));
}

#[tokio::test]
async fn a_small_range_is_used_up_and_no_more() {
    let api = with_ranges("10.0.0.0/29");
    for n in 0..5 {
        api.post(SERVICES, &service(&format!("s{n}"), json!({"ports": [{"port": 80}]}))).await.ok();
    }
    let full = api.post(SERVICES, &service("more", json!({"ports": [{"port": 80}]}))).await;
    assert_eq!(full.code, 500);
    assert!(full.message().ends_with("range is full"), "{full:?}");
}

#[tokio::test]
async fn with_two_ranges_a_service_has_the_families_that_it_asks_for() {
    let api = with_ranges("10.1.0.0/24,fd00:1::/112");
    let (four, six) = (json!("IPv4"), json!("IPv6"));
    let selector = json!({"a": "b"});
    for (name, more, families, policy, count) in [
        ("a1", json!({}), json!([four]), "SingleStack", 1),
        ("a2", json!({"ipFamilyPolicy": "PreferDualStack"}), json!([four, six]), "PreferDualStack", 2),
        ("a3", json!({"ipFamilyPolicy": "RequireDualStack"}), json!([four, six]), "RequireDualStack", 2),
        ("a4", json!({"ipFamilies": ["IPv6"]}), json!([six]), "SingleStack", 1),
        (
            "a5",
            json!({"ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "PreferDualStack"}),
            json!([six, four]),
            "PreferDualStack",
            2,
        ),
        ("a6", json!({"clusterIP": "None"}), json!([four, six]), "RequireDualStack", 1),
        ("a7", json!({"clusterIP": "None", "selector": selector}), json!([four]), "SingleStack", 1),
        (
            "a8",
            json!({"clusterIP": "None", "selector": selector, "ipFamilyPolicy": "PreferDualStack"}),
            json!([four, six]),
            "PreferDualStack",
            1,
        ),
        ("a9", json!({"clusterIP": "fd00:1::55"}), json!([six]), "SingleStack", 1),
        (
            "a10",
            json!({"clusterIP": "10.1.0.77", "ipFamilyPolicy": "PreferDualStack"}),
            json!([four, six]),
            "PreferDualStack",
            2,
        ),
    ] {
        let mut spec = json!({"ports": [{"port": 80}]});
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let made = api.post(SERVICES, &service(name, spec)).await.ok();
        let spec = &made["spec"];
        assert_eq!((&spec["ipFamilies"], &spec["ipFamilyPolicy"]), (&families, &json!(policy)), "{name}");
        let ips = spec["clusterIPs"].as_array().unwrap();
        assert_eq!((ips.len(), &ips[0]), (count, &spec["clusterIP"]), "{name}");
        for (ip, family) in ips.iter().zip(families.as_array().unwrap()).filter(|(ip, _)| *ip != "None") {
            let address = api.get(&format!("{ADDRESSES}/{}", ip.as_str().unwrap())).await.ok();
            assert_eq!(&address["metadata"]["labels"]["ipaddress.kubernetes.io/ip-family"], family, "{name}");
        }
    }
    // A second family can be had later, and given up again.
    let (path, before) = (format!("{SERVICES}/a1"), api.get(&format!("{SERVICES}/a1")).await.ok());
    let both = api.merge(&path, &json!({"spec": {"ipFamilyPolicy": "PreferDualStack"}})).await.ok();
    assert_eq!(both["spec"]["clusterIPs"][0], before["spec"]["clusterIP"]);
    let second = both["spec"]["clusterIPs"][1].as_str().unwrap().to_owned();
    let one = api.merge(&path, &json!({"spec": {"ipFamilyPolicy": "SingleStack"}})).await.ok();
    assert_eq!(one["spec"]["clusterIPs"], before["spec"]["clusterIPs"]);
    assert_eq!(one["spec"]["ipFamilies"], json!(["IPv4"]));
    assert_eq!(api.get(&format!("{ADDRESSES}/{second}")).await.code, 404);
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
