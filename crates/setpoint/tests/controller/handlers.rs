//! What a controller leaves behind at the informers that it shares with others.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use setpoint::controller::Runtime;
use setpoint::{Controller, Metrics};
use setpoint_sim::World;
use tokio::time::sleep;

use crate::support::{SECOND, one_child};

#[test]
fn a_controller_that_ends_takes_its_handlers_along() {
    World::run(3, async |world| {
        let metrics = Metrics::default();
        let runtime = Runtime::with(world.client_named("controller"), world.env().clone(), metrics.clone());
        let start = |name: &str| {
            let controller = Controller::of::<ConfigMap>(.., name, one_child).owns::<Secret>(..);
            let runtime = runtime.clone();
            world.env().spawn(async move { controller.run(&runtime).await })
        };
        let (short, _long) = (start("short"), start("long"));
        sleep(SECOND).await;
        let has_handler = |kind: &str, name: &str| {
            metrics.value("informer_handler_lag", &[("name", kind), ("handler", name)]).is_some()
        };
        for kind in ["configmaps", "secrets"] {
            assert!(has_handler(kind, "short") && has_handler(kind, "long"));
        }
        short.stop().await;
        for kind in ["configmaps", "secrets"] {
            assert!(!has_handler(kind, "short") && has_handler(kind, "long"));
        }
    });
}
