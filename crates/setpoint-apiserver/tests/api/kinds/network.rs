use serde_json::{Value, json};

use super::Kind;

fn kind(path: &'static str, kind: &str, spec: Value) -> Kind {
    let object = json!({"apiVersion": "networking.k8s.io/v1", "kind": kind, "metadata": {"name": "web"}, "spec": spec});
    Kind::new(path, object)
}

#[tokio::test]
async fn ingresses() {
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    let ingresses = kind(
        "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
        "Ingress",
        json!({"defaultBackend": backend}),
    );
    ingresses
        .check(
            &[("/spec", json!({}))],
            &["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"],
        )
        .await;
    ingresses
        .check(
            &[("/spec/rules", json!([{"host": "1.2.3.4", "http": {"paths": [{"path": "a", "pathType": "Exact", "backend": backend}]}}]))],
            &[
                "spec.rules[0].host: Invalid value: \"1.2.3.4\": must be a DNS name, not an IP address",
                "spec.rules[0].http.paths[0].path: Invalid value: \"a\": must be an absolute path",
            ],
        )
        .await;
}

#[tokio::test]
async fn network_policies() {
    let policies = kind(
        "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
        "NetworkPolicy",
        json!({"podSelector": {}}),
    );
    let made = policies.made(&[("/spec/egress", json!([{"ports": [{"port": 53}]}]))]).await;
    assert_eq!(made["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(made["spec"]["egress"][0]["ports"][0]["protocol"], "TCP");
    policies
        .check(
            &[("/spec/ingress", json!([{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}}, {}]}]))],
            &[
                "spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: \"11.0.0.0/16\": must be a strict subset of \
                 `cidr`",
                "spec.ingress[0].from[1]: Required value: must specify a peer",
            ],
        )
        .await;
}

#[tokio::test]
async fn endpoint_slices() {
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "web"},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]
    });
    let slices = Kind::new("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice);
    let made = slices.made(&[]).await;
    assert_eq!(made["ports"], json!([{"name": "", "port": 80, "protocol": "TCP"}]));
    slices
        .check(
            &[("/addressType", json!("Odd")), ("/endpoints/0/addresses", json!([]))],
            &[
                "addressType: Unsupported value: \"Odd\": supported values: \"FQDN\", \"IPv4\", \"IPv6\"",
                "endpoints[0].addresses: Required value",
            ],
        )
        .await;
}

#[tokio::test]
async fn an_ip_address_is_called_what_it_is() {
    let address = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress", "metadata": {"name": "10.96.7.7"},
        "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "web"}}
    });
    let addresses = Kind::new("/apis/networking.k8s.io/v1/ipaddresses", address);
    for good in ["10.96.7.7", "fd00::7"] {
        addresses.check(&[("/metadata/name", json!(good))], &[]).await;
    }
    for (bad, why) in [
        ("web", r#""web": ParseAddr("web"): unable to parse IP"#),
        ("\u{7}", r#""\a": ParseAddr("\a"): unable to parse IP"#),
        ("10.96.7.07", r#""10.96.7.07": ParseAddr("10.96.7.07"): unable to parse IP"#),
        ("fd00:0::7", r#""fd00:0::7": must be a canonical form IP address"#),
    ] {
        let expect = format!("metadata.name: Invalid value: {why}");
        addresses.check(&[("/metadata/name", json!(bad))], &[&expect]).await;
    }
}

#[tokio::test]
async fn an_api_service_is_called_after_its_version_and_group() {
    let service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.example.com"},
        "spec": {"group": "example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100}
    });
    let services = Kind::new("/apis/apiregistration.k8s.io/v1/apiservices", service);
    services.check(&[], &[]).await;
    services
        .check(
            &[("/metadata/name", json!("v2.example.com"))],
            &["metadata.name: Invalid value: \"v2.example.com\": must be `spec.version+\".\"+spec.group`: \"v1.example.com\""],
        )
        .await;
}
