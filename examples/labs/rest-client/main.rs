//! Runs the lab: see the README beside it.

use clap::Parser;
use example_labs::{Connection, rest_client, stdout};

/// Lists the pods of a namespace by a request that is put together by hand
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    connection: Connection,
    /// The namespace to look at
    #[arg(default_value = "default")]
    namespace: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let client = options.connection.client().await?;
    rest_client::list_pods(&client, &options.namespace, &stdout()).await?;
    Ok(())
}
