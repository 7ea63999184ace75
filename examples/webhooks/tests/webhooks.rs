//! The webhooks over real TLS, asked by an API server in this process.

use std::time::Duration;

use example_webhooks::backup::{v1, v1alpha1};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use setpoint::Env;
use setpoint_apiserver::ApiServer;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Waits until the last of those who call the webhooks knows whom to trust.
async fn trusted(client: &kube::Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let is_trusted = async || {
        let definition = definitions.get("backups.backups.setpoint.dev").await.unwrap();
        let webhook = definition.spec.conversion.and_then(|conversion| conversion.webhook);
        let caller = webhook.and_then(|webhook| webhook.client_config);
        caller.is_some_and(|caller| caller.ca_bundle.is_some())
    };
    let wait = async {
        while !is_trusted().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.expect("a bundle");
}

/// Runs a scenario with the webhooks installed.
async fn installed(scenario: impl AsyncFnOnce(kube::Client)) {
    let client = ApiServer::builder().build().client();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    example_webhooks::install(&client, &format!("https://{address}")).await.unwrap();
    let certificates = example_webhooks::certificates(&client, address);
    let webhooks = example_webhooks::server(certificates);
    let _serving = Env::system().spawn(webhooks.serve(listener, CancellationToken::new()));
    trusted(&client).await;
    scenario(client).await;
}

fn old(name: &str, schedule: &str) -> v1alpha1::Backup {
    v1alpha1::Backup::new(name, v1alpha1::BackupSpec { schedule: schedule.to_owned(), keep_days: None })
}

#[tokio::test]
async fn what_is_written_in_one_version_is_read_in_the_other() {
    installed(async |client| {
        let olds: Api<v1alpha1::Backup> = Api::default_namespaced(client.clone());
        let news: Api<v1::Backup> = Api::default_namespaced(client);
        let created =
            olds.create(&PostParams::default(), &old("a", "TZ=Asia/Tokyo 0 3 * * *")).await.unwrap();
        assert_eq!(created.spec.schedule, "TZ=Asia/Tokyo 0 3 * * *");
        assert_eq!(created.spec.keep_days, Some(30), "filled in by the webhook, which sees v1");

        let read = news.get("a").await.unwrap();
        assert_eq!(read.spec.schedule.time_zone.as_deref(), Some("Asia/Tokyo"));
        assert_eq!(read.metadata.uid, created.metadata.uid);

        let patch = Patch::Merge(json!({"spec": {"retention": {"days": 7}}}));
        news.patch("a", &PatchParams::default(), &patch).await.unwrap();
        let listed = olds.list(&ListParams::default()).await.unwrap();
        assert_eq!(listed.items[0].spec.keep_days, Some(7));
    })
    .await;
}

#[tokio::test]
async fn a_schedule_that_is_none_is_refused_in_either_version() {
    installed(async |client| {
        let olds: Api<v1alpha1::Backup> = Api::default_namespaced(client);
        let refused = olds.create(&PostParams::default(), &old("a", "sometimes")).await.unwrap_err();
        let kube::Error::Api(status) = refused else { panic!("{refused}") };
        assert_eq!(
            status.message,
            "admission webhook \"check.backups.setpoint.dev\" denied the request: spec.schedule.cron has 1 \
             fields; a cron schedule has five"
        );
    })
    .await;
}
