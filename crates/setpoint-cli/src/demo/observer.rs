//! Watches what becomes of the Foo, with caches of its own.

use std::sync::Arc;
use std::time::Duration;

use example_foo::Foo;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use setpoint::conditions::find_condition;
use setpoint::kube::{Client, ResourceExt};
use setpoint::{Deleted, HandlerFns, Held, Lister, Registration, SharedInformerFactory};
use setpoint_env::Env;

use super::notices::Notices;
use super::stage::Stage;

const SYNC_LIMIT: Duration = Duration::from_secs(10);

pub(crate) struct Observer {
    /// Keeps the caches alive.
    _factory: SharedInformerFactory,
    _handlers: [Registration; 4],
    pub(crate) foos: Lister<Foo>,
    pub(crate) deployments: Lister<Deployment>,
    pub(crate) replica_sets: Lister<ReplicaSet>,
    pub(crate) pods: Lister<Pod>,
    pub(crate) nodes: Lister<Node>,
}

impl Observer {
    pub(crate) async fn start(client: Client, env: &Env, notices: &Notices) -> anyhow::Result<Observer> {
        let factory = SharedInformerFactory::new(client).env(env.clone());
        let (foos, deployments) = (factory.informer::<Foo>(), factory.informer::<Deployment>());
        let (replica_sets, pods) = (factory.informer::<ReplicaSet>(), factory.informer::<Pod>());
        let nodes = factory.informer::<Node>();
        let handlers = [
            foos.add_handler(of_foos(notices)),
            deployments.add_handler(of_deployments(notices)),
            replica_sets.add_handler(of_replica_sets(notices)),
            pods.add_handler(of_pods(notices)),
        ];
        factory.start();
        factory.wait_for_cache_sync(SYNC_LIMIT).await?;
        Ok(Observer {
            foos: foos.lister(),
            deployments: deployments.lister(),
            replica_sets: replica_sets.lister(),
            pods: pods.lister(),
            nodes: nodes.lister(),
            _factory: factory,
            _handlers: handlers,
        })
    }

    /// The pods that run and are ready.
    pub(crate) fn ready_pods(&self) -> Vec<Arc<Pod>> {
        let mut pods = self.pods.list();
        pods.retain(|pod| is_ready(pod) && pod.metadata.deletion_timestamp.is_none());
        pods
    }

    /// How many nodes are ready.
    pub(crate) fn ready_nodes(&self) -> usize {
        let is_ready = |node: &Arc<Node>| {
            let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|found| found.type_ == "Ready" && found.status == "True")
        };
        self.nodes.list().iter().filter(|node| is_ready(node)).count()
    }
}

fn of_foos(notices: &Notices) -> HandlerFns<Foo> {
    let notices = notices.clone();
    HandlerFns::new().on_update(move |old: &Held<Foo>, new: &Held<Foo>| {
        if old.status == new.status {
            return;
        }
        let status = new.status.clone().unwrap_or_default();
        let ready = find_condition(&status.conditions, "Ready");
        let ready =
            ready.map(|ready| format!("Ready={} ({})", ready.status, ready.message)).unwrap_or_default();
        notices.add(Stage::Status, format!("foo/{}: {ready}", new.name_any()));
    })
}

fn of_deployments(notices: &Notices) -> HandlerFns<Deployment> {
    let (added, updated, deleted) = (notices.clone(), notices.clone(), notices.clone());
    let replicas = |deployment: &Deployment| deployment.spec.replicas.unwrap_or(1);
    HandlerFns::new()
        .on_add(move |deployment: &Held<Deployment>, _| {
            added.add(Stage::Deployment, format!("deployment/{} created", deployment.name_any()));
        })
        .on_update(move |old, new| {
            if replicas(old) != replicas(new) {
                let text = format!("deployment/{} scaled to {}", new.name_any(), replicas(new));
                updated.add(Stage::Deployment, text);
            }
        })
        .on_delete(move |gone: &Deleted<Deployment>| {
            deleted.add(Stage::Deployment, format!("deployment/{} deleted", gone.object.name_any()));
        })
}

fn of_replica_sets(notices: &Notices) -> HandlerFns<ReplicaSet> {
    let (added, updated, deleted) = (notices.clone(), notices.clone(), notices.clone());
    let replicas = |set: &ReplicaSet| set.spec.replicas.unwrap_or(1);
    HandlerFns::new()
        .on_add(move |set: &Held<ReplicaSet>, _| {
            added.add(
                Stage::ReplicaSet,
                format!("{} created with {} replicas", set.name_any(), replicas(set)),
            );
        })
        .on_update(move |old, new| {
            if replicas(old) != replicas(new) {
                updated.add(Stage::ReplicaSet, format!("{} scaled to {}", new.name_any(), replicas(new)));
            }
        })
        .on_delete(move |gone| {
            deleted.add(Stage::ReplicaSet, format!("{} deleted", gone.object.name_any()));
        })
}

fn of_pods(notices: &Notices) -> HandlerFns<Pod> {
    let (added, updated, deleted) = (notices.clone(), notices.clone(), notices.clone());
    HandlerFns::new()
        .on_add(move |pod: &Held<Pod>, _| added.add(Stage::Pod, format!("{} created", pod.name_any())))
        .on_update(move |old, new| {
            let name = new.name_any();
            if let Some(node) = node_of(new).filter(|_| node_of(old).is_none()) {
                updated.add(Stage::Pod, format!("{name} scheduled onto {node}"));
            }
            if is_ready(new) && !is_ready(old) {
                updated.add(Stage::Pod, format!("{name} runs and is ready"));
            }
            if new.metadata.deletion_timestamp.is_some() && old.metadata.deletion_timestamp.is_none() {
                updated.add(Stage::Pod, format!("{name} is terminating"));
            }
        })
        .on_delete(move |gone| deleted.add(Stage::Pod, format!("{} is gone", gone.object.name_any())))
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|found| found.type_ == "Ready" && found.status == "True")
}
