//! Specs that make no sense, and a Neutron that does not do its work: conditions and events say what to do, and
//! nothing is tried again and again without a pause.

use http::Method;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::scripted::Fault;
use crate::support::{RESYNC, SETTLED, Scene};

fn is_refused(spec: Value, words: &str) {
    Scene::run(async |scene| {
        let _controller = scene.start();
        scene.create("example", spec).await;
        let (status, reason, message) = scene.ready("example").await;
        assert_eq!((status.as_str(), reason.as_str()), ("False", "InvalidSpec"));
        assert!(message.contains(words), "{message}");
        assert_eq!(scene.reasons().await, ["InvalidSpec"]);
        assert_eq!(scene.neutron.writes(), 0);
        // A better spec makes it good.
        scene.set_spec("example", json!({"cidr": "10.0.0.0/24", "gateway": "10.0.0.1"})).await;
        assert_eq!(scene.ready("example").await.0, "True");
    });
}

#[test]
fn an_invalid_cidr_is_refused() {
    is_refused(json!({"cidr": "10.0.0.0/33"}), "\"10.0.0.0/33\" is no CIDR: write an address");
    is_refused(json!({"cidr": ""}), "is no CIDR");
}

#[test]
fn a_gateway_outside_the_cidr_is_refused_though_neutron_would_take_it() {
    is_refused(
        json!({"cidr": "10.0.0.0/24", "gateway": "10.0.1.1"}),
        "10.0.1.1 cannot be the gateway of 10.0.0.0/24",
    );
    is_refused(json!({"cidr": "10.0.0.0/24", "gateway": "the router"}), "\"the router\" is no IP address");
}

#[test]
fn an_invalid_spec_after_a_valid_one_leaves_the_network_as_it_was() {
    Scene::run(async |scene| {
        let _controller = scene.start();
        scene.create("example", json!({"cidr": "10.0.0.0/24"})).await;
        let before = scene.neutron.subnets();
        scene.set_spec("example", json!({"cidr": "nonsense"})).await;
        let status = scene.status("example").await;
        assert_eq!((scene.neutron.subnets(), status.observed_generation), (before, Some(2)));
        assert!(status.network_id.is_some(), "what Neutron has is still known");
    });
}

#[test]
fn an_overlap_is_told_in_neutrons_words() {
    Scene::run(async |scene| {
        let _controller = scene.start();
        scene.create("example", json!({"cidr": "10.0.0.0/24"})).await;
        let network = scene.status("example").await.network_id;
        let foreign = json!({"subnet": {"network_id": network, "cidr": "10.1.0.0/16"}});
        assert_eq!(scene.neutron.by_hand(Method::POST, "/v2.0/subnets", foreign).0, 201);
        scene.set_spec("example", json!({"cidr": "10.1.2.0/24"})).await;
        let (status, reason, message) = scene.ready("example").await;
        assert_eq!((status.as_str(), reason.as_str()), ("False", "NeutronRefused"));
        assert!(message.contains("overlaps with another subnet"), "{message}");
        assert!(message.contains("change the spec, or what it collides with in Neutron"), "{message}");
    });
}

/// Every request fails like this for ten minutes. How many requests were there, and what does the condition say?
fn while_neutron(fault: Fault, reason: &str, words: &str) {
    Scene::run(async |scene| {
        let _controller = scene.start();
        scene.neutron.outage(Some(fault));
        scene.create("example", json!({"cidr": "10.0.0.0/24"})).await;
        sleep(10 * RESYNC).await;
        let (status, found, message) = scene.ready("example").await;
        assert_eq!((status.as_str(), found.as_str()), ("False", reason), "{message}");
        assert!(message.contains(words), "{message}");
        assert_eq!(scene.reasons().await, [reason]);
        let requests = scene.neutron.requests().len();
        // Twenty tries in ten minutes (the resync's, and those after failures), of three requests at most.
        assert!(requests < 100, "{requests} requests in ten minutes");
        // When Neutron is well again, so is the Network, without anybody's doing.
        scene.neutron.outage(None);
        sleep(2 * RESYNC).await;
        assert_eq!(scene.ready("example").await.0, "True");
        assert_eq!(scene.neutron.networks().len(), 1);
    });
}

#[test]
fn a_token_that_is_not_accepted() {
    while_neutron(
        Fault::Answer(401, r#"{"error": {"message": "The request you have made requires authentication."}}"#),
        "NeutronUnauthorized",
        "put a valid token into the file of --token-file",
    );
}

#[test]
fn a_project_that_may_not() {
    let report = r#"{"NeutronError": {"type": "PolicyNotAuthorized", "message": "rule:create_network is disallowed by policy", "detail": ""}}"#;
    while_neutron(Fault::Answer(403, report), "NeutronForbidden", "disallowed by policy");
}

#[test]
fn an_error_of_neutrons_own() {
    let report = r#"{"NeutronError": {"type": "HTTPInternalServerError", "message": "Request Failed: internal server error", "detail": ""}}"#;
    while_neutron(Fault::Answer(500, report), "NeutronFailed", "internal server error");
}

#[test]
fn an_error_that_is_no_json() {
    while_neutron(
        Fault::Answer(500, "<html>\n<title>Oops</title>"),
        "NeutronFailed",
        "500 Internal Server Error: <html>",
    );
}

#[test]
fn an_answer_that_is_no_json() {
    while_neutron(
        Fault::Answer(200, "welcome to nginx"),
        "NotNeutron",
        "not what Neutron sends: \"welcome to nginx\"",
    );
}

#[test]
fn no_answer_at_all() {
    while_neutron(Fault::Hang, "NeutronTimeout", "did not answer within 10s");
}

#[test]
fn nobody_there() {
    while_neutron(
        Fault::Refuse,
        "NeutronUnreachable",
        "http://neutron:9696 cannot be reached: connection refused",
    );
}

#[test]
fn a_quota_that_is_used_up() {
    let report = r#"{"NeutronError": {"type": "OverQuota", "message": "Quota exceeded for resources: ['network'].", "detail": ""}}"#;
    Scene::run(async |scene| {
        let _controller = scene.start();
        for _ in 0..3 {
            scene.neutron.fault("POST", Fault::Answer(409, report));
        }
        scene.create("example", json!({"cidr": "10.0.0.0/24"})).await;
        assert!(scene.reasons().await.contains(&"QuotaExceeded".to_owned()));
        sleep(RESYNC).await;
        assert_eq!(scene.ready("example").await.0, "True");
    });
}

#[test]
fn a_network_with_ports_on_it_stays_until_they_are_gone() {
    Scene::run(async |scene| {
        let _controller = scene.start();
        scene.create("example", json!({"cidr": "10.0.0.0/24"})).await;
        let network = scene.status("example").await.network_id.unwrap();
        scene.neutron.set_ports(&network, 1);
        scene.api().delete("example", &DeleteParams::default()).await.unwrap();
        sleep(SETTLED).await;
        let (_, reason, message) = scene.ready("example").await;
        assert_eq!(reason, "InUse");
        assert!(message.contains("remove the ports that are on it"), "{message}");
        scene.neutron.set_ports(&network, 0);
        sleep(2 * RESYNC).await;
        assert!(scene.api().get_opt("example").await.unwrap().is_none());
        assert_eq!(scene.neutron.networks().len(), 0);
    });
}

#[test]
fn somebody_who_changes_it_at_the_same_time_is_no_failure() {
    Scene::run(async |scene| {
        let _controller = scene.start();
        scene.create("example", json!({"cidr": "10.0.0.0/24", "gateway": "10.0.0.1"})).await;
        let stale =
            r#"{"NeutronError": {"type": "RevisionNumberConstraintFailed", "message": "x", "detail": ""}}"#;
        scene.neutron.fault("PUT", Fault::Answer(412, stale));
        scene.set_spec("example", json!({"gateway": "10.0.0.9"})).await;
        assert_eq!(scene.neutron.subnets()[0]["gateway_ip"], "10.0.0.9");
        assert_eq!(scene.ready("example").await.0, "True");
        assert!(!scene.reasons().await.contains(&"NeutronChanged".to_owned()));
    });
}
