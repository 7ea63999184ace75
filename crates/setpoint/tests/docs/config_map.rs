use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use setpoint_apiserver::ApiServer;

#[tokio::test]
async fn a_config_map_can_be_created() -> Result<(), kube::Error> {
    let server = ApiServer::builder().build();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());

    let mut map = ConfigMap::default();
    map.metadata.name = Some("greeting".into());
    maps.create(&PostParams::default(), &map).await?;
    Ok(())
}
