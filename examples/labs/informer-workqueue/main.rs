//! Runs the lab: see the README beside it.

use clap::Parser;
use example_labs::{Connection, informer_workqueue, stdout};
use setpoint::WorkQueue;

/// Prints the state of every pod whenever it changes, until Ctrl-C
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    connection: Connection,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = Options::parse().connection.client().await?;
    let queue = WorkQueue::new();
    tokio::select! {
        ended = informer_workqueue::print_pods(client, queue.clone(), stdout()) => ended?,
        stopped = tokio::signal::ctrl_c() => stopped?,
    }
    queue.shut_down();
    Ok(())
}
