//! The webhooks over real TLS, asked by an API server in this process.

use example_webhooks::backup::{v1, v1alpha1};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use setpoint::Env;
use setpoint::webhook::Certificates;
use setpoint_apiserver::ApiServer;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Runs a scenario with the webhooks installed.
async fn installed(scenario: impl AsyncFnOnce(kube::Client)) {
    let (certificates, ca_bundle) = Certificates::self_signed(["127.0.0.1"]).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let webhooks = example_webhooks::server(certificates);
    let _serving = Env::system().spawn(webhooks.serve(listener, CancellationToken::new()));
    let server = ApiServer::builder().build();
    example_webhooks::install(&server.client(), &url, &ca_bundle).await.unwrap();
    scenario(server.client()).await;
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
