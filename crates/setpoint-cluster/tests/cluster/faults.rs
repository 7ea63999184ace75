//! The scheduler, namespaces and nodes while everything that runs the cluster dies and the network misbehaves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use setpoint::k8s_openapi::api::core::v1::{
    ConfigMap, Event, Namespace, Node, Pod, Secret, Service, ServiceAccount,
};
use setpoint::k8s_openapi::api::discovery::v1::EndpointSlice;
use setpoint::kube::api::{DeleteParams, WatchEvent, WatchParams};
use setpoint::kube::{Api, ResourceExt};
use setpoint_cluster::{Cluster, NodeConfig};
use setpoint_env::Task;
use setpoint_sim::{Swarm, World};
use tokio::time::sleep;

use crate::support::{condition, create, field, object, pod, pods, until};

const SEEDS: u64 = 8;
const NODES: usize = 3;
/// How many of the test's pods a node has room for.
const ROOM: usize = 2;

fn start(world: &World) -> Cluster {
    let mut nodes = NodeConfig { count: NODES, ..NodeConfig::default() };
    nodes.capacity.insert("cpu".into(), ROOM.to_string());
    Cluster::builder(world.client_named("cluster"))
        .env(world.env().clone())
        .root_ca("CERTIFICATE")
        .node_config(nodes)
        .start()
}

async fn pause(world: &World, longest: u64) {
    sleep(Duration::from_millis(world.env().random_range(1..=longest))).await;
}

/// What the test's watch has against the scheduler.
#[derive(Default)]
struct Verdict {
    /// The node of each pod, by uid.
    bound: BTreeMap<String, String>,
    complaints: Vec<String>,
}

impl Verdict {
    fn note(&mut self, pods: &BTreeMap<String, Pod>) {
        let mut on: BTreeMap<&str, usize> = BTreeMap::new();
        // A pod that has ended takes no room, even if its object is still there.
        let has_ended =
            |pod: &&Pod| matches!(field(*pod, "/status/phase").as_str(), Some("Succeeded" | "Failed"));
        for pod in pods.values().filter(|pod| !has_ended(pod)) {
            let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) else { continue };
            *on.entry(node).or_default() += 1;
            let first = self.bound.entry(pod.uid().unwrap()).or_insert_with(|| node.to_owned());
            if first != node {
                self.complaints.push(format!("{} was bound to {first} and then to {node}", pod.name_any()));
            }
        }
        let full = on.iter().filter(|(_, count)| **count > ROOM);
        self.complaints.extend(full.map(|(node, count)| format!("{count} pods on {node}")));
    }
}

fn watch(world: &World) -> (Arc<Mutex<Verdict>>, Task<()>) {
    let verdict: Arc<Mutex<Verdict>> = Arc::default();
    let (api, inner) = (pods(world.direct()), verdict.clone());
    let task = world.env().spawn(async move {
        let (mut known, mut version) = (BTreeMap::new(), "0".to_owned());
        loop {
            let mut events = api.watch(&WatchParams::default(), &version).await.unwrap().boxed();
            while let Some(event) = events.next().await {
                match event.unwrap() {
                    WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                        version = pod.resource_version().unwrap();
                        known.insert(pod.name_any(), pod);
                    }
                    WatchEvent::Deleted(pod) => {
                        version = pod.resource_version().unwrap();
                        known.remove(&pod.name_any());
                    }
                    WatchEvent::Bookmark(mark) => version = mark.metadata.resource_version,
                    WatchEvent::Error(error) => panic!("{error:?}"),
                }
                inner.lock().note(&known);
            }
        }
    });
    (verdict, task)
}

/// A pod that takes one of a node's places.
fn one_cpu(name: &str) -> Pod {
    let containers = json!([{"name": "a", "image": "b", "resources": {"requests": {"cpu": "1"}}}]);
    pod(name, json!({}), json!({"containers": containers, "terminationGracePeriodSeconds": 1}))
}

async fn running(world: &World) -> Vec<String> {
    let list = pods(world.direct()).list(&Default::default()).await.unwrap().items;
    let is_running = |pod: &&Pod| field(*pod, "/status/phase") == "Running";
    list.iter().filter(is_running).map(ResourceExt::name_any).collect()
}

#[test]
fn a_scheduler_that_crashes_anywhere_overfills_no_node_and_binds_no_pod_twice() {
    for seed in 0..SEEDS {
        World::run(seed, async |world| {
            let mut cluster = start(&world);
            let (verdict, _watch) = watch(&world);
            let api = pods(world.direct());
            world.faults().swarm(Swarm::every(0.03));
            let total = 2 * NODES * ROOM;
            for n in 0..total {
                create(&api, &one_cpu(&format!("p{n:02}"))).await;
            }
            for _ in 0..6 {
                pause(&world, 4_000).await;
                if let Some(name) = running(&world).await.first() {
                    api.delete(name, &DeleteParams::default()).await.unwrap();
                }
                pause(&world, 4_000).await;
                drop(cluster);
                pause(&world, 2_000).await;
                cluster = start(&world);
            }
            world.faults().heal();
            until(&format!("all places are taken, seed {seed}"), async || {
                (running(&world).await.len() == NODES * ROOM).then_some(())
            })
            .await;
            assert_eq!(verdict.lock().complaints, Vec::<String>::new(), "seed {seed}");
            assert!(verdict.lock().bound.len() >= NODES * ROOM, "nobody looked");
            cluster.stop().await.unwrap();
        });
    }
}

fn deployment() -> Deployment {
    object(json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "nginx"}]},
        }},
    }))
}

/// A namespace with one of most things in it.
async fn furnish(world: &World, name: &str) {
    let namespaces: Api<Namespace> = Api::all(world.direct());
    create(&namespaces, &object(json!({"metadata": {"name": name}}))).await;
    create(&Api::namespaced(world.direct(), name), &deployment()).await;
    let secrets: Api<Secret> = Api::namespaced(world.direct(), name);
    create(&secrets, &object(json!({"metadata": {"name": "key"}}))).await;
    let service =
        json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    create(&Api::<Service>::namespaced(world.direct(), name), &object(service)).await;
}

/// Everything that is in a namespace, of the kinds that a cluster makes.
async fn left(world: &World, name: &str) -> Vec<String> {
    let mut left = Vec::new();
    macro_rules! look {
        ($($kind:ty),*) => {$(
            let list = Api::<$kind>::namespaced(world.direct(), name).list(&Default::default()).await.unwrap();
            left.extend(list.items.iter().map(|o| format!("{} {}", stringify!($kind), o.name_any())));
        )*};
    }
    look!(Pod, Deployment, ReplicaSet, Service, EndpointSlice, Secret, ConfigMap, ServiceAccount, Event);
    left
}

#[test]
fn namespaces_whose_deletion_crashes_anywhere_end_and_leave_nothing() {
    for seed in 0..SEEDS {
        World::run(seed, async |world| {
            let mut cluster = start(&world);
            let namespaces: Api<Namespace> = Api::all(world.direct());
            furnish(&world, "team").await;
            pause(&world, 20_000).await;
            world.faults().swarm(Swarm::every(0.03));
            furnish(&world, "young").await;
            for name in ["team", "young"] {
                namespaces.delete(name, &DeleteParams::default()).await.unwrap();
            }
            for _ in 0..4 {
                pause(&world, 4_000).await;
                drop(cluster);
                pause(&world, 2_000).await;
                cluster = start(&world);
            }
            world.faults().heal();
            for name in ["team", "young"] {
                until(&format!("{name} is gone, seed {seed}"), async || {
                    namespaces.get_opt(name).await.unwrap().is_none().then_some(())
                })
                .await;
            }
            sleep(Duration::from_secs(60)).await;
            for name in ["team", "young"] {
                assert_eq!(left(&world, name).await, Vec::<String>::new(), "seed {seed}");
            }
            cluster.stop().await.unwrap();
        });
    }
}

async fn states(world: &World) -> Vec<(Value, Value)> {
    let nodes = Api::<Node>::all(world.direct()).list(&Default::default()).await.unwrap().items;
    let ready = |node: &Node| field(node, "/status/conditions/3/status");
    nodes.iter().map(|node| (ready(node), field(node, "/spec/taints/0/key"))).collect()
}

#[test]
fn nodes_that_die_and_come_back_under_faults_are_marked_and_unmarked() {
    for seed in 0..SEEDS {
        World::run(seed, async |world| {
            let cluster = start(&world);
            let api = pods(world.direct());
            for n in 0..NODES * ROOM {
                create(&api, &one_cpu(&format!("p{n}"))).await;
            }
            until("all run", async || (running(&world).await.len() == NODES * ROOM).then_some(())).await;
            world.faults().swarm(Swarm::every(0.03));
            for _ in 0..6 {
                let name = format!("node-{}", world.env().random_range(1..=NODES as u64));
                cluster.nodes().kill(&name);
                pause(&world, 90_000).await;
                cluster.nodes().revive(&name);
                pause(&world, 10_000).await;
            }
            cluster.nodes().kill("node-2");
            sleep(Duration::from_secs(90)).await;
            world.faults().heal();
            // Its pods stop serving, those of the others serve, and nobody was moved.
            until(&format!("the dead node is known, seed {seed}"), async || {
                let states = states(&world).await;
                let well = (json!("True"), Value::Null);
                let dead = (json!("Unknown"), json!("node.kubernetes.io/unreachable"));
                let pods = api.list(&Default::default()).await.unwrap().items;
                let is_right = |pod: &Pod| {
                    let is_dead = field(pod, "/spec/nodeName") == "node-2";
                    condition(pod, "Ready").0 == if is_dead { "False" } else { "True" }
                };
                (states == [well.clone(), dead, well] && pods.iter().all(is_right)).then_some(())
            })
            .await;
            cluster.nodes().revive("node-2");
            until(&format!("all is well, seed {seed}"), async || {
                let well =
                    states(&world).await.iter().all(|(ready, taint)| ready == "True" && taint.is_null());
                let pods = api.list(&Default::default()).await.unwrap().items;
                let ready = pods.iter().filter(|pod| condition(pod, "Ready").0 == "True").count();
                (well && ready == NODES * ROOM).then_some(())
            })
            .await;
            cluster.stop().await.unwrap();
        });
    }
}
