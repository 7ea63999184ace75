//! A world with the custom resource, a scripted Neutron, and the controller between them.

use std::time::Duration;

use example_network::neutron::{Auth, Neutron};
use example_network::{FINALIZER, Network, NetworkStatus, READY, Settings, controller, crd};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use setpoint::Metrics;
use setpoint::conditions::find_condition;
use setpoint::controller::{ControllerError, Runtime};
use setpoint_env::Task;
use setpoint_sim::World;
use tokio::time::sleep;

use crate::scripted::Scripted;

/// Longer than anything takes that has no reason to wait.
pub(crate) const SETTLED: Duration = Duration::from_secs(20);
pub(crate) const RESYNC: Duration = Duration::from_secs(60);

pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) neutron: Scripted,
}

impl Scene {
    /// A world in which Networks are served, and nobody works yet.
    pub(crate) fn run(scenario: impl AsyncFnOnce(Scene)) {
        World::run(1, async |world| {
            let crds: Api<CustomResourceDefinition> = Api::all(world.direct());
            crds.create(&PostParams::default(), &crd()).await.unwrap();
            sleep(SETTLED).await;
            scenario(Scene { world, neutron: Scripted::default() }).await;
        });
    }

    pub(crate) fn start(&self) -> Task<Result<(), ControllerError>> {
        let (world, env) = (&self.world, self.world.env().clone());
        let neutron = Neutron::new("http://neutron:9696", Auth::None, self.neutron.transport(), env.clone());
        let settings = Settings { resync: RESYNC, ..Settings::default() };
        let controller = controller(neutron, settings);
        let runtime = Runtime::with(world.client_named("controller"), env, Metrics::default());
        world.env().spawn(async move { controller.run(&runtime).await })
    }

    pub(crate) fn api(&self) -> Api<Network> {
        Api::default_namespaced(self.world.direct())
    }

    pub(crate) async fn create(&self, name: &str, spec: Value) {
        let network: Network =
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
        self.api().create(&PostParams::default(), &network).await.unwrap();
        sleep(SETTLED).await;
    }

    pub(crate) async fn set_spec(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.api().patch(name, &PatchParams::default(), &patch).await.unwrap();
        sleep(SETTLED).await;
    }

    pub(crate) async fn status(&self, name: &str) -> NetworkStatus {
        self.api().get(name).await.unwrap().status.unwrap_or_default()
    }

    /// Status, reason and message of the condition.
    pub(crate) async fn ready(&self, name: &str) -> (String, String, String) {
        let status = self.status(name).await;
        let found = find_condition(&status.conditions, READY).expect("there is the condition").clone();
        (found.status, found.reason, found.message)
    }

    pub(crate) async fn reasons(&self) -> Vec<String> {
        let events: Api<Event> = Api::default_namespaced(self.world.direct());
        let events = events.list(&ListParams::default()).await.unwrap();
        let mut reasons: Vec<String> = events.into_iter().filter_map(|event| event.reason).collect();
        reasons.sort();
        reasons
    }

    /// Takes the finalizer away and deletes, as an impatient person does.
    pub(crate) async fn strip_finalizer(&self, name: &str) {
        assert_eq!(self.api().get(name).await.unwrap().metadata.finalizers, Some(vec![FINALIZER.to_owned()]));
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        self.api().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }
}

#[test]
fn the_manifest_is_the_type() {
    let manifest: CustomResourceDefinition =
        serde_saphyr::from_str(include_str!("../../manifests/crd.yaml")).unwrap();
    assert_eq!(
        serde_json::to_value(manifest).unwrap(),
        serde_json::to_value(crd()).unwrap(),
        "run `cargo run -p example-network -- --crd > examples/network/manifests/crd.yaml`"
    );
}
