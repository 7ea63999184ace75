//! Who may do what: strangers, certificates, tokens; and what is written down about it.

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use setpoint_apiserver::{SigningKey, User};

use crate::environment::{Folder, status};

const NAMESPACES: &str = "/api/v1/namespaces";

#[tokio::test]
async fn strangers_see_its_health_and_its_version_and_nothing_else() {
    let folder = Folder::new();
    let environment = folder.start(&[]).await;
    let stranger = environment.stranger();
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        assert_eq!(status(&stranger, path).await, Some(200), "{path}");
    }
    for path in [NAMESPACES, "/metrics", "/apis", "/openapi/v2", "/livez/ping"] {
        assert_eq!(status(&stranger, path).await, Some(403), "{path}");
    }
    assert_eq!(
        status(&environment.bearer("wrong"), "/healthz").await,
        Some(401),
        "bad credentials are not none"
    );
    assert_eq!(status(&environment.admin(), NAMESPACES).await, Some(200));
    assert_eq!(status(&environment.user(&User::new("jane", [""; 0])), NAMESPACES).await, Some(403));
}

#[tokio::test]
async fn strangers_can_be_shut_out() {
    let folder = Folder::new();
    let environment = folder.start(&["--anonymous-auth=false"]).await;
    assert_eq!(status(&environment.stranger(), "/healthz").await, Some(401));
    assert_eq!(status(&environment.admin(), "/healthz").await, Some(200));
}

#[tokio::test]
async fn whoever_is_known_may_do_everything_if_everything_is_allowed() {
    let folder = Folder::new();
    let environment = folder.start(&["--authorization-mode=AlwaysAllow"]).await;
    assert_eq!(status(&environment.user(&User::new("jane", [""; 0])), NAMESPACES).await, Some(200));
    for path in [NAMESPACES, "/healthz"] {
        assert_eq!(
            status(&environment.stranger(), path).await,
            Some(401),
            "strangers are not allowed with it"
        );
    }
}

#[tokio::test]
async fn tokens_of_a_file_are_taken_and_requests_are_written_down() {
    let folder = Folder::new();
    let (tokens, log, policy) =
        (folder.path("tokens.csv"), folder.path("audit.log"), folder.path("policy.yaml"));
    std::fs::write(&tokens, "secret,root,1,\"system:masters\"\nother,jane,2\n").unwrap();
    let rules = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: None\n  nonResourceURLs: [/healthz]\n- level: Metadata\n";
    std::fs::write(&policy, rules).unwrap();
    let flags = [
        format!("--token-auth-file={}", tokens.display()),
        format!("--audit-log-path={}", log.display()),
        format!("--audit-policy-file={}", policy.display()),
        "--audit-log-maxage=1".to_owned(),
    ];
    let mut environment = folder.start(&flags.each_ref().map(String::as_str)).await;
    assert_eq!(status(&environment.bearer("secret"), NAMESPACES).await, Some(200));
    assert_eq!(status(&environment.bearer("other"), NAMESPACES).await, Some(403));
    environment.stop().await;
    let written = std::fs::read_to_string(log).unwrap();
    let events: Vec<serde_json::Value> =
        written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen = |user: &str, code: u64| {
        events.iter().any(|event| {
            event["user"]["username"] == user
                && event["requestURI"] == NAMESPACES
                && event["responseStatus"]["code"] == code
        })
    };
    assert!(seen("root", 200) && seen("jane", 403), "{written}");
    assert!(!written.contains("/healthz"), "{written}");
}

#[tokio::test]
async fn tokens_of_service_accounts_are_signed_by_the_key_that_was_given() {
    let folder = Folder::new();
    let environment = folder.start(&[]).await;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(environment.admin());
    let mut account = ServiceAccount::default();
    account.metadata.name = Some("robot".to_owned());
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let asked = TokenRequest { spec: Some(TokenRequestSpec::default()), ..TokenRequest::default() };
    let answer = accounts.create_token_request("robot", &PostParams::default(), &asked).await.unwrap();
    let issuer = format!("https://127.0.0.1:{}/", environment.port);
    assert_eq!(answer.spec.unwrap().audiences, Some(vec![issuer.clone()]));
    let token = answer.status.unwrap().token.unwrap();
    // It is known, and may ask what it may do.
    assert_eq!(status(&environment.bearer(&token), "/apis").await, Some(200));
    assert_eq!(status(&environment.bearer(&token), NAMESPACES).await, Some(403));
    drop(environment);

    // The same objects, and a key that has signed nothing yet.
    let keys = folder.path("certs");
    std::fs::write(keys.join("new.key"), SigningKey::generate().to_pem()).unwrap();
    let signing = format!("--service-account-signing-key-file={}", keys.join("new.key").display());
    let verifying = format!("--service-account-key-file={}", keys.join("new.key").display());
    let issuers = format!("--service-account-issuer=https://new/,{issuer}");
    let environment = folder.start(&[&signing, &verifying, &issuers]).await;
    assert_eq!(
        status(&environment.bearer(&token), "/apis").await,
        Some(401),
        "that key is not trusted any more"
    );
}

#[tokio::test]
async fn certificates_are_made_where_there_are_none_and_kept() {
    let folder = Folder::new();
    let certs = folder.path("own");
    let flags = [format!("--cert-dir={}", certs.display()), "--anonymous-auth=true".to_owned()];
    let read = |name: &str| std::fs::read_to_string(certs.join(name));
    let mut before = None;
    for _ in 0..2 {
        let mut server = folder.program("kube-apiserver");
        let mut etcd = folder.program("etcd");
        let (port, etcd_port) = (crate::environment::free_port(), crate::environment::free_port());
        let _etcd = etcd.args(folder.etcd_flags(etcd_port)).spawn().unwrap();
        let flags = folder.server_flags(port, etcd_port, &flags.each_ref().map(String::as_str));
        let mut server = server.args(flags).spawn().unwrap();
        let begun = crate::environment::now();
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err()
            || read("apiserver.key").is_err()
        {
            assert!(crate::environment::now().saturating_duration_since(begun) < crate::environment::HANG);
            assert!(server.try_wait().unwrap().is_none(), "{}", folder.log("kube-apiserver"));
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        // The last one of the file is the one to trust.
        let chain = read("apiserver.crt").unwrap();
        let root = chain.rfind("-----BEGIN").map(|at| chain[at..].to_owned()).unwrap();
        let root = pem::parse(root).unwrap().into_contents();
        let mut config = kube::Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
        config.root_cert = Some(vec![root]);
        let client = kube::Client::try_from(config).unwrap();
        let answer = async {
            while status(&client, "/healthz").await != Some(200) {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(crate::environment::HANG, answer).await.expect("clients trust it");
        crate::environment::terminate(&server);
        server.wait().await.unwrap();
        let now = (chain, read("apiserver.key").unwrap());
        assert!(before.as_ref().is_none_or(|before| *before == now), "those that are there are kept");
        before = Some(now);
    }
}
