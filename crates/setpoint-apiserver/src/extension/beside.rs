//! Servers that run beside their API server, not in its cluster: with a certificate of their own, and registered by themselves.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

/// The service by which an API server finds a server that runs beside it.
#[derive(Clone, Debug)]
pub struct Beside {
    namespace: String,
    name: String,
    host: String,
}

impl Beside {
    /// A service of this name, for a server on the same machine.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Beside {
        Beside { namespace: namespace.into(), name: name.into(), host: "localhost".to_owned() }
    }

    /// The host by which the API server finds this machine; `localhost` unless set.
    #[must_use]
    pub fn host(self, host: impl Into<String>) -> Beside {
        Beside { host: host.into(), ..self }
    }

    /// What a certificate has to be for.
    pub(super) fn certified(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }

    /// Creates or changes the namespace, the service and an APIService for each group-version.
    pub(super) async fn register(
        &self,
        client: &Client,
        port: u16,
        authority: &str,
        versions: &[(String, String)],
    ) -> Result<(), kube::Error> {
        let Beside { namespace, name, host } = self;
        let apply = PatchParams::apply(name).force();
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        Api::<Namespace>::all(client.clone()).patch(namespace, &apply, &Patch::Apply(&object)).await?;
        let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"type": "ExternalName", "externalName": host}});
        let services: Api<Service> = Api::namespaced(client.clone(), namespace);
        services.patch(name, &apply, &Patch::Apply(&object)).await?;
        let registered: Api<APIService> = Api::all(client.clone());
        for (group, version) in versions {
            let object = self.api_service((group, version), port, authority);
            registered.patch(&format!("{version}.{group}"), &apply, &Patch::Apply(&object)).await?;
        }
        Ok(())
    }

    fn api_service(&self, (group, version): (&str, &str), port: u16, authority: &str) -> Value {
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("{version}.{group}")},
            "spec": {
                // Of versions with one priority, the newest is the first.
                "group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100,
                "service": {"namespace": self.namespace, "name": self.name, "port": port},
                "caBundle": ByteString(authority.as_bytes().to_vec()),
            },
        })
    }
}
