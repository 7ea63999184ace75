//! Puts the certificate of the server's authority into every namespace, for the pods there.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use parking_lot::Mutex;
use serde_json::json;
use setpoint::{Action, Context, Controller, ObjectKey, ReconcileError, Watch};

use crate::failure;

/// How long one reconcile may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);
const NAME: &str = "root-ca-certificate-publisher-controller";
/// The map, and the key in it.
const MAP: &str = "kube-root-ca.crt";
const KEY: &str = "ca.crt";
const DESCRIPTION: (&str, &str) = (
    "kubernetes.io/description",
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as \
     the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of \
     Kubernetes clusters.",
);

/// The certificate, and the versions of the maps that are known to have it.
struct Publisher {
    certificate: String,
    checked: Mutex<BTreeMap<String, String>>,
}

pub(crate) fn controller(certificate: &str) -> Controller {
    let publisher = Publisher { certificate: certificate.to_owned(), checked: Mutex::default() };
    let controller = Controller::of::<Namespace>(.., NAME, reconcile).watches(
        Watch::<ConfigMap>::metadata_only(),
        |map| {
            let namespace = map.metadata.namespace.as_deref();
            let is_it = map.metadata.name.as_deref() == Some(MAP);
            namespace.filter(|_| is_it).map(ObjectKey::cluster).into_iter().collect()
        },
    );
    controller.time_limit(TIME_LIMIT).state(publisher)
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let publisher = cx.state::<Publisher>()?;
    let namespace = cx.lister::<Namespace>()?.get(&key);
    if namespace.is_none_or(|namespace| namespace.metadata.deletion_timestamp.is_some()) {
        publisher.checked.lock().remove(key.name());
        return Ok(Action::done());
    }
    let api: Api<ConfigMap> = Api::namespaced(cx.client(), key.name());
    let map = cx.lister::<PartialObjectMeta<ConfigMap>>()?.namespace(key.name()).get(MAP);
    let version = map.and_then(|map| map.metadata.resource_version.clone());
    let Some(version) = version else {
        match api.create(&PostParams::default(), &publisher.map()).await {
            Err(error) if failure::already_exists(&error) || failure::is_namespace_terminating(&error) => {}
            created => publisher.check(key.name(), &created?),
        }
        return Ok(Action::done());
    };
    // Only the metadata is cached: a version that was not looked at may have another content.
    if publisher.checked.lock().get(key.name()) == Some(&version) {
        return Ok(Action::done());
    }
    if let Some(map) = api.get_opt(MAP).await? {
        let wanted = BTreeMap::from([(KEY.to_owned(), publisher.certificate.clone())]);
        if map.data.as_ref() != Some(&wanted) {
            let patch = json!({"data": {KEY: publisher.certificate}});
            publisher
                .check(key.name(), &api.patch(MAP, &PatchParams::default(), &Patch::Merge(&patch)).await?);
        } else {
            publisher.check(key.name(), &map);
        }
    }
    Ok(Action::done())
}

impl Publisher {
    fn map(&self) -> ConfigMap {
        let (name, text) = DESCRIPTION;
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(MAP.to_owned()),
                annotations: Some([(name.to_owned(), text.to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some([(KEY.to_owned(), self.certificate.clone())].into()),
            ..ConfigMap::default()
        }
    }

    /// Notes that this version has the certificate.
    fn check(&self, namespace: &str, map: &ConfigMap) {
        let version = map.metadata.resource_version.clone().unwrap_or_default();
        self.checked.lock().insert(namespace.to_owned(), version);
    }
}
