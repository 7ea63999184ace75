//! Counts the objects of kinds that users name while it runs: watches come and go with the ConfigMaps that ask for them.
//!
//! ```sh
//! kubectl create configmap deployments --from-literal=group=apps --from-literal=version=v1 --from-literal=plural=deployments
//! kubectl label configmap deployments inventory=yes
//! kubectl get configmap deployments -o jsonpath='{.data.count}'
//! ```

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::{Api, ResourceExt};
use serde_json::json;
use setpoint::client::find_resource;
use setpoint::{
    Action, ClientConfig, Context, Controller, Lister, Manager, ObjectKey, ReconcileError, ScopedResource,
    Verb, Watch, ensure, key_of,
};

/// How long the first list of a kind may take: the worker waits for it.
const PATIENCE: Duration = Duration::from_secs(10);
/// When to look again for a kind that is not there yet.
const LATER: Duration = Duration::from_secs(30);

/// The ConfigMaps that ask.
fn asking() -> Watch<ConfigMap> {
    Watch::new().labels("inventory")
}

/// The objects of a kind. They come and go; what is in them does not matter.
fn objects(kind: &ScopedResource) -> Watch<PartialObjectMeta<DynamicObject>> {
    Watch::dynamic_metadata_only(kind).filter_updates(|_, _| false)
}

/// The kind that each ConfigMap has asked for.
#[derive(Default)]
struct Kinds(Mutex<BTreeMap<ObjectKey, ScopedResource>>);

impl Kinds {
    /// A ConfigMap asks for this now. Gives the kind that nobody asks for any more, if there is one.
    fn set(&self, key: &ObjectKey, now: Option<&ScopedResource>) -> Option<ScopedResource> {
        let mut kinds = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let before = match now {
            Some(kind) => kinds.insert(key.clone(), kind.clone()),
            None => kinds.remove(key),
        };
        before.filter(|before| !kinds.values().any(|kind| kind == before))
    }
}

fn wanted_by(map: &ConfigMap) -> Option<[&str; 3]> {
    let data = map.data.as_ref()?;
    let [group, version, plural] = ["group", "version", "plural"].map(|name| data.get(name));
    Some([group.map_or("", String::as_str), version?, plural?])
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let maps = cx.lister::<ConfigMap>()?;
    let map = maps.get(&key);
    let kind = match map.as_deref().and_then(wanted_by) {
        Some([group, version, plural]) => find_resource(&cx.client(), group, version, plural).await?,
        None => None,
    };
    if let Some(unused) = cx.state::<Kinds>()?.set(&key, kind.as_ref()) {
        cx.watches()?.remove(&objects(&unused)).await?;
    }
    let Some(map) = map else { return Ok(Action::done()) };
    let Some(kind) = kind else { return Ok(Action::requeue_after(LATER)) };

    // It stays as it was added first, so it is for whoever asks for the kind.
    let all = objects(&kind);
    let watches = cx.watches()?.sync_limit(PATIENCE);
    watches.watches(&all, move |_| keys_asking(&maps, &kind)).await?;

    let count = cx.lister_of(&all)?.len().to_string();
    let wanted = json!({"metadata": {"name": map.name_any()}, "data": {"count": count}});
    let api: Api<ConfigMap> = Api::namespaced(cx.client(), &map.namespace().unwrap_or_default());
    ensure(&api, Some(&map), &serde_json::from_value(wanted)?).await?;
    Ok(Action::done())
}

fn keys_asking(maps: &Lister<ConfigMap>, kind: &ScopedResource) -> Vec<ObjectKey> {
    let wanted = Some([kind.api.group.as_str(), &kind.api.version, &kind.api.plural]);
    maps.list().iter().filter(|map| wanted_by(map) == wanted).filter_map(|map| key_of(&**map)).collect()
}

pub(crate) fn controller() -> Controller {
    Controller::of(asking(), "inventory", reconcile)
        .state(Kinds::default())
        .writes::<ConfigMap>(&[Verb::Create, Verb::Patch])
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = ClientConfig::new().connect().await?;
    Manager::new(client).controller(controller()).stop_on_signals().run().await?;
    Ok(())
}
