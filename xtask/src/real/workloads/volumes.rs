//! Volumes and claims: binding, protection, volumes that come and go with a pod.

use anyhow::Result;

use super::{Kubectl, Scenario, create, sorted, wait, wait_for_words};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "claims find the volumes that fit", run: fit },
    Scenario { name: "a claim and a volume that name each other", run: named },
    Scenario { name: "a claim that waits for its pod", run: wait_for_pod },
    Scenario { name: "claims and volumes in use stay", run: protect },
    Scenario { name: "a volume that comes and goes with its pod", run: ephemeral },
];

fn volume(kubectl: &Kubectl, name: &str, storage: &str, more: &str) -> Result<()> {
    create(
        kubectl,
        &format!(
            "apiVersion: v1
kind: PersistentVolume
metadata: {{name: {name}, labels: {{of: {name}}}}}
spec:
  capacity: {{storage: {storage}}}
  persistentVolumeReclaimPolicy: Retain
  hostPath: {{path: /x}}
{more}"
        ),
    )
}

fn claim(kubectl: &Kubectl, name: &str, storage: &str, more: &str) -> Result<()> {
    create(
        kubectl,
        &format!(
            "apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}}}
spec:
  resources: {{requests: {{storage: {storage}}}}}
{more}"
        ),
    )
}

fn bound(kubectl: &Kubectl, claim: &str, phase: &str) -> Result<()> {
    wait(kubectl, &format!("get persistentvolumeclaim {claim} -o jsonpath='{{.status.phase}}'"), phase)
}

fn claims(kubectl: &Kubectl) -> Result<String> {
    let claims = "{range .items[*]}{.metadata.name}:{.spec.volumeName}:{.status.phase}:{.status.capacity}:\
                  {.status.accessModes}:{.metadata.annotations}:{.metadata.finalizers} {end}";
    sorted(kubectl, "persistentvolumeclaims", claims)
}

fn volumes(kubectl: &Kubectl, names: &str) -> Result<String> {
    let volumes = "{range .items[*]}{.metadata.name}:{.status.phase}:{.spec.claimRef.name}:{.spec.claimRef.namespace}:\
                   {.metadata.annotations}:{.metadata.finalizers} {end}";
    sorted(kubectl, &format!("persistentvolumes {names}"), volumes)
}

const RWO: &str = "  accessModes: [ReadWriteOnce]\n  storageClassName: fitting";
const RWX: &str = "  accessModes: [ReadWriteMany]\n  storageClassName: fitting";

/// The smallest volume that is large enough, of the class, with the modes and the labels that are asked for.
fn fit(kubectl: &Kubectl) -> Result<String> {
    volume(kubectl, "fit-small", "1Gi", RWO)?;
    volume(kubectl, "fit-middle", "5Gi", RWO)?;
    volume(kubectl, "fit-large", "10Gi", RWO)?;
    volume(kubectl, "fit-shared", "5Gi", RWX)?;
    let names = "fit-small fit-middle fit-large fit-shared";
    wait(
        kubectl,
        &format!("get persistentvolumes {names} -o jsonpath='{{.items[*].status.phase}}'"),
        "Available Available Available Available",
    )?;
    let free = volumes(kubectl, names)?;
    claim(kubectl, "middle", "2Gi", RWO)?;
    bound(kubectl, "middle", "Bound")?;
    claim(kubectl, "shared", "1Gi", RWX)?;
    bound(kubectl, "shared", "Bound")?;
    claim(kubectl, "labelled", "1Gi", &format!("{RWO}\n  selector: {{matchLabels: {{of: fit-large}}}}"))?;
    bound(kubectl, "labelled", "Bound")?;
    claim(kubectl, "none", "2Gi", RWO)?;
    bound(kubectl, "none", "Pending")?;
    let taken = format!("{} | {}", claims(kubectl)?, volumes(kubectl, names)?);
    kubectl.ok("delete persistentvolumeclaims --all")?;
    wait(
        kubectl,
        &format!("get persistentvolumes {names} -o jsonpath='{{.items[*].status.phase}}'"),
        "Available Released Released Released",
    )?;
    let released = volumes(kubectl, names)?;
    // A volume that is let go of by hand is free again.
    kubectl.ok("patch persistentvolume fit-large --type=merge -p '{\"spec\":{\"claimRef\":null}}'")?;
    wait(kubectl, "get persistentvolume fit-large -o jsonpath='{.status.phase}'", "Available")?;
    let freed = volumes(kubectl, names)?;
    kubectl.ok(&format!("delete persistentvolumes {names}"))?;
    Ok(format!("{free} | {taken} | {released} | {freed}"))
}

fn named(kubectl: &Kubectl) -> Result<String> {
    volume(kubectl, "by-claim", "1Gi", RWO)?;
    claim(kubectl, "to-volume", "1Gi", &format!("{RWO}\n  volumeName: by-claim"))?;
    bound(kubectl, "to-volume", "Bound")?;
    let reference = "  claimRef: {name: to-claim, namespace: {ns}}";
    let reference = reference.replace("{ns}", kubectl.namespace());
    volume(kubectl, "by-volume", "1Gi", &format!("{RWO}\n{reference}"))?;
    claim(kubectl, "other", "1Gi", RWO)?;
    claim(kubectl, "to-claim", "1Gi", RWO)?;
    bound(kubectl, "to-claim", "Bound")?;
    bound(kubectl, "other", "Pending")?;
    let state = format!("{} | {}", claims(kubectl)?, volumes(kubectl, "by-claim by-volume")?);
    // A claim whose volume is deleted under it is lost.
    kubectl.ok("delete persistentvolume by-claim --wait=false")?;
    kubectl.ok("patch persistentvolume by-claim --type=merge -p '{\"metadata\":{\"finalizers\":null}}'")?;
    bound(kubectl, "to-volume", "Lost")?;
    let lost = claims(kubectl)?;
    kubectl.ok("delete persistentvolumeclaims --all")?;
    kubectl.ok("delete persistentvolume by-volume")?;
    Ok(format!("{state} | {lost}"))
}

const CLASS: &str = "apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: waiting}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer";

fn user(kubectl: &Kubectl, name: &str, volume: &str) -> Result<()> {
    create(
        kubectl,
        &format!(
            "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 5
  containers: [{{name: a, image: nginx}}]
  volumes: [{{name: data, {volume}}}]"
        ),
    )
}

fn wait_for_pod(kubectl: &Kubectl) -> Result<String> {
    create(kubectl, CLASS)?;
    let more = "  accessModes: [ReadWriteOnce]\n  storageClassName: waiting";
    volume(kubectl, "waits", "1Gi", more)?;
    wait(kubectl, "get persistentvolume waits -o jsonpath='{.status.phase}'", "Available")?;
    claim(kubectl, "data", "1Gi", more)?;
    super::until(|| Ok(super::events(kubectl, "PersistentVolumeClaim")?.contains("WaitForFirstConsumer")))?;
    let before = claims(kubectl)?;
    user(kubectl, "user", "persistentVolumeClaim: {claimName: data}")?;
    kubectl.ok("wait --for=condition=ready --timeout=55s pod/user")?;
    let state = format!("{} | {}", claims(kubectl)?, volumes(kubectl, "waits")?);
    kubectl.ok("delete pod user")?;
    kubectl.ok("delete persistentvolumeclaim data")?;
    kubectl.ok("delete persistentvolume waits")?;
    kubectl.ok("delete storageclass waiting")?;
    Ok(format!("{before} | {state}"))
}

fn protect(kubectl: &Kubectl) -> Result<String> {
    volume(kubectl, "used", "1Gi", RWO)?;
    claim(kubectl, "data", "1Gi", RWO)?;
    bound(kubectl, "data", "Bound")?;
    user(kubectl, "user", "persistentVolumeClaim: {claimName: data}")?;
    kubectl.ok("wait --for=condition=ready --timeout=55s pod/user")?;
    kubectl.ok("delete persistentvolume used --wait=false")?;
    kubectl.ok("delete persistentvolumeclaim data --wait=false")?;
    // Long enough for a mistake.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let state = format!("{} | {}", claims(kubectl)?, volumes(kubectl, "used")?);
    kubectl.ok("delete pod user")?;
    wait_for_words(kubectl, "get persistentvolumeclaims -o name", 0)?;
    wait_for_words(kubectl, "get persistentvolume used --ignore-not-found -o name", 0)?;
    Ok(state)
}

fn ephemeral(kubectl: &Kubectl) -> Result<String> {
    volume(kubectl, "scratch", "1Gi", RWO)?;
    let template = "ephemeral: {volumeClaimTemplate: {metadata: {labels: {a: b}}, spec: {accessModes: [ReadWriteOnce], \
                    storageClassName: fitting, resources: {requests: {storage: 1Gi}}}}}";
    user(kubectl, "user", template)?;
    kubectl.ok("wait --for=condition=ready --timeout=55s pod/user")?;
    let owner = "get persistentvolumeclaim user-data -o jsonpath='{.metadata.ownerReferences[0].kind} \
                 {.metadata.ownerReferences[0].controller} {.metadata.ownerReferences[0].blockOwnerDeletion} \
                 {.metadata.labels}'";
    let state = format!("{} | {}", claims(kubectl)?, kubectl.ok(owner)?);
    // A claim of that name which is not the pod's is not used.
    claim(kubectl, "thief-data", "1Gi", RWO)?;
    user(kubectl, "thief", template)?;
    super::until(|| Ok(super::events(kubectl, "Pod")?.contains("pod is not owner")))?;
    kubectl.ok("delete pod user thief")?;
    wait(kubectl, "get persistentvolumeclaims -o jsonpath='{.items[*].metadata.name}'", "thief-data")?;
    wait(kubectl, "get persistentvolume scratch -o jsonpath='{.status.phase}'", "Released")?;
    kubectl.ok("delete persistentvolumeclaim thief-data")?;
    kubectl.ok("delete persistentvolume scratch")?;
    Ok(state)
}
