//! One call of the function: what it sees in its caches, and what it writes.

use example_first_controller::{ANNOTATION, reconcile};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use serde_json::json;
use setpoint::{Action, Context};
use setpoint_apiserver::ApiServer;

fn team() -> Namespace {
    let metadata = json!({"name": "team", "annotations": {ANNOTATION: "hello"}});
    serde_json::from_value(json!({"metadata": metadata})).unwrap()
}

#[tokio::test]
async fn a_greeting_that_is_missing_is_made() {
    let test = Context::for_test(ApiServer::builder().build().client());
    let test = test.stored([team()]).await.unwrap().cached::<ConfigMap>(.., []);
    assert_eq!(reconcile("team".into(), test.context()).await.unwrap(), Action::done());
    assert_eq!(test.writes(), ["POST /api/v1/namespaces/team/configmaps"]);
}

#[tokio::test]
async fn a_namespace_that_is_gone_is_no_failure() {
    let test = Context::for_test(ApiServer::builder().build().client()).cached::<Namespace>(.., []);
    assert_eq!(reconcile("team".into(), test.context()).await.unwrap(), Action::done());
    assert_eq!(test.writes(), [""; 0]);
}
