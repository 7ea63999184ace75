//! A webhook server, an API server that knows it, and objects to write.

use std::net::SocketAddr;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use setpoint::Env;
use setpoint::webhook::{Certificates, WebhookServer};
use setpoint_apiserver::ApiServer;
use setpoint_env::Task;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// An API server, and a webhook server that it can trust.
pub(crate) struct Pair {
    pub(crate) server: ApiServer,
    pub(crate) address: SocketAddr,
    pub(crate) ca_bundle: String,
    _serving: Task<()>,
}

impl Pair {
    /// Starts both; `handlers` gives the webhook server its handlers.
    pub(crate) async fn start(handlers: impl FnOnce(WebhookServer) -> WebhookServer) -> Pair {
        let (certificates, ca_bundle) =
            Certificates::self_signed(["127.0.0.1", "hooks.default.svc"]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let webhooks = handlers(WebhookServer::new(certificates));
        let serving = Env::system().spawn(async move {
            webhooks.serve(listener, CancellationToken::new()).await.unwrap();
        });
        Pair { server: ApiServer::builder().build(), address, ca_bundle, _serving: serving }
    }

    /// Registers a webhook for ConfigMaps at a path; `changes` are laid over its settings.
    pub(crate) async fn register(&self, kind: &str, name: &str, path: &str, changes: Value) {
        let url = format!("https://{}{path}", self.address);
        self.register_at(kind, name, json!({"url": url}), changes).await;
    }

    pub(crate) async fn register_at(&self, kind: &str, name: &str, mut at: Value, changes: Value) {
        at["caBundle"] = base64(&self.ca_bundle).into();
        let mut webhook = json!({
            "name": format!("{name}.example.com"),
            "clientConfig": at,
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
                "operations": ["CREATE", "UPDATE", "DELETE"]
            }]
        });
        for (field, value) in changes.as_object().unwrap() {
            webhook[field] = value.clone();
        }
        let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        let resource = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = Api::all_with(self.server.client(), &resource);
        let object = json!({"metadata": {"name": name}, "webhooks": [webhook]});
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    pub(crate) fn maps(&self) -> Api<ConfigMap> {
        Api::default_namespaced(self.server.client())
    }

    /// Creates a ConfigMap with one entry.
    pub(crate) async fn create(&self, name: &str, value: &str) -> Result<ConfigMap, kube::Error> {
        self.maps().create(&PostParams::default(), &map(name, value)).await
    }

    /// The code and the words of the refusal of a create.
    pub(crate) async fn refusal(&self, name: &str, value: &str) -> (u16, String) {
        refusal(self.create(name, value).await)
    }
}

pub(crate) fn refusal<T: std::fmt::Debug>(outcome: Result<T, kube::Error>) -> (u16, String) {
    match outcome {
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

pub(crate) fn map(name: &str, value: &str) -> ConfigMap {
    let map = json!({"metadata": {"name": name}, "data": {"value": value}});
    serde_json::from_value(map).unwrap()
}

pub(crate) fn base64(text: &str) -> String {
    use ::base64::Engine;
    ::base64::engine::general_purpose::STANDARD.encode(text)
}

pub(crate) const MUTATING: &str = "MutatingWebhookConfiguration";
pub(crate) const VALIDATING: &str = "ValidatingWebhookConfiguration";
