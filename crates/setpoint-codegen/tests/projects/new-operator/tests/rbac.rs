//! The roles in config/rbac are enough, and least: as their service account the operator does its work, and without any
//! one verb it does not. If you allow it more, let `scenario` use it.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Resource;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use new_operator::{NAME, NAMESPACE, api, controller};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::json;
use setpoint::controller::Runtime;
use setpoint::{LeaseConfig, Manager, Metrics, ReflectorConfig};
use setpoint_apiserver::User;
use setpoint_sim::World;
use tokio::time::sleep;

/// So long that whoever cannot watch has learnt to ask seldom.
const IDLE: Duration = Duration::from_secs(180);
/// What a change takes that is watched for.
const PROMPT: Duration = Duration::from_millis(500);

#[test]
fn the_roles_are_enough() -> anyhow::Result<()> {
    passes(&manifests())
}

#[test]
fn no_verb_can_be_taken_away() {
    let mut needless = Vec::new();
    for (role, document) in manifests().iter().enumerate() {
        for (rule, parts) in document["rules"]
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
        {
            for verb in parts["verbs"].as_array().into_iter().flatten() {
                let mut rest = manifests();
                take_away(&mut rest[role]["rules"], rule, verb);
                if passes(&rest).is_ok() {
                    needless.push(format!("{verb} {}", parts["resources"]));
                }
            }
        }
    }
    assert!(needless.is_empty(), "not needed: {}", needless.join(", "));
}

fn manifests() -> Vec<Value> {
    let text = [
        include_str!("../config/manager/namespace.yaml"),
        include_str!("../config/rbac/rbac.yaml"),
    ];
    serde_saphyr::from_multiple(&text.join("---\n")).unwrap()
}

fn take_away(rules: &mut Value, rule: usize, verb: &Value) {
    let rules = rules.as_array_mut().unwrap();
    let verbs = rules[rule]["verbs"].as_array_mut().unwrap();
    verbs.retain(|one| one != verb);
    if verbs.is_empty() {
        rules.remove(rule);
    }
}

/// Both on servers that stream lists and on those that do not.
fn passes(manifests: &[Value]) -> anyhow::Result<()> {
    for streaming in [true, false] {
        World::run(1, async |world| {
            prepare(&world, manifests).await;
            let client = world
                .server()
                .client_as(User::service_account(NAMESPACE, NAME));
            let config = ReflectorConfig {
                streaming,
                ..ReflectorConfig::default()
            };
            let runtime = Runtime::with(client, world.env().clone(), Metrics::default());
            let manager = Manager::with(runtime.factory(|factory| factory.config(config)))
                .leader_election(LeaseConfig::new(NAMESPACE, NAME))
                .controller(controller());
            let _running = world.env().spawn(manager.run());
            sleep(IDLE).await;
            scenario(&world).await
        })?;
    }
    Ok(())
}

/// What an administrator does.
async fn prepare(world: &World, manifests: &[Value]) {
    let crd = include_str!("../config/crd/shops.shop.example.org.yaml");
    let crd: CustomResourceDefinition = serde_saphyr::from_str(crd).unwrap();
    Api::all(world.direct())
        .create(&PostParams::default(), &crd)
        .await
        .unwrap();
    for manifest in manifests {
        let object: DynamicObject = serde_json::from_value(manifest.clone()).unwrap();
        let kind = GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap();
        let resource = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(world.direct(), &namespace, &resource),
            None => Api::all_with(world.direct(), &resource),
        };
        api.create(&PostParams::default(), &object).await.unwrap();
    }
}

/// Uses everything that the operator is allowed.
async fn scenario(world: &World) -> anyhow::Result<()> {
    let objects: Api<api::Shop> = Api::default_namespaced(world.direct());
    let sample = include_str!("../config/samples/shop.yaml");
    let object: api::Shop = serde_saphyr::from_str(sample)?;
    let name = objects
        .create(&PostParams::default(), &object)
        .await?
        .name_any();
    sleep(PROMPT).await;
    // Nobody runs pods here.
    let children: Api<Deployment> = Api::default_namespaced(world.direct());
    let works = Patch::Merge(
        json!({"status": {"observedGeneration": 1, "conditions": [{"type": "Available", "status": "True"}]}}),
    );
    children
        .patch_status(&name, &PatchParams::default(), &works)
        .await?;
    sleep(PROMPT).await;
    let status = serde_json::to_value(objects.get(&name).await?.status)?;
    let conditions = status["conditions"]
        .as_array()
        .context("no status was written")?;
    ensure!(
        conditions
            .iter()
            .any(|one| one["type"] == "Ready" && one["status"] == "True"),
        "{status}"
    );
    keeps::<Deployment>(world, &name)
        .await
        .context("Deployment")?;
    keeps::<ConfigMap>(world, &name)
        .await
        .context("ConfigMap")?;
    let events = Api::<Event>::default_namespaced(world.direct())
        .list(&ListParams::default())
        .await?;
    ensure!(
        events.iter().any(|event| event.series.is_some()),
        "what happens again is no news: {events:?}"
    );
    Ok(())
}

/// Somebody changes a child, and deletes it twice: the operator puts it right.
async fn keeps<C>(world: &World, name: &str) -> anyhow::Result<()>
where
    C: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    C: Clone + Debug + DeserializeOwned,
{
    let children: Api<C> = Api::default_namespaced(world.direct());
    sleep(IDLE).await;
    let mut owners = children.get(name).await?.owner_references().to_vec();
    owners
        .iter_mut()
        .for_each(|owner| owner.block_owner_deletion = None);
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": owners}}));
    children
        .patch(name, &PatchParams::default(), &patch)
        .await?;
    sleep(PROMPT).await;
    let owners = children.get(name).await?.owner_references().to_vec();
    ensure!(
        owners
            .iter()
            .any(|owner| owner.block_owner_deletion == Some(true)),
        "{owners:?}"
    );
    sleep(IDLE).await;
    for _ in 0..2 {
        children.delete(name, &DeleteParams::background()).await?;
        sleep(PROMPT).await;
        children.get(name).await?;
    }
    Ok(())
}
