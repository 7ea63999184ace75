//! What somebody does in Neutron is found by the resync, and undone.

use http::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::{RESYNC, SETTLED, Scene};

/// Makes a Network, lets `edit` do something in Neutron (it gets the ids of network and subnet), and expects
/// all to be as before after the next resync.
fn is_repaired(edit: impl Fn(&Scene, &str, &str)) {
    Scene::run(async |scene| {
        let _controller = scene.start();
        scene.create("example", json!({"cidr": "10.0.0.5/24", "gateway": "10.0.0.1"})).await;
        let status = scene.status("example").await;
        edit(&scene, &status.network_id.unwrap(), &status.subnet_id.unwrap());
        sleep(RESYNC + SETTLED).await;
        let (networks, subnets) = (scene.neutron.networks(), scene.neutron.subnets());
        assert_eq!((networks.len(), subnets.len()), (1, 1));
        assert_eq!(networks[0]["name"], "default/example");
        assert_eq!(networks[0]["description"], "samplecrd.k8s.io/network=kubernetes/default/example");
        assert_eq!(subnets[0]["cidr"], "10.0.0.0/24");
        assert_eq!(subnets[0]["gateway_ip"], "10.0.0.1");
        let status = scene.status("example").await;
        assert_eq!(json!(status.network_id), networks[0]["id"]);
        assert_eq!(json!(status.subnet_id), subnets[0]["id"]);
        assert_eq!(scene.ready("example").await.0, "True");
    });
}

fn put(scene: &Scene, kind: &str, id: &str, changes: Value) {
    let (status, answer) =
        scene.neutron.by_hand(Method::PUT, &format!("/v2.0/{kind}s/{id}"), json!({kind: changes}));
    assert_eq!(status, 200, "{answer}");
}

fn delete(scene: &Scene, kind: &str, id: &str) {
    assert_eq!(scene.neutron.by_hand(Method::DELETE, &format!("/v2.0/{kind}/{id}"), json!(null)).0, 204);
}

#[test]
fn a_renamed_network_gets_its_name_back() {
    is_repaired(|scene, network, _| put(scene, "network", network, json!({"name": "mine now"})));
}

#[test]
fn a_network_that_lost_its_marker_is_known_by_its_id() {
    is_repaired(|scene, network, _| put(scene, "network", network, json!({"description": "mine now"})));
}

#[test]
fn a_changed_gateway_is_set_right() {
    is_repaired(|scene, _, subnet| put(scene, "subnet", subnet, json!({"gateway_ip": "10.0.0.77"})));
}

#[test]
fn a_deleted_network_is_made_again() {
    is_repaired(|scene, network, _| delete(scene, "networks", network));
}

#[test]
fn a_deleted_subnet_is_made_again() {
    is_repaired(|scene, _, subnet| delete(scene, "subnets", subnet));
}

#[test]
fn a_subnet_of_another_range_is_replaced() {
    is_repaired(|scene, network, subnet| {
        delete(scene, "subnets", subnet);
        let description = scene.neutron.networks()[0]["description"].clone();
        let other =
            json!({"subnet": {"network_id": network, "cidr": "10.7.0.0/24", "description": description}});
        assert_eq!(scene.neutron.by_hand(Method::POST, "/v2.0/subnets", other).0, 201);
    });
}

#[test]
fn nothing_is_written_while_nothing_drifts() {
    Scene::run(async |scene| {
        let _controller = scene.start();
        scene.create("example", json!({"cidr": "10.0.0.5/24"})).await;
        let writes = scene.neutron.writes();
        sleep(20 * RESYNC).await;
        assert_eq!(scene.neutron.writes(), writes);
    });
}
