//! Faults that a seed chooses.

use kube::api::{ListParams, PostParams};
use setpoint_sim::{FaultKind, Fired, Match, Swarm};

use crate::scripted::{Scripted, config_map};

/// A client's life: forty rounds of writes and reads, whatever comes.
async fn live(api: &kube::Api<k8s_openapi::api::core::v1::ConfigMap>) {
    for _ in 0..40 {
        let _answer = api.create(&PostParams::default(), &config_map("a")).await;
        let _answer = api.replace("a", &PostParams::default(), &config_map("a")).await;
        let _answer = api.list(&ListParams::default()).await;
    }
}

async fn run(seed: u64, swarm: Swarm) -> (Vec<Fired>, u64) {
    let (_server, faults, api) = Scripted::seeded(seed);
    faults.swarm(swarm);
    live(&api).await;
    (faults.fired(), faults.trace().hash())
}

#[tokio::test(start_paused = true)]
async fn a_seed_repeats_its_faults_and_another_seed_has_others() {
    let (first, again) = (run(1, Swarm::every(0.05)).await, run(1, Swarm::every(0.05)).await);
    assert_eq!(first, again);
    assert!(first.0.len() > 20, "{}", first.0.len());
    assert_ne!(run(2, Swarm::every(0.05)).await.1, first.1);
}

#[tokio::test(start_paused = true)]
async fn every_kind_for_requests_fires_sooner_or_later() {
    let (fired, _) = run(3, Swarm::every(0.1)).await;
    let prose = fired.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    for word in [
        "delayed POST",
        "delayed the response",
        "refused",
        "dropped",
        "409",
        "429",
        "500",
        "503",
        "lost",
        "timed out",
        "cut",
    ] {
        assert!(prose.contains(word), "no {word:?} in\n{prose}");
    }
    assert!(!prose.contains("POST configmaps/default/a with 409"), "a server has no such conflict:\n{prose}");
}

#[tokio::test(start_paused = true)]
async fn the_faults_of_a_seed_replay_as_a_script() {
    let (_server, by_seed, api) = Scripted::seeded(5);
    by_seed.swarm(Swarm::every(0.05));
    live(&api).await;

    let (_server, by_script, api) = Scripted::seeded(6);
    for fault in by_seed.fired() {
        by_script.on(fault.matching()).inject(fault.effect.clone());
    }
    live(&api).await;
    by_script.assert_all_fired();
    assert_eq!(by_script.fired(), by_seed.fired());
    assert_eq!(by_script.trace().hash(), by_seed.trace().hash());
}

#[tokio::test(start_paused = true)]
async fn healing_ends_the_swarm() {
    let (_server, faults, api) = Scripted::seeded(1);
    faults.swarm(Swarm::quiet().chance(FaultKind::DropRequest, 1.0).on(Match::list("configmaps")));
    api.list(&ListParams::default()).await.unwrap_err();
    api.get("a").await.expect("the swarm is for lists");
    faults.heal();
    api.list(&ListParams::default()).await.unwrap();
}
