//! Who asks, and what they may do: the server in front is asked, and not more often than it has to be.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};
use setpoint_apiserver::audit::AuditLog;
use setpoint_apiserver::extension::{Builder, Delegation, ExtensionServer, Kind};
use setpoint_apiserver::{ApiServer, TokenFile, User};
use setpoint_env::Env;
use tower::{Service, ServiceExt};

use super::{Gauge, TIDES};
use crate::aggregation::front_proxy;
use crate::support::Api;

/// A server in front that counts what it is asked, and one behind it that is called directly.
struct Asking {
    api: Api,
    behind: ExtensionServer,
    tokens: Arc<AtomicUsize>,
    rights: Arc<AtomicUsize>,
}

impl Asking {
    async fn new() -> Asking {
        Asking::with(ExtensionServer::builder()).await
    }

    async fn with(builder: Builder) -> Asking {
        let env = Env::system();
        let tokens = TokenFile::parse("good,jane,7,\"sailors,cooks\"\n").unwrap();
        let server = ApiServer::builder().env(Env::seeded(1)).tokens(tokens).build();
        let (tokens, rights) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (service, of_tokens, of_rights) =
            (server.as_user(User::admin()), Arc::clone(&tokens), Arc::clone(&rights));
        let counted = move |request: Request<kube::client::Body>| {
            let count = match request.uri().path() {
                path if path.ends_with("/tokenreviews") => Some(&of_tokens),
                path if path.ends_with("/subjectaccessreviews") => Some(&of_rights),
                _ => None,
            };
            count.map(|count| count.fetch_add(1, Ordering::Relaxed));
            service.clone().call(request)
        };
        let client = kube::Client::new(tower::service_fn(counted), "default");
        let builder = builder.kind(Kind::made(Gauge)).delegation(Delegation::to(client));
        let behind = builder.build(&env).await.unwrap();
        Asking { api: Api::with(server), behind, tokens, rights }
    }

    async fn get(&self, path: &str, token: &str) -> u16 {
        let request = Request::get(path).header("authorization", format!("Bearer {token}"));
        let request = request.body(Full::<Bytes>::default()).unwrap();
        self.behind.clone().oneshot(request).await.unwrap().status().as_u16()
    }

    /// How often it was asked for a token, and for rights.
    fn asked(&self) -> (usize, usize) {
        (self.tokens.load(Ordering::Relaxed), self.rights.load(Ordering::Relaxed))
    }

    async fn allow(&self) {
        let role = json!({"metadata": {"name": "r"}, "rules": [
            {"apiGroups": ["wardle.example.com"], "resources": ["tides"], "verbs": ["list"]}]});
        self.api.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await.ok();
        let binding = json!({"metadata": {"name": "r"}, "subjects": [{"kind": "Group", "name": "cooks"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"}});
        self.api.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await.ok();
    }
}

#[tokio::test(start_paused = true)]
async fn answers_count_for_ten_seconds_good_ones_and_bad_ones() {
    let asking = Asking::new().await;
    assert_eq!(asking.get(TIDES, "good").await, 403);
    assert_eq!(asking.asked(), (1, 1));
    asking.allow().await;
    assert_eq!(asking.get(TIDES, "good").await, 403, "what was said counts for a while");
    assert_eq!(asking.asked(), (1, 1));
    assert_eq!(asking.get(TIDES, "bad").await, 401);
    assert_eq!(asking.get(TIDES, "bad").await, 401);
    assert_eq!(asking.asked(), (2, 1), "of a bad token, too");
    tokio::time::advance(Duration::from_secs(11)).await;
    for _ in 0..5 {
        assert_eq!(asking.get(TIDES, "good").await, 200);
    }
    assert_eq!(asking.asked(), (3, 2));
    assert_eq!(asking.get(&format!("{TIDES}/north"), "good").await, 403, "another question is asked");
    assert_eq!(asking.asked(), (3, 3));
    assert_eq!(asking.get("/healthz", "good").await, 200);
    assert_eq!(asking.asked(), (3, 3), "everybody may know whether it is well");
    asking.api.delete("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/r", &Value::Null).await.ok();
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(asking.get(TIDES, "good").await, 403, "what was taken away is gone");
}

#[tokio::test]
async fn who_did_what_is_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let asking = Asking::with(ExtensionServer::builder().audit(AuditLog::new(&path))).await;
    asking.allow().await;
    assert_eq!(asking.get(TIDES, "good").await, 200);
    asking.behind.close().await;
    let log = std::fs::read_to_string(path).unwrap();
    let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let done =
        events.iter().find(|event| event["stage"] == "ResponseComplete" && event["requestURI"] == TIDES);
    let done = done.unwrap_or_else(|| panic!("{log}"));
    assert_eq!((&done["user"]["username"], &done["verb"]), (&json!("jane"), &json!("list")));
    assert_eq!(done["user"]["groups"], json!(["sailors", "cooks", "system:authenticated"]));
}

#[tokio::test]
async fn a_list_of_proxies_that_cannot_be_read_trusts_nobody() {
    let says = Api::new();
    let (authority, _) = front_proxy();
    let map = |names: &str| {
        json!({"metadata": {"name": "extension-apiserver-authentication"}, "data": {
            "requestheader-client-ca-file": authority.certificate_pem(),
            "requestheader-username-headers": "[\"X-Remote-User\"]",
            "requestheader-allowed-names": names,
        }})
    };
    let maps = "/api/v1/namespaces/kube-system/configmaps";
    says.post(maps, &map("front-proxy-client")).await.ok();
    let build = async || {
        let delegation = Delegation::to(says.server.client());
        ExtensionServer::builder().kind(Kind::made(Gauge)).delegation(delegation).build(&Env::system()).await
    };
    let refused = build().await.expect_err("it says whom to trust in no way that can be read");
    let why = std::error::Error::source(&refused).unwrap().to_string();
    assert!(why.contains("requestheader-allowed-names that is not a list of names"), "{why}");
    let path = format!("{maps}/extension-apiserver-authentication");
    says.put(&path, &map("[\"front-proxy-client\"]")).await.ok();
    build().await.unwrap();
}
