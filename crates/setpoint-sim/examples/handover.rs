//! The controller of the swarm as a program, of which `cargo xtask real --only handover` runs two, and kills them. Its
//! first argument is its identity.

#[path = "../tests/swarm/controller.rs"]
mod controller;

use std::sync::Arc;
use std::time::Duration;

use setpoint::{ClientConfig, LeaseConfig, Manager};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let identity = std::env::args().nth(1).ok_or("the first argument is the identity")?;
    let client = ClientConfig::new().connect().await?;
    // Others take over soon: whoever kills a leader every ten seconds wants to find the next one at work.
    let lease = LeaseConfig {
        identity,
        lease: Duration::from_secs(5),
        renew_deadline: Duration::from_secs(3),
        retry: Duration::from_secs(1),
        ..LeaseConfig::new("default", "swarm")
    };
    let controller = controller::controller(Arc::new(()), true);
    Manager::new(client).leader_election(lease).controller(controller).stop_on_signals().run().await?;
    Ok(())
}
