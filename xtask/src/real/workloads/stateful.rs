//! StatefulSets.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::order::{Called, Order};
use super::{Kubectl, Scenario, create, events, sorted, wait, wait_for_words};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "a stateful set, up and down", run: scale },
    Scenario { name: "a stateful set: rollout, partition, undo", run: roll },
    Scenario { name: "a stateful set in parallel", run: parallel },
    Scenario { name: "a stateful set: several of an order at a time", run: several },
    Scenario { name: "a stateful set: pods that must be ready for a while", run: min_ready },
    Scenario { name: "a stateful set: a rollout that breaks", run: broken },
    Scenario { name: "a stateful set: on delete, history", run: on_delete },
    Scenario { name: "a stateful set that finds its pods again", run: orphans },
    Scenario { name: "claims of a stateful set", run: claims },
    Scenario { name: "claims of a stateful set that outlive it", run: kept_claims },
];

/// A StatefulSet of some pods, with more in its spec.
fn create_set(kubectl: &Kubectl, replicas: usize, more: &str) -> Result<()> {
    create(
        kubectl,
        &format!(
            "apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: db}}
spec:
  replicas: {replicas}
  serviceName: db
  selector: {{matchLabels: {{app: db}}}}
  template:
    metadata: {{labels: {{app: db}}}}
    spec: {{terminationGracePeriodSeconds: 5, containers: [{{name: a, image: nginx}}]}}
{more}"
        ),
    )?;
    settle(kubectl, replicas)
}

fn settle(kubectl: &Kubectl, replicas: usize) -> Result<()> {
    let numbers = "{.status.replicas} {.status.availableReplicas}";
    wait(kubectl, &format!("get statefulset db -o jsonpath='{numbers}'"), &format!("{replicas} {replicas}"))
}

/// Waits until as many pods are of the newest template, and all are there.
fn settle_updated(kubectl: &Kubectl, replicas: usize, updated: usize) -> Result<()> {
    let numbers = "{.status.replicas} {.status.availableReplicas} {.status.updatedReplicas}";
    let expected = format!("{replicas} {replicas} {updated}");
    wait(kubectl, &format!("get statefulset db -o jsonpath='{numbers}'"), &expected)
}

fn set_image(kubectl: &Kubectl, image: &str) -> Result<()> {
    kubectl.ok(&format!("set image statefulset/db a={image}")).map(drop)
}

/// What a StatefulSet, its pods, revisions and events say. Revisions are called by their numbers: their names are
/// hashes, which are made in another way.
fn state(kubectl: &Kubectl) -> Result<String> {
    let numbers = "{.status.observedGeneration} {.status.replicas} {.status.readyReplicas} {.status.availableReplicas} \
                   {.status.currentReplicas} {.status.updatedReplicas} {.status.collisionCount} \
                   {.status.currentRevision} {.status.updateRevision} {.status.conditions}";
    let numbers = kubectl.ok(&format!("get statefulset db -o jsonpath='{numbers}'"))?;
    let pods = "{range .items[*]}{.metadata.name}:{.spec.hostname}:{.spec.subdomain}:{.metadata.labels}:\
                {.metadata.ownerReferences[*].kind}:{.metadata.ownerReferences[*].blockOwnerDeletion}:\
                {.spec.volumes[*].persistentVolumeClaim}:{.spec.containers[0].image} {end}";
    let pods = sorted(kubectl, "pods", pods)?;
    let revisions = "{range .items[*]}{.revision}:{.metadata.ownerReferences[*].kind}:{.metadata.name}:\
                     {.data.spec.template.metadata}:{.data.spec.template.spec.containers}:\
                     {.data.spec.template.\\$patch} {end}";
    let revisions = sorted(kubectl, "controllerrevisions", revisions)?;
    let state = format!("{numbers} | {pods} | {revisions} | {}", events(kubectl, "StatefulSet")?);
    let names = kubectl
        .ok("get controllerrevisions -o jsonpath='{range .items[*]}{.metadata.name}={.revision} {end}'")?;
    let names = names.split_whitespace().filter_map(|pair| pair.split_once('='));
    Ok(names.fold(state, |state, (name, number)| state.replace(name, &format!("revision-{number}"))))
}

fn scale(kubectl: &Kubectl) -> Result<String> {
    let order = Order::watch(kubectl, Called::Name)?;
    create_set(kubectl, 2, "  ordinals: {start: 3}")?;
    let up = state(kubectl)?;
    for replicas in [4, 1] {
        kubectl.ok(&format!("scale statefulset/db --replicas={replicas}"))?;
        settle(kubectl, replicas)?;
    }
    wait_for_words(kubectl, "get pods -o name", 1)?;
    kubectl.ok("rollout status statefulset/db --timeout=55s")?;
    // Another start: the pod of the new place comes before that of the old one goes.
    kubectl.ok("patch statefulset db -p '{\"spec\":{\"ordinals\":{\"start\":4}}}'")?;
    wait(kubectl, "get pods -o jsonpath='{.items[*].metadata.name}'", "db-4")?;
    settle(kubectl, 1)?;
    Ok(format!("{up} | {} | {}", order.all(kubectl)?, state(kubectl)?))
}

fn roll(kubectl: &Kubectl) -> Result<String> {
    create_set(kubectl, 3, "  updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 2}}")?;
    let order = Order::watch(kubectl, Called::Name)?;
    set_image(kubectl, "nginx:2")?;
    settle_updated(kubectl, 3, 1)?;
    // One below the partition comes back as it was.
    kubectl.ok("delete pod db-0")?;
    settle_updated(kubectl, 3, 1)?;
    let halfway = state(kubectl)?;
    kubectl.ok(
        "patch statefulset db -p '{\"spec\":{\"updateStrategy\":{\"rollingUpdate\":{\"partition\":0}}}}'",
    )?;
    kubectl.ok("rollout status statefulset/db --timeout=55s")?;
    settle_updated(kubectl, 3, 3)?;
    let first = kubectl.ok("rollout history statefulset/db")?;
    kubectl.says("rollout undo statefulset/db", "statefulset.apps/db rolled back")?;
    kubectl.ok("rollout status statefulset/db --timeout=55s")?;
    settle_updated(kubectl, 3, 3)?;
    let second = kubectl.ok("rollout history statefulset/db")?;
    Ok(format!("{halfway} | {first} | {second} | {} | {}", order.all(kubectl)?, state(kubectl)?))
}

fn parallel(kubectl: &Kubectl) -> Result<String> {
    let order = Order::watch(kubectl, Called::Name)?;
    create_set(
        kubectl,
        3,
        "  podManagementPolicy: Parallel
  updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 2}}",
    )?;
    set_image(kubectl, "nginx:2")?;
    settle_updated(kubectl, 3, 3)?;
    kubectl.ok("scale statefulset/db --replicas=0")?;
    wait_for_words(kubectl, "get pods -o name", 0)?;
    settle_down(kubectl)?;
    Ok(format!("{} | {}", order.decisions(kubectl)?, state(kubectl)?))
}

fn settle_down(kubectl: &Kubectl) -> Result<()> {
    wait(kubectl, "get statefulset db -o jsonpath='{.status.replicas} {.status.observedGeneration}'", "0 3")
}

fn several(kubectl: &Kubectl) -> Result<String> {
    create_set(
        kubectl,
        4,
        "  updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 50%, partition: 1}}",
    )?;
    let order = Order::watch(kubectl, Called::Name)?;
    set_image(kubectl, "nginx:2")?;
    settle_updated(kubectl, 4, 3)?;
    Ok(format!("{} | {}", order.decisions(kubectl)?, state(kubectl)?))
}

fn min_ready(kubectl: &Kubectl) -> Result<String> {
    let order = Order::watch(kubectl, Called::Name)?;
    create_set(kubectl, 2, "  minReadySeconds: 2")?;
    set_image(kubectl, "nginx:2")?;
    settle_updated(kubectl, 2, 2)?;
    Ok(format!("{} | {}", order.all(kubectl)?, state(kubectl)?))
}

/// A pod that cannot start holds a rollout; the way back does not help it, deleting it does.
fn broken(kubectl: &Kubectl) -> Result<String> {
    create_set(kubectl, 2, "")?;
    let order = Order::watch(kubectl, Called::Name)?;
    let bad = "{\"spec\":{\"template\":{\"metadata\":{\"annotations\":{\"sim.setpoint.dev/image-pull-error\":\"no\"}}}}}";
    kubectl.ok(&format!("patch statefulset db -p '{bad}'"))?;
    let waits = "{.status.containerStatuses[0].state.waiting.reason}";
    let is_stuck = |reason: &str| wait(kubectl, &format!("get pod db-1 -o jsonpath='{waits}'"), reason);
    is_stuck("ImagePullBackOff").or_else(|_| is_stuck("ErrImagePull"))?;
    kubectl.ok("rollout undo statefulset/db")?;
    std::thread::sleep(Duration::from_secs(3));
    let stuck = kubectl.ok("get pods -o jsonpath='{.items[*].status.phase}'")?;
    ensure!(stuck == "Running Pending", "the broken pod was replaced: {stuck}");
    kubectl.ok("delete pod db-1")?;
    settle_updated(kubectl, 2, 2)?;
    Ok(format!("{} | {}", order.all(kubectl)?, state(kubectl)?))
}

fn on_delete(kubectl: &Kubectl) -> Result<String> {
    create_set(kubectl, 2, "  updateStrategy: {type: OnDelete}\n  revisionHistoryLimit: 1")?;
    let order = Order::watch(kubectl, Called::Name)?;
    for image in ["nginx:2", "nginx:3", "nginx:4"] {
        set_image(kubectl, image)?;
        let observed = "get statefulset db -o jsonpath='{.status.observedGeneration}'";
        wait(kubectl, observed, &kubectl.field("statefulset db", ".metadata.generation")?)?;
    }
    wait_for_words(kubectl, "get controllerrevisions -o name", 3)?;
    let before = state(kubectl)?;
    kubectl.ok("delete pod db-0")?;
    settle_updated(kubectl, 2, 1)?;
    Ok(format!("{before} | {} | {}", order.all(kubectl)?, state(kubectl)?))
}

fn orphans(kubectl: &Kubectl) -> Result<String> {
    create_set(kubectl, 2, "")?;
    let uids = kubectl.ok("get pods -o jsonpath='{.items[*].metadata.uid}'")?;
    kubectl.ok("delete statefulset db --cascade=orphan")?;
    wait(kubectl, "get pods -o jsonpath='{.items[*].metadata.ownerReferences}'", "")?;
    create_set(kubectl, 2, "")?;
    let owner = "get pods -o jsonpath='{.items[*].metadata.ownerReferences[0].kind}'";
    wait(kubectl, owner, "StatefulSet StatefulSet")?;
    wait(
        kubectl,
        "get controllerrevisions -o jsonpath='{.items[*].metadata.ownerReferences[0].kind}'",
        "StatefulSet",
    )?;
    settle_updated(kubectl, 2, 2)?;
    let same = kubectl.ok("get pods -o jsonpath='{.items[*].metadata.uid}'")? == uids;
    Ok(format!("the same pods: {same} | {}", state(kubectl)?))
}

const TEMPLATE: &str = "  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], storageClassName: stateful, resources: {requests: {storage: 1Gi}}}
";

/// Volumes that the claims of a set can have.
fn volumes(kubectl: &Kubectl, number: usize) -> Result<()> {
    for n in 0..number {
        create(
            kubectl,
            &format!(
                "apiVersion: v1
kind: PersistentVolume
metadata: {{name: stateful-{n}}}
spec:
  capacity: {{storage: 2Gi}}
  accessModes: [ReadWriteOnce]
  storageClassName: stateful
  persistentVolumeReclaimPolicy: Retain
  hostPath: {{path: /x}}"
            ),
        )?;
    }
    Ok(())
}

/// The volumes are let go of, and deleted.
fn delete_volumes(kubectl: &Kubectl, number: usize) -> Result<()> {
    for n in 0..number {
        wait(
            kubectl,
            &format!("get persistentvolume stateful-{n} -o jsonpath='{{.status.phase}}'"),
            "Released",
        )?;
        kubectl.ok(&format!("delete persistentvolume stateful-{n}"))?;
    }
    Ok(())
}

/// Which of several equal volumes a claim gets is chance.
fn claims_state(kubectl: &Kubectl) -> Result<String> {
    let claims = "{range .items[*]}{.metadata.name}:{.status.phase}:{.status.capacity.storage}:{.metadata.labels}:\
                  {.metadata.ownerReferences[*].kind}:{.metadata.ownerReferences[*].controller}:\
                  {.metadata.ownerReferences[*].blockOwnerDeletion}:\
                  {.metadata.finalizers}:{.metadata.annotations} {end}";
    sorted(kubectl, "persistentvolumeclaims", claims)
}

fn claims(kubectl: &Kubectl) -> Result<String> {
    volumes(kubectl, 2)?;
    let policy = "  persistentVolumeClaimRetentionPolicy: {whenScaled: Delete, whenDeleted: Delete}";
    create_set(kubectl, 2, &format!("{TEMPLATE}{policy}"))?;
    let owners = "get persistentvolumeclaims -o jsonpath='{.items[*].metadata.ownerReferences[0].kind}'";
    wait(kubectl, owners, "StatefulSet StatefulSet")?;
    let bound = claims_state(kubectl)?;
    kubectl.ok("scale statefulset/db --replicas=1")?;
    settle(kubectl, 1)?;
    wait_for_words(kubectl, "get persistentvolumeclaims -o name", 1)?;
    let events = events(kubectl, "StatefulSet")?;
    kubectl.ok("delete statefulset db")?;
    wait_for_words(kubectl, "get persistentvolumeclaims -o name", 0)?;
    delete_volumes(kubectl, 2)?;
    Ok(format!("{bound} | {events}"))
}

/// Claims that are kept are used again, and get owners when the policy changes.
fn kept_claims(kubectl: &Kubectl) -> Result<String> {
    volumes(kubectl, 2)?;
    create_set(kubectl, 2, TEMPLATE)?;
    let bound = claims_state(kubectl)?;
    let uids = kubectl.ok("get persistentvolumeclaims -o jsonpath='{.items[*].metadata.uid}'")?;
    for replicas in [1, 2] {
        kubectl.ok(&format!("scale statefulset/db --replicas={replicas}"))?;
        settle(kubectl, replicas)?;
    }
    let same = kubectl.ok("get persistentvolumeclaims -o jsonpath='{.items[*].metadata.uid}'")? == uids;
    let delete = "{\"spec\":{\"persistentVolumeClaimRetentionPolicy\":{\"whenDeleted\":\"Delete\"}}}";
    kubectl.ok(&format!("patch statefulset db -p '{delete}'"))?;
    let owners = "get persistentvolumeclaims -o jsonpath='{.items[*].metadata.ownerReferences[0].kind}'";
    wait(kubectl, owners, "StatefulSet StatefulSet")?;
    let owned = claims_state(kubectl)?;
    let told = events(kubectl, "StatefulSet")?;
    kubectl.ok("patch statefulset db -p '{\"spec\":{\"persistentVolumeClaimRetentionPolicy\":null}}'")?;
    wait(kubectl, owners, "")?;
    kubectl.ok("delete statefulset db")?;
    wait_for_words(kubectl, "get pods -o name", 0)?;
    let left = claims_state(kubectl)?;
    kubectl.ok("delete persistentvolumeclaims --all")?;
    delete_volumes(kubectl, 2)?;
    Ok(format!("{bound} | the same claims: {same} | {owned} | {left} | {told}"))
}
