use example_labs::list_watch::pods;
use setpoint_apiserver::ApiServer;
use setpoint_env::Env;

use crate::support::{Lines, create_pod, delete_pod, set_phase};

#[tokio::test]
async fn changes_after_the_list_come_as_events() {
    let client = ApiServer::builder().build().client();
    create_pod(&client, "old", None).await;
    let lines = Lines::default();
    let watching = {
        let (client, print) = (client.clone(), lines.print());
        Env::system().spawn(async move { pods(&client, "default", usize::MAX, &print).await })
    };
    lines.wait_for("watching from").await;
    create_pod(&client, "test", None).await;
    set_phase(&client, "test", "Running").await;
    delete_pod(&client, "test").await;
    lines.wait_for("DELETED test").await;
    drop(watching);
    // The versions are the server's business.
    let told = lines.get();
    let told: Vec<_> = told.iter().filter_map(|line| line.split_once(" at ")).collect();
    let mut told: Vec<_> =
        told.iter().map(|(what, rest)| (*what, rest.rsplit(' ').next().unwrap())).collect();
    // The mark of a deletion is a change of its own, on servers that store it.
    told.dedup();
    assert_eq!(
        told,
        [
            ("LISTED old", "Pending"),
            ("ADDED test", "Pending"),
            ("MODIFIED test", "Running"),
            ("DELETED test", "Running"),
        ]
    );
}

#[tokio::test]
async fn a_namespace_that_is_no_name_is_refused_by_the_server() {
    let client = ApiServer::builder().build().client();
    let error = pods(&client, "a/b/c", 1, &Lines::default().print()).await.unwrap_err();
    assert!(error.to_string().contains("could not find the requested resource"), "{error}");
}
