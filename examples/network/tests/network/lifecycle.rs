//! Create, change, delete; crashes in between.

use http::Method;
use kube::api::DeleteParams;
use serde_json::json;
use tokio::time::sleep;

use crate::scripted::Fault;
use crate::support::{RESYNC, SETTLED, Scene};

#[test]
fn a_network_becomes_a_network_and_a_subnet() {
    Scene::run(async |scene| {
        let _controller = scene.start();
        scene.create("example", json!({"cidr": "192.168.0.0/16", "gateway": "192.168.0.1"})).await;
        let (networks, subnets) = (scene.neutron.networks(), scene.neutron.subnets());
        assert_eq!((networks.len(), subnets.len()), (1, 1));
        assert_eq!(networks[0]["name"], "default/example");
        assert_eq!(networks[0]["description"], "samplecrd.k8s.io/network=kubernetes/default/example");
        assert_eq!(
            (&subnets[0]["cidr"], &subnets[0]["gateway_ip"]),
            (&json!("192.168.0.0/16"), &json!("192.168.0.1"))
        );
        let status = scene.status("example").await;
        assert_eq!(json!(status.network_id), networks[0]["id"]);
        assert_eq!(json!(status.subnet_id), subnets[0]["id"]);
        assert_eq!(status.observed_generation, Some(1));
        assert_eq!(scene.ready("example").await.1, "Synced");
        assert_eq!(scene.reasons().await, ["NetworkCreated", "SubnetCreated"]);
    });
}

#[test]
fn a_deleted_network_takes_its_neutron_network_along() {
    Scene::run(async |scene| {
        let _controller = scene.start();
        scene.create("example", json!({"cidr": "10.0.0.0/24"})).await;
        scene.api().delete("example", &DeleteParams::default()).await.unwrap();
        sleep(SETTLED).await;
        assert_eq!((scene.neutron.networks().len(), scene.neutron.subnets().len()), (0, 0));
        assert!(scene.api().get_opt("example").await.unwrap().is_none());
    });
}

#[test]
fn a_network_that_went_without_its_finalizer_is_cleaned_up_by_its_key() {
    Scene::run(async |scene| {
        let controller = scene.start();
        scene.create("example", json!({"cidr": "10.0.0.0/24"})).await;
        // Neutron does not answer, so the finalizer stays, until somebody takes it away.
        scene.neutron.outage(Some(Fault::Refuse));
        scene.api().delete("example", &DeleteParams::default()).await.unwrap();
        sleep(SETTLED).await;
        scene.strip_finalizer("example").await;
        scene.neutron.outage(None);
        sleep(10 * SETTLED).await;
        assert_eq!(scene.neutron.networks().len(), 0);
        drop(controller);
    });
}

#[test]
fn a_network_that_went_while_nobody_watched_is_found_by_the_sweep() {
    Scene::run(async |scene| {
        let controller = scene.start();
        scene.create("example", json!({"cidr": "10.0.0.0/24"})).await;
        drop(controller);
        scene.api().delete("example", &DeleteParams::default()).await.unwrap();
        scene.strip_finalizer("example").await;
        let foreign = json!({"network": {"name": "somebody's", "description": "samplecrd.k8s.io/network=other/default/x"}});
        scene.neutron.by_hand(Method::POST, "/v2.0/networks", foreign);
        let _controller = scene.start();
        sleep(SETTLED).await;
        let left = scene.neutron.networks();
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(left[0]["name"], "somebody's");
    });
}

#[test]
fn a_new_cidr_replaces_the_subnet_and_a_new_gateway_changes_it() {
    Scene::run(async |scene| {
        let _controller = scene.start();
        scene.create("example", json!({"cidr": "10.0.0.0/24"})).await;
        let first = scene.status("example").await;
        // The new range contains the old one: both at once would overlap.
        scene.set_spec("example", json!({"cidr": "10.0.0.0/16", "gateway": "10.0.0.1"})).await;
        let second = scene.status("example").await;
        assert_eq!(first.network_id, second.network_id);
        assert_ne!(first.subnet_id, second.subnet_id);
        assert_eq!(scene.neutron.subnets().len(), 1);
        scene.set_spec("example", json!({"gateway": "10.0.7.7"})).await;
        let third = scene.status("example").await;
        assert_eq!(second.subnet_id, third.subnet_id);
        assert_eq!(scene.neutron.subnets()[0]["gateway_ip"], "10.0.7.7");
        assert_eq!(third.observed_generation, Some(3));
        assert!(scene.reasons().await.contains(&"SubnetReplaced".to_owned()));
    });
}

#[test]
fn an_answer_that_is_lost_makes_no_second_network() {
    for lost in 0..3 {
        Scene::run(async |scene| {
            for _ in 0..lost {
                scene.neutron.fault("POST", Fault::LoseAnswer);
            }
            let _controller = scene.start();
            scene.create("example", json!({"cidr": "10.0.0.0/24"})).await;
            sleep(RESYNC).await;
            assert_eq!((scene.neutron.networks().len(), scene.neutron.subnets().len()), (1, 1));
            assert_eq!(scene.ready("example").await.0, "True");
        });
    }
}

#[test]
fn a_crash_at_any_request_leaves_one_network() {
    for crash_after in 1..12 {
        Scene::run(async |scene| {
            let mut controller = Some(scene.start());
            let create = scene.create("example", json!({"cidr": "10.0.0.0/24"}));
            let crash = async {
                while scene.neutron.requests().len() < crash_after {
                    sleep(std::time::Duration::from_millis(1)).await;
                    if scene.world.now() > 10 * SETTLED {
                        break;
                    }
                }
                drop(controller.take());
            };
            futures::future::join(create, crash).await;
            controller = Some(scene.start());
            sleep(2 * RESYNC).await;
            assert_eq!((scene.neutron.networks().len(), scene.neutron.subnets().len()), (1, 1));
            scene.api().delete("example", &DeleteParams::default()).await.unwrap();
            sleep(SETTLED).await;
            assert_eq!(scene.neutron.networks().len(), 0);
            drop(controller);
        });
    }
}

#[test]
fn a_second_network_of_ours_goes_and_the_known_one_stays() {
    Scene::run(async |scene| {
        let _controller = scene.start();
        scene.create("example", json!({"cidr": "10.0.0.0/24"})).await;
        let known = scene.status("example").await.network_id;
        let marker = scene.neutron.networks()[0]["description"].clone();
        scene.neutron.by_hand(
            Method::POST,
            "/v2.0/networks",
            json!({"network": {"name": "x", "description": marker}}),
        );
        sleep(RESYNC + SETTLED).await;
        let left = scene.neutron.networks();
        assert_eq!((left.len(), json!(known)), (1, left[0]["id"].clone()));
    });
}

#[test]
fn a_hundred_networks_are_a_hundred_networks() {
    Scene::run(async |scene| {
        let _controller = scene.start();
        for n in 0..100 {
            let network =
                json!({"metadata": {"name": format!("n{n}")}, "spec": {"cidr": format!("10.{n}.0.0/24")}});
            let network = serde_json::from_value(network).unwrap();
            scene.api().create(&Default::default(), &network).await.unwrap();
        }
        sleep(2 * RESYNC).await;
        assert_eq!((scene.neutron.networks().len(), scene.neutron.subnets().len()), (100, 100));
        let writes = scene.neutron.writes();
        sleep(5 * RESYNC).await;
        assert_eq!(scene.neutron.writes(), writes, "nothing to do is nothing written");
    });
}
