//! StatefulSets, DaemonSets and budgets.

use anyhow::Result;

use super::{Kubectl, Scenario, sorted, wait, wait_for_words};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "a stateful set, up and down", run: scale },
    Scenario { name: "a stateful set: rollout, partition, undo", run: roll },
    Scenario { name: "a stateful set in parallel", run: parallel },
    Scenario { name: "claims of a stateful set", run: claims },
    Scenario { name: "a daemon set: rollout, undo", run: daemons },
    Scenario { name: "a daemon set that chooses nodes", run: chosen },
    Scenario { name: "a disruption budget", run: budget },
    Scenario { name: "a replication controller", run: controller },
];

fn create(kubectl: &Kubectl, object: &str) -> Result<()> {
    kubectl.file("object.json", object)?;
    kubectl.ok("create -f object.json").map(drop)
}

fn template(labels: &str, image: &str) -> String {
    format!(
        "\"selector\":{{\"matchLabels\":{{{labels}}}}},\"template\":{{\"metadata\":{{\"labels\":{{{labels}}}}},\
         \"spec\":{{\"containers\":[{{\"name\":\"a\",\"image\":\"{image}\"}}]}}}}"
    )
}

/// A StatefulSet of two pods, with more in its spec.
fn create_set(kubectl: &Kubectl, more: &str) -> Result<()> {
    let template = template("\"app\":\"db\"", "nginx");
    create(
        kubectl,
        &format!(
            "{{\"apiVersion\":\"apps/v1\",\"kind\":\"StatefulSet\",\"metadata\":{{\"name\":\"db\"}},\
         \"spec\":{{\"replicas\":2,\"serviceName\":\"db\",{template}{more}}}}}"
        ),
    )?;
    settle(kubectl, "2")
}

fn settle(kubectl: &Kubectl, replicas: &str) -> Result<()> {
    let numbers = "{.status.replicas} {.status.availableReplicas}";
    wait(kubectl, &format!("get statefulset db -o jsonpath='{numbers}'"), &format!("{replicas} {replicas}"))
}

/// What a StatefulSet, its pods, revisions and events say.
fn state(kubectl: &Kubectl) -> Result<String> {
    let numbers = "{.status.observedGeneration} {.status.replicas} {.status.readyReplicas} {.status.availableReplicas} \
                   {.status.currentReplicas} {.status.updatedReplicas} {.status.collisionCount} \
                   {.status.currentRevision} {.status.updateRevision}";
    let numbers = kubectl.ok(&format!("get statefulset db -o jsonpath='{numbers}'"))?;
    let pods = "{range .items[*]}{.metadata.name}:{.spec.hostname}:{.spec.subdomain}:\
                {.metadata.labels.controller-revision-hash}:{.metadata.labels.apps\\.kubernetes\\.io/pod-index}:\
                {.spec.containers[0].image} {end}";
    let pods = sorted(kubectl, "pods", pods)?;
    let revisions = "{range .items[*]}{.metadata.name}:{.revision}:{.metadata.labels} {end}";
    let revisions = sorted(kubectl, "controllerrevisions", revisions)?;
    let events = "{range .items[?(@.involvedObject.kind==\"StatefulSet\")]}{.type}:{.reason} {end}";
    Ok(format!("{numbers} | {pods} | {revisions} | {}", sorted(kubectl, "events", events)?))
}

fn scale(kubectl: &Kubectl) -> Result<String> {
    create_set(kubectl, ",\"ordinals\":{\"start\":3}")?;
    let up = state(kubectl)?;
    for replicas in ["4", "1"] {
        kubectl.ok(&format!("scale statefulset/db --replicas={replicas}"))?;
        settle(kubectl, replicas)?;
    }
    wait_for_words(kubectl, "get pods -o name", 1)?;
    kubectl.ok("rollout status statefulset/db --timeout=55s")?;
    Ok(format!("{up} | {}", state(kubectl)?))
}

fn roll(kubectl: &Kubectl) -> Result<String> {
    create_set(
        kubectl,
        ",\"updateStrategy\":{\"type\":\"RollingUpdate\",\"rollingUpdate\":{\"partition\":1}}",
    )?;
    kubectl.ok("set image statefulset/db a=nginx:2")?;
    wait(kubectl, "get pod db-1 -o jsonpath='{.spec.containers[0].image}'", "nginx:2")?;
    settle(kubectl, "2")?;
    wait(kubectl, "get statefulset db -o jsonpath='{.status.updatedReplicas}'", "1")?;
    let halfway = state(kubectl)?;
    kubectl.ok(
        "patch statefulset db -p '{\"spec\":{\"updateStrategy\":{\"rollingUpdate\":{\"partition\":0}}}}'",
    )?;
    kubectl.ok("rollout status statefulset/db --timeout=55s")?;
    let first = kubectl.ok("rollout history statefulset/db")?;
    kubectl.says("rollout undo statefulset/db", "statefulset.apps/db rolled back")?;
    kubectl.ok("rollout status statefulset/db --timeout=55s")?;
    settle(kubectl, "2")?;
    let second = kubectl.ok("rollout history statefulset/db")?;
    Ok(format!("{halfway} | {first} | {second} | {}", state(kubectl)?))
}

fn parallel(kubectl: &Kubectl) -> Result<String> {
    create_set(
        kubectl,
        ",\"podManagementPolicy\":\"Parallel\",\"updateStrategy\":{\"type\":\"RollingUpdate\",\
         \"rollingUpdate\":{\"maxUnavailable\":2}}",
    )?;
    kubectl.ok("set image statefulset/db a=nginx:2")?;
    kubectl.ok("rollout status statefulset/db --timeout=55s")?;
    settle(kubectl, "2")?;
    wait(kubectl, "get statefulset db -o jsonpath='{.status.updatedReplicas}'", "2")?;
    state(kubectl)
}

fn claims(kubectl: &Kubectl) -> Result<String> {
    for n in 0..2 {
        create(
            kubectl,
            &format!(
                "{{\"apiVersion\":\"v1\",\"kind\":\"PersistentVolume\",\"metadata\":{{\"name\":\"stateful-{n}\"}},\
                 \"spec\":{{\"capacity\":{{\"storage\":\"2Gi\"}},\"accessModes\":[\"ReadWriteOnce\"],\
                 \"storageClassName\":\"stateful\",\"persistentVolumeReclaimPolicy\":\"Retain\",\
                 \"hostPath\":{{\"path\":\"/x\"}}}}}}"
            ),
        )?;
    }
    create_set(
        kubectl,
        ",\"volumeClaimTemplates\":[{\"metadata\":{\"name\":\"data\"},\"spec\":{\"accessModes\":[\"ReadWriteOnce\"],\
         \"storageClassName\":\"stateful\",\"resources\":{\"requests\":{\"storage\":\"1Gi\"}}}}],\
         \"persistentVolumeClaimRetentionPolicy\":{\"whenScaled\":\"Delete\",\"whenDeleted\":\"Delete\"}",
    )?;
    let claims = "{range .items[*]}{.metadata.name}:{.status.phase}:{.status.capacity.storage}:\
                  {.metadata.ownerReferences[*].kind}:{.metadata.finalizers}:{.metadata.annotations} {end}";
    let bound = sorted(kubectl, "persistentvolumeclaims", claims)?;
    kubectl.ok("scale statefulset/db --replicas=1")?;
    settle(kubectl, "1")?;
    wait_for_words(kubectl, "get persistentvolumeclaims -o name", 1)?;
    kubectl.ok("delete statefulset db")?;
    wait_for_words(kubectl, "get persistentvolumeclaims -o name", 0)?;
    let phase = "{.status.phase}";
    for n in 0..2 {
        wait(kubectl, &format!("get persistentvolume stateful-{n} -o jsonpath='{phase}'"), "Released")?;
        kubectl.ok(&format!("delete persistentvolume stateful-{n}"))?;
    }
    Ok(bound)
}

fn daemon_state(kubectl: &Kubectl) -> Result<String> {
    let numbers = "{.status.observedGeneration} {.status.currentNumberScheduled} {.status.desiredNumberScheduled} \
                   {.status.numberAvailable} {.status.numberMisscheduled} {.status.numberReady} \
                   {.status.numberUnavailable} {.status.updatedNumberScheduled}";
    let numbers = kubectl.ok(&format!("get daemonset agent -o jsonpath='{numbers}'"))?;
    let pods = "{range .items[*]}{.spec.nodeName}:{.metadata.labels.pod-template-generation}:\
                {.spec.tolerations[*].key}:{.spec.containers[0].image} {end}";
    let pods = sorted(kubectl, "pods", pods)?;
    let revisions = "{range .items[*]}{.revision} {end}";
    let revisions = sorted(kubectl, "controllerrevisions", revisions)?;
    let events = "{range .items[?(@.involvedObject.kind==\"DaemonSet\")]}{.type}:{.reason} {end}";
    Ok(format!("{numbers} | {pods} | {revisions} | {}", sorted(kubectl, "events", events)?))
}

fn create_daemons(kubectl: &Kubectl) -> Result<()> {
    let template = template("\"app\":\"agent\"", "nginx");
    create(
        kubectl,
        &format!(
            "{{\"apiVersion\":\"apps/v1\",\"kind\":\"DaemonSet\",\"metadata\":{{\"name\":\"agent\"}},\"spec\":{{{template}}}}}"
        ),
    )?;
    wait(kubectl, "get daemonset agent -o jsonpath='{.status.numberAvailable}'", &super::NODES.to_string())
}

fn daemons(kubectl: &Kubectl) -> Result<String> {
    create_daemons(kubectl)?;
    let first = daemon_state(kubectl)?;
    kubectl.ok("set image daemonset/agent a=nginx:2")?;
    kubectl.ok("rollout status daemonset/agent --timeout=55s")?;
    kubectl.says("rollout undo daemonset/agent", "daemonset.apps/agent rolled back")?;
    kubectl.ok("rollout status daemonset/agent --timeout=55s")?;
    wait_for_words(kubectl, "get pods -o name", super::NODES)?;
    let history = kubectl.ok("rollout history daemonset/agent")?;
    Ok(format!("{first} | {history} | {}", daemon_state(kubectl)?))
}

fn chosen(kubectl: &Kubectl) -> Result<String> {
    create_daemons(kubectl)?;
    kubectl.ok("label node node-1 stateful=yes")?;
    kubectl.ok("patch daemonset agent -p '{\"spec\":{\"template\":{\"spec\":{\"nodeSelector\":{\"stateful\":\"yes\"}}}}}'")?;
    wait(
        kubectl,
        "get daemonset agent -o jsonpath='{.status.desiredNumberScheduled} {.status.numberAvailable}'",
        "1 1",
    )?;
    wait_for_words(kubectl, "get pods -o name", 1)?;
    kubectl.ok("label node node-2 stateful=yes")?;
    wait(
        kubectl,
        "get daemonset agent -o jsonpath='{.status.desiredNumberScheduled} {.status.numberAvailable}'",
        "2 2",
    )?;
    kubectl.ok("rollout status daemonset/agent --timeout=55s")?;
    daemon_state(kubectl)
}

fn budget(kubectl: &Kubectl) -> Result<String> {
    kubectl.ok("create deployment web --image=nginx --replicas=4")?;
    kubectl.ok("create poddisruptionbudget web --selector=app=web --max-unavailable=1")?;
    let numbers = "{.status.expectedPods} {.status.desiredHealthy} {.status.currentHealthy} \
                   {.status.disruptionsAllowed} {.status.observedGeneration} \
                   {range .status.conditions[*]}{.type}={.status}:{.reason}:{.observedGeneration}{end}";
    let path = format!("get poddisruptionbudget web -o jsonpath='{numbers}'");
    wait(kubectl, "get poddisruptionbudget web -o jsonpath='{.status.disruptionsAllowed}'", "1")?;
    let first = kubectl.ok(&path)?;
    kubectl.ok("patch poddisruptionbudget web --type=merge -p '{\"spec\":{\"maxUnavailable\":null,\"minAvailable\":\"100%\"}}'")?;
    wait(kubectl, "get poddisruptionbudget web -o jsonpath='{.status.disruptionsAllowed}'", "0")?;
    let second = kubectl.ok(&path)?;
    Ok(format!("{first} | {second}"))
}

fn controller(kubectl: &Kubectl) -> Result<String> {
    create(
        kubectl,
        "{\"apiVersion\":\"v1\",\"kind\":\"ReplicationController\",\"metadata\":{\"name\":\"old\"},\"spec\":{\"replicas\":3,\
         \"template\":{\"metadata\":{\"labels\":{\"app\":\"old\"}},\"spec\":{\"containers\":[{\"name\":\"a\",\"image\":\"b\"}]}}}}",
    )?;
    wait(kubectl, "get replicationcontroller old -o jsonpath='{.status.availableReplicas}'", "3")?;
    kubectl.ok("scale replicationcontroller old --replicas=1")?;
    wait_for_words(kubectl, "get pods -o name", 1)?;
    wait(kubectl, "get replicationcontroller old -o jsonpath='{.status.replicas}'", "1")?;
    let events = "{range .items[?(@.involvedObject.kind==\"ReplicationController\")]}{.type}:{.reason} {end}";
    let status = kubectl.ok("get replicationcontroller old -o jsonpath='{.status}'")?;
    Ok(format!("{status} | {}", sorted(kubectl, "events", events)?))
}
