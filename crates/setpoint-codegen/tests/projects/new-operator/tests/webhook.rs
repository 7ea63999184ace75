//! The webhooks over real TLS, asked by an API server in this process.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use new_operator::webhook::{LABEL, development, server};
use new_operator::{NAME, api};
use setpoint::Env;
use setpoint_apiserver::ApiServer;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn objects_are_filled_in_and_checked() {
    let client = ApiServer::builder().build().client();
    let text = include_str!("../config/crd/shops.shop.example.org.yaml");
    let crd: CustomResourceDefinition = serde_saphyr::from_str(text).unwrap();
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    crds.create(&PostParams::default(), &crd).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let certificates = development(&client, listener.local_addr().unwrap())
        .await
        .unwrap();
    let _serving =
        Env::system().spawn(server(certificates).serve(listener, CancellationToken::new()));
    // Until the API server is told whom to trust.
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    while configurations.get(NAME).await.unwrap().webhooks.unwrap()[0]
        .client_config
        .ca_bundle
        .is_none()
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    let objects: Api<api::Shop> = Api::default_namespaced(client);
    let object = |message: &str| {
        api::Shop::new(
            "one",
            api::ShopSpec {
                message: message.to_owned(),
            },
        )
    };
    let made = objects
        .create(&PostParams::default(), &object("hello"))
        .await
        .unwrap();
    assert_eq!(made.labels()[LABEL], NAME);
    let refused = objects
        .create(&PostParams::default(), &object(" "))
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("nothing but space"),
        "{refused}"
    );
}
