//! Controllers under swarms of faults converge to the state of a run without faults.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, PostParams};
use setpoint::{Action, Context, Controller, ObjectKey, ReconcileError};
use setpoint_sim::{Swarm, World};
use tokio::time::sleep;

use crate::support::{SECOND, child_of, count_secrets, create_map, run};

async fn one_child(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(map) = cx.lister::<ConfigMap>().get(&key) else { return Ok(Action::done()) };
    let uid = map.metadata.uid.as_deref();
    let has_child = cx.lister::<Secret>().list().iter().any(|secret| {
        secret.metadata.owner_references.iter().flatten().any(|owner| Some(owner.uid.as_str()) == uid)
    });
    if !has_child {
        let secrets: Api<Secret> = Api::default_namespaced(cx.client());
        secrets.create(&PostParams::default(), &child_of(&map)).await?;
    }
    Ok(Action::done())
}

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
