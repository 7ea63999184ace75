//! A server for kinds of one's own, behind another one.

mod delegation;
mod logbook;
mod made;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use setpoint_apiserver::extension::{Asked, Delegation, ExtensionServer, Failure, Kind, Listed, Resource};
use setpoint_apiserver::pki::CertificateAuthority;
use setpoint_apiserver::serve::CancellationToken;
use setpoint_apiserver::{ApiServer, FrontProxy, User};
use setpoint_env::{Env, Task};
use tokio::net::TcpListener;

use crate::aggregation::{SERVICES, api_service, becomes, front_proxy};
use crate::support::Api;
use logbook::Logbook;

/// A kind of these tests: a namespaced one, and one that is not.
macro_rules! kind {
    ($name:ident, $kind:literal, $version:literal, $plural:literal, $scope:ty) => {
        impl kube::Resource for $name {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                $kind.into()
            }
            fn group((): &()) -> Cow<'_, str> {
                "wardle.example.com".into()
            }
            fn version((): &()) -> Cow<'_, str> {
                $version.into()
            }
            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
use kind;

/// A fish that lies on its side.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Flunder {
    #[schemars(skip)]
    metadata: ObjectMeta,
    spec: FlunderSpec,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct FlunderSpec {
    /// How heavy it is, in grams.
    #[schemars(range(min = 1))]
    weight: u32,
}

/// How high the water is.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
struct Tide {
    #[schemars(skip)]
    metadata: ObjectMeta,
    level: i32,
}

/// What was seen.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
struct Sighting {
    #[schemars(skip)]
    metadata: ObjectMeta,
    what: String,
}

kind!(Flunder, "Flunder", "v1", "flunders", kube::core::NamespaceResourceScope);
kind!(Tide, "Tide", "v1", "tides", kube::core::ClusterResourceScope);
kind!(Sighting, "Sighting", "v1", "sightings", kube::core::NamespaceResourceScope);

struct Gauge;

impl Resource for Gauge {
    type Object = Tide;

    async fn list(&self, asked: &Asked) -> Result<Listed<Tide>, Failure> {
        if asked.user.name == "seasick" {
            return Err(Failure::unavailable("not today"));
        }
        let tide = |name: &str, level| Tide {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some([("coast".to_owned(), name[..1].to_owned())].into()),
                ..ObjectMeta::default()
            },
            level,
        };
        Ok(vec![tide("north", 7), tide("east", 3), tide("nook", 1)].into())
    }
}

/// A main server with an extension server behind it.
struct Stage {
    api: Api,
    extension: ExtensionServer,
    logbook: Logbook,
    _serving: Task<()>,
}

impl Stage {
    async fn new() -> Stage {
        let env = Env::system();
        let (authority, identity) = front_proxy();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let proxy = FrontProxy::usual(vec![authority.certificate_der().clone()]);
        let server = ApiServer::builder()
            .env(Env::seeded(1))
            .proxy_client(identity)
            .published_proxy(proxy.allowed_names(["front-proxy-client"]))
            .service_address("wardle", "api", None, address)
            .build();
        let logbook = Logbook::new();
        let extension = ExtensionServer::builder()
            .kind(Kind::<Flunder>::stored().short_name("fl").column("Weight", "integer", ".spec.weight"))
            .kind(Kind::made(Gauge).column("Level", "integer", ".level"))
            .kind(Kind::<Sighting>::told())
            .kind(logbook.kind(&env))
            .delegation(Delegation::to(server.client()))
            .build(&env)
            .await
            .unwrap();
        let ca = CertificateAuthority::generate(&env).unwrap();
        let certificate = ca.issue_server(["api.wardle.svc"]).unwrap();
        let own = extension.clone();
        let serving = env.spawn(async move {
            own.serve(listener, &certificate, CancellationToken::new()).await.unwrap();
        });
        let api = Api::with(server);
        api.post(SERVICES, &api_service(ca.certificate_pem())).await.ok();
        let mut older = api_service(ca.certificate_pem());
        older["metadata"]["name"] = "v1beta1.wardle.example.com".into();
        older["spec"]["version"] = "v1beta1".into();
        older["spec"]["versionPriority"] = 5.into();
        api.post(SERVICES, &older).await.ok();
        becomes(&api, "Passed").await;
        for _ in 0..400 {
            if api.get("/apis/wardle.example.com/v1beta1").await.code == 200 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        Stage { api, extension, logbook, _serving: serving }
    }
}

const FLUNDERS: &str = "/apis/wardle.example.com/v1/namespaces/default/flunders";
const TIDES: &str = "/apis/wardle.example.com/v1/tides";

#[tokio::test]
async fn what_is_kept_is_served_as_any_kind() {
    let stage = Stage::new().await;
    let api = &stage.api;
    let flunder = json!({"apiVersion": "wardle.example.com/v1", "kind": "Flunder", "metadata": {"name": "one"},
        "spec": {"weight": 700}});
    let created = api.post(FLUNDERS, &flunder).await.ok();
    assert!(created["metadata"]["uid"].is_string());
    let mut watch = api
        .watch(&format!(
            "{FLUNDERS}?watch=1&resourceVersion={}",
            created["metadata"]["resourceVersion"].as_str().unwrap()
        ))
        .await;
    api.merge(&format!("{FLUNDERS}/one"), &json!({"spec": {"weight": 800}})).await.ok();
    assert_eq!(watch.line().await, "MODIFIED one");
    let refused = api.merge(&format!("{FLUNDERS}/one"), &json!({"spec": {"weight": 0}})).await;
    assert_eq!(refused.code, 422);
    assert!(refused.message().contains("spec.weight"), "{}", refused.message());
    let applied = json!({"apiVersion": "wardle.example.com/v1", "kind": "Flunder", "metadata": {"name": "two"}, "spec": {"weight": 1}});
    let answer = api
        .call(
            "PATCH",
            &format!("{FLUNDERS}/two?fieldManager=me"),
            "application/apply-patch+yaml",
            applied.to_string(),
        )
        .await
        .ok();
    assert_eq!(answer["metadata"]["managedFields"][0]["operation"], "Apply");
    let table = http::Request::get(FLUNDERS)
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Default::default())
        .unwrap();
    let table = api.answer(table).await.ok();
    assert_eq!(table["columnDefinitions"][1]["name"], "Weight");
    assert_eq!(table["rows"][0]["cells"], json!(["one", 800]));
    api.delete(&format!("{FLUNDERS}/one"), &Value::Null).await.ok();
    assert_eq!(api.get(&format!("{FLUNDERS}/one")).await.code, 404);
}

#[tokio::test]
async fn what_is_made_can_be_selected_and_only_read() {
    let stage = Stage::new().await;
    let api = &stage.api;
    let list = api.get(TIDES).await.ok();
    assert_eq!(
        (list["kind"].as_str(), list["apiVersion"].as_str()),
        (Some("TideList"), Some("wardle.example.com/v1"))
    );
    assert_eq!(api.get(TIDES).await.names(), ["east", "nook", "north"]);
    assert_eq!(api.get(&format!("{TIDES}?labelSelector=coast%3Dn")).await.names(), ["nook", "north"]);
    assert_eq!(api.get(&format!("{TIDES}?fieldSelector=metadata.name%3Deast")).await.names(), ["east"]);
    let one = api.get(&format!("{TIDES}/north")).await.ok();
    assert_eq!((one["level"].as_i64(), one["kind"].as_str()), (Some(7), Some("Tide")));
    api.get(&format!("{TIDES}/west")).await.refused(404, "tides.wardle.example.com \"west\" not found");
    assert_eq!(api.get(&format!("{TIDES}?watch=1")).await.code, 405);
    assert_eq!(api.post(TIDES, &json!({"metadata": {"name": "x"}, "level": 1})).await.code, 405);
    let seasick = Api::as_user(api.server.clone(), User::new("seasick", ["system:masters"]));
    seasick.get(TIDES).await.refused(503, "not today");
}

#[tokio::test]
async fn what_is_told_is_watched_and_changed_by_nobody_else() {
    let stage = Stage::new().await;
    let (api, extension) = (&stage.api, stage.extension.clone());
    let path = "/apis/wardle.example.com/v1/namespaces/default/sightings";
    let mut watch = api.watch(&format!("{path}?watch=1")).await;
    let seen = Sighting {
        metadata: ObjectMeta {
            name: Some("whale".to_owned()),
            namespace: Some("default".to_owned()),
            ..ObjectMeta::default()
        },
        what: "a whale".to_owned(),
    };
    extension.tell(&seen).await.unwrap();
    assert_eq!(watch.line().await, "ADDED whale");
    extension.tell(&Sighting { what: "two whales".to_owned(), ..seen }).await.unwrap();
    assert_eq!(watch.line().await, "MODIFIED whale");
    assert_eq!(api.delete(&format!("{path}/whale"), &Value::Null).await.code, 405);
    assert_eq!(api.get(path).await.names(), ["whale"]);
    for _ in 0..2 {
        extension.forget::<Sighting>(Some("default"), "whale").await.unwrap();
    }
    assert_eq!(watch.line().await, "DELETED whale");
}

#[tokio::test]
async fn discovery_and_schemas_are_of_these_kinds_alone() {
    let stage = Stage::new().await;
    let api = &stage.api;
    let list = api.get("/apis/wardle.example.com/v1").await.ok();
    let verbs = |name: &str| {
        let resources = list["resources"].as_array().unwrap();
        let found = resources.iter().find(|resource| resource["name"] == name).unwrap();
        found["verbs"].as_array().unwrap().len()
    };
    assert_eq!((verbs("flunders"), verbs("tides"), verbs("sightings")), (8, 2, 3));
    let path = "apis/wardle.example.com/v1";
    let mut index = Value::Null;
    for _ in 0..200 {
        index = api.get("/openapi/v3").await.ok()["paths"][path].clone();
        if !index.is_null() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    let document = api.get(index["serverRelativeURL"].as_str().unwrap()).await.ok();
    let schema = &document["components"]["schemas"]["com.example.wardle.v1.Flunder"];
    assert_eq!(schema["description"], "A fish that lies on its side.");
    assert_eq!(
        schema["properties"]["spec"]["properties"]["weight"]["description"],
        "How heavy it is, in grams."
    );
}

#[tokio::test]
async fn who_asks_and_what_they_may_do_is_for_the_server_in_front_to_say() {
    let stage = Stage::new().await;
    let (api, extension) = (&stage.api, stage.extension.clone());
    let bob = Api::as_user(api.server.clone(), User::new("bob", ["people"]));
    assert_eq!(bob.get(TIDES).await.code, 403);
    // The extension server asks for itself: it does not take the word of a stranger.
    let stranger = http::Request::get(TIDES)
        .header("x-remote-user", "root")
        .header("x-remote-group", "system:masters")
        .body(http_body_util::Full::<bytes::Bytes>::default())
        .unwrap();
    let refused = tower::ServiceExt::oneshot(extension.clone(), stranger).await.unwrap();
    assert_eq!(refused.status(), 403, "it is system:anonymous");
    let pods = http::Request::get("/api/v1/namespaces")
        .body(http_body_util::Full::<bytes::Bytes>::default())
        .unwrap();
    assert_eq!(tower::ServiceExt::oneshot(extension, pods).await.unwrap().status(), 404);
}

#[tokio::test]
async fn whom_to_trust_is_looked_up_again() {
    let env = Env::system();
    let (proxies, others) = (CertificateAuthority::generate(&env).unwrap(), front_proxy().0);
    let own = proxies.issue_client(&User::new("front-proxy-client", [""; 0])).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = ApiServer::builder()
        .env(Env::seeded(1))
        .proxy_client(own)
        .service_address("wardle", "api", None, listener.local_addr().unwrap())
        .build();
    // It shows a certificate of one authority, and it is said that another one is to be trusted.
    let says = Api::new();
    let maps = "/api/v1/namespaces/kube-system/configmaps";
    let names = |name: &str| json!([name]).to_string();
    let map = json!({"metadata": {"name": "extension-apiserver-authentication"}, "data": {
        "requestheader-client-ca-file": others.certificate_pem(),
        "requestheader-username-headers": names("X-Remote-User"),
        "requestheader-group-headers": names("X-Remote-Group"),
    }});
    says.post(maps, &map).await.ok();
    let extension = ExtensionServer::builder()
        .kind(Kind::made(Gauge))
        .delegation(Delegation::to(says.server.client()).refreshed_every(Duration::from_millis(50)))
        .build(&env)
        .await
        .unwrap();
    let ca = CertificateAuthority::generate(&env).unwrap();
    let certificate = ca.issue_server(["api.wardle.svc"]).unwrap();
    let _serving = env.spawn(async move {
        extension.serve(listener, &certificate, CancellationToken::new()).await.unwrap();
    });
    let api = Api::with(server);
    api.post(SERVICES, &api_service(ca.certificate_pem())).await.ok();
    becomes(&api, "FailedDiscoveryCheck").await;
    let right = json!({"data": {"requestheader-client-ca-file": proxies.certificate_pem()}});
    says.merge(&format!("{maps}/extension-apiserver-authentication"), &right).await.ok();
    becomes(&api, "Passed").await;
    assert_eq!(api.get(TIDES).await.names().len(), 3);
}
