//! Deployments and their ReplicaSets.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DeleteParams;
use setpoint_sim::World;
use tokio::time::sleep;

use crate::support::{MINUTE, Running, SECOND, condition, deployment, revision};

fn run(scenario: impl AsyncFnOnce(Running)) {
    World::run(7, async |world| scenario(Running::new(&world)).await);
}

#[test]
fn a_deployment_gets_its_pods_and_says_so() {
    run(async |running| {
        running.create::<Deployment>(deployment("web", 8)).await;
        running.roll_out("web").await;
        sleep(MINUTE).await;
        assert_eq!(running.active_pods().await.len(), 8);
        let web: Deployment = running.get("web").await;
        let status = web.status.as_ref().unwrap();
        assert_eq!((status.ready_replicas, status.unavailable_replicas), (Some(8), None));
        assert_eq!(status.terminating_replicas, Some(0));
        let set = running.list::<ReplicaSet>().await.remove(0);
        let name = set.name_any();
        let progressed = format!("ReplicaSet {name:?} has successfully progressed.");
        assert_eq!(
            condition(&web, "Progressing").unwrap(),
            ("True".into(), "NewReplicaSetAvailable".into(), progressed)
        );
        assert_eq!(
            condition(&web, "Available").unwrap(),
            ("True".into(), "MinimumReplicasAvailable".into(), "Deployment has minimum availability.".into())
        );
        assert_eq!((revision(&web), revision(&set)), ("1", "1"));
        let hash = name.strip_prefix("web-").unwrap();
        assert_eq!(set.labels()["pod-template-hash"], hash);
        assert_eq!(running.active_pods().await[0].labels()["pod-template-hash"], hash);
        let scaled = format!("Scaled up replica set {name} from 0 to 8");
        assert_eq!(running.events("web").await, [("ScalingReplicaSet".to_owned(), scaled)]);
        assert_eq!(running.events(&name).await.len(), 8);
    });
}

#[test]
fn a_deleted_pod_is_replaced() {
    run(async |running| {
        running.create::<Deployment>(deployment("web", 3)).await;
        running.roll_out("web").await;
        let victim = running.active_pods().await[0].name_any();
        running.api::<Pod>().delete(&victim, &DeleteParams::default()).await.unwrap();
        sleep(10 * SECOND).await;
        let pods = running.active_pods().await;
        assert_eq!(pods.len(), 3);
        assert!(pods.iter().all(|pod| pod.name_any() != victim));
    });
}

#[test]
fn a_new_image_rolls_out_and_undo_brings_the_old_set_back_as_a_new_revision() {
    run(async |running| {
        running.create::<Deployment>(deployment("web", 5)).await;
        running.roll_out("web").await;
        running.set_image("web", "v2").await;
        let web = running.roll_out("web").await;
        assert_eq!(revision(&web), "2");
        assert_eq!(running.sizes().await, [("v2".to_owned(), 5)]);
        running.set_image("web", "v1").await;
        sleep(SECOND / 2).await;
        let web = running.roll_out("web").await;
        assert_eq!(revision(&web), "3");
        assert_eq!(running.sizes().await, [("v1".to_owned(), 5)]);
        let sets = running.list::<ReplicaSet>().await;
        assert_eq!(sets.len(), 2);
        let back = sets.iter().find(|set| set.spec.replicas == Some(5)).unwrap();
        assert_eq!(back.annotations()["deployment.kubernetes.io/revision-history"], "1");
    });
}
