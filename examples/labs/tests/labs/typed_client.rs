use example_labs::typed_client::{count_running, show_nodes, show_pod};
use setpoint_apiserver::ApiServer;

use crate::support::{Lines, create_node, create_pod, set_phase};

#[tokio::test]
async fn a_pod_is_shown_with_its_node_and_containers() {
    let client = ApiServer::builder().build().client();
    create_pod(&client, "test", Some("node-1")).await;
    let lines = Lines::default();
    show_pod(&client, "default", "test", &lines.print()).await.unwrap();
    show_pod(&client, "default", "other", &lines.print()).await.unwrap();
    assert_eq!(
        lines.get(),
        ["pod default/test is Pending on node-1", "  web runs nginx", "there is no pod default/other"]
    );
}

#[tokio::test]
async fn only_pods_that_run_are_counted() {
    let client = ApiServer::builder().build().client();
    for name in ["a", "b", "c"] {
        create_pod(&client, name, None).await;
    }
    set_phase(&client, "a", "Running").await;
    set_phase(&client, "b", "Running").await;
    set_phase(&client, "c", "Succeeded").await;
    assert_eq!(count_running(&client).await.unwrap(), 2);
}

#[tokio::test]
async fn every_node_is_shown_with_its_pods() {
    let client = ApiServer::builder().build().client();
    create_node(&client, "node-1").await;
    create_node(&client, "node-2").await;
    create_pod(&client, "test", Some("node-2")).await;
    let lines = Lines::default();
    show_nodes(&client, &lines.print()).await.unwrap();
    assert_eq!(lines.get(), ["node node-1 Ready", "node node-2 Ready", "  default/test Pending"]);
}
