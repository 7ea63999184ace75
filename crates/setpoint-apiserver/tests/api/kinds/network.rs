use serde_json::{Value, json};

use super::Kind;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                         must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
                         validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

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
    const NO_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
    for (bad, shown, why) in [
        ("web", r#""web""#, NO_ADDRESS),
        ("\u{7}", r#""\a""#, NO_ADDRESS),
        ("10.96.7", r#""10.96.7""#, NO_ADDRESS),
        ("10.96.7.256", r#""10.96.7.256""#, NO_ADDRESS),
        ("10.96.7.7/24", r#""10.96.7.7/24""#, NO_ADDRESS),
        ("fe80::1%eth0", r#""fe80::1%eth0""#, NO_ADDRESS),
        ("..", r#""..""#, NO_ADDRESS),
        ("10.96.7.07", r#""10.96.7.07""#, "must not have leading 0s"),
        ("::ffff:10.96.7.7", r#""::ffff:10.96.7.7""#, "must not be an IPv4-mapped IPv6 address"),
        ("fd00:0::7", r#""fd00:0::7""#, r#"must be in canonical form ("fd00::7")"#),
        ("FD00::7", r#""FD00::7""#, r#"must be in canonical form ("fd00::7")"#),
    ] {
        let expect = format!("metadata.name: Invalid value: {shown}: {why}");
        addresses.check(&[("/metadata/name", json!(bad))], &[&expect]).await;
    }
    addresses
        .check(
            &[("/metadata/name", json!("web")), ("/spec", json!({}))],
            &[
                &format!("metadata.name: Invalid value: \"web\": {NO_ADDRESS}"),
                "spec.parentRef: Required value",
            ],
        )
        .await;
    addresses
        .check(
            &[("/spec/parentRef", json!({"group": "A", "resource": "a/b", "namespace": "..", "name": "%"}))],
            &[
                &format!("spec.parentRef.group: Invalid value: \"A\": {SUBDOMAIN}"),
                "spec.parentRef.resource: Invalid value: \"a/b\": may not contain '/'",
                "spec.parentRef.name: Invalid value: \"%\": may not contain '%'",
                "spec.parentRef.namespace: Invalid value: \"..\": may not be '..'",
            ],
        )
        .await;
}

#[tokio::test]
async fn an_api_service_is_called_after_its_version_and_group() {
    let service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.example.com"},
        "spec": {"group": "example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100}
    });
    let services = Kind::new("/apis/apiregistration.k8s.io/v1/apiservices", service);
    services.check(&[], &[]).await;
    let named = |name: &str, shown: &str| {
        format!("metadata.name: Invalid value: {name:?}: must be `spec.version+\".\"+spec.group`: {shown:?}")
    };
    for name in ["v2.example.com", "v1.", "v1", "V1.example.com", ".", ".."] {
        let expect = match name {
            "." | ".." => format!("metadata.name: Invalid value: {name:?}: may not be '{name}'"),
            _ => named(name, "v1.example.com"),
        };
        services.check(&[("/metadata/name", json!(name))], &[&expect]).await;
    }
    services
        .check(
            &[("/metadata/name", json!("v1/example%com"))],
            &[
                "metadata.name: Invalid value: \"v1/example%com\": may not contain '/'",
                "metadata.name: Invalid value: \"v1/example%com\": may not contain '%'",
            ],
        )
        .await;
    services
        .check(
            &[("/spec", json!({}))],
            &[
                &named("v1.example.com", "."),
                "spec.group: Required value: only v1 may have an empty group and it better be legacy kube",
                "spec.version: Invalid value: \"\": a DNS-1035 label must consist of lower case alphanumeric characters or \
                 '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or \
                 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
                "spec.groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000",
                "spec.versionPriority: Invalid value: 0: must be positive and less than 1000",
            ],
        )
        .await;
    services
        .check(
            &[("/spec/caBundle", json!("AAAA")), ("/spec/insecureSkipTLSVerify", json!(true))],
            &[
                "spec.caBundle: Invalid value: \"3 bytes\": local APIServices may not have a caBundle",
                "spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify",
            ],
        )
        .await;
    services
        .check(
            &[
                ("/spec/service", json!({"port": 70000})),
                ("/spec/caBundle", json!("AAAA")),
                ("/spec/insecureSkipTLSVerify", json!(true)),
            ],
            &[
                "spec.service.namespace: Required value",
                "spec.service.name: Required value",
                "spec.service.port: Invalid value: 70000: port is not valid: must be between 1 and 65535, inclusive",
                "spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present",
            ],
        )
        .await;
    let made = services.made(&[("/spec/service", json!({"name": "a", "namespace": "b"}))]).await;
    assert_eq!(made["spec"]["service"]["port"], 443);
}
