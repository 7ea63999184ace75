use example_labs::informer::print_pods;
use setpoint_apiserver::ApiServer;

use crate::support::{Lines, create_pod, delete_pod, set_phase};

#[tokio::test]
async fn handlers_are_told_what_is_there_and_what_changes() {
    let client = ApiServer::builder().build().client();
    create_pod(&client, "old", None).await;
    let lines = Lines::default();
    let factory = print_pods(client.clone(), lines.print()).await.unwrap();
    lines.wait_for("found default/old").await;
    create_pod(&client, "test", None).await;
    lines.wait_for("added default/test").await;
    set_phase(&client, "test", "Running").await;
    lines.wait_for("updated default/test: Pending to Running").await;
    delete_pod(&client, "test").await;
    lines.wait_for("deleted default/test").await;
    assert!(lines.get().contains(&"synced, 1 in the cache".to_owned()));
    factory.shutdown().await;
}
