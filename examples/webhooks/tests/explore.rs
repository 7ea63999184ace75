//! What tells a cluster about the webhooks, with every fault at every point.

use example_webhooks::install;
use setpoint_sim::{PointKind, Scenario, explore};

#[test]
fn no_fault_breaks_it() {
    explore(|_| {
        // It installs when it starts, and not again.
        Scenario::new().without(PointKind::ChildDeleted).controller("installer", |seat| async move {
            install(&seat.client(), "https://webhooks.example.com").await?;
            std::future::pending::<anyhow::Result<()>>().await
        })
    });
}
