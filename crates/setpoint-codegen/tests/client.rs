//! A generated clientset at work.

#[rustfmt::skip]
#[path = "generated/clientset.rs"]
#[allow(dead_code, missing_docs, unreachable_pub)]
mod clientset;
#[rustfmt::skip]
#[path = "generated/kitchen_sink.rs"]
mod kitchen_sink;

use std::time::Duration;

use clientset::Clientset;
use clientset::informers::Informers;
use clientset::listers::core_v1::ConfigMapLister;
use k8s_openapi::api::core::v1::ConfigMap;
use setpoint::SharedInformerFactory;
use setpoint_apiserver::ApiServer;

#[tokio::test(start_paused = true)]
async fn what_the_clientset_writes_arrives_at_its_lister() -> anyhow::Result<()> {
    let client = ApiServer::builder().build().client();
    let clients = Clientset::new(client.clone());
    let mut map = ConfigMap::default();
    map.metadata.name = Some("greeting".to_owned());
    clients.core_v1().configmaps("default").create(&Default::default(), &map).await?;
    assert!(clients.core_v1().nodes().list(&Default::default()).await?.items.is_empty());

    let factory = SharedInformerFactory::new(client);
    let lister: ConfigMapLister = Informers::new(factory.clone()).core_v1().configmaps().lister();
    factory.start();
    factory.wait_for_cache_sync(Duration::from_secs(10)).await?;
    assert!(lister.namespace("default").get("greeting").is_some());
    factory.shutdown().await;
    Ok(())
}

#[test]
fn each_group_and_version_has_a_client_of_its_own() {
    use setpoint::kube::Resource;
    let url = |clients: &Clientset| clients.kitchen_v1().sinks("a").resource_url().to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { panic!("no runtime") };
    runtime.block_on(async {
        let clients = Clientset::new(ApiServer::builder().build().client());
        assert_eq!(url(&clients), "/apis/kitchen.k8s.io/v1/namespaces/a/sinks");
        assert_eq!(
            clients.kitchen_v1beta1().all_sinks().resource_url(),
            "/apis/kitchen.k8s.io/v1beta1/sinks"
        );
    });
    assert_eq!(kitchen_sink::v1::Sink::kind(&()), "Sink");
}
