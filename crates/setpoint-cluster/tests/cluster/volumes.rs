//! Claims and volumes.

use std::time::Duration;

use serde_json::{Value, json};
use setpoint::k8s_openapi::api::apps::v1::StatefulSet;
use setpoint::k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use setpoint::k8s_openapi::api::storage::v1::StorageClass;
use setpoint::kube::ResourceExt;
use setpoint::kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use setpoint_cluster::Cluster;

use crate::support::{create, events, field, object, phase, pod, pods, until};

fn claims(cluster: &Cluster) -> Api<PersistentVolumeClaim> {
    Api::namespaced(cluster.client(), "default")
}

fn volumes(cluster: &Cluster) -> Api<PersistentVolume> {
    Api::all(cluster.client())
}

fn claim(name: &str, size: &str, class: Option<&str>) -> PersistentVolumeClaim {
    object(json!({"metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": {"storage": size}},
    }}))
}

async fn class(cluster: &Cluster, name: &str, more: Value) {
    let mut class = json!({"metadata": {"name": name}, "provisioner": "example.com/disk"});
    for (key, value) in more.as_object().unwrap() {
        class[key] = value.clone();
    }
    create::<StorageClass>(&Api::all(cluster.client()), &object(class)).await;
}

async fn claim_is(cluster: &Cluster, name: &str, phase: &str) -> PersistentVolumeClaim {
    until(&format!("{name} is {phase}"), async || {
        let claim = claims(cluster).get_opt(name).await.unwrap()?;
        (field(&claim, "/status/phase") == phase).then_some(claim)
    })
    .await
}

async fn volume_is(cluster: &Cluster, name: &str, phase: &str) -> PersistentVolume {
    until(&format!("{name} is {phase}"), async || {
        let volume = volumes(cluster).get_opt(name).await.unwrap()?;
        (field(&volume, "/status/phase") == phase).then_some(volume)
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_claim_gets_the_volume_that_fits_best_and_leaves_it_behind() {
    let cluster = Cluster::in_process().await.unwrap();
    for (name, size) in [("large", "10Gi"), ("right", "3Gi"), ("small", "1Gi")] {
        let spec = json!({"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/x"}});
        create::<PersistentVolume>(
            &volumes(&cluster),
            &object(json!({"metadata": {"name": name}, "spec": spec})),
        )
        .await;
        volume_is(&cluster, name, "Available").await;
    }
    create(&claims(&cluster), &claim("data", "2Gi", Some(""))).await;
    let bound = claim_is(&cluster, "data", "Bound").await;
    assert_eq!(field(&bound, "/spec/volumeName"), "right");
    assert_eq!(field(&bound, "/status/capacity/storage"), "3Gi");
    assert_eq!(field(&bound, "/status/accessModes"), json!(["ReadWriteOnce"]));
    assert_eq!(bound.annotations()["pv.kubernetes.io/bind-completed"], "yes");
    assert_eq!(bound.annotations()["pv.kubernetes.io/bound-by-controller"], "yes");
    let volume = volume_is(&cluster, "right", "Bound").await;
    assert_eq!(field(&volume, "/spec/claimRef/uid"), json!(bound.uid()));
    create(&claims(&cluster), &claim("too-much", "20Gi", Some(""))).await;
    claim_is(&cluster, "too-much", "Pending").await;
    let told = events(&cluster, "too-much").await;
    assert!(told.iter().any(|(reason, _)| reason == "FailedBinding"), "{told:?}");
    // A volume that is in use stays until its claim is gone.
    volumes(&cluster).delete("right", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    volume_is(&cluster, "right", "Bound").await;
    claims(&cluster).delete("data", &DeleteParams::default()).await.unwrap();
    until("both are gone", async || {
        let is_gone = claims(&cluster).get_opt("data").await.unwrap().is_none()
            && volumes(&cluster).get_opt("right").await.unwrap().is_none();
        is_gone.then_some(())
    })
    .await;
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn volumes_are_made_grow_and_go_with_their_claims() {
    let cluster = Cluster::in_process().await.unwrap();
    class(&cluster, "fast", json!({"allowVolumeExpansion": true})).await;
    class(&cluster, "kept", json!({"reclaimPolicy": "Retain"})).await;
    for (name, class) in [("a", "fast"), ("b", "kept")] {
        create(&claims(&cluster), &claim(name, "1Gi", Some(class))).await;
    }
    let a = claim_is(&cluster, "a", "Bound").await;
    let b = claim_is(&cluster, "b", "Bound").await;
    let name = format!("pvc-{}", a.uid().unwrap());
    assert_eq!(field(&a, "/spec/volumeName"), json!(name));
    let volume = volume_is(&cluster, &name, "Bound").await;
    assert_eq!(field(&volume, "/spec/persistentVolumeReclaimPolicy"), "Delete");
    assert_eq!(volume.annotations()["pv.kubernetes.io/provisioned-by"], "example.com/disk");
    let told = events(&cluster, "a").await;
    let made = format!("Successfully provisioned volume {name}");
    assert!(told.contains(&("ProvisioningSucceeded".to_owned(), made)), "{told:?}");
    let larger = json!({"spec": {"resources": {"requests": {"storage": "5Gi"}}}});
    claims(&cluster).patch("a", &PatchParams::default(), &Patch::Merge(&larger)).await.unwrap();
    until("it has grown", async || {
        let claim = claims(&cluster).get("a").await.unwrap();
        (field(&claim, "/status/capacity/storage") == "5Gi").then_some(())
    })
    .await;
    for name in ["a", "b"] {
        claims(&cluster).delete(name, &DeleteParams::default()).await.unwrap();
    }
    until("the first is gone", async || {
        volumes(&cluster).get_opt(&name).await.unwrap().is_none().then_some(())
    })
    .await;
    volume_is(&cluster, &format!("pvc-{}", b.uid().unwrap()), "Released").await;
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_a_class_waits_for_its_pod() {
    let cluster = Cluster::in_process().await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    create(&claims(&cluster), &claim("data", "1Gi", None)).await;
    let waiting = claim_is(&cluster, "data", "Pending").await;
    assert_eq!(field(&waiting, "/spec/storageClassName"), "standard");
    let told = events(&cluster, "data").await;
    assert!(told.iter().any(|(reason, _)| reason == "WaitForFirstConsumer"), "{told:?}");
    let volume = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
    create(&pods(cluster.client()), &pod("user", json!({}), volume)).await;
    let bound = claim_is(&cluster, "data", "Bound").await;
    assert_eq!(bound.annotations()["volume.kubernetes.io/selected-node"], "node-1");
    phase(&cluster, "user", "Running").await;
    // A claim that a pod uses stays as long as the pod.
    claims(&cluster).delete("data", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(claims(&cluster).get("data").await.unwrap().metadata.deletion_timestamp.is_some());
    pods(cluster.client()).delete("user", &DeleteParams::default()).await.unwrap();
    until("the claim is gone", async || {
        claims(&cluster).get_opt("data").await.unwrap().is_none().then_some(())
    })
    .await;
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_ephemeral_volume_comes_and_goes_with_its_pod() {
    let cluster = Cluster::in_process().await.unwrap();
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": claim("", "1Gi", None).spec});
    let volume = json!({"volumes": [{"name": "tmp", "ephemeral": {"volumeClaimTemplate": template}}]});
    create(&pods(cluster.client()), &pod("job", json!({}), volume)).await;
    phase(&cluster, "job", "Running").await;
    let claim = claims(&cluster).get("job-tmp").await.unwrap();
    assert_eq!(claim.labels()["a"], "b");
    assert_eq!(claim.owner_references()[0].kind, "Pod");
    pods(cluster.client()).delete("job", &DeleteParams::default()).await.unwrap();
    until("nothing is left", async || {
        let left = claims(&cluster).list(&ListParams::default()).await.unwrap().items.len()
            + volumes(&cluster).list(&ListParams::default()).await.unwrap().items.len();
        (left == 0).then_some(())
    })
    .await;
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_has_a_volume_for_each_pod_and_can_give_them_up() {
    let cluster = Cluster::in_process_with(|builder| builder.nodes(2)).await.unwrap();
    let sets: Api<StatefulSet> = Api::namespaced(cluster.client(), "default");
    let template =
        json!({"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "a", "image": "b"}]}});
    let claims_of = json!([{"metadata": {"name": "data"}, "spec": claim("", "1Gi", None).spec}]);
    let set = json!({"metadata": {"name": "db"}, "spec": {
        "replicas": 3, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template,
        "volumeClaimTemplates": claims_of,
        "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete", "whenDeleted": "Delete"},
    }});
    create(&sets, &object(set)).await;
    let ready = async |count: i32| {
        until(&format!("{count} are ready"), async || {
            let set = sets.get("db").await.unwrap();
            let status = set.status?;
            (status.replicas == count && status.available_replicas == Some(count)).then_some(())
        })
        .await;
    };
    ready(3).await;
    assert_eq!(volumes(&cluster).list(&ListParams::default()).await.unwrap().items.len(), 3);
    let scale = |replicas: i32| Patch::Merge(json!({"spec": {"replicas": replicas}}));
    sets.patch("db", &PatchParams::default(), &scale(1)).await.unwrap();
    ready(1).await;
    until("their volumes are gone", async || {
        let left = volumes(&cluster).list(&ListParams::default()).await.unwrap().items.len();
        (left == 1).then_some(())
    })
    .await;
    sets.patch("db", &PatchParams::default(), &scale(2)).await.unwrap();
    ready(2).await;
    sets.delete("db", &DeleteParams::default()).await.unwrap();
    until("nothing is left", async || {
        let left = pods(cluster.client()).list(&ListParams::default()).await.unwrap().items.len()
            + volumes(&cluster).list(&ListParams::default()).await.unwrap().items.len();
        (left == 0).then_some(())
    })
    .await;
    cluster.stop().await.unwrap();
}
