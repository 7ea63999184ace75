//! Deployments and their ReplicaSets.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use setpoint_sim::{Match, Refusal, World};
use tokio::time::sleep;

use crate::kubelet::BROKEN;
use crate::support::{MINUTE, Running, SECOND, condition, deployment, image, revision};

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

#[test]
fn a_hundred_pods_roll_over() {
    run(async |running| {
        running.create::<Deployment>(deployment("web", 100)).await;
        running.roll_out("web").await;
        running.set_image("web", "v2").await;
        running.roll_out("web").await;
        assert_eq!(running.sizes().await, [("v2".to_owned(), 100)]);
    });
}

#[test]
fn scaling_changes_the_set_that_is_there() {
    run(async |running| {
        running.create::<Deployment>(deployment("web", 2)).await;
        running.roll_out("web").await;
        running.patch::<Deployment>("web", json!({"spec": {"replicas": 5}})).await;
        running.roll_out("web").await;
        assert_eq!(running.active_pods().await.len(), 5);
        running.patch::<Deployment>("web", json!({"spec": {"replicas": 0}})).await;
        let web = running.roll_out("web").await;
        sleep(10 * SECOND).await;
        assert_eq!((running.list::<Pod>().await.len(), revision(&web)), (0, "1"));
        let notes: Vec<_> = running.events("web").await.into_iter().map(|(_, note)| note).collect();
        let set = running.list::<ReplicaSet>().await[0].name_any();
        let scaled = |how: &str| format!("Scaled {how} replica set {set}");
        assert!(notes.contains(&format!("{} from 2 to 5", scaled("up"))), "{notes:?}");
        assert!(notes.contains(&format!("{} from 5 to 0", scaled("down"))), "{notes:?}");
    });
}

#[test]
fn a_rollout_that_is_half_done_grows_in_proportion() {
    run(async |running| {
        running.create::<Deployment>(deployment("web", 10)).await;
        running.roll_out("web").await;
        // The new pods never become ready: with 25 % each, 8 old and 5 new ones are where it stops.
        running.patch::<Deployment>("web", broken("v2")).await;
        sleep(30 * SECOND).await;
        assert_eq!(running.sizes().await, [("v1".to_owned(), 8), ("v2".to_owned(), 5)]);
        running.patch::<Deployment>("web", json!({"spec": {"replicas": 20}})).await;
        sleep(30 * SECOND).await;
        // 13 pods of at most 13 become 25 of at most 25.
        assert_eq!(running.sizes().await, [("v1".to_owned(), 15), ("v2".to_owned(), 10)]);
    });
}

/// A template whose pods never become ready.
fn broken(image: &str) -> serde_json::Value {
    json!({"spec": {"template": {
        "metadata": {"annotations": {BROKEN: "yes"}},
        "spec": {"containers": [{"name": "web", "image": image}]},
    }}})
}

#[test]
fn a_rollout_that_stands_still_is_told_and_undo_mends_it() {
    run(async |running| {
        let mut web = deployment("web", 4);
        web["spec"]["progressDeadlineSeconds"] = json!(60);
        running.create::<Deployment>(web).await;
        running.roll_out("web").await;
        running.patch::<Deployment>("web", broken("v2")).await;
        sleep(50 * SECOND).await;
        let progress = |web: &Deployment| condition(web, "Progressing").unwrap();
        let (status, reason, _) = progress(&running.get("web").await);
        assert_eq!((status.as_str(), reason.as_str()), ("True", "ReplicaSetUpdated"));
        sleep(30 * SECOND).await;
        let (status, reason, message) = progress(&running.get("web").await);
        assert_eq!((status.as_str(), reason.as_str()), ("False", "ProgressDeadlineExceeded"));
        assert!(message.ends_with("has timed out progressing."), "{message}");
        let back = json!({"spec": {"template": {
            "metadata": {"annotations": null},
            "spec": {"containers": [{"name": "web", "image": "v1"}]},
        }}});
        running.patch::<Deployment>("web", back).await;
        let web = running.roll_out("web").await;
        assert_eq!(progress(&web).1, "NewReplicaSetAvailable");
        assert_eq!(revision(&web), "3");
    });
}

#[test]
fn a_paused_deployment_scales_but_does_not_roll_out() {
    run(async |running| {
        running.create::<Deployment>(deployment("web", 3)).await;
        running.roll_out("web").await;
        running.patch::<Deployment>("web", json!({"spec": {"paused": true}})).await;
        running.set_image("web", "v2").await;
        running.patch::<Deployment>("web", json!({"spec": {"replicas": 4}})).await;
        sleep(30 * SECOND).await;
        assert_eq!(running.sizes().await, [("v1".to_owned(), 4)]);
        let web: Deployment = running.get("web").await;
        let paused = ("Unknown".into(), "DeploymentPaused".into(), "Deployment is paused".into());
        assert_eq!(condition(&web, "Progressing"), Some(paused));
        running.patch::<Deployment>("web", json!({"spec": {"paused": false}})).await;
        let web = running.roll_out("web").await;
        assert_eq!(running.sizes().await, [("v2".to_owned(), 4)]);
        assert_eq!(condition(&web, "Progressing").unwrap().1, "NewReplicaSetAvailable");
    });
}

#[test]
fn recreate_starts_new_pods_when_the_last_old_one_has_ended() {
    run(async |running| {
        let mut web = deployment("web", 3);
        web["spec"]["strategy"] = json!({"type": "Recreate"});
        running.create::<Deployment>(web).await;
        running.roll_out("web").await;
        running.set_image("web", "v2").await;
        for _ in 0..100 {
            let pods = running.list::<Pod>().await;
            let images: std::collections::BTreeSet<_> =
                pods.iter().map(|pod| pod.spec.as_ref().unwrap().containers[0].image.clone()).collect();
            assert!(images.len() <= 1, "old and new pods at the same time");
            sleep(SECOND / 10).await;
        }
        running.roll_out("web").await;
        assert_eq!(running.sizes().await, [("v2".to_owned(), 3)]);
    });
}

#[test]
fn history_keeps_as_many_sets_as_it_shall() {
    run(async |running| {
        let mut web = deployment("web", 1);
        web["spec"]["revisionHistoryLimit"] = json!(2);
        running.create::<Deployment>(web).await;
        for image in ["v2", "v3", "v4", "v5"] {
            running.roll_out("web").await;
            running.set_image("web", image).await;
        }
        running.roll_out("web").await;
        sleep(10 * SECOND).await;
        let mut kept: Vec<_> = running.list::<ReplicaSet>().await.iter().map(image).collect();
        kept.sort();
        assert_eq!(kept, ["v3", "v4", "v5"]);
    });
}

#[test]
fn pods_are_available_when_they_have_been_ready_for_long_enough() {
    run(async |running| {
        let mut web = deployment("web", 2);
        web["spec"]["minReadySeconds"] = json!(30);
        running.create::<Deployment>(web).await;
        sleep(20 * SECOND).await;
        let status = running.get::<Deployment>("web").await.status.unwrap();
        assert_eq!((status.ready_replicas, status.available_replicas), (Some(2), None));
        sleep(15 * SECOND).await;
        let status = running.get::<Deployment>("web").await.status.unwrap();
        assert_eq!(status.available_replicas, Some(2));
    });
}

#[test]
fn what_is_nobodys_is_adopted_and_what_does_not_match_is_let_go() {
    run(async |running| {
        let mut lonely = json!({
            "metadata": {"name": "lonely", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "v0"}]},
        });
        running.create::<Pod>(lonely.take()).await;
        let set = json!({
            "metadata": {"name": "set"},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "v1"}]},
            }},
        });
        running.create::<ReplicaSet>(set).await;
        sleep(10 * SECOND).await;
        assert_eq!(running.active_pods().await.len(), 2);
        let pod: Pod = running.get("lonely").await;
        assert_eq!(pod.owner_references()[0].name, "set");
        running.patch::<Pod>("lonely", json!({"metadata": {"labels": {"app": "other"}}})).await;
        sleep(10 * SECOND).await;
        assert_eq!(running.get::<Pod>("lonely").await.owner_references(), []);
        assert_eq!(running.active_pods().await.len(), 3);
    });
}

#[test]
fn two_sets_with_the_same_selector_do_not_fight_for_pods() {
    run(async |running| {
        for name in ["one", "two"] {
            let mut web = deployment(name, 3);
            web["spec"]["selector"] = json!({"matchLabels": {"app": "same"}});
            web["spec"]["template"]["metadata"] = json!({"labels": {"app": "same"}});
            running.create::<Deployment>(web).await;
        }
        running.roll_out("one").await;
        running.roll_out("two").await;
        sleep(MINUTE).await;
        assert_eq!(running.active_pods().await.len(), 6);
        assert_eq!(running.list::<ReplicaSet>().await.len(), 2);
    });
}

#[test]
fn an_owner_in_another_namespace_owns_nothing_here() {
    run(async |running| {
        let elsewhere = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": "elsewhere",
                               "controller": true});
        let pod = json!({
            "metadata": {"name": "stranger", "labels": {"app": "web"}, "ownerReferences": [elsewhere]},
            "spec": {"containers": [{"name": "web", "image": "v0"}]},
        });
        running.create::<Pod>(pod).await;
        running.create::<Deployment>(deployment("web", 2)).await;
        running.roll_out("web").await;
        assert_eq!(running.active_pods().await.len(), 3);
    });
}

#[test]
fn a_selector_that_does_not_match_the_template_is_refused_with_kubernetes_words() {
    run(async |running| {
        let mut web = deployment("web", 1);
        web["spec"]["template"]["metadata"] = json!({"labels": {"app": "other"}});
        let object: Deployment = serde_json::from_value(web).unwrap();
        let error = running.api::<Deployment>().create(&PostParams::default(), &object).await.unwrap_err();
        assert!(error.to_string().contains("`selector` does not match template `labels`"), "{error}");
    });
}

#[test]
fn a_set_that_cannot_make_pods_says_why() {
    run(async |running| {
        let mut web = deployment("web", 2);
        web["spec"]["template"]["spec"]["serviceAccountName"] = json!("web");
        let fault = running.world.faults().on(Match::create("pods").client("controllers"));
        fault.refuse(Refusal::ServiceUnavailable).always();
        running.create::<Deployment>(web).await;
        sleep(30 * SECOND).await;
        let web: Deployment = running.get("web").await;
        let (status, reason, _) = condition(&web, "ReplicaFailure").unwrap();
        assert_eq!((status.as_str(), reason.as_str()), ("True", "FailedCreate"));
        running.world.faults().heal();
        let web = running.roll_out("web").await;
        sleep(10 * SECOND).await;
        drop(web);
        assert_eq!(condition(&running.get("web").await, "ReplicaFailure"), None);
    });
}
