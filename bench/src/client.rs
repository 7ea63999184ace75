//! Our side of the informer benchmark.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use setpoint::{HandlerFns, Held, InformerBuilder, ReflectorConfig, Scope, SharedInformer};

use crate::measure::Run;
use crate::replay::last_version;

/// How the informer of a run is set up.
#[derive(clap::Args, Clone)]
pub(crate) struct Setup {
    /// One streaming list instead of pages.
    #[arg(long)]
    streaming: bool,
    /// Ask for protobuf.
    #[arg(long)]
    protobuf: bool,
    /// In which form objects are cached.
    #[arg(long, value_enum, default_value = "lazy")]
    store: Store,
    /// How many handlers there are.
    #[arg(long, default_value_t = 1)]
    handlers: usize,
    /// The handlers read a field of each object.
    #[arg(long)]
    read: bool,
    /// After the events, look objects up.
    #[arg(long)]
    lookups: bool,
}

#[derive(clap::ValueEnum, Clone, Copy)]
enum Store {
    Lazy,
    Eager,
    Compact,
}

pub(crate) async fn run(port: u16, events: u64, setup: Setup) -> anyhow::Result<()> {
    let client = kube::Client::try_from(kube::Config::new(format!("http://127.0.0.1:{port}").parse()?))?;
    let mut run = Run::start();
    let config = ReflectorConfig {
        streaming: setup.streaming,
        protobuf: setup.protobuf,
        ..ReflectorConfig::default()
    };
    let builder: InformerBuilder<Pod> = SharedInformer::<Pod>::builder(client.clone()).config(config);
    let informer = match setup.store {
        Store::Lazy => builder,
        Store::Eager => builder.eager(),
        Store::Compact => builder.compact(),
    };
    let informer = informer.build();
    let told = Arc::new(AtomicU64::new(0));
    let reads = setup.read;
    let handlers: Vec<_> = (0..setup.handlers)
        .map(|_| {
            let count = told.clone();
            informer.add_handler(HandlerFns::new().on_update(move |_, new: &Held<Pod>| {
                if reads {
                    std::hint::black_box(&new.status);
                }
                count.fetch_add(1, Ordering::Relaxed);
            }))
        })
        .collect();
    informer.start();
    informer.wait_for_sync().await;
    for handler in &handlers {
        handler.wait_for_sync().await;
    }
    run.synced();
    client.request_text(http::Request::get(format!("/go?events={events}")).body(Vec::new())?).await?;
    let last = last_version(events).to_string().as_str().into();
    informer.wait_for_version(&Scope::Cluster, &last).await;
    // Not in a tight loop, which would be measured, too.
    while handlers.iter().any(|handler| handler.backlog() > 0) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut result = run.finish(informer.lister().len(), events, told.load(Ordering::Relaxed));
    if setup.lookups {
        result["lookups"] = crate::lookups::measure(&informer, matches!(setup.store, Store::Compact))?;
    }
    println!("{result}");
    Ok(())
}
