use example_labs::discovery_client::{api_resources, api_versions};
use setpoint_apiserver::ApiServer;

use crate::support::Lines;

#[tokio::test]
async fn versions_and_resources_are_what_the_server_has() {
    let client = ApiServer::builder().build().client();
    let lines = Lines::default();
    api_versions(&client, &lines.print()).await.unwrap();
    let versions = lines.get();
    assert!(versions.is_sorted());
    for version in ["v1", "apps/v1", "networking.k8s.io/v1"] {
        assert!(versions.iter().any(|found| found == version), "{version} is missing: {versions:?}");
    }
    let lines = Lines::default();
    api_resources(&client, &lines.print()).await.unwrap();
    for line in
        ["pods v1 Pod namespaced", "nodes v1 Node cluster", "deployments apps/v1 Deployment namespaced"]
    {
        assert!(lines.get().iter().any(|found| found == line), "{line} is missing: {:?}", lines.get());
    }
    assert!(!lines.get().iter().any(|line| line.contains("tokenreviews")), "it cannot be listed");
}
