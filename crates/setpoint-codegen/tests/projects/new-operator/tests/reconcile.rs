//! The controller against an API server in this process: one call of it, and on virtual time, where a minute takes
//! milliseconds.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::DeleteParams;
use kube::api::{Api, Patch, PatchParams, PostParams};
use new_operator::READY;
use new_operator::{api, controller, reconcile};
use serde_json::json;
use setpoint::conditions::{find_condition, is_condition_true};
use setpoint::controller::Runtime;
use setpoint::{Action, Context, Metrics, ObjectKey};
use setpoint_apiserver::ApiServer;
use setpoint_sim::World;
use tokio::time::sleep;

/// Longer than anything takes that has no reason to wait.
const SETTLED: Duration = Duration::from_secs(10);

/// A world that knows the kind, in which the controller runs.
fn run(scenario: impl AsyncFnOnce(&World)) {
    World::run(1, async |world| {
        let text = include_str!("../config/crd/shops.shop.example.org.yaml");
        let crd: CustomResourceDefinition = serde_saphyr::from_str(text).unwrap();
        let crds: Api<CustomResourceDefinition> = Api::all(world.direct());
        crds.create(&PostParams::default(), &crd).await.unwrap();
        sleep(SETTLED).await;
        let runtime = Runtime::with(world.client(), world.env().clone(), Metrics::default());
        let _running = world
            .env()
            .spawn(async move { controller().run(&runtime).await });
        scenario(&world).await;
    });
}

fn example() -> api::Shop {
    api::Shop::new(
        "one",
        api::ShopSpec {
            message: "hello".to_owned(),
        },
    )
}

fn objects(world: &World) -> Api<api::Shop> {
    Api::default_namespaced(world.direct())
}

#[tokio::test]
async fn one_call_writes_what_is_missing() {
    let client = ApiServer::builder().build().client();
    let crd = include_str!("../config/crd/shops.shop.example.org.yaml");
    let crd: CustomResourceDefinition = serde_saphyr::from_str(crd).unwrap();
    Api::all(client.clone())
        .create(&PostParams::default(), &crd)
        .await
        .unwrap();
    let mut object = example();
    object.metadata.namespace = Some("default".to_owned());
    let key = ObjectKey::namespaced("default", &object.name_any());

    // Its caches have the object, and nothing else.
    let test = Context::for_test(client).stored([object]).await.unwrap();
    let test = test.cached::<Deployment>(.., []);
    let test = test.cached::<ConfigMap>(.., []);
    assert_eq!(
        reconcile(key, test.context()).await.unwrap(),
        Action::done()
    );
    assert!(
        test.requests()
            .iter()
            .any(|request| request.body["kind"] == "Deployment")
    );
    assert!(
        test.requests()
            .iter()
            .any(|request| request.body["kind"] == "ConfigMap")
    );
    assert!(
        test.writes()
            .last()
            .is_some_and(|write| write.ends_with("/status")),
        "{:?}",
        test.writes()
    );
}

#[test]
fn an_object_is_reconciled() {
    run(async |world| {
        let object = objects(world)
            .create(&PostParams::default(), &example())
            .await
            .unwrap();
        sleep(SETTLED).await;

        // Nobody runs pods here: the test says that they work.
        let now = objects(world).get(&object.name_any()).await.unwrap();
        let status = now.status.expect("it was written");
        let ready = find_condition(&status.conditions, READY).expect("there is one");
        assert_eq!(
            (&*ready.status, &*ready.reason),
            ("False", "DeploymentNotAvailable")
        );
        let children: Api<Deployment> = Api::default_namespaced(world.direct());
        let works = Patch::Merge(
            json!({"status": {"observedGeneration": 1, "conditions": [{"type": "Available", "status": "True"}]}}),
        );
        children
            .patch_status(&object.name_any(), &PatchParams::default(), &works)
            .await
            .unwrap();
        sleep(SETTLED).await;

        let now = objects(world).get(&object.name_any()).await.unwrap();
        let status = now.status.expect("it was written");
        assert!(is_condition_true(&status.conditions, READY), "{status:?}");
        assert_eq!(status.observed_generation, Some(1));
    });
}

#[test]
fn what_it_owns_comes_back_when_somebody_deletes_it() {
    run(async |world| {
        let object = objects(world)
            .create(&PostParams::default(), &example())
            .await
            .unwrap();
        sleep(SETTLED).await;
        let name = object.name_any();
        let children: Api<Deployment> = Api::default_namespaced(world.direct());
        children
            .delete(&name, &DeleteParams::background())
            .await
            .unwrap();
        sleep(SETTLED).await;
        assert!(
            children.get_opt(&name).await.unwrap().is_some(),
            "the Deployment came back"
        );
        let children: Api<ConfigMap> = Api::default_namespaced(world.direct());
        children
            .delete(&name, &DeleteParams::background())
            .await
            .unwrap();
        sleep(SETTLED).await;
        assert!(
            children.get_opt(&name).await.unwrap().is_some(),
            "the ConfigMap came back"
        );
    });
}

#[test]
fn nothing_is_written_while_nothing_changes() {
    run(async |world| {
        objects(world)
            .create(&PostParams::default(), &example())
            .await
            .unwrap();
        sleep(SETTLED).await;
        let writes = || {
            world
                .trace()
                .requests(&setpoint_sim::Match::writes().client("client"))
                .count()
        };
        let before = writes();
        assert!(before > 0);
        sleep(60 * SETTLED).await;
        assert_eq!(writes(), before);
    });
}
