//! Runs the lab: see the README beside it.

use clap::Parser;
use example_labs::{Connection, discovery_client, stdout};

/// Prints what the server has: versions, then resources
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    connection: Connection,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = Options::parse().connection.client().await?;
    discovery_client::api_versions(&client, &stdout()).await?;
    discovery_client::api_resources(&client, &stdout()).await?;
    Ok(())
}
