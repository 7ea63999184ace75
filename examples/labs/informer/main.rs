//! Runs the lab: see the README beside it.

use clap::Parser;
use example_labs::{Connection, informer, stdout};

/// Prints every change of every pod until Ctrl-C
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    connection: Connection,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = Options::parse().connection.client().await?;
    let factory = informer::print_pods(client, stdout()).await?;
    tokio::signal::ctrl_c().await?;
    factory.shutdown().await;
    Ok(())
}
