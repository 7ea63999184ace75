use example_labs::dynamic_client::list;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use setpoint_apiserver::ApiServer;

use crate::support::Lines;

#[tokio::test]
async fn a_resource_that_is_named_at_run_time_is_listed() {
    let client = ApiServer::builder().build().client();
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "nginx"}]},
        }},
    }))
    .unwrap();
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
    let lines = Lines::default();
    list(&client, "apps", "v1", "deployments", &lines.print()).await.unwrap();
    assert_eq!(lines.get(), ["Deployment default/web", "  replicas 3"]);
}

#[tokio::test]
async fn a_resource_that_the_server_does_not_have_is_named() {
    let client = ApiServer::builder().build().client();
    let error = list(&client, "example.com", "v1", "things", &Lines::default().print()).await.unwrap_err();
    assert_eq!(error.to_string(), "the server has no things in example.com/v1");
}
