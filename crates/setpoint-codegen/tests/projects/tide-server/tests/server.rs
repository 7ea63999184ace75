//! The server behind an API server in this process, with no more rights than config/rbac gives it.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::Client;
use kube::api::{
    Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use setpoint::Env;
use setpoint_apiserver::extension::Beside;
use setpoint_apiserver::pki::CertificateAuthority;
use setpoint_apiserver::serve::CancellationToken;
use setpoint_apiserver::{ApiServer, FrontProxy, User};
use tide_server::{NAME, NAMESPACE, api, server};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A cluster with the server behind it.
struct Cluster {
    client: Client,
    _serving: JoinHandle<()>,
}

impl Cluster {
    async fn start() -> Cluster {
        let env = Env::system();
        let proxies = CertificateAuthority::generate(&env).unwrap();
        let proxy = proxies
            .issue_client(&User::new("front-proxy-client", [""; 0]))
            .unwrap();
        let api = ApiServer::builder()
            .proxy_client(proxy)
            .published_proxy(FrontProxy::usual(vec![proxies.certificate_der().clone()]))
            .build();
        let client = api.client();
        grant(&client).await;
        let account = format!("system:serviceaccount:{NAMESPACE}:{NAME}");
        let groups = [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{NAMESPACE}"),
        ];
        let own = server(api.client_as(User::new(account, groups)), &env)
            .await
            .expect("its roles are enough");
        let listener = TcpListener::bind("localhost:0").await.unwrap();
        let (admin, beside) = (client.clone(), Beside::new(NAMESPACE, NAME));
        let serving = tokio::spawn(async move {
            own.serve_beside(&admin, &beside, listener, CancellationToken::new())
                .await
                .unwrap();
        });
        let cluster = Cluster {
            client,
            _serving: serving,
        };
        cluster.is_ready().await;
        cluster
    }

    fn objects(&self) -> Api<api::Tide> {
        Api::default_namespaced(self.client.clone())
    }

    async fn is_ready(&self) {
        let ready = async {
            while self.objects().list(&ListParams::default()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), ready)
            .await
            .expect("it is registered");
    }
}

/// What config/rbac gives the server.
async fn grant(client: &Client) {
    let text = include_str!("../config/rbac/rbac.yaml");
    for document in text.split("---\n") {
        let value: serde_json::Value = serde_saphyr::from_str(document).unwrap();
        match value["kind"].as_str().unwrap() {
            "ClusterRoleBinding" => {
                let binding: ClusterRoleBinding = serde_json::from_value(value).unwrap();
                Api::all(client.clone())
                    .create(&PostParams::default(), &binding)
                    .await
                    .unwrap();
            }
            "RoleBinding" => {
                let binding: RoleBinding = serde_json::from_value(value).unwrap();
                Api::namespaced(client.clone(), "kube-system")
                    .create(&PostParams::default(), &binding)
                    .await
                    .unwrap();
            }
            "ServiceAccount" => {}
            other => panic!("{other}"),
        }
    }
}

fn object(name: &str, message: &str) -> api::Tide {
    api::Tide::new(
        name,
        api::TideSpec {
            message: message.to_owned(),
            audience: None,
        },
    )
}

#[tokio::test]
async fn objects_are_written_validated_and_watched() {
    let cluster = Cluster::start().await;
    let objects = cluster.objects();
    let made = objects
        .create(&PostParams::default(), &object("one", "hello"))
        .await
        .unwrap();
    assert_eq!(made.spec.audience.as_deref(), Some("everybody"));
    let refused = objects
        .create(&PostParams::default(), &object("two", " "))
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("nothing but space"),
        "{refused}"
    );
    let version = made.metadata.resource_version.as_deref().unwrap();
    let mut watch = objects
        .watch(&WatchParams::default(), version)
        .await
        .unwrap()
        .boxed();
    let wish = serde_json::json!({
        "apiVersion": "tides.example.org/v1alpha1", "kind": "Tide", "metadata": {"name": "one"},
        "spec": {"message": "good bye"},
    });
    let apply = PatchParams::apply("test").force();
    objects
        .patch("one", &apply, &Patch::Apply(&wish))
        .await
        .unwrap();
    let event = tokio::time::timeout(Duration::from_secs(10), watch.next())
        .await
        .expect("it is told");
    let Some(Ok(WatchEvent::Modified(seen))) = event else {
        panic!("{event:?}")
    };
    assert_eq!(seen.spec.message, "good bye");
    let everybody = ListParams::default().fields("spec.audience=everybody");
    assert_eq!(objects.list(&everybody).await.unwrap().items.len(), 1);
    objects
        .delete("one", &DeleteParams::default())
        .await
        .unwrap();
    assert!(objects.get_opt("one").await.unwrap().is_none());
}

#[tokio::test]
async fn nobody_gets_around_the_server_in_front() {
    let env = Env::system();
    let api = ApiServer::builder().build();
    let own = server(api.client(), &env).await.unwrap();
    let authority = CertificateAuthority::generate(&env).unwrap();
    let identity = authority.issue_server(["localhost"]).unwrap();
    let listener = TcpListener::bind("localhost:0").await.unwrap();
    let url = format!(
        "https://localhost:{}",
        listener.local_addr().unwrap().port()
    );
    let _serving = env.spawn(async move {
        own.serve(listener, &identity, CancellationToken::new())
            .await
            .unwrap()
    });
    let mut config = kube::Config::new(url.parse().unwrap());
    config.root_cert = Some(vec![authority.certificate_der().to_vec()]);
    config.headers = vec![
        ("x-remote-user".parse().unwrap(), "root".parse().unwrap()),
        (
            "x-remote-group".parse().unwrap(),
            "system:masters".parse().unwrap(),
        ),
    ];
    let stranger: Api<api::Tide> = Api::all(Client::try_from(config).unwrap());
    let refused = stranger.list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 403));
}
