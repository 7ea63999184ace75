//! The code of the guides that is in no example: here it is compiled.

use std::error::Error;
use std::net::SocketAddr;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use setpoint::controller::Runtime;
use setpoint::manager::RunnableError;
use setpoint::webhook::{AdmissionRequest, ManagedCertificates, Verdict, WebhookServer};
use setpoint::{
    Action, ApplyError, ClientConfig, Context, Controller, Env, LeaseConfig, Manager, Metrics, ObjectKey,
    ReconcileError, apply,
};
use tokio_util::sync::CancellationToken;

async fn reconcile(_: ObjectKey, _: Context) -> Result<Action, ReconcileError> {
    Ok(Action::done())
}

fn orders() -> Controller {
    Controller::of::<ConfigMap>(.., "orders", reconcile)
}

fn prices() -> Controller {
    Controller::of::<Secret>(.., "prices", reconcile)
}

async fn upstream_answers() -> Result<(), String> {
    Ok(())
}

async fn import(_: Client, stopping: &CancellationToken) -> Result<(), RunnableError> {
    stopping.cancelled().await;
    Ok(())
}

async fn report(_: Client, stopping: &CancellationToken) -> Result<(), RunnableError> {
    stopping.cancelled().await;
    Ok(())
}

async fn check(_: AdmissionRequest<ConfigMap>) -> Verdict {
    Verdict::allow()
}

async fn run() -> Result<(), Box<dyn Error>> {
    let metrics = Metrics::default();
    let client = ClientConfig::new().metrics(&metrics).connect().await?;
    Manager::with(Runtime::with(client.clone(), Env::system(), metrics))
        .serve_health("0.0.0.0:8081".parse()?)
        .serve_metrics("0.0.0.0:8443".parse::<SocketAddr>()?)
        .readyz("upstream", upstream_answers)
        .leader_election(LeaseConfig::new(client.default_namespace(), "shop"))
        .controller(orders())
        .controller(prices().without_leader_election())
        .runnable("imports", async |cx| import(cx.client(), cx.stopping()).await)
        .leader_runnable("reports", async |cx| report(cx.client(), cx.stopping()).await)
        .stop_on_signals()
        .run()
        .await?;
    Ok(())
}

async fn manager() -> Result<Manager, Box<dyn Error>> {
    let metrics = Metrics::default();
    let client = ClientConfig::new().metrics(&metrics).connect().await?;
    Ok(Manager::with(Runtime::with(client, Env::system(), metrics)))
}

fn webhooks(client: Client) -> WebhookServer {
    let certificates = ManagedCertificates::new(client, "shop-system", "shop-tls")
        .service("shop", "shop-system") // how the API server reaches it
        .mutating("shop") // a MutatingWebhookConfiguration
        .validating("shop") // a ValidatingWebhookConfiguration
        .conversion("orders.shop.example.com"); // a CustomResourceDefinition with conversion
    WebhookServer::new(certificates).validate("/validate", check)
}

async fn scale(deployments: &Api<Deployment>, wanted: &Deployment) -> Result<Deployment, ApplyError> {
    match apply(deployments, "shop", wanted).await {
        Err(ApplyError::Conflict(conflicts)) => {
            for conflict in conflicts {
                println!("{} is {}'s", conflict.field, conflict.manager);
            }
            apply(deployments, "shop", wanted).force().await
        }
        applied => applied,
    }
}
