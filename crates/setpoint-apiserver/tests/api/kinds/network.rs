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

fn service_cidrs(cidrs: &[&str]) -> Kind {
    kind("/apis/networking.k8s.io/v1/servicecidrs", "ServiceCIDR", json!({"cidrs": cidrs}))
}

#[tokio::test]
async fn a_service_cidr_has_a_network_of_each_family_at_most() {
    const NO_NETWORK: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
    const ZEROS: &str = "must not have leading 0s in IP or prefix length";
    const HOST: &str = "must not have bits set beyond the prefix length";
    const MAPPED: &str = "must not have an IPv4-mapped IPv6 address";
    const FAMILY: &str =
        "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
    let ranges = service_cidrs(&["10.1.0.0/16"]);
    for good in [
        &["10.1.0.0/16"][..],
        &["fd00::/112"],
        &["10.1.0.0/16", "fd00::/112"],
        &["fd00::/112", "10.1.0.0/16"],
        &["0.0.0.0/0", "::/0"],
        &["10.1.0.0/32", "1:0:2:3:4:5:6:7/128"],
    ] {
        ranges.check(&[("/spec/cidrs", json!(good))], &[]).await;
    }
    for none in [json!([]), Value::Null] {
        ranges
            .check(&[("/spec/cidrs", none)], &["spec.cidrs: Required value: at least one CIDR required"])
            .await;
    }
    let many = json!(["10.1.0.0/16", "fd00::/112", "x"]);
    let expect = format!("spec.cidrs: Invalid value: {{\"CIDRs\":{many}}}: may only hold up to 2 values");
    ranges.check(&[("/spec/cidrs", many)], &[&expect]).await;
    // What is wrong with each, and whether both are of one family.
    for (cidrs, why, is_one_family) in [
        (&["10.1.0.0/16", "10.2.0.0/16"][..], &["", ""][..], true),
        (&["10.1.0.0/16", "10.1.0.0/16"], &["", ""], true),
        (&["fd00::/112", "fd01::/112"], &["", ""], true),
        (&["x", ""], &[NO_NETWORK, NO_NETWORK], false),
        (&["x", "10.1.0.0/16"], &[NO_NETWORK, ""], false),
        (&["10.1.0.0", "10.1.0.0/33"], &[NO_NETWORK, NO_NETWORK], false),
        (&["fe80::%eth0/64", "fd00::/129"], &[NO_NETWORK, NO_NETWORK], false),
        (&["10.1.0.1/16", "10.2.0.1/16"], &[HOST, HOST], true),
        (&["010.1.0.0/16", "10.2.0.0/16"], &[ZEROS, ""], true),
        (&["10.1.0.0/016", "fd00::/0112"], &[ZEROS, ZEROS], false),
        (&["::ffff:10.1.0.0/112", "10.2.0.0/16"], &[MAPPED, ""], true),
        (&["::ffff:10.1.0.0/16", "fd00::/112"], &[MAPPED, ""], false),
        (&["FD00::/112"], &["must be in canonical form (\"fd00::/112\")"], false),
        (&["FD00::1/112"], &[HOST], false),
        (&["::1.2.0.0/112"], &["must be in canonical form (\"::102:0/112\")"], false),
        (&["1::2:0:0:0:0/64"], &["must be in canonical form (\"1:0:0:2::/64\")"], false),
    ] {
        let mut expect = Vec::new();
        for (index, (cidr, why)) in cidrs.iter().zip(why).enumerate().filter(|(_, (_, why))| !why.is_empty())
        {
            expect.push(format!("spec.cidrs[{index}]: Invalid value: {cidr:?}: {why}"));
        }
        if is_one_family {
            expect.push(format!("spec.cidrs: Invalid value: {}: {FAMILY}", json!(cidrs)));
        }
        let expect: Vec<&str> = expect.iter().map(String::as_str).collect();
        ranges.check(&[("/spec/cidrs", json!(cidrs))], &expect).await;
    }
}

#[tokio::test]
async fn a_network_of_the_other_family_may_join_a_service_cidr_and_nothing_else_changes() {
    let set = |cidrs: Value| [("/spec/cidrs", cidrs)];
    service_cidrs(&["10.1.0.0/16"])
        .check_updates(&[
            (
                &set(json!(["10.2.0.0/16"])),
                &["spec.cidrs[0]: Invalid value: \"10.2.0.0/16\": field is immutable"],
            ),
            (&set(json!(["x"])), &["spec.cidrs[0]: Invalid value: \"x\": field is immutable"]),
            // An empty list counts as none: kube-apiserver shows it as it came.
            (&set(json!([])), &["spec.cidrs: Invalid value: null: field is immutable"]),
            (&set(Value::Null), &["spec.cidrs: Invalid value: null: field is immutable"]),
            (
                &set(json!(["fd00::/112", "10.1.0.0/16"])),
                &["spec.cidrs[0]: Invalid value: \"fd00::/112\": field is immutable"],
            ),
            (
                &set(json!(["10.1.0.0/16", "10.2.0.0/16"])),
                &["spec.cidrs: Invalid value: [\"10.1.0.0/16\",\"10.2.0.0/16\"]: may specify no more than one IP for \
                   each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"],
            ),
            (
                &set(json!(["x", "fd00::/112"])),
                &[
                    "spec.cidrs[0]: Invalid value: \"x\": field is immutable",
                    "spec.cidrs[0]: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or \
                     2001:db8::/64)",
                ],
            ),
            (
                &set(json!(["10.1.0.0/16", "fd00::/112", "x"])),
                &["spec.cidrs: Invalid value: [\"10.1.0.0/16\",\"fd00::/112\",\"x\"]: field is immutable"],
            ),
            (&set(json!(["10.1.0.0/16", "fd00::/112"])), &[]),
            (
                &set(json!(["10.1.0.0/16"])),
                &["spec.cidrs: Invalid value: [\"10.1.0.0/16\"]: field is immutable"],
            ),
            (
                &set(json!(["10.1.0.0/16", "fd01::/112"])),
                &["spec.cidrs[1]: Invalid value: \"fd01::/112\": field is immutable"],
            ),
        ])
        .await;
}
