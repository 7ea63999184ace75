//! The controller against an API server in this process: one call of it, and on virtual time, where a minute takes
//! milliseconds.

use std::time::Duration;

use gizmo_operator::READY;
use gizmo_operator::{api, controller, reconcile};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, PostParams};
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
        let text = include_str!("../config/crd/gizmos.acme.org.yaml");
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

fn example() -> api::Gizmo {
    serde_saphyr::from_str(include_str!("../config/samples/gizmo.yaml")).unwrap()
}

fn objects(world: &World) -> Api<api::Gizmo> {
    Api::all(world.direct())
}

#[tokio::test]
async fn one_call_writes_what_is_missing() {
    let client = ApiServer::builder().build().client();
    let crd = include_str!("../config/crd/gizmos.acme.org.yaml");
    let crd: CustomResourceDefinition = serde_saphyr::from_str(crd).unwrap();
    Api::all(client.clone())
        .create(&PostParams::default(), &crd)
        .await
        .unwrap();
    let object = example();
    let key = ObjectKey::cluster(&object.name_any());

    // Its caches have the object, and nothing else.
    let test = Context::for_test(client).stored([object]).await.unwrap();
    assert_eq!(
        reconcile(key, test.context()).await.unwrap(),
        Action::done()
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
        let now = objects(world).get(&object.name_any()).await.unwrap();
        let status = serde_json::to_value(now.status).unwrap();
        assert_eq!(status["conditions"][0]["type"], READY, "{status}");
        assert_eq!(status["conditions"][0]["status"], "True", "{status}");
    });
}
