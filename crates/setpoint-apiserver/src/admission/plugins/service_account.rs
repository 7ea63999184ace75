//! `ServiceAccount`: the account of a new pod, and its token.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::Attributes;
use crate::handlers::get::read;
use crate::object;
use crate::resource::Registry;
use crate::server::Core;
use crate::status::Result;

/// Where a container finds the token.
const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME: &str = "kube-api-access-";
/// The account of pods that name none.
const DEFAULT: &str = "default";
const MIRROR: &str = "kubernetes.io/config.mirror";
/// A token that a pod does not ask for lasts this long, in seconds; see `handlers/token_request.rs`.
const LIFETIME: i64 = 3607;
/// The account `default` comes with a new namespace, but not at once.
const TRIES: usize = 10;
const PAUSE: Duration = Duration::from_millis(100);

/// Finds the account of the pod, and gives its containers the account's token.
pub(super) async fn admit(core: &Core, attributes: &Attributes<'_>, pod: &mut Value) -> Result<()> {
    if pod["metadata"]["annotations"].get(MIRROR).is_some() {
        return Ok(());
    }
    let given = object::text(pod, &["spec", "serviceAccountName"]).unwrap_or_default();
    let name = if given.is_empty() { DEFAULT } else { given }.to_owned();
    if let Some(spec) = pod["spec"].as_object_mut() {
        // It has two names.
        spec.insert("serviceAccountName".to_owned(), name.as_str().into());
        spec.insert("serviceAccount".to_owned(), name.as_str().into());
    }
    let namespace = attributes.namespace();
    let Some(account) = find(core, namespace, &name).await? else {
        let why =
            format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
        return Err(attributes.forbidden(Some(pod), &why));
    };
    let wanted = &pod["spec"]["automountServiceAccountToken"];
    let mounts = wanted.as_bool().or(account["automountServiceAccountToken"].as_bool()).unwrap_or(true);
    if mounts {
        mount(core, pod);
    }
    let secrets = account["imagePullSecrets"].as_array().filter(|secrets| !secrets.is_empty());
    if let Some(secrets) = secrets
        && pod["spec"]["imagePullSecrets"].as_array().is_none_or(Vec::is_empty)
    {
        let names = secrets.iter().map(|secret| json!({"name": secret["name"]})).collect();
        pod["spec"]["imagePullSecrets"] = Value::Array(names);
    }
    Ok(())
}

async fn find(core: &Core, namespace: &str, name: &str) -> Result<Option<Value>> {
    let accounts = Registry::built_in().expect("", "v1", "serviceaccounts");
    let key = accounts.key(Some(namespace), name);
    let tries = if name == DEFAULT { TRIES } else { 1 };
    for attempt in 0..tries {
        if attempt > 0 {
            tokio::time::sleep(core.env.jitter(PAUSE, 1.0)).await;
        }
        if let Some(record) = read(core, &key).await? {
            return Ok(Some(object::decode(&record.value, record.revision)));
        }
    }
    Ok(None)
}

/// Mounts the token where no container has something else.
fn mount(core: &Core, pod: &mut Value) {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let mut named = volumes.filter_map(|volume| volume["name"].as_str());
    let existing = named.find(|name| name.starts_with(VOLUME)).map(str::to_owned);
    let name = existing.clone().unwrap_or_else(|| format!("{VOLUME}{}", object::random_suffix(&core.env)));
    let mut is_used = false;
    for list in ["initContainers", "containers"] {
        let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let Some(container) = container.as_object_mut() else { continue };
            let mounts = container.entry("volumeMounts").or_insert_with(|| json!([]));
            if mounts.is_null() {
                *mounts = json!([]);
            }
            let Some(mounts) = mounts.as_array_mut() else { continue };
            if mounts.iter().any(|mount| mount["mountPath"] == MOUNT) {
                continue;
            }
            mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT}));
            is_used = true;
        }
    }
    if !is_used || existing.is_some() {
        return;
    }
    let volume = json!({"name": name, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": LIFETIME}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
        ]}}
    ]}});
    if let Some(spec) = pod["spec"].as_object_mut() {
        let volumes = spec.entry("volumes").or_insert_with(|| json!([]));
        if volumes.is_null() {
            *volumes = json!([]);
        }
        if let Value::Array(volumes) = volumes {
            volumes.push(volume);
        }
    }
}
