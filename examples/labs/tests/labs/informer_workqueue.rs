use example_labs::informer_workqueue::print_pods;
use setpoint::WorkQueue;
use setpoint_apiserver::ApiServer;
use setpoint_env::Env;

use crate::support::{Lines, create_pod, delete_pod, set_phase};

#[tokio::test]
async fn workers_see_the_state_of_each_key_until_the_queue_is_shut_down() {
    let client = ApiServer::builder().build().client();
    create_pod(&client, "old", None).await;
    let (lines, queue) = (Lines::default(), WorkQueue::new());
    let working = Env::system().spawn(print_pods(client.clone(), queue.clone(), lines.print()));
    lines.wait_for("default/old is Pending").await;
    create_pod(&client, "test", None).await;
    set_phase(&client, "test", "Running").await;
    lines.wait_for("default/test is Running").await;
    delete_pod(&client, "test").await;
    lines.wait_for("default/test is gone").await;
    queue.shut_down();
    working.await.unwrap().unwrap();
}
