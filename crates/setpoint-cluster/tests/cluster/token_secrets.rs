//! Secrets with tokens of service accounts.

use serde_json::json;
use setpoint::k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use setpoint::kube::Api;
use setpoint::kube::api::{DeleteParams, Patch, PatchParams};
use setpoint_apiserver::User;
use setpoint_cluster::Cluster;

use crate::support::{create, field, object, until};

const TYPE: &str = "kubernetes.io/service-account-token";

fn secrets(cluster: &Cluster) -> Api<Secret> {
    Api::namespaced(cluster.client(), "default")
}

fn accounts(cluster: &Cluster) -> Api<ServiceAccount> {
    Api::namespaced(cluster.client(), "default")
}

fn secret(name: &str, account: &str) -> Secret {
    let annotations = json!({"kubernetes.io/service-account.name": account});
    object(json!({"metadata": {"name": name, "annotations": annotations}, "type": TYPE}))
}

fn data(secret: &Secret, key: &str) -> Option<String> {
    let bytes = secret.data.as_ref()?.get(key)?;
    String::from_utf8(bytes.0.clone()).ok()
}

async fn filled(cluster: &Cluster, name: &str) -> Secret {
    until("it has a token", async || {
        let secret = secrets(cluster).get(name).await.unwrap();
        data(&secret, "token").is_some().then_some(secret)
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_secret_gets_a_token_that_the_server_takes_and_goes_with_the_account() {
    let cluster = Cluster::in_process_with(|builder| builder.root_ca("CA")).await.unwrap();
    let account = create(&accounts(&cluster), &object(json!({"metadata": {"name": "builder"}}))).await;
    create(&secrets(&cluster), &secret("token", "builder")).await;
    let secret = filled(&cluster, "token").await;
    assert_eq!(
        (data(&secret, "ca.crt").as_deref(), data(&secret, "namespace").as_deref()),
        (Some("CA"), Some("default"))
    );
    let uid = field(&secret, "/metadata/annotations/kubernetes.io~1service-account.uid");
    assert_eq!(uid, account.metadata.uid.clone().unwrap());
    let server = cluster.server().unwrap();
    let review = json!({"metadata": {}, "spec": {"token": data(&secret, "token")}});
    let reviews: Api<setpoint::k8s_openapi::api::authentication::v1::TokenReview> =
        Api::all(server.client_as(User::admin()));
    let reviewed = create(&reviews, &object(review)).await;
    assert_eq!(field(&reviewed, "/status/user/username"), "system:serviceaccount:default:builder");

    // What is taken out is put in again, and the token is another one then only if it was taken out.
    let token = data(&secret, "token");
    let patch = json!({"data": {"namespace": null}});
    secrets(&cluster).patch("token", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    until("the namespace is back", async || {
        let secret = secrets(&cluster).get("token").await.unwrap();
        data(&secret, "namespace").is_some().then(|| assert_eq!(data(&secret, "token"), token))
    })
    .await;

    accounts(&cluster).delete("builder", &DeleteParams::default()).await.unwrap();
    until("it is gone", async || secrets(&cluster).get_opt("token").await.unwrap().is_none().then_some(()))
        .await;
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_secret_of_nobody_is_deleted_and_a_deleted_one_is_taken_off_the_list() {
    let cluster = Cluster::in_process().await.unwrap();
    create(&secrets(&cluster), &secret("orphan", "nobody")).await;
    until("it is gone", async || secrets(&cluster).get_opt("orphan").await.unwrap().is_none().then_some(()))
        .await;
    let listed = json!({"metadata": {"name": "old"}, "secrets": [{"name": "listed"}, {"name": "other"}]});
    create(&accounts(&cluster), &object(listed)).await;
    create(&secrets(&cluster), &secret("listed", "old")).await;
    filled(&cluster, "listed").await;
    // A plain secret of the same name as an account's is nobody's business.
    create(&secrets(&cluster), &object(json!({"metadata": {"name": "plain"}}))).await;
    secrets(&cluster).delete("listed", &DeleteParams::default()).await.unwrap();
    until("it is off the list", async || {
        let account = accounts(&cluster).get("old").await.unwrap();
        (field(&account, "/secrets") == json!([{"name": "other"}])).then_some(())
    })
    .await;
    assert!(secrets(&cluster).get_opt("plain").await.unwrap().is_some());
    cluster.stop().await.unwrap();
}
