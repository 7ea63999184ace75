//! Controllers under swarms of faults converge to the state of a run without faults.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use setpoint::controller::Runtime;
use setpoint::{Controller, LeaseConfig, Manager, Metrics};
use setpoint_sim::{Match, Swarm, World};
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
            let controller = Controller::of::<ConfigMap>(.., "copy", one_child)
                .owns::<Secret>(..)
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

#[test]
fn whatever_breaks_and_whoever_leads_each_object_ends_up_with_exactly_one_child() {
    for seed in 0..5 {
        World::run(seed, async |world| {
            world.faults().swarm(Swarm::every(0.05));
            let replica = |name: &str| {
                let client = world.client_named(name);
                let runtime = Runtime::with(client, world.env().clone(), Metrics::default());
                let config = LeaseConfig { identity: name.into(), ..LeaseConfig::new("default", "copy") };
                let controller = Controller::of::<ConfigMap>(.., "copy", one_child)
                    .owns::<Secret>(..)
                    .workers(3)
                    .catch_up_limit(600 * SECOND)
                    .sync_limit(600 * SECOND);
                world.env().spawn(Manager::with(runtime).leader_election(config).controller(controller).run())
            };
            let _replicas = [replica("a"), replica("b")];
            for n in 0..10 {
                create_map(&world, &format!("m{n}")).await;
                sleep(20 * SECOND).await;
                // Whoever leads loses its lease, most likely in the middle of something.
                let cut = world.faults().on(Match::update("leases")).refuse_connection().always();
                sleep((n + 1) * 3 * SECOND).await;
                cut.release();
            }
            world.faults().heal();
            sleep(900 * SECOND).await;
            let fired: Vec<String> = world.faults().fired().iter().map(ToString::to_string).collect();
            assert_eq!(count_secrets(&world).await, 10, "seed {seed}: {fired:#?}");
        });
    }
}
