//! What becomes of pods on simulated nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use setpoint::k8s_openapi::api::coordination::v1::Lease;
use setpoint::k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret};
use setpoint::kube::Api;
use setpoint::kube::api::DeleteParams;
use setpoint_cluster::node::{EXIT_CODE, FAIL_AFTER, IMAGE_PULL_ERROR, READY_AFTER};
use setpoint_cluster::{Cluster, Controllers};
use setpoint_sim::World;

use crate::support::{condition, create, events, field, object, phase, pod, pod_until, pods, until, waiting};

#[tokio::test(start_paused = true)]
async fn a_pod_runs_and_says_all_that_kubectl_shows() {
    let cluster = Cluster::in_process().await.unwrap();
    create(&pods(cluster.client()), &pod("web", json!({}), json!({}))).await;
    let creating = waiting(&cluster, "web", "ContainerCreating").await;
    assert_eq!(field(&creating, "/status/phase"), "Pending");
    assert_eq!(
        condition(&creating, "Ready"),
        ("False".into(), "ContainersNotReady".into(), "containers with unready status: [web]".into())
    );
    let running = phase(&cluster, "web", "Running").await;
    let container = |pointer: &str| field(&running, &format!("/status/containerStatuses/0{pointer}"));
    assert_eq!((container("/ready"), container("/started")), (json!(true), json!(true)));
    assert_eq!(container("/restartCount"), 0);
    assert!(container("/containerID").as_str().unwrap().starts_with("containerd://"));
    assert!(container("/imageID").as_str().unwrap().starts_with("docker.io/library/nginx@sha256:"));
    assert!(container("/state/running/startedAt").is_string());
    assert_eq!(field(&running, "/status/podIP"), "10.244.0.2");
    assert_eq!(field(&running, "/status/hostIP"), "172.18.0.2");
    assert_eq!(field(&running, "/status/qosClass"), "BestEffort");
    for type_ in ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"] {
        assert_eq!(condition(&running, type_), ("True".into(), String::new(), String::new()), "{type_}");
    }
    let reasons: Vec<String> = events(&cluster, "web").await.into_iter().map(|(reason, _)| reason).collect();
    for reason in ["Scheduled", "Pulled", "Created", "Started"] {
        assert!(reasons.iter().any(|told| told == reason), "{reason} is not in {reasons:?}");
    }
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_registers_and_beats() {
    let cluster = Cluster::in_process_with(|builder| builder.nodes(2)).await.unwrap();
    let nodes: Api<Node> = Api::all(cluster.client());
    let leases: Api<Lease> = Api::namespaced(cluster.client(), "kube-node-lease");
    let node = until("a node", async || {
        let node = nodes.get_opt("node-2").await.unwrap()?;
        (field(&node, "/status/conditions/3/status") == "True").then_some(node)
    })
    .await;
    assert_eq!(field(&node, "/status/allocatable/pods"), "110");
    assert_eq!(field(&node, "/spec/podCIDR"), "10.244.1.0/24");
    let lease = until("a lease", async || leases.get_opt("node-2").await.unwrap()).await;
    assert_eq!(field(&lease, "/metadata/ownerReferences/0/uid"), field(&node, "/metadata/uid"));
    tokio::time::sleep(Duration::from_secs(15)).await;
    let renewed = leases.get("node-2").await.unwrap();
    assert_ne!(field(&renewed, "/spec/renewTime"), field(&lease, "/spec/renewTime"));
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn init_containers_run_one_after_another_before_the_others() {
    let cluster = Cluster::in_process().await.unwrap();
    let inits = json!([{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]);
    create(&pods(cluster.client()), &pod("web", json!({}), json!({"initContainers": inits}))).await;
    let second = pod_until(&cluster, "web", |pod| {
        field(pod, "/status/initContainerStatuses/1/state/running").is_object()
    })
    .await;
    assert_eq!(field(&second, "/status/initContainerStatuses/0/state/terminated/exitCode"), 0);
    assert_eq!(
        condition(&second, "Initialized"),
        ("False".into(), "ContainersNotInitialized".into(), "containers with incomplete status: [b]".into())
    );
    assert_eq!(field(&second, "/status/containerStatuses/0/state/waiting/reason"), "PodInitializing");
    let running = phase(&cluster, "web", "Running").await;
    assert_eq!(condition(&running, "Initialized").0, "True");
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_container_that_keeps_failing_is_started_again_later_and_later() {
    let cluster = Cluster::in_process().await.unwrap();
    let failing = pod("web", json!({FAIL_AFTER: "1s", EXIT_CODE: "3"}), json!({}));
    create(&pods(cluster.client()), &failing).await;
    let first =
        pod_until(&cluster, "web", |pod| field(pod, "/status/containerStatuses/0/restartCount") == 1).await;
    assert_eq!(field(&first, "/status/containerStatuses/0/lastState/terminated/exitCode"), 3);
    let backing_off = waiting(&cluster, "web", "CrashLoopBackOff").await;
    let message = field(&backing_off, "/status/containerStatuses/0/state/waiting/message");
    assert!(
        message
            .as_str()
            .unwrap()
            .starts_with("back-off 10s restarting failed container=web pod=web_default(")
    );
    assert_eq!(condition(&backing_off, "Ready").0, "False");
    pod_until(&cluster, "web", |pod| {
        let message = field(pod, "/status/containerStatuses/0/state/waiting/message");
        message.as_str().is_some_and(|message| message.starts_with("back-off 1m20s"))
    })
    .await;
    assert!(events(&cluster, "web").await.iter().any(|(reason, _)| reason == "BackOff"));
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_shall_not_restart_succeeds_or_fails() {
    let cluster = Cluster::in_process().await.unwrap();
    let api = pods(cluster.client());
    let ending = |name: &str, policy: &str, code: &str| {
        pod(name, json!({FAIL_AFTER: "1s", EXIT_CODE: code}), json!({"restartPolicy": policy}))
    };
    create(&api, &ending("good", "OnFailure", "0")).await;
    create(&api, &ending("bad", "Never", "2")).await;
    let good = phase(&cluster, "good", "Succeeded").await;
    assert_eq!(field(&good, "/status/containerStatuses/0/state/terminated/reason"), "Completed");
    assert_eq!(condition(&good, "Ready").1, "PodCompleted");
    let bad = phase(&cluster, "bad", "Failed").await;
    assert_eq!(field(&bad, "/status/containerStatuses/0/state/terminated/exitCode"), 2);
    assert_eq!(condition(&bad, "Ready").1, "PodFailed");
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn readiness_comes_when_the_annotation_says() {
    let cluster = Cluster::in_process().await.unwrap();
    create(&pods(cluster.client()), &pod("web", json!({READY_AFTER: "30s"}), json!({}))).await;
    let running = phase(&cluster, "web", "Running").await;
    assert_eq!(condition(&running, "Ready").0, "False");
    let before = cluster.env().now();
    pod_until(&cluster, "web", |pod| condition(pod, "Ready").0 == "True").await;
    let waited = cluster.env().now().duration_since(before).as_secs();
    assert!((28..=31).contains(&waited), "{waited}");
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_image_that_cannot_be_pulled_is_told_as_kubectl_users_know_it() {
    let cluster = Cluster::in_process().await.unwrap();
    create(&pods(cluster.client()), &pod("web", json!({IMAGE_PULL_ERROR: "not found"}), json!({}))).await;
    waiting(&cluster, "web", "ErrImagePull").await;
    let waiting = waiting(&cluster, "web", "ImagePullBackOff").await;
    assert_eq!(
        field(&waiting, "/status/containerStatuses/0/state/waiting/message"),
        "Back-off pulling image \"nginx\": ErrImagePull: failed to pull and unpack image \"nginx\": not found"
    );
    let events = events(&cluster, "web").await;
    for (reason, message) in [
        ("Pulling", "Pulling image \"nginx\""),
        ("Failed", "Failed to pull image \"nginx\": failed to pull and unpack image \"nginx\": not found"),
        ("Failed", "Error: ErrImagePull"),
        ("BackOff", "Back-off pulling image \"nginx\""),
        ("Failed", "Error: ImagePullBackOff"),
    ] {
        assert!(events.contains(&(reason.into(), message.into())), "{message} is not in {events:?}");
    }
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_ends_within_its_grace_period() {
    let cluster = Cluster::in_process().await.unwrap();
    let api = pods(cluster.client());
    create(&api, &pod("web", json!({}), json!({}))).await;
    phase(&cluster, "web", "Running").await;
    api.delete("web", &DeleteParams::default()).await.unwrap();
    let going = api.get("web").await.unwrap();
    assert_eq!(field(&going, "/metadata/deletionGracePeriodSeconds"), 30);
    until("gone", async || api.get_opt("web").await.unwrap().is_none().then_some(())).await;
    assert!(events(&cluster, "web").await.contains(&("Killing".into(), "Stopping container web".into())));
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_killed_node_is_marked_and_its_pods_serve_nobody_until_it_is_back() {
    let cluster = Cluster::in_process().await.unwrap();
    let nodes: Api<Node> = Api::all(cluster.client());
    create(&pods(cluster.client()), &pod("web", json!({}), json!({}))).await;
    pod_until(&cluster, "web", |pod| field(pod, "/status/phase") == "Running").await;
    assert!(cluster.nodes().kill("node-1") && !cluster.nodes().kill("node-9"));
    let is_ready = |status: &'static str| {
        let nodes = nodes.clone();
        async move || {
            let node = nodes.get("node-1").await.unwrap();
            (field(&node, "/status/conditions/3/status") == status).then_some(node)
        }
    };
    let silent = until("unknown", is_ready("Unknown")).await;
    assert_eq!(field(&silent, "/status/conditions/3/reason"), "NodeStatusUnknown");
    let web = pod_until(&cluster, "web", |pod| condition(pod, "Ready").0 == "False").await;
    assert_eq!(field(&web, "/status/phase"), "Running");
    until("taints", async || {
        let node = nodes.get("node-1").await.unwrap();
        let keys = field(&node, "/spec/taints");
        let keys: Vec<_> =
            keys.as_array()?.iter().map(|taint| (taint["key"].clone(), taint["effect"].clone())).collect();
        let unreachable = json!("node.kubernetes.io/unreachable");
        (keys == [(unreachable.clone(), json!("NoSchedule")), (unreachable, json!("NoExecute"))])
            .then_some(())
    })
    .await;
    cluster.nodes().revive("node-1");
    until("ready", is_ready("True")).await;
    pod_until(&cluster, "web", |pod| condition(pod, "Ready").0 == "True").await;
    until("no taints", async || {
        field(&nodes.get("node-1").await.unwrap(), "/spec/taints").is_null().then_some(())
    })
    .await;
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_registers_again_at_once() {
    let cluster = Cluster::in_process().await.unwrap();
    let nodes: Api<Node> = Api::all(cluster.client());
    let first = until("the node", async || nodes.get_opt("node-1").await.unwrap()).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    nodes.delete("node-1", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let again = nodes.get("node-1").await.unwrap();
    assert_ne!(first.metadata.uid, again.metadata.uid);
    assert_eq!(field(&again, "/status/conditions/3/status"), "True");
    cluster.stop().await.unwrap();
}

#[test]
fn a_node_that_is_not_simulated_is_left_alone() {
    World::run(5, async |world| {
        let nodes: Api<Node> = Api::all(world.direct());
        let real = create(&nodes, &object(json!({"metadata": {"name": "node-1"}}))).await;
        let bound = create(&pods(world.direct()), &pod("p", json!({}), json!({"nodeName": "node-1"}))).await;
        let cluster = Cluster::builder(world.client_named("cluster"))
            .env(world.env().clone())
            .controllers(Controllers::none())
            .start();
        let error = cluster.ended().await.unwrap_err();
        let cause = std::error::Error::source(&error).and_then(|error| error.source()).unwrap();
        assert!(cause.to_string().contains("\"node-1\" that is not simulated"), "{cause}");
        assert_eq!(nodes.get("node-1").await.unwrap(), real);
        assert_eq!(pods(world.direct()).get("p").await.unwrap(), bound);
    });
}

#[test]
fn a_crash_loop_goes_on_in_a_process_that_takes_over() {
    World::run(6, async |world| {
        let start = || Cluster::builder(world.client_named("cluster")).env(world.env().clone()).start();
        let mut cluster = start();
        create(&pods(world.direct()), &pod("bad", json!({FAIL_AFTER: "1s"}), json!({}))).await;
        for restarts in 2..6 {
            let is_waiting = |pod: &Pod| {
                field(pod, "/status/containerStatuses/0/state/waiting/reason") == "CrashLoopBackOff"
                    && field(pod, "/status/containerStatuses/0/restartCount") == restarts
            };
            let before = pod_until(&cluster, "bad", is_waiting).await;
            drop(cluster);
            tokio::time::sleep(Duration::from_secs(3)).await;
            cluster = start();
            tokio::time::sleep(Duration::from_secs(3)).await;
            let after = pods(world.direct()).get("bad").await.unwrap();
            assert_eq!(after.status, before.status);
        }
        // 10, 20, 40, 80 seconds and the runs between them: nothing was lost, nothing was waited for twice.
        let bad = pods(world.direct()).get("bad").await.unwrap();
        let message = field(&bad, "/status/containerStatuses/0/state/waiting/message");
        assert!(message.as_str().unwrap().starts_with("back-off 1m20s restarting"), "{message}");
        let age = world.env().now().duration_since(bad.metadata.creation_timestamp.unwrap().0);
        assert!(age.as_secs() < 110, "{age}");
        cluster.stop().await.unwrap();
    });
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_what_it_needs() {
    let cluster = Cluster::in_process().await.unwrap();
    let all = pods(cluster.client());
    let volumes = json!({"volumes": [
        {"name": "cfg", "configMap": {"name": "settings"}},
        {"name": "opt", "secret": {"secretName": "nobody", "optional": true}},
    ]});
    create(&all, &pod("mounts", json!({}), volumes)).await;
    let env = json!([{"name": "X", "valueFrom": {"secretKeyRef": {"name": "password", "key": "k"}}}]);
    let reads = json!({"containers": [{"name": "web", "image": "nginx", "env": env}]});
    create(&all, &pod("reads", json!({}), reads)).await;
    let claim = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "nobodys"}}]);
    create(&all, &pod("stores", json!({}), json!({"nodeName": "node-1", "volumes": claim}))).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let waiting = waiting(&cluster, "mounts", "ContainerCreating").await;
    assert_eq!(field(&waiting, "/status/phase"), "Pending");
    let of_mounts = events(&cluster, "mounts").await;
    let note = "MountVolume.SetUp failed for volume \"cfg\" : configmap \"settings\" not found";
    assert!(of_mounts.contains(&("FailedMount".into(), note.into())), "{of_mounts:?}");
    let reads = phase(&cluster, "reads", "Pending").await;
    let state = field(&reads, "/status/containerStatuses/0/state/waiting");
    let error = json!({"reason": "CreateContainerConfigError", "message": "secret \"password\" not found"});
    assert_eq!(state, error);
    phase(&cluster, "stores", "Pending").await;
    let of_stores = events(&cluster, "stores").await;
    assert!(of_stores.iter().any(|(_, note)| note.contains("persistentvolumeclaim \"nobodys\" not found")));
    let map: ConfigMap = object(json!({"metadata": {"name": "settings"}}));
    create(&Api::namespaced(cluster.client(), "default"), &map).await;
    let secret: Secret = object(json!({"metadata": {"name": "password"}}));
    create(&Api::namespaced(cluster.client(), "default"), &secret).await;
    for name in ["mounts", "reads"] {
        phase(&cluster, name, "Running").await;
    }
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn many_nodes_beat_together_and_not_all_at_once() {
    let cluster = Cluster::in_process_with(|builder| builder.nodes(200)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let leases: Api<Lease> = Api::namespaced(cluster.client(), "kube-node-lease");
    let list = leases.list(&Default::default()).await.unwrap().items;
    assert_eq!(list.len(), 200);
    let renewed = list.iter().map(|lease| lease.spec.as_ref().unwrap().renew_time.as_ref().unwrap().0);
    let mut beats: BTreeMap<i128, usize> = BTreeMap::new();
    for time in renewed {
        *beats.entry(time.as_millisecond().into()).or_default() += 1;
    }
    assert!((10..=50).contains(&beats.len()), "they are spread over ten seconds, in ticks: {beats:?}");
    cluster.stop().await.unwrap();
}
