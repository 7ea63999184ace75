//! What flags make of the server.

use http::Request;
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints, Pod, Service};
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};
use setpoint_apiserver::User;
use setpoint_apiserver::pki::CertificateAuthority;
use setpoint_env::Env;

use crate::environment::{Folder, HANG, now};

/// Who the server takes the sender of these headers for; or the code of its refusal.
async fn whoami(client: &Client, headers: &[(&str, &str)]) -> Result<Value, u16> {
    let mut request = Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    match client.request::<Value>(request.body(b"{}".to_vec()).unwrap()).await {
        Ok(answer) => Ok(answer["status"]["userInfo"]["username"].clone()),
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_front_proxy_speaks_for_users_and_users_for_themselves() {
    let folder = Folder::new();
    let proxies = CertificateAuthority::generate(&Env::system()).unwrap();
    std::fs::write(folder.path("proxies.crt"), proxies.certificate_pem()).unwrap();
    let authority = format!("--requestheader-client-ca-file={}", folder.path("proxies.crt").display());
    let flags = [
        &authority,
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    ];
    let environment = folder.start(&flags).await;
    let headers = [("X-Remote-User", "bob"), ("X-Remote-Group", "developers")];
    let proxy = environment.user_of(&proxies, &User::new("front-proxy", ["system:masters"]));
    assert_eq!(whoami(&proxy, &headers).await, Ok(json!("bob")));
    assert_eq!(whoami(&proxy, &[]).await, Err(401), "a proxy is no user");
    let other = environment.user_of(&proxies, &User::new("other", ["system:masters"]));
    assert_eq!(whoami(&other, &headers).await, Err(401), "its name is not allowed");
    let jane = environment.user(&User::new("jane", [""; 0]));
    assert_eq!(whoami(&jane, &headers).await, Ok(json!("jane")), "headers of a user are not heard");
    let namesake = environment.user(&User::new("front-proxy", [""; 0]));
    assert_eq!(whoami(&namesake, &headers).await, Ok(json!("front-proxy")), "a name is no authority");

    let maps: Api<ConfigMap> = Api::namespaced(environment.admin(), "kube-system");
    let trusted = maps.get("extension-apiserver-authentication").await.unwrap().data.unwrap();
    assert_eq!(trusted["requestheader-client-ca-file"], proxies.certificate_pem());
    assert_eq!(trusted["requestheader-allowed-names"], r#"["front-proxy"]"#);
    assert!(trusted["client-ca-file"].contains("BEGIN CERTIFICATE"));
    assert_ne!(trusted["client-ca-file"], proxies.certificate_pem());
}

#[tokio::test]
async fn without_a_front_proxy_its_certificates_open_no_connection() {
    let folder = Folder::new();
    let environment = folder.start(&["--requestheader-username-headers=X-Remote-User"]).await;
    let proxies = CertificateAuthority::generate(&Env::system()).unwrap();
    let proxy = environment.user_of(&proxies, &User::new("front-proxy", [""; 0]));
    let request = Request::get("/healthz").body(kube::client::Body::empty()).unwrap();
    assert!(proxy.send(request).await.is_err());
    let jane = environment.user(&User::new("jane", [""; 0]));
    assert_eq!(whoami(&jane, &[("X-Remote-User", "bob")]).await, Ok(json!("jane")));
}

fn service(name: &str, policy: &str) -> Service {
    let spec = json!({"ports": [{"port": 80}], "ipFamilyPolicy": policy});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

#[tokio::test]
async fn services_get_their_addresses_from_the_ranges_that_were_given() {
    let folder = Folder::new();
    let ranges = "--service-cluster-ip-range=10.7.0.0/28,fd07::/120";
    let environment = folder.start(&[ranges, "--advertise-address=192.0.2.7"]).await;
    let services: Api<Service> = Api::default_namespaced(environment.admin());
    let own = services.get("kubernetes").await.unwrap().spec.unwrap();
    assert_eq!(own.cluster_ip.as_deref(), Some("10.7.0.1"));
    let made = services.create(&PostParams::default(), &service("a", "RequireDualStack")).await.unwrap();
    let addresses = made.spec.unwrap().cluster_ips.unwrap();
    assert!(addresses[0].starts_with("10.7.0.") && addresses[1].starts_with("fd07::"), "{addresses:?}");
    let cidrs: Api<ServiceCIDR> = Api::all(environment.admin());
    let cidr = cidrs.get("kubernetes").await.unwrap().spec.unwrap();
    assert_eq!(cidr.cidrs, Some(vec!["10.7.0.0/28".to_owned(), "fd07::/120".to_owned()]));
}

#[tokio::test]
async fn the_service_kubernetes_leads_to_the_address_that_was_given() {
    let folder = Folder::new();
    let environment = folder.start(&["--advertise-address=192.0.2.7"]).await;
    let endpoints: Api<Endpoints> = Api::default_namespaced(environment.admin());
    let begun = now();
    let found = loop {
        if let Some(found) = endpoints.get_opt("kubernetes").await.unwrap() {
            break found;
        }
        assert!(now().saturating_duration_since(begun) < HANG);
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    let subset = found.subsets.unwrap().remove(0);
    assert_eq!(subset.addresses.unwrap()[0].ip, "192.0.2.7");
    assert_eq!(subset.ports.unwrap()[0].port, i32::from(environment.port));
}

/// The code of the answer to the rest of a list that was begun before.
async fn rest_of(maps: &Api<ConfigMap>, token: &str) -> u16 {
    let list = maps.list(&ListParams::default().limit(1).continue_token(token)).await;
    match list {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn history_gets_as_old_as_it_was_told() {
    for (interval, is_forgotten) in [("100ms", true), ("0", false)] {
        let folder = Folder::new();
        let environment = folder.start(&[&format!("--etcd-compaction-interval={interval}")]).await;
        let maps: Api<ConfigMap> = Api::default_namespaced(environment.admin());
        let create = async |name: &str| {
            let mut map = ConfigMap::default();
            map.metadata.name = Some(name.to_owned());
            maps.create(&PostParams::default(), &map).await.unwrap();
        };
        create("a").await;
        create("b").await;
        let list = maps.list(&ListParams::default().limit(1)).await.unwrap();
        let token = list.metadata.continue_.unwrap();
        let begun = now();
        let limit = if is_forgotten { HANG } else { std::time::Duration::from_secs(1) };
        let mut code = rest_of(&maps, &token).await;
        for number in 0.. {
            if code != 200 || now().saturating_duration_since(begun) > limit {
                break;
            }
            create(&format!("c{number}")).await;
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            code = rest_of(&maps, &token).await;
        }
        assert_eq!(code, if is_forgotten { 410 } else { 200 }, "{interval}");
    }
}

#[tokio::test]
async fn admission_plugins_are_switched_by_name() {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i:1", "imagePullPolicy": "IfNotPresent"}]},
    }))
    .unwrap();
    for (flags, policy, tolerations) in [
        (&[][..], "IfNotPresent", 2),
        (&["--enable-admission-plugins=AlwaysPullImages"], "Always", 2),
        (&["--disable-admission-plugins=ServiceAccount,DefaultTolerationSeconds"], "IfNotPresent", 0),
    ] {
        let folder = Folder::new();
        let environment = folder.start(flags).await;
        let pods: Api<Pod> = Api::default_namespaced(environment.admin());
        let spec = pods.create(&PostParams::default(), &pod).await.unwrap().spec.unwrap();
        assert_eq!(spec.containers[0].image_pull_policy.as_deref(), Some(policy), "{flags:?}");
        assert_eq!(spec.tolerations.unwrap_or_default().len(), tolerations, "{flags:?}");
    }
    // A pod needs its account where nobody says otherwise: without the flag of every environment.
    let folder = Folder::new();
    let environment = folder.start(&["--disable-admission-plugins=Priority"]).await;
    let pods: Api<Pod> = Api::default_namespaced(environment.admin());
    let refused = pods.create(&PostParams::default(), &pod).await.unwrap_err().to_string();
    assert!(refused.contains("serviceaccount"), "{refused}");
}
