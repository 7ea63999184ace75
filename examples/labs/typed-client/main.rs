//! Runs the lab: see the README beside it.

use clap::Parser;
use example_labs::{Connection, stdout, typed_client};

/// Shows a pod, the number of running pods, and the pods of each node
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    connection: Connection,
    /// The pod to show
    #[arg(default_value = "test")]
    pod: String,
    /// Its namespace
    #[arg(long, short, default_value = "default")]
    namespace: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let client = options.connection.client().await?;
    typed_client::show_pod(&client, &options.namespace, &options.pod, &stdout()).await?;
    stdout()(format!("{} pods run", typed_client::count_running(&client).await?));
    typed_client::show_nodes(&client, &stdout()).await?;
    Ok(())
}
