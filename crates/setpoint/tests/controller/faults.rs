//! Controllers under swarms of faults converge to the state of a run without faults.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use setpoint::Controller;
use setpoint_sim::{Swarm, World};
use tokio::time::sleep;

use crate::support::{SECOND, count_secrets, create_map, one_child, run};

#[test]
fn whatever_breaks_each_object_ends_up_with_exactly_one_child() {
    for seed in 0..60 {
        World::run(seed, async |world| {
            world.faults().swarm(Swarm::every(0.05));
            for n in 0..10 {
                create_map(&world, &format!("m{n}")).await;
            }
            let controller = Controller::<ConfigMap>::new("copy", one_child)
                .owns::<Secret>()
                .workers(3)
                .catch_up_limit(600 * SECOND);
            let _running = run(&world, controller);
            sleep(300 * SECOND).await;
            for n in 10..20 {
                create_map(&world, &format!("m{n}")).await;
            }
            sleep(300 * SECOND).await;
            world.faults().heal();
            sleep(900 * SECOND).await;
            let fired: Vec<String> = world.faults().fired().iter().map(ToString::to_string).collect();
            assert_eq!(count_secrets(&world).await, 20, "seed {seed}: {fired:#?}");
        });
    }
}
