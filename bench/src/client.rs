//! Our side of the informer benchmark.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::core::v1::Pod;
use setpoint::{HandlerFns, ReflectorConfig, Scope, SharedInformer};

use crate::measure::Run;
use crate::replay::last_version;

pub(crate) async fn run(port: u16, events: u64, streaming: bool) -> anyhow::Result<()> {
    let client = kube::Client::try_from(kube::Config::new(format!("http://127.0.0.1:{port}").parse()?))?;
    let mut run = Run::start();
    let config = ReflectorConfig { streaming, ..ReflectorConfig::default() };
    let informer = SharedInformer::<Pod>::builder(client.clone()).config(config).build();
    let told = Arc::new(AtomicU64::new(0));
    let count = told.clone();
    let handler = informer.add_handler(HandlerFns::new().on_update(move |_, new: &Arc<Pod>| {
        std::hint::black_box(new);
        count.fetch_add(1, Ordering::Relaxed);
    }));
    informer.start();
    informer.wait_for_sync().await;
    handler.wait_for_sync().await;
    run.synced();
    client.request_text(http::Request::get("/go").body(Vec::new())?).await?;
    let last = last_version(events).to_string().as_str().into();
    informer.wait_for_version(&Scope::Cluster, &last).await;
    while handler.backlog() > 0 {
        tokio::task::yield_now().await;
    }
    run.finish(informer.lister().len(), events, told.load(Ordering::Relaxed));
    Ok(())
}
