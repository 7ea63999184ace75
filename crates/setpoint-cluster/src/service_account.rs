//! Gives every namespace its account `default`.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use kube::core::PartialObjectMeta;
use setpoint::{Action, Context, Controller, ObjectKey, ReconcileError, Watch};

use crate::failure;

/// How long one reconcile may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);
const NAME: &str = "serviceaccount-controller";
const ACCOUNT: &str = "default";

pub(crate) fn controller() -> Controller {
    Controller::of::<Namespace>(.., NAME, reconcile).time_limit(TIME_LIMIT).watches(
        Watch::<ServiceAccount>::metadata_only(),
        |account| {
            let namespace = account.metadata.namespace.as_deref();
            let is_default = account.metadata.name.as_deref() == Some(ACCOUNT);
            namespace.filter(|_| is_default).map(ObjectKey::cluster).into_iter().collect()
        },
    )
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(namespace) = cx.lister::<Namespace>()?.get(&key) else { return Ok(Action::done()) };
    let accounts = cx.lister::<PartialObjectMeta<ServiceAccount>>()?;
    let is_there = accounts.namespace(key.name()).get(ACCOUNT).is_some();
    if is_there || namespace.metadata.deletion_timestamp.is_some() {
        return Ok(Action::done());
    }
    let metadata = ObjectMeta { name: Some(ACCOUNT.to_owned()), ..ObjectMeta::default() };
    let account = ServiceAccount { metadata, ..ServiceAccount::default() };
    let api: Api<ServiceAccount> = Api::namespaced(cx.client(), key.name());
    match api.create(&PostParams::default(), &account).await {
        Err(error) if failure::already_exists(&error) || failure::is_namespace_terminating(&error) => {}
        created => drop(created?),
    }
    Ok(Action::done())
}
