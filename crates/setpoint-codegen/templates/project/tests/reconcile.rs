//! The controller against an API server in this process: one call of it, and on virtual time, where a minute takes
//! milliseconds.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
{% for child in owned %}
use k8s_openapi::api::{{ child.module }}::{{ child.kind }};
{% endfor %}
{% if owned %}
use kube::api::DeleteParams;
{% endif %}
{% if sample %}
use kube::ResourceExt;
{% endif %}
{% if sample and awaited %}
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
{% else %}
use kube::api::{Api, PostParams};
{% endif %}
{% if not sample %}
use setpoint::Metrics;
{% endif %}
{% if sample and conditions and plain %}
{% if awaited %}
use setpoint::conditions::{find_condition, is_condition_true};
{% else %}
use setpoint::conditions::is_condition_true;
{% endif %}
{% endif %}
use setpoint::controller::Runtime;
{% if sample %}
use setpoint::{Action, Context, Metrics, ObjectKey};
use setpoint_apiserver::ApiServer;
{% endif %}
use setpoint_sim::World;
use tokio::time::sleep;
{% if sample %}
{% if conditions %}
use widget_operator::READY;
{% endif %}
use widget_operator::{api, controller, reconcile};
{% else %}
use widget_operator::controller;
{% endif %}

/// Longer than anything takes that has no reason to wait.
const SETTLED: Duration = Duration::from_secs(10);

/// A world that knows the kind, in which the controller runs.
fn run(scenario: impl AsyncFnOnce(&World)) {
    World::run(1, async |world| {
        let text = include_str!("../config/crd/widgets.acme.example.yaml");
        let crd: CustomResourceDefinition = serde_saphyr::from_str(text).unwrap();
        let crds: Api<CustomResourceDefinition> = Api::all(world.direct());
        crds.create(&PostParams::default(), &crd).await.unwrap();
        sleep(SETTLED).await;
        let runtime = Runtime::with(world.client(), world.env().clone(), Metrics::default());
        let _running = world.env().spawn(async move { controller().run(&runtime).await });
        scenario(&world).await;
    });
}
{% if sample %}

{% if plain %}
fn example() -> api::Widget {
    api::Widget::new("one", api::WidgetSpec { message: "hello".to_owned() })
}
{% else %}
fn example() -> api::Widget {
    serde_saphyr::from_str(include_str!("../config/samples/widget.yaml")).unwrap()
}
{% endif %}

fn objects(world: &World) -> Api<api::Widget> {
{% if cluster_scoped %}
    Api::all(world.direct())
{% else %}
    Api::default_namespaced(world.direct())
{% endif %}
}

#[tokio::test]
async fn one_call_writes_what_is_missing() {
    let client = ApiServer::builder().build().client();
    let crd = include_str!("../config/crd/widgets.acme.example.yaml");
    let crd: CustomResourceDefinition = serde_saphyr::from_str(crd).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &crd).await.unwrap();
{% if cluster_scoped %}
    let object = example();
    let key = ObjectKey::cluster(&object.name_any());
{% else %}
    let mut object = example();
    object.metadata.namespace = Some("default".to_owned());
    let key = ObjectKey::namespaced("default", &object.name_any());
{% endif %}

    // Its caches have the object, and nothing else.
    let test = Context::for_test(client).stored([object]).await.unwrap();
{% for child in owned %}
    let test = test.cached::<{{ child.kind }}>(.., []);
{% endfor %}
    assert_eq!(reconcile(key, test.context()).await.unwrap(), Action::done());
{% for child in owned %}
    assert!(test.requests().iter().any(|request| request.body["kind"] == "{{ child.kind }}"));
{% endfor %}
{% if conditions %}
    assert!(test.writes().last().is_some_and(|write| write.ends_with("/status")), "{:?}", test.writes());
{% endif %}
{% if not owned and not conditions %}
    assert_eq!(test.writes(), [""; 0]);
{% endif %}
}

#[test]
fn an_object_is_reconciled() {
    run(async |world| {
        let object = objects(world).create(&PostParams::default(), &example()).await.unwrap();
        sleep(SETTLED).await;
{% for child in owned if child.is_available %}

        // Nobody runs pods here: the test says that they work.
        let now = objects(world).get(&object.name_any()).await.unwrap();
{% if plain %}
        let status = now.status.expect("it was written");
        let ready = find_condition(&status.conditions, READY).expect("there is one");
        assert_eq!((&*ready.status, &*ready.reason), ("False", "{{ child.kind }}NotAvailable"));
{% else %}
        let ready = &serde_json::to_value(now.status).unwrap()["conditions"][0];
        assert_eq!((&ready["status"], &ready["reason"]), (&"False".into(), &"{{ child.kind }}NotAvailable".into()));
{% endif %}
        let children: Api<{{ child.kind }}> = Api::default_namespaced(world.direct());
        let works = Patch::Merge(json!({"status": {{ child.available_status }}}));
        children.patch_status(&object.name_any(), &PatchParams::default(), &works).await.unwrap();
        sleep(SETTLED).await;
{% endfor %}
{% if awaited %}

{% endif %}
        let now = objects(world).get(&object.name_any()).await.unwrap();
{% if conditions and plain %}
        let status = now.status.expect("it was written");
        assert!(is_condition_true(&status.conditions, READY), "{status:?}");
        assert_eq!(status.observed_generation, Some(1));
{% elif conditions %}
        let status = serde_json::to_value(now.status).unwrap();
        assert_eq!(status["conditions"][0]["type"], READY, "{status}");
        assert_eq!(status["conditions"][0]["status"], "True", "{status}");
{% else %}
        assert_eq!(now.resource_version(), object.resource_version(), "nothing is written yet");
{% endif %}
    });
}
{% if owned %}

#[test]
fn what_it_owns_comes_back_when_somebody_deletes_it() {
    run(async |world| {
        let object = objects(world).create(&PostParams::default(), &example()).await.unwrap();
        sleep(SETTLED).await;
        let name = object.name_any();
{% for child in owned %}
        let children: Api<{{ child.kind }}> = Api::default_namespaced(world.direct());
        children.delete(&name, &DeleteParams::background()).await.unwrap();
        sleep(SETTLED).await;
        assert!(children.get_opt(&name).await.unwrap().is_some(), "the {{ child.kind }} came back");
{% endfor %}
    });
}

#[test]
fn nothing_is_written_while_nothing_changes() {
    run(async |world| {
        objects(world).create(&PostParams::default(), &example()).await.unwrap();
        sleep(SETTLED).await;
        let writes = || world.trace().requests(&setpoint_sim::Match::writes().client("client")).count();
        let before = writes();
        assert!(before > 0);
        sleep(60 * SETTLED).await;
        assert_eq!(writes(), before);
    });
}
{% endif %}
{% else %}

#[test]
fn the_controller_starts_and_sees_that_there_is_nothing_to_do() {
    run(async |world| {
        sleep(SETTLED).await;
        let lists = setpoint_sim::Match::any().client("client");
        assert!(world.trace().requests(&lists).count() > 0);
        assert_eq!(world.trace().requests(&setpoint_sim::Match::writes().client("client")).count(), 0);
    });
}
{% endif %}
