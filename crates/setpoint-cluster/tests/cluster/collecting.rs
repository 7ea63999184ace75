//! What becomes of objects whose owners are deleted.

use std::time::Duration;

use serde_json::{Value, json};
use setpoint::k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use setpoint::kube::api::{DeleteParams, Patch, PatchParams, PropagationPolicy};
use setpoint::kube::{Api, Client, ResourceExt};
use setpoint_cluster::{Cluster, Controllers};
use setpoint_sim::{Swarm, World};

use crate::support::{create, events, field, object, until};

const SETTLED: Duration = Duration::from_secs(20);

/// A reference to an owner.
fn owned_by(owner: &ConfigMap, blocks: bool) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(), "uid": owner.uid(),
           "blockOwnerDeletion": blocks})
}

fn map(name: &str, owners: &[Value]) -> ConfigMap {
    object(json!({"metadata": {"name": name, "ownerReferences": owners}}))
}

fn maps(client: Client) -> Api<ConfigMap> {
    Api::namespaced(client, "default")
}

fn deletion(policy: PropagationPolicy) -> DeleteParams {
    DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() }
}

async fn collector() -> (Cluster, Api<ConfigMap>) {
    let only = Controllers::parse("garbage-collector").unwrap();
    let cluster = Cluster::in_process_with(|builder| builder.controllers(only).nodes(0)).await.unwrap();
    let maps = maps(cluster.client());
    (cluster, maps)
}

async fn gone(maps: &Api<ConfigMap>, name: &str) {
    until(&format!("{name} is gone"), async || maps.get_opt(name).await.unwrap().is_none().then_some(()))
        .await;
}

#[tokio::test(start_paused = true)]
async fn dependents_go_after_their_last_owner() {
    let (cluster, maps) = collector().await;
    let (a, b) = (create(&maps, &map("a", &[])).await, create(&maps, &map("b", &[])).await);
    create(&maps, &map("of-both", &[owned_by(&a, true), owned_by(&b, true)])).await;
    let child = create(&maps, &map("child", &[owned_by(&a, true)])).await;
    create(&maps, &map("grandchild", &[owned_by(&child, true)])).await;
    create(&maps, &map("nobodys", &[])).await;
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    gone(&maps, "child").await;
    gone(&maps, "grandchild").await;
    tokio::time::sleep(SETTLED).await;
    let left = maps.get("of-both").await.unwrap();
    assert_eq!(left.owner_references().len(), 1, "the reference to an owner that is gone is taken away");
    maps.delete("b", &DeleteParams::default()).await.unwrap();
    gone(&maps, "of-both").await;
    maps.get("nobodys").await.unwrap();
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_an_owner_waits_for_those_that_block_it() {
    let (cluster, maps) = collector().await;
    let owner = create(&maps, &map("owner", &[])).await;
    let mut held = map("held", &[owned_by(&owner, true)]);
    held.metadata.finalizers = Some(vec!["test/hold".to_owned()]);
    create(&maps, &held).await;
    tokio::time::sleep(SETTLED).await;
    maps.delete("owner", &deletion(PropagationPolicy::Foreground)).await.unwrap();
    tokio::time::sleep(SETTLED).await;
    let waiting = maps.get("owner").await.unwrap();
    assert_eq!(waiting.finalizers(), ["foregroundDeletion"]);
    assert!(maps.get("held").await.unwrap().metadata.deletion_timestamp.is_some());
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("held", &PatchParams::default(), &free).await.unwrap();
    gone(&maps, "held").await;
    gone(&maps, "owner").await;
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn orphans_stay_without_an_owner() {
    let (cluster, maps) = collector().await;
    let owner = create(&maps, &map("owner", &[])).await;
    create(&maps, &map("child", &[owned_by(&owner, true)])).await;
    tokio::time::sleep(SETTLED).await;
    maps.delete("owner", &deletion(PropagationPolicy::Orphan)).await.unwrap();
    gone(&maps, "owner").await;
    tokio::time::sleep(SETTLED).await;
    assert!(maps.get("child").await.unwrap().owner_references().is_empty());
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_never_was_does_not_keep_its_dependent() {
    let (cluster, maps) = collector().await;
    let ghost = object(json!({"metadata": {"name": "ghost", "uid": "no-such-uid"}}));
    create(&maps, &map("child", &[owned_by(&ghost, false)])).await;
    gone(&maps, "child").await;
    // One of the same name is not the owner.
    create(&maps, &map("ghost", &[])).await;
    create(&maps, &map("child", &[owned_by(&ghost, false)])).await;
    gone(&maps, "child").await;
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_owner_in_another_namespace_is_none_and_an_event_says_so() {
    let (cluster, maps) = collector().await;
    create(&Api::<Namespace>::all(cluster.client()), &object(json!({"metadata": {"name": "other"}}))).await;
    let owner = create(&maps, &map("owner", &[])).await;
    tokio::time::sleep(SETTLED).await;
    let other: Api<ConfigMap> = Api::namespaced(cluster.client(), "other");
    let child = create(&other, &map("child", &[owned_by(&owner, false)])).await;
    gone(&other, "child").await;
    let note = format!(
        "ownerRef [v1/ConfigMap, namespace: other, name: owner, uid: {}] does not exist in namespace \"other\"",
        owner.uid().unwrap()
    );
    let events = events(&cluster, &child.name_any()).await;
    assert!(events.contains(&("OwnerRefInvalidNamespace".into(), note)), "{events:?}");
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cycle_of_owners_can_be_deleted_in_the_foreground() {
    let (cluster, maps) = collector().await;
    let a = create(&maps, &map("a", &[])).await;
    let b = create(&maps, &map("b", &[owned_by(&a, true)])).await;
    let close = Patch::Merge(json!({"metadata": {"ownerReferences": [owned_by(&b, true)]}}));
    maps.patch("a", &PatchParams::default(), &close).await.unwrap();
    tokio::time::sleep(SETTLED).await;
    maps.delete("a", &deletion(PropagationPolicy::Foreground)).await.unwrap();
    gone(&maps, "a").await;
    gone(&maps, "b").await;
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_object_of_the_whole_cluster_is_not_collected_for_an_owner_in_a_namespace() {
    let (cluster, maps) = collector().await;
    let owner = create(&maps, &map("owner", &[])).await;
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    let references = json!([owned_by(&owner, false)]);
    create(&namespaces, &object(json!({"metadata": {"name": "seen", "ownerReferences": references}}))).await;
    tokio::time::sleep(SETTLED).await;
    create(&namespaces, &object(json!({"metadata": {"name": "new", "ownerReferences": references}}))).await;
    maps.delete("owner", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(SETTLED).await;
    for name in ["seen", "new"] {
        assert!(namespaces.get(name).await.unwrap().metadata.deletion_timestamp.is_none(), "{name}");
    }
    cluster.stop().await.unwrap();
}

/// Whatever goes wrong between collector and server: what has no owner goes, and nothing else does.
#[test]
fn under_faults_exactly_those_without_owners_go() {
    for seed in 0..20 {
        World::run(seed, async |world| {
            let direct = maps(world.direct());
            let (a, b) = (create(&direct, &map("a", &[])).await, create(&direct, &map("b", &[])).await);
            world.faults().swarm(Swarm::every(0.03));
            let cluster = Cluster::builder(world.client_named("collector"))
                .env(world.env().clone())
                .controllers(Controllers::parse("garbage-collector").unwrap())
                .nodes(0)
                .start();
            for n in 0..10 {
                create(&direct, &map(&format!("of-a-{n}"), &[owned_by(&a, true)])).await;
                create(&direct, &map(&format!("of-b-{n}"), &[owned_by(&b, true)])).await;
            }
            let secrets: Api<Secret> = Api::namespaced(world.direct(), "default");
            create(
                &secrets,
                &object(json!({"metadata": {"name": "of-a", "ownerReferences": [owned_by(&a, true)]}})),
            )
            .await;
            let policy =
                [PropagationPolicy::Background, PropagationPolicy::Foreground][(seed % 2) as usize].clone();
            direct.delete("a", &deletion(policy)).await.unwrap();
            tokio::time::sleep(Duration::from_secs(120)).await;
            world.faults().heal();
            let names = async || {
                let list = direct.list(&Default::default()).await.unwrap();
                list.items
                    .iter()
                    .map(ResourceExt::name_any)
                    .filter(|name| name != "kube-root-ca.crt")
                    .collect::<Vec<_>>()
            };
            until(&format!("everything of a is gone, seed {seed}"), async || {
                let is_left = names().await.iter().any(|name| name == "a" || name.starts_with("of-a"));
                (!is_left && secrets.get_opt("of-a").await.unwrap().is_none()).then_some(())
            })
            .await;
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert_eq!(names().await.len(), 11, "seed {seed}: {:?}", field(&names().await, ""));
            cluster.stop().await.unwrap();
        });
    }
}
