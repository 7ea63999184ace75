//! A world with roles, and a client of the service account that they are bound to.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::BoxFuture;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use kube::discovery::ApiResource;
use kube::{Client, ResourceExt};
use setpoint::controller::{Controller, ControllerError, Runtime};
use setpoint::{Metrics, ReflectorConfig};
use setpoint_apiserver::User;
use setpoint_env::Task;
use setpoint_sim::World;
use tokio::time::sleep;

use crate::NAMESPACE;

/// Longer than anything takes that has no reason to wait.
pub(crate) const SETTLED: Duration = Duration::from_secs(20);
/// So long that whoever cannot watch has learnt to ask seldom.
const IDLE: Duration = Duration::from_secs(900);
/// What a change takes that is watched for.
const PROMPT: Duration = Duration::from_millis(500);

pub(crate) struct Scene {
    pub(crate) world: World,
    /// Of the service account.
    pub(crate) client: Client,
    streams: bool,
}

impl Scene {
    /// Runs a scenario under some roles, on virtual time.
    pub(crate) fn run(
        roles: &str,
        account: &str,
        streams: bool,
        scenario: fn(Scene) -> BoxFuture<'static, Result<()>>,
    ) -> Result<()> {
        World::run(1, async |world| {
            for role in serde_saphyr::from_multiple::<DynamicObject>(roles)? {
                create(&world.direct(), &role).await?;
            }
            let client = world.server().client_as(User::service_account(NAMESPACE, account));
            sleep(SETTLED).await;
            scenario(Scene { world, client, streams }).await
        })
    }

    /// A client that may do everything: whoever plays the user.
    pub(crate) fn user(&self) -> Client {
        self.world.direct()
    }

    pub(crate) fn reflectors(&self) -> ReflectorConfig {
        ReflectorConfig { streaming: self.streams, ..ReflectorConfig::default() }
    }

    pub(crate) fn start(&self, controller: Controller) -> Task<Result<(), ControllerError>> {
        let env = self.world.env().clone();
        let config = self.reflectors();
        let runtime = Runtime::with(self.client.clone(), env.clone(), Metrics::default());
        let runtime = runtime.factory(|factory| factory.config(config));
        env.spawn(async move { controller.run(&runtime).await })
    }

    pub(crate) async fn define(&self, crd: CustomResourceDefinition) -> Result<()> {
        let crds: Api<CustomResourceDefinition> = Api::all(self.user());
        crds.create(&PostParams::default(), &crd).await?;
        sleep(SETTLED).await;
        Ok(())
    }

    /// Waits for so long that only a watch tells of the next change in time.
    pub(crate) async fn idle(&self) {
        sleep(IDLE).await;
    }

    /// Waits for as long as a change takes that is watched for.
    pub(crate) async fn prompt(&self) {
        sleep(PROMPT).await;
    }

    /// How often an event of this reason was told, if it was.
    pub(crate) async fn told(&self, reason: &str) -> Result<i32> {
        let events: Api<Event> = Api::namespaced(self.user(), NAMESPACE);
        let events = events.list(&ListParams::default()).await?;
        let event = events.into_iter().find(|event| event.reason.as_deref() == Some(reason));
        let event = event.with_context(|| format!("no event {reason}"))?;
        Ok(event.series.map_or(1, |series| series.count))
    }
}

async fn create(client: &Client, object: &DynamicObject) -> Result<()> {
    let types = object.types.clone().context("no kind")?;
    let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
    let resource = ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: types.api_version.clone(),
        plural: format!("{}s", types.kind.to_lowercase()),
        kind: types.kind.clone(),
    };
    let api: Api<DynamicObject> = match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    api.create(&PostParams::default(), object).await?;
    Ok(())
}
