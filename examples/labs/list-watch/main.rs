//! Runs the lab: see the README beside it.

use clap::Parser;
use example_labs::{Connection, list_watch, stdout};

/// Lists the pods of a namespace, then prints each change
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
    list_watch::pods(&client, &options.namespace, usize::MAX, &stdout()).await
}
