//! The operator of docs/from-kube-rs.md: a namespace that is annotated with a greeting has a ConfigMap with it.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, Resource as _, ResourceExt as _};

const ANNOTATION: &str = "example.com/greeting";

struct Context {
    client: Client,
}

async fn reconcile(namespace: Arc<Namespace>, cx: Arc<Context>) -> Result<Action, kube::Error> {
    let Some(greeting) = namespace.annotations().get(ANNOTATION) else {
        return Ok(Action::await_change()); // it wants nothing
    };
    let wanted = ConfigMap {
        metadata: ObjectMeta {
            name: Some("greeting".to_owned()),
            owner_references: namespace.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some([("text".to_owned(), greeting.clone())].into()),
        ..ConfigMap::default()
    };
    let maps: Api<ConfigMap> = Api::namespaced(cx.client.clone(), &namespace.name_any());
    maps.patch("greeting", &PatchParams::apply("greeting").force(), &Patch::Apply(&wanted)).await?;
    Ok(Action::await_change())
}

fn error_policy(_: Arc<Namespace>, _: &kube::Error, _: Arc<Context>) -> Action {
    Action::requeue(Duration::from_secs(5))
}

/// Runs until it is killed.
pub(crate) async fn run(client: Client) {
    Controller::new(Api::<Namespace>::all(client.clone()), watcher::Config::default())
        .owns(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
        .run(reconcile, error_policy, Arc::new(Context { client }))
        .for_each(|_| std::future::ready(()))
        .await;
}
