//! What tells a cluster about the webhooks, with every fault at every point.

use example_webhooks::install;
use setpoint::webhook::Certificates;
use setpoint_sim::{PointKind, Scenario, explore};

#[test]
fn no_fault_breaks_it() {
    // Every run installs the same one.
    let (_, authority) = Certificates::self_signed(["webhooks.example.com"]).expect("a certificate");
    explore(move |_| {
        let authority = authority.clone();
        // It installs when it starts, and not again.
        Scenario::new().without(PointKind::ChildDeleted).controller("installer", move |seat| {
            let authority = authority.clone();
            async move {
                install(&seat.client(), "https://webhooks.example.com", &authority).await?;
                std::future::pending::<anyhow::Result<()>>().await
            }
        })
    });
}
