//! Runs the lab: see the README beside it.

use clap::Parser;
use example_labs::{Connection, dynamic_client, stdout};

/// Lists the objects of any resource that the server has
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    connection: Connection,
    /// Group and version, such as apps/v1, or v1 for the core group
    #[arg(default_value = "apps/v1")]
    group_version: String,
    /// The plural name of the resource
    #[arg(default_value = "deployments")]
    resource: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let client = options.connection.client().await?;
    let (group, version) = options.group_version.split_once('/').unwrap_or(("", &options.group_version));
    dynamic_client::list(&client, group, version, &options.resource, &stdout()).await
}
