//! Which pods come and go, apart from a change of the template.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use setpoint::{Event, ReconcileError};

use super::nodes::{self, Fit};
use super::{GENERATION, GENERATION_LABEL, REVISION_LABEL, Run};
use crate::{pod, pod_control};

/// The most pods that one reconcile creates or deletes.
const BURST: usize = 250;

/// What is to be done.
#[derive(Default)]
pub(super) struct Changes {
    /// The nodes that need a pod.
    pub(super) create: Vec<String>,
    pub(super) delete: Vec<Arc<Pod>>,
    /// When a pod that failed may be replaced.
    pub(super) retry: Option<Duration>,
}

impl Run<'_> {
    /// Brings pods to where they should be, and then, if they are there, to the template. Says when to look again.
    pub(super) async fn update(&self) -> Result<Option<Duration>, ReconcileError> {
        let mut changes = Changes::default();
        for node in &self.nodes {
            self.look_at(node, &mut changes);
        }
        changes.delete.extend(self.lost());
        let retry = changes.retry;
        let is_settled = changes.create.is_empty() && changes.delete.is_empty();
        self.apply(changes).await?;
        if is_settled {
            self.roll().await?;
        }
        Ok(retry)
    }

    /// What one node needs.
    fn look_at(&self, node: &Node, changes: &mut Changes) {
        let Fit { should_run, may_stay } = self.demands.fit(node);
        let name = node.name_any();
        let pods = self.pods_on(&name);
        if should_run && pods.is_empty() {
            changes.create.push(name);
            return;
        }
        let living = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        if !may_stay {
            changes.delete.extend(living.cloned());
            return;
        }
        let (over, running): (Vec<_>, Vec<_>) = living.cloned().partition(|pod| pod::is_finished(pod));
        for pod in over {
            self.replace(pod, &name, changes);
        }
        if !self.allows_surge() {
            changes.delete.extend(running.into_iter().skip(1));
        } else if running.is_empty() {
            changes.create.extend(should_run.then_some(name));
        } else if running.len() > 1 {
            self.thin_out(running, changes);
        }
    }

    /// A pod that has ended is deleted; its place is filled when it is gone.
    fn replace(&self, pod: Arc<Pod>, node: &str, changes: &mut Changes) {
        let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
        if pod::phase(&pod) == "Succeeded" {
            let note = format!("Found succeeded daemon pod {name} on node {node}, will try to delete it");
            self.cx.recorder().event(self.set, Event::normal("SucceededDaemonPod", note));
            return changes.delete.push(pod);
        }
        let observed = self.set.status.as_ref().and_then(|status| status.observed_generation);
        let now = self.cx.env().instant();
        if let Some(wait) = self.back_off.wait(self.key, observed, node, now) {
            changes.retry = Some(changes.retry.map_or(wait, |known| known.min(wait)));
            return;
        }
        let note = format!("Found failed daemon pod {name} on node {node}, will try to kill it");
        self.cx.recorder().event(self.set, Event::warning("FailedDaemonPod", note));
        changes.delete.push(pod);
    }

    /// Of several pods on a node the oldest of the old and of the new template stay, until the new one can do alone.
    fn thin_out(&self, running: Vec<Arc<Pod>>, changes: &mut Changes) {
        let (new, old): (Vec<_>, Vec<_>) =
            running.into_iter().partition(|pod| pod.labels().get(REVISION_LABEL) == Some(&self.hash));
        let (mut new, mut old) = (new.into_iter(), old.into_iter());
        let pair = (new.next(), old.next());
        changes.delete.extend(new.chain(old));
        if let (Some(new), Some(old)) = pair
            && (!pod::is_ready(&old) || self.is_available(&new))
        {
            changes.delete.push(old);
        }
    }

    /// Pods that are made for a node that is gone, and never got there.
    fn lost(&self) -> Vec<Arc<Pod>> {
        let is_there = |name: &str| self.nodes.iter().any(|node| node.metadata.name.as_deref() == Some(name));
        let lost = self.pods.iter().filter(|(node, _)| !is_there(node)).flat_map(|(_, pods)| pods);
        lost.filter(|pod| pod::node_name(pod).is_empty() && pod.metadata.deletion_timestamp.is_none())
            .cloned()
            .collect()
    }

    /// Creates and deletes.
    pub(super) async fn apply(&self, changes: Changes) -> Result<(), ReconcileError> {
        let new = changes.create.iter().take(BURST).map(|node| self.new_pod(node));
        let new: Vec<Pod> = new.collect();
        let (_, created) = pod_control::create_slowly(self.cx, self.set, &new).await;
        let going = changes.delete.iter().take(BURST).map(|pod| &**pod);
        let deleted = pod_control::delete_all(self.cx, self.set, going).await;
        created?;
        deleted
    }

    /// A pod for a node.
    fn new_pod(&self, node: &str) -> Pod {
        let mut pod = pod_control::from_template(self.set, &self.spec.template);
        let spec = pod.spec.get_or_insert_default();
        nodes::add_tolerations(spec);
        nodes::pin(spec, node);
        if let Some(generation) = self.set.annotations().get(GENERATION) {
            pod.labels_mut().insert(GENERATION_LABEL.to_owned(), generation.clone());
        }
        pod.labels_mut().insert(REVISION_LABEL.to_owned(), self.hash.clone());
        pod
    }
}
