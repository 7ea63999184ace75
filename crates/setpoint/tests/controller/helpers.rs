//! The helpers that every controller needs.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, PostParams};
use parking_lot::Mutex;
use serde_json::json;
use setpoint::{
    Action, Context, Controller, Ensured, Finalize, ObjectKey, Predicate, ReconcileError, Watch, ensure,
    finalize, patch_status,
};
use setpoint_sim::{Match, World};
use tokio::time::sleep;

use crate::support::{SECOND, create_map, maps, run};

/// Something outside the cluster: one entry for each object that was applied.
type Outside = Arc<Mutex<Vec<String>>>;

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(map) = cx.lister::<ConfigMap>()?.get(&key) else { return Ok(Action::done()) };
    let api: Api<ConfigMap> = Api::default_namespaced(cx.client());
    let outside = cx.state::<Outside>()?.clone();
    finalize(&api, "example.com/outside", map, async |step| {
        let mut outside = outside.lock();
        match step {
            Finalize::Apply(map) => {
                let name = map.metadata.name.clone().unwrap();
                if !outside.contains(&name) {
                    outside.push(name);
                }
            }
            Finalize::Cleanup(map) => outside.retain(|name| Some(name) != map.metadata.name.as_ref()),
        }
        Ok(Action::done())
    })
    .await
}

#[test]
fn nothing_outside_outlives_its_object_whatever_is_lost_on_the_way() {
    for lost in 0..4 {
        World::run(5, async |world| {
            let outside = Outside::default();
            // One answer after another is lost: of the patch that adds the finalizer, or that removes it.
            if lost > 0 {
                world.faults().on(Match::patch("configmaps").nth(lost)).lose_response();
            }
            let controller = Controller::of::<ConfigMap>(.., "outside", reconcile).state(outside.clone());
            let _running = run(&world, controller);
            create_map(&world, "a").await;
            sleep(60 * SECOND).await;
            assert_eq!(*outside.lock(), ["a"]);
            let finalizers = maps(&world).get("a").await.unwrap().metadata.finalizers;
            assert_eq!(finalizers, Some(vec!["example.com/outside".to_owned()]));
            maps(&world).delete("a", &DeleteParams::default()).await.unwrap();
            sleep(60 * SECOND).await;
            assert!(outside.lock().is_empty());
            assert!(maps(&world).get_opt("a").await.unwrap().is_none());
        });
    }
}

/// As `setpoint new` writes it: a filter that leaves out what the controller itself writes.
#[test]
fn a_finalizer_and_a_filter_by_generation_go_together() {
    World::run(5, async |world| {
        async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
            let Some(object) = cx.lister::<Deployment>()?.get(&key) else { return Ok(Action::done()) };
            let api: Api<Deployment> = Api::default_namespaced(cx.client());
            let outside = cx.state::<Outside>()?.clone();
            finalize(&api, "example.com/outside", object, async |step| {
                match step {
                    Finalize::Apply(object) => {
                        assert_eq!(object.metadata.finalizers, Some(vec!["example.com/outside".to_owned()]));
                        outside.lock().push(key.name().to_owned());
                    }
                    Finalize::Cleanup(_) => outside.lock().clear(),
                }
                Ok(Action::done())
            })
            .await
        }
        let outside = Outside::default();
        let controller = Controller::of(
            Watch::<Deployment>::new().filter(Predicate::generation_changed()),
            "template",
            reconcile,
        )
        .resync(600 * SECOND)
        .workers(4)
        .state(outside.clone());
        let _running = run(&world, controller);
        let api: Api<Deployment> = Api::default_namespaced(world.direct());
        api.create(&PostParams::default(), &deployment()).await.unwrap();
        sleep(SECOND).await;
        assert!(outside.lock().contains(&"web".to_owned()), "it was never applied");
        api.delete("web", &DeleteParams::default()).await.unwrap();
        sleep(SECOND).await;
        assert!(outside.lock().is_empty());
        assert!(api.get_opt("web").await.unwrap().is_none());
    });
}

fn deployment() -> Deployment {
    serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 3, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "nginx"}]}}
        }
    }))
    .unwrap()
}

#[test]
fn an_object_is_ensured_once() {
    World::run(5, async |world| {
        let api: Api<Deployment> = Api::default_namespaced(world.client_named("controller"));
        let Ensured::Created(mut live) = ensure(&api, None, &deployment()).await.unwrap() else {
            panic!("it was not there");
        };
        for _ in 0..3 {
            assert_eq!(ensure(&api, Some(&live), &deployment()).await.unwrap(), Ensured::Unchanged);
        }
        let mut wanted = deployment();
        wanted.spec.replicas = Some(5);
        let Ensured::Updated(updated) = ensure(&api, Some(&live), &wanted).await.unwrap() else {
            panic!("it had three replicas");
        };
        assert_eq!(updated.spec.replicas, Some(5));
        live.metadata.uid = Some("of another".into());
        let error = ensure(&api, Some(&live), &wanted).await.unwrap_err();
        assert!(matches!(error, kube::Error::Api(status) if status.code == 409));
        assert_eq!(world.trace().requests(&Match::writes().client("controller")).count(), 3);
    });
}

#[test]
fn a_status_is_written_when_it_changes_and_only_then() {
    World::run(5, async |world| {
        let api: Api<Deployment> = Api::default_namespaced(world.client_named("controller"));
        let live = api.create(&PostParams::default(), &deployment()).await.unwrap();
        let status =
            DeploymentStatus { replicas: Some(3), ready_replicas: Some(1), ..DeploymentStatus::default() };
        assert!(patch_status(&api, &live, &status).await.unwrap());
        let live = api.get("web").await.unwrap();
        assert_eq!(live.status.as_ref().unwrap().ready_replicas, Some(1));
        assert!(!patch_status(&api, &live, &status).await.unwrap());
        let fewer = DeploymentStatus { replicas: Some(3), ..DeploymentStatus::default() };
        assert!(patch_status(&api, &live, &fewer).await.unwrap());
        assert_eq!(api.get("web").await.unwrap().status.unwrap().ready_replicas, None);
    });
}
