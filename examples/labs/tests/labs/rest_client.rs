use example_labs::rest_client::list_pods;
use setpoint_apiserver::ApiServer;

use crate::support::{Lines, create_pod, set_phase};

#[tokio::test]
async fn pods_are_listed_by_their_path() {
    let client = ApiServer::builder().build().client();
    create_pod(&client, "test", None).await;
    set_phase(&client, "test", "Running").await;
    let lines = Lines::default();
    list_pods(&client, "default", &lines.print()).await.unwrap();
    assert_eq!(lines.get()[0], "default test Running");
    assert!(lines.get()[1].starts_with("1 pods at resourceVersion "), "{:?}", lines.get());
}
