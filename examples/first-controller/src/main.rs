//! Runs the controller until Ctrl-C.

use example_first_controller::controller;
use setpoint::{ClientConfig, Manager};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = ClientConfig::new().connect().await?;
    Manager::new(client).controller(controller()).stop_on_signals().run().await?;
    Ok(())
}
