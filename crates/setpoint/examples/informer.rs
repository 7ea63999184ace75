//! Prints what happens to the ConfigMaps of a namespace: `cargo run -p setpoint --example informer -- default`
//!
//! With a second argument `protobuf` it asks for protobuf.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "printing is what it is for")]

use std::io::Write;

use k8s_openapi::api::core::v1::ConfigMap;
use setpoint::{ClientConfig, HandlerFns, SharedInformer, is_resync, key_of};

/// One line a notice, at once, also into a pipe.
fn print(what: &str, map: &ConfigMap) {
    let key = key_of(map).map(|key| key.to_string()).unwrap_or_default();
    let value = map.data.iter().flatten().next().map(|(_, value)| value.as_str()).unwrap_or_default();
    let mut out = std::io::stdout().lock();
    let _closed = writeln!(out, "{what} {key} {value}").and_then(|()| out.flush());
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let namespace = std::env::args().nth(1).unwrap_or_else(|| "default".to_owned());
    let client = ClientConfig::new().connect().await?;
    let builder = SharedInformer::<ConfigMap>::builder(client);
    let builder = match std::env::args().nth(2).as_deref() {
        Some("protobuf") => builder.protobuf(),
        _ => builder,
    };
    let informer = builder.namespace(namespace).on_error(|error| eprintln!("{error}")).build();
    let _handler = informer.add_handler(
        HandlerFns::new()
            .on_add(|map, _| print("added", map))
            .on_update(|old, new| {
                if !is_resync(old, new) {
                    print("updated", new)
                }
            })
            .on_delete(|deleted| print("deleted", &deleted.object)),
    );
    informer.start();
    informer.wait_for_sync().await;
    println!("synced {}", informer.lister().len());
    tokio::signal::ctrl_c().await?;
    informer.shutdown().await;
    Ok(())
}
