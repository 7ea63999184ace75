//! A proxy in front of the server, and those who pretend to be one.

use serde_json::{Value, json};

use super::*;
use crate::{ApiServer, FrontProxy, TokenFile};

const REVIEWS: &str = "https://test.example/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// Who the server takes the sender of these headers for; or the code of its refusal.
async fn whoami(
    server: &TestServer,
    client: Option<&Identity>,
    headers: &[(&str, &str)],
) -> Result<Value, u16> {
    let io = TokioIo::new(server.tls(client, Version::Http1).await.unwrap());
    let (mut sender, connection) = http1::handshake(io).await.unwrap();
    let _connection = server.env.spawn(async { drop(connection.await) });
    let mut request =
        Request::post(REVIEWS).header("content-type", "application/json").header("host", "test.example");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = sender.send_request(request.body(Full::new(Bytes::from("{}"))).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let body: Value = serde_json::from_str(&read(response).await.unwrap()).unwrap();
    if code < 300 { Ok(body["status"]["userInfo"].clone()) } else { Err(code) }
}

#[tokio::test]
async fn a_proxy_speaks_for_users_and_nobody_else_does() {
    let env = Env::seeded(1);
    let (clients, proxies) =
        (CertificateAuthority::generate(&env).unwrap(), CertificateAuthority::generate(&env).unwrap());
    let proxy = proxies.issue_client(&User::new("front-proxy", ["system:masters"])).unwrap();
    let other = proxies.issue_client(&User::new("other", ["system:masters"])).unwrap();
    let jane = clients.issue_client(&User::new("jane", ["developers"])).unwrap();
    let trusted = [clients.certificate_der().clone(), proxies.certificate_der().clone()];
    let identity = clients.issue_server(["test.example"]).unwrap();
    let tls = crate::pki::server_config(&env, &identity, &trusted).unwrap();
    let [client_authority, proxy_authority] = trusted;
    let settings = FrontProxy::new(vec![proxy_authority])
        .allowed_names(["front-proxy"])
        .username_headers(["X-Remote-User"])
        .uid_headers(["X-Remote-Uid"])
        .group_headers(["X-Remote-Group"])
        .extra_header_prefixes(["X-Remote-Extra-"]);
    let api = ApiServer::builder()
        .env(env.clone())
        .anonymous(true)
        .tokens(TokenFile::parse("secret,bob,1,").unwrap())
        .client_authorities(vec![client_authority])
        .front_proxy(settings)
        .build();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stage = Arc::new(Stage::default());
    let running = env.spawn({
        let (api, shutdown) = (api.clone(), stage.shutdown.clone());
        async move { api.serve(listener, tls, shutdown).await }
    });
    let server = TestServer { env, ca: clients, address, stage, running };

    let headers = [
        ("X-Remote-User", "joe"),
        ("X-Remote-Uid", "7"),
        ("X-Remote-Group", "a"),
        ("X-Remote-Group", "b"),
        ("X-Remote-Extra-Example.com%2fScope", "one"),
    ];
    let joe = json!({"username": "joe", "uid": "7", "groups": ["a", "b", "system:authenticated"],
        "extra": {"example.com/scope": ["one"]}});
    assert_eq!(whoami(&server, Some(&proxy), &headers).await, Ok(joe));
    assert_eq!(whoami(&server, Some(&proxy), &headers[1..]).await, Err(401), "no name");
    assert_eq!(whoami(&server, Some(&proxy), &[]).await, Err(401), "its certificate is not that of a user");
    assert_eq!(whoami(&server, Some(&other), &headers).await, Err(401), "its name is not allowed");
    let token = [("Authorization", "Bearer secret")];
    assert_eq!(whoami(&server, Some(&other), &token).await.unwrap()["username"], "bob");
    let mut both = headers.to_vec();
    assert_eq!(whoami(&server, Some(&jane), &both).await.unwrap()["username"], "jane");
    assert_eq!(whoami(&server, None, &both).await, Err(403), "anonymous");
    both.extend(token);
    assert_eq!(whoami(&server, None, &both).await.unwrap()["username"], "bob");

    let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
        kube::Api::namespaced(api.client(), "kube-system");
    let data = maps.get("extension-apiserver-authentication").await.unwrap().data.unwrap();
    assert!(data["client-ca-file"].starts_with("-----BEGIN CERTIFICATE-----\n"));
    assert!(data["requestheader-client-ca-file"].ends_with("-----END CERTIFICATE-----\n"));
    for (name, value) in [
        ("allowed-names", r#"["front-proxy"]"#),
        ("extra-headers-prefix", r#"["X-Remote-Extra-"]"#),
        ("group-headers", r#"["X-Remote-Group"]"#),
        ("uid-headers", r#"["X-Remote-Uid"]"#),
        ("username-headers", r#"["X-Remote-User"]"#),
    ] {
        assert_eq!(data[&format!("requestheader-{name}")], value, "{name}");
    }
    server.stage.shutdown.cancel();
    server.stopped().await;
}
