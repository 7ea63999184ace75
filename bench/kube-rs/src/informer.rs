//! A watcher and a reflector of Pods.

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, reflector};
use kube::{Api, ResourceExt as _};

use crate::measure;

/// The version before the first event (see replay.rs).
const LIST_VERSION: u64 = 200_000_000;

pub(crate) async fn run(arguments: &[String]) -> anyhow::Result<()> {
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let mut numbers = arguments.iter().filter_map(|argument| argument.parse::<u64>().ok());
    let (port, events) = (numbers.next().context("a port")?, numbers.next().context("a number of events")?);
    let client = kube::Client::try_from(kube::Config::new(format!("http://127.0.0.1:{port}").parse()?))?;

    let mut run = measure::Run::start();
    let config = if has("--streaming") {
        watcher::Config::default().streaming_lists()
    } else {
        watcher::Config::default()
    };
    let (reader, writer) = reflector::store::<Pod>();
    let drop_managed_fields = has("--drop");
    let watch = watcher::watcher(Api::<Pod>::all(client.clone()), config).modify(move |pod| {
        if drop_managed_fields {
            pod.managed_fields_mut().clear();
        }
    });
    let mut stream = watch.reflect(writer).boxed();
    let last = (LIST_VERSION + events).to_string();
    let mut told = 0;
    while let Some(event) = stream.try_next().await? {
        match event {
            Event::InitDone => {
                run.synced();
                let client = client.clone();
                // The watcher asks for a watch only when it is polled on.
                tokio::spawn(async move {
                    let go = http::Request::get(format!("/go?events={events}"))
                        .body(Vec::new())
                        .expect("a request");
                    client.request_text(go).await
                });
            }
            Event::Apply(pod) => {
                told += 1;
                if pod.resource_version().as_deref() == Some(&last) {
                    break;
                }
            }
            Event::Init | Event::InitApply(_) | Event::Delete(_) => {}
        }
    }
    println!("{}", run.finish(reader.len(), events, told));
    Ok(())
}
