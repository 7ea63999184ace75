//! Several writers of one status.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use setpoint::patch_status;
use setpoint_sim::{Match, World};

use crate::support::SECOND;

fn deployment() -> Deployment {
    serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "nginx"}]}}
        }
    }))
    .unwrap()
}

fn condition(type_: &str, status: &str, second: i64) -> DeploymentCondition {
    DeploymentCondition {
        type_: Some(type_.to_owned()),
        status: Some(status.to_owned()),
        last_transition_time: Some(Time(Timestamp::from_second(second).unwrap())),
        ..DeploymentCondition::default()
    }
}

fn status(conditions: Vec<DeploymentCondition>) -> DeploymentStatus {
    DeploymentStatus { conditions: Some(conditions), ..DeploymentStatus::default() }
}

/// What the server has: types, statuses and seconds.
async fn conditions(api: &Api<Deployment>) -> Vec<(String, String, i64)> {
    let status = api.get("web").await.unwrap().status.unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default().into_iter();
    let time = |time: Option<Time>| time.map_or(0, |time| time.0.as_second());
    conditions
        .map(|found| (found.type_.unwrap(), found.status.unwrap(), time(found.last_transition_time)))
        .collect()
}

fn seen(type_: &str, status: &str, second: i64) -> (String, String, i64) {
    (type_.into(), status.into(), second)
}

#[test]
fn writers_of_different_conditions_do_not_lose_each_others() {
    World::run(5, async |world| {
        let api: Api<Deployment> = Api::default_namespaced(world.client());
        // Both have seen the same object.
        let seen_by_both = api.create(&PostParams::default(), &deployment()).await.unwrap();
        patch_status(&api, &seen_by_both, &status(vec![condition("Ready", "True", 10)])).await.unwrap();
        patch_status(&api, &seen_by_both, &status(vec![condition("Synced", "True", 20)])).await.unwrap();
        assert_eq!(conditions(&api).await, [seen("Ready", "True", 10), seen("Synced", "True", 20)]);
        // One removes its own, one changes its own, on what they saw before.
        let live = api.get("web").await.unwrap();
        let changed = vec![condition("Ready", "False", 30), condition("Synced", "True", 20)];
        patch_status(&api, &live, &status(changed)).await.unwrap();
        patch_status(&api, &live, &status(vec![condition("Ready", "True", 10)])).await.unwrap();
        assert_eq!(conditions(&api).await, [seen("Ready", "False", 30)]);
    });
}

#[test]
fn two_writers_at_the_same_time_both_get_through() {
    World::run(5, async |world| {
        let api: Api<Deployment> = Api::default_namespaced(world.client());
        let live = api.create(&PostParams::default(), &deployment()).await.unwrap();
        // Every request takes a second, so that whatever can come between comes between.
        world.faults().on(Match::any()).delay_request(SECOND).always();
        let wished = [
            status(vec![condition("A", "True", 1)]),
            status(vec![condition("B", "True", 2)]),
            status(vec![condition("C", "True", 3)]),
        ];
        let all = wished.iter().map(|wished| patch_status(&api, &live, wished));
        for written in futures::future::join_all(all).await {
            assert!(written.unwrap());
        }
        let mut found = conditions(&api).await;
        found.sort();
        assert_eq!(found, [seen("A", "True", 1), seen("B", "True", 2), seen("C", "True", 3)]);
    });
}

#[test]
fn a_transition_is_a_change_of_the_status_whatever_the_writer_says() {
    World::run(5, async |world| {
        let api: Api<Deployment> = Api::default_namespaced(world.client_named("controller"));
        let first = api.create(&PostParams::default(), &deployment()).await.unwrap();
        patch_status(&api, &first, &status(vec![condition("Ready", "True", 10)])).await.unwrap();
        let live = api.get("web").await.unwrap();
        let before = world.trace().requests(&Match::writes()).count();
        assert!(!patch_status(&api, &live, &status(vec![condition("Ready", "True", 99)])).await.unwrap());
        assert_eq!(world.trace().requests(&Match::writes()).count(), before, "nothing but a time differs");
        // Another replica, which has not seen it, comes to the same.
        patch_status(&api, &first, &status(vec![condition("Ready", "True", 99)])).await.unwrap();
        assert_eq!(conditions(&api).await, [seen("Ready", "True", 10)]);
        patch_status(&api, &live, &status(vec![condition("Ready", "False", 50)])).await.unwrap();
        assert_eq!(conditions(&api).await, [seen("Ready", "False", 50)]);
    });
}

#[test]
fn conflicts_are_not_tried_for_ever() {
    World::run(5, async |world| {
        let api: Api<Deployment> = Api::default_namespaced(world.client_named("slow"));
        let live = api.create(&PostParams::default(), &deployment()).await.unwrap();
        world.faults().on(Match::any().client("slow")).delay_request(SECOND).always();
        // Somebody else writes while each request is on its way.
        let others: Api<Deployment> = Api::default_namespaced(world.direct());
        let _other = world.env().spawn(async move {
            for n in 0.. {
                tokio::time::sleep(SECOND / 3).await;
                let patch = json!({"metadata": {"annotations": {"n": n.to_string()}}});
                others.patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
            }
        });
        let error = patch_status(&api, &live, &status(vec![condition("A", "True", 1)])).await.unwrap_err();
        assert!(matches!(error, kube::Error::Api(status) if status.code == 409));
        // Five tries, and four looks between them.
        assert_eq!(world.trace().requests(&Match::patch("deployments/status").client("slow")).count(), 9);
    });
}

/// What has no list in it needs no version: it conflicts with nobody.
#[test]
fn numbers_are_written_without_a_version() {
    World::run(5, async |world| {
        let api: Api<Deployment> = Api::default_namespaced(world.client_named("controller"));
        let stale = api.create(&PostParams::default(), &deployment()).await.unwrap();
        patch_status(&api, &stale, &status(vec![condition("A", "True", 1)])).await.unwrap();
        let numbers = DeploymentStatus { replicas: Some(3), ..DeploymentStatus::default() };
        let before = world.trace().requests(&Match::any().client("controller")).count();
        assert!(patch_status(&api, &stale, &numbers).await.unwrap());
        assert_eq!(world.trace().requests(&Match::any().client("controller")).count(), before + 1);
        let live = api.get("web").await.unwrap().status.unwrap();
        assert_eq!((live.replicas, live.conditions.map(|all| all.len())), (Some(3), Some(1)));
    });
}

/// Zeros that the server drops are no difference.
#[test]
fn a_status_of_zeros_is_written_once() {
    World::run(5, async |world| {
        let api: Api<Deployment> = Api::default_namespaced(world.client());
        let live = api.create(&PostParams::default(), &deployment()).await.unwrap();
        let zeros = DeploymentStatus {
            replicas: Some(0),
            ready_replicas: Some(0),
            observed_generation: Some(1),
            conditions: Some(vec![]),
            ..DeploymentStatus::default()
        };
        assert!(patch_status(&api, &live, &zeros).await.unwrap());
        let live = api.get("web").await.unwrap();
        assert!(!patch_status(&api, &live, &zeros).await.unwrap());
    });
}
