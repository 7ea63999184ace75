//! The bugs: each with the mistake, and without it.

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use setpoint_sim::PointKind;

use crate::operator::{
    BUDGETS, CLAIMS, CLUSTERS, Operator, PODS, Reconcile, Result, SECRETS, SERVICES, claim_spec, is_going,
    name, number, pod_spec,
};

/// A published bug.
pub(crate) struct Bug {
    /// The operator, and the number of the issue.
    pub(crate) name: &'static str,
    /// What its operator keeps in caches.
    pub(crate) kinds: &'static [&'static str],
    /// What the user does: what the cluster says, or that it is deleted.
    pub(crate) steps: &'static [Option<&'static [(&'static str, &'static str)]>],
    pub(crate) broken: Reconcile,
    pub(crate) mended: Reconcile,
    /// Whether there are two replicas, of which one works.
    pub(crate) is_elected: bool,
    /// By which fault, or other steps of the user, it was published to be found.
    pub(crate) fault: PointKind,
}

pub(crate) const BUGS: &[Bug] = &[
    // github.com/rabbitmq/cluster-operator/issues/782: the size of the set says whether claims have to grow.
    Bug {
        name: "rabbitmq-782",
        kinds: &[PODS, CLAIMS],
        steps: &[Some(&[("size", "10")]), Some(&[("size", "15")])],
        broken: |operator, cluster| resize(operator, cluster, false, false).boxed(),
        mended: |operator, cluster| resize(operator, cluster, true, true).boxed(),
        is_elected: false,
        fault: PointKind::CrashAfterCommit,
    },
    // github.com/rabbitmq/cluster-operator/issues/653: another size is taken for a larger one.
    Bug {
        name: "rabbitmq-653",
        kinds: &[PODS, CLAIMS],
        steps: &[Some(&[("size", "10")]), Some(&[("size", "15")])],
        broken: |operator, cluster| resize(operator, cluster, true, false).boxed(),
        mended: |operator, cluster| resize(operator, cluster, true, true).boxed(),
        is_elected: false,
        fault: PointKind::OldCache,
    },
    // github.com/pravega/zookeeper-operator/issues/312: the claims of a cluster are found by its name.
    Bug {
        name: "zookeeper-312",
        kinds: &[CLAIMS],
        steps: &[Some(&[]), None, Some(&[])],
        broken: |operator, cluster| finalize(operator, cluster, false).boxed(),
        mended: |operator, cluster| finalize(operator, cluster, true).boxed(),
        is_elected: false,
        fault: PointKind::OldCache,
    },
    // github.com/pravega/zookeeper-operator/issues/314: claims beyond the replicas that it knows of are deleted.
    Bug {
        name: "zookeeper-314",
        kinds: &[CLAIMS],
        steps: &[Some(&[("replicas", "2")]), Some(&[("replicas", "1")]), Some(&[("replicas", "2")])],
        broken: |operator, cluster| scale_claims(operator, cluster, false).boxed(),
        mended: |operator, cluster| scale_claims(operator, cluster, true).boxed(),
        is_elected: false,
        fault: PointKind::OldCache,
    },
    // github.com/instaclustr/cassandra-operator/issues/407: the claim of a pod that goes is found by the pod's name.
    Bug {
        name: "cassandra-407",
        kinds: &[PODS, CLAIMS],
        steps: &[Some(&[("replicas", "2")]), Some(&[("replicas", "1")]), Some(&[("replicas", "2")])],
        broken: |operator, cluster| pods_with_claims(operator, cluster, false).boxed(),
        mended: |operator, cluster| pods_with_claims(operator, cluster, true).boxed(),
        is_elected: false,
        fault: PointKind::OldCache,
    },
    // github.com/instaclustr/cassandra-operator/issues/398: a claim is deleted when its pod is seen to go.
    Bug {
        name: "cassandra-398",
        kinds: &[PODS, CLAIMS],
        steps: &[Some(&[("replicas", "2")]), Some(&[("replicas", "1")])],
        broken: |operator, cluster| pods_going(operator, cluster, false).boxed(),
        mended: |operator, cluster| pods_going(operator, cluster, true).boxed(),
        is_elected: false,
        fault: PointKind::StatesHidden,
    },
    // github.com/Orange-OpenSource/casskop/issues/342: it has to see each size that it scales down from.
    Bug {
        name: "casskop-342",
        kinds: &[PODS],
        steps: &[Some(&[("replicas", "1")]), Some(&[("replicas", "3")]), Some(&[("replicas", "1")])],
        broken: |operator, cluster| scale_by_memory(operator, cluster, false).boxed(),
        mended: |operator, cluster| scale_by_memory(operator, cluster, true).boxed(),
        is_elected: false,
        fault: PointKind::CrashBefore,
    },
    // github.com/Orange-OpenSource/casskop/issues/370: what is marked as begun is taken for going on.
    Bug {
        name: "casskop-370",
        kinds: &[PODS, CLAIMS],
        steps: &[Some(&[("replicas", "2")]), Some(&[("replicas", "1")])],
        broken: |operator, cluster| scale_by_marks(operator, cluster, false).boxed(),
        mended: |operator, cluster| scale_by_marks(operator, cluster, true).boxed(),
        is_elected: false,
        fault: PointKind::CrashAfterCommit,
    },
    // github.com/Orange-OpenSource/casskop/issues/321: a budget that is not as wanted is deleted and made anew.
    Bug {
        name: "casskop-321",
        kinds: &[BUDGETS],
        steps: &[Some(&[("unavailable", "2")]), Some(&[("unavailable", "1")])],
        broken: |operator, cluster| budget(operator, cluster, false).boxed(),
        mended: |operator, cluster| budget(operator, cluster, true).boxed(),
        is_elected: false,
        fault: PointKind::OldCache,
    },
    // jira.percona.com/browse/K8SPSMDB-578: of two secrets, one is looked for.
    Bug {
        name: "mongodb-578",
        kinds: &[SECRETS],
        steps: &[Some(&[])],
        broken: |operator, cluster| two_secrets(operator, cluster, false).boxed(),
        mended: |operator, cluster| two_secrets(operator, cluster, true).boxed(),
        is_elected: false,
        fault: PointKind::CrashAfterCommit,
    },
    // github.com/Orange-OpenSource/nifikop/issues/130: a pod is restarted when its configuration is written.
    Bug {
        name: "nifikop-130",
        kinds: &[PODS, SECRETS],
        steps: &[Some(&[("config", "a")]), Some(&[("config", "b")])],
        broken: |operator, cluster| restart(operator, cluster, false).boxed(),
        mended: |operator, cluster| restart(operator, cluster, true).boxed(),
        is_elected: false,
        fault: PointKind::CrashAfterCommit,
    },
    // github.com/minio/operator/issues/2038, found by Acto: labels are added and never removed.
    Bug {
        name: "minio-2038",
        kinds: &[SERVICES],
        steps: &[Some(&[]), Some(&[("label", "x")])],
        broken: |operator, cluster| label(operator, cluster, false).boxed(),
        mended: |operator, cluster| label(operator, cluster, true).boxed(),
        is_elected: false,
        fault: PointKind::Rollback,
    },
    // github.com/kubernetes/kubernetes/issues/23731: who cannot renew the lease goes on leading until somebody says otherwise.
    Bug {
        name: "kubernetes-23731",
        kinds: &[SECRETS],
        steps: &[Some(&[("config", "a")]), Some(&[("config", "b")]), Some(&[("config", "c")])],
        broken: |operator, cluster| two_configs(operator, cluster, Trust::Flag).boxed(),
        mended: |operator, cluster| two_configs(operator, cluster, Trust::Deadline).boxed(),
        is_elected: true,
        fault: PointKind::LeaseLost,
    },
    // github.com/cilium/cilium/pull/42920: what runs when the lease is lost runs on.
    Bug {
        name: "cilium-42920",
        kinds: &[SECRETS],
        steps: &[Some(&[("config", "a")]), Some(&[("config", "b")]), Some(&[("config", "c")])],
        broken: |operator, cluster| two_configs(operator, cluster, Trust::DeadlineOnce).boxed(),
        mended: |operator, cluster| two_configs(operator, cluster, Trust::Deadline).boxed(),
        is_elected: true,
        fault: PointKind::LeaderPaused,
    },
    // What Sieve calls an indirect bug: an error on the way is dropped, since memory says that it was done.
    Bug {
        name: "report-once",
        kinds: &[],
        steps: &[Some(&[("replicas", "1")]), Some(&[("replicas", "2")])],
        broken: |operator, cluster| report(operator, cluster, false).boxed(),
        mended: |operator, cluster| report(operator, cluster, true).boxed(),
        is_elected: false,
        fault: PointKind::Conflict,
    },
];

fn annotation(object: &Value, key: &str) -> u64 {
    object["metadata"]["annotations"][key].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn with_annotation(mut object: Value, key: &str, value: impl ToString) -> Value {
    object["metadata"]["annotations"][key] = value.to_string().into();
    object
}

/// A set that cannot be changed, and a claim that has to grow with it.
async fn resize(operator: Operator, cluster: Value, looks_at_claim: bool, grows_only: bool) -> Result {
    let size = number(&cluster, "size");
    let Some(claim) = operator.get(CLAIMS, "data") else {
        return operator.create(CLAIMS, &cluster, "data", claim_spec(size)).await;
    };
    if looks_at_claim && annotation(&claim, "size") < size {
        return operator.update(CLAIMS, &with_annotation(claim, "size", size)).await;
    }
    let Some(set) = operator.get(PODS, "set") else {
        return operator.create(PODS, &cluster, "set", with_annotation(pod_spec(), "size", size)).await;
    };
    let has = annotation(&set, "size");
    if if grows_only { has < size } else { has != size } {
        if grows_only {
            operator.delete_as(PODS, &set).await?;
        } else {
            operator.delete(PODS, "set").await?;
        }
        if !looks_at_claim {
            operator.update(CLAIMS, &with_annotation(claim, "size", size)).await?;
        }
    }
    Ok(())
}

const FINALIZER: &str = "example.com/claims";

/// Claims that are deleted with their cluster.
async fn finalize(operator: Operator, mut cluster: Value, knows_uid: bool) -> Result {
    let uid = cluster["metadata"]["uid"].clone();
    if is_going(&cluster) {
        for claim in operator.all(CLAIMS) {
            if !knows_uid || claim["metadata"]["annotations"]["cluster"] == uid {
                operator.delete(CLAIMS, &name(&claim)).await?;
            }
        }
        cluster["metadata"]["finalizers"] = json!([]);
        return operator.update(CLUSTERS, &cluster).await;
    }
    if cluster["metadata"]["finalizers"].is_null() {
        cluster["metadata"]["finalizers"] = json!([FINALIZER]);
        return operator.update(CLUSTERS, &cluster).await;
    }
    match operator.get(CLAIMS, "data") {
        Some(_) => Ok(()),
        None => {
            let mut claim = claim_spec(1);
            claim["metadata"]["annotations"]["cluster"] = uid;
            operator.create(CLAIMS, &cluster, "data", claim).await
        }
    }
}

/// A claim for each replica.
async fn scale_claims(operator: Operator, cluster: Value, reads: bool) -> Result {
    let mut replicas = number(&cluster, "replicas");
    for n in 0..replicas {
        let name = format!("data-{n}");
        if operator.get(CLAIMS, &name).is_none() {
            operator.create(CLAIMS, &cluster, &name, claim_spec(1)).await?;
        }
    }
    if operator.get(CLAIMS, &format!("data-{replicas}")).is_some() {
        if reads {
            // Before something is deleted, it looks at what is wanted now.
            let Some(now) = operator.read(CLUSTERS, &name(&cluster)).await? else { return Ok(()) };
            replicas = number(&now, "replicas");
        }
        operator.delete(CLAIMS, &format!("data-{replicas}")).await?;
    }
    Ok(())
}

/// A pod and a claim for each replica; the claim of a pod that goes is deleted before the pod is let go.
async fn pods_with_claims(operator: Operator, cluster: Value, knows_uid: bool) -> Result {
    let replicas = number(&cluster, "replicas");
    for mut pod in operator.all(PODS).into_iter().filter(is_going) {
        let claim = name(&pod).replace("pod", "data");
        let now = operator.read(PODS, &name(&pod)).await?;
        let is_it = now.is_some_and(|now| now["metadata"]["uid"] == pod["metadata"]["uid"]);
        if is_it || !knows_uid {
            operator.delete(CLAIMS, &claim).await?;
        }
        if is_it {
            pod["metadata"]["finalizers"] = json!([]);
            operator.update(PODS, &pod).await?;
        }
    }
    for n in 0..replicas {
        let (pod, claim) = (format!("pod-{n}"), format!("data-{n}"));
        if operator.get(CLAIMS, &claim).is_none() {
            operator.create(CLAIMS, &cluster, &claim, claim_spec(1)).await?;
        }
        if operator.get(PODS, &pod).is_none() {
            let mut spec = pod_spec();
            spec["metadata"]["finalizers"] = json!([FINALIZER]);
            operator.create(PODS, &cluster, &pod, spec).await?;
        }
    }
    match operator.get(PODS, &format!("pod-{replicas}")) {
        Some(pod) if !is_going(&pod) && (!knows_uid || wants(&operator, &cluster).await? == replicas) => {
            operator.delete_as(PODS, &pod).await
        }
        _ => Ok(()),
    }
}

/// How many replicas the cluster wants now.
async fn wants(operator: &Operator, cluster: &Value) -> Result<u64> {
    let now = operator.read(CLUSTERS, &name(cluster)).await?;
    Ok(now.map_or(0, |now| number(&now, "replicas")))
}

/// The same; a kubelet, and not the operator, lets pods go.
async fn pods_going(operator: Operator, cluster: Value, looks_at_claims: bool) -> Result {
    let replicas = number(&cluster, "replicas");
    for pod in operator.all(PODS).iter().filter(|pod| is_going(pod)) {
        if !looks_at_claims {
            operator.delete(CLAIMS, &name(pod).replace("pod", "data")).await?;
        }
    }
    for n in 0..replicas {
        let (pod, claim) = (format!("pod-{n}"), format!("data-{n}"));
        if operator.get(CLAIMS, &claim).is_none() {
            operator.create(CLAIMS, &cluster, &claim, claim_spec(1)).await?;
        }
        if operator.get(PODS, &pod).is_none() {
            let mut spec = pod_spec();
            spec["spec"]["nodeName"] = "node".into();
            operator.create(PODS, &cluster, &pod, spec).await?;
        }
    }
    let (pod, claim) = (format!("pod-{replicas}"), format!("data-{replicas}"));
    if operator.get(PODS, &pod).is_some_and(|pod| !is_going(&pod)) {
        operator.delete(PODS, &pod).await?;
    }
    if looks_at_claims && operator.get(CLAIMS, &claim).is_some() && operator.get(PODS, &pod).is_none() {
        operator.delete(CLAIMS, &claim).await?;
    }
    Ok(())
}

/// Lets pods and claims that go be gone, a while later, as a kubelet and the protection of claims do.
pub(crate) fn janitor(operator: Operator, _: Value) -> BoxFuture<'static, Result> {
    async move {
        for kind in [PODS, CLAIMS] {
            for mut object in operator.all(kind).into_iter().filter(is_going) {
                tokio::time::sleep(std::time::Duration::from_secs(2)).await;
                if kind == PODS {
                    operator.delete_now(PODS, &name(&object)).await?;
                } else {
                    object["metadata"]["finalizers"] = json!([]);
                    operator.update(CLAIMS, &object).await?;
                }
            }
        }
        Ok(())
    }
    .boxed()
}

/// Pods are removed down from the number that it remembers.
async fn scale_by_memory(operator: Operator, cluster: Value, looks_at_pods: bool) -> Result {
    let replicas = number(&cluster, "replicas");
    let before = if looks_at_pods {
        let numbers =
            operator.all(PODS).into_iter().filter_map(|pod| name(&pod).strip_prefix("pod-")?.parse().ok());
        numbers.max().map_or(0, |last: u64| last + 1)
    } else {
        operator.remembers("replicas").map_or(replicas, |text| text.parse().unwrap_or(replicas))
    };
    for n in replicas..before {
        operator.delete(PODS, &format!("pod-{n}")).await?;
    }
    for n in 0..replicas {
        let pod = format!("pod-{n}");
        if operator.get(PODS, &pod).is_none() {
            operator.create(PODS, &cluster, &pod, pod_spec()).await?;
        }
    }
    operator.remember("replicas", replicas);
    Ok(())
}

/// A mark on the cluster says that it is being scaled down.
async fn scale_by_marks(operator: Operator, cluster: Value, goes_on: bool) -> Result {
    let replicas = number(&cluster, "replicas");
    let mark = cluster["metadata"]["annotations"]["action"].as_str().unwrap_or("done").to_owned();
    if mark == "todo" && !goes_on && operator.remembers("action").is_none() {
        // It goes on somewhere.
        return Ok(());
    }
    for n in 0..replicas {
        let (pod, claim) = (format!("pod-{n}"), format!("data-{n}"));
        if operator.get(PODS, &pod).is_none() {
            operator.create(PODS, &cluster, &pod, pod_spec()).await?;
        }
        if operator.get(CLAIMS, &claim).is_none() {
            operator.create(CLAIMS, &cluster, &claim, claim_spec(1)).await?;
        }
    }
    let (pod, claim) = (format!("pod-{replicas}"), format!("data-{replicas}"));
    let is_left = operator.get(PODS, &pod).is_some() || operator.get(CLAIMS, &claim).is_some();
    if is_left && mark == "done" {
        operator.remember("action", "todo");
        operator.update(CLUSTERS, &with_annotation(cluster.clone(), "action", "todo")).await?;
        return Ok(());
    }
    if is_left {
        operator.delete(PODS, &pod).await?;
        operator.delete(CLAIMS, &claim).await?;
    } else if mark == "todo" {
        operator.update(CLUSTERS, &with_annotation(cluster, "action", "done")).await?;
    }
    Ok(())
}

/// A budget that is made anew when it is not as wanted.
async fn budget(operator: Operator, mut cluster: Value, reads: bool) -> Result {
    let has = operator.get(BUDGETS, "budget");
    let wanted = |cluster: &Value| number(cluster, "unavailable");
    let is_wrong = |cluster: &Value| {
        has.as_ref().is_some_and(|has| has["spec"]["maxUnavailable"].as_u64() != Some(wanted(cluster)))
    };
    if is_wrong(&cluster) && reads {
        let Some(now) = operator.read(CLUSTERS, &name(&cluster)).await? else { return Ok(()) };
        let budget = operator.read(BUDGETS, "budget").await?;
        if budget.is_some_and(|budget| budget["spec"]["maxUnavailable"].as_u64() == Some(wanted(&now))) {
            return Ok(());
        }
        cluster = now;
    }
    if is_wrong(&cluster) {
        operator.delete(BUDGETS, "budget").await?;
    } else if has.is_some() {
        return Ok(());
    }
    let spec = json!({"spec": {"maxUnavailable": wanted(&cluster), "selector": {"matchLabels": {"a": "b"}}}});
    operator.create(BUDGETS, &cluster, "budget", spec).await
}

async fn two_secrets(operator: Operator, cluster: Value, looks_for_both: bool) -> Result {
    for name in ["ssl", "ssl-internal"] {
        let known = if looks_for_both { name } else { "ssl" };
        if operator.get(SECRETS, known).is_none() {
            operator.create(SECRETS, &cluster, name, json!({"stringData": {"key": "secret"}})).await?;
        }
    }
    Ok(())
}

/// When a replica believes that it leads.
#[derive(Clone, Copy, PartialEq)]
enum Trust {
    /// It was elected, and has not heard of another.
    Flag,
    /// Its lease was good when it began.
    DeadlineOnce,
    /// Its lease is good as long as a write takes.
    Deadline,
}

/// Two secrets with the same configuration, written by the leader alone.
async fn two_configs(operator: Operator, cluster: Value, trust: Trust) -> Result {
    let may_write = |operator: &Operator, is_begin: bool| match trust {
        Trust::Flag => operator.was_elected(),
        Trust::DeadlineOnce if !is_begin => true,
        Trust::DeadlineOnce | Trust::Deadline => operator.has_lease(),
    };
    let config = cluster["data"]["config"].as_str().unwrap_or_default();
    if !may_write(&operator, true) {
        return Ok(());
    }
    for name in ["main", "spare"] {
        let is_there = operator.get(SECRETS, name);
        if is_there.as_ref().is_some_and(|has| has["metadata"]["annotations"]["config"] == config) {
            continue;
        }
        if !may_write(&operator, false) {
            return Ok(());
        }
        let write = async {
            if is_there.is_some() {
                operator.annotate(SECRETS, name, "config", config).await
            } else {
                let secret = with_annotation(json!({}), "config", config);
                operator.create(SECRETS, &cluster, name, secret).await
            }
        };
        match trust {
            Trust::Deadline => operator.while_it_has_the_lease(write).await?,
            Trust::Flag | Trust::DeadlineOnce => write.await?,
        }
    }
    Ok(())
}

/// A pod that reads its configuration when it starts.
async fn restart(operator: Operator, cluster: Value, looks_at_pod: bool) -> Result {
    let config = cluster["data"]["config"].as_str().unwrap_or_default().to_owned();
    let has = |object: &Value| object["metadata"]["annotations"]["config"] == config.as_str();
    let spec = |content: Value| with_annotation(content, "config", &config);
    match operator.get(SECRETS, "config") {
        None => operator.create(SECRETS, &cluster, "config", spec(json!({}))).await?,
        Some(secret) if !has(&secret) => {
            operator.update(SECRETS, &spec(secret)).await?;
            if !looks_at_pod {
                operator.delete(PODS, "server").await?;
            }
        }
        Some(_) => {}
    }
    match operator.get(PODS, "server") {
        None => operator.create(PODS, &cluster, "server", spec(pod_spec())).await,
        Some(pod) if looks_at_pod && !has(&pod) => operator.delete(PODS, "server").await,
        Some(_) => Ok(()),
    }
}

/// A service that has the labels of its cluster.
async fn label(operator: Operator, cluster: Value, removes: bool) -> Result {
    let wanted = cluster["data"]["label"].as_str().map(|label| json!({"label": label})).unwrap_or(json!({}));
    let Some(mut service) = operator.get(SERVICES, "console") else {
        let spec = json!({"metadata": {"labels": wanted}, "spec": {"ports": [{"port": 80}]}});
        return operator.create(SERVICES, &cluster, "console", spec).await;
    };
    let has = service["metadata"]["labels"].clone();
    let is_there = wanted.as_object().into_iter().flatten().all(|(key, value)| has[key] == *value);
    let is_more =
        removes && has.as_object().map_or(0, |has| has.len()) > wanted.as_object().map_or(0, |w| w.len());
    if is_there && !is_more {
        return Ok(());
    }
    service["metadata"]["labels"] = wanted;
    operator.update(SERVICES, &service).await
}

/// Says on the cluster how many replicas there are.
async fn report(operator: Operator, cluster: Value, looks: bool) -> Result {
    let replicas = number(&cluster, "replicas").to_string();
    let reported = if looks {
        cluster["metadata"]["annotations"]["reported"].as_str().map(str::to_owned)
    } else {
        operator.remembers("reported")
    };
    if reported.as_ref() == Some(&replicas) {
        return Ok(());
    }
    operator.remember("reported", &replicas);
    let updated = operator.update(CLUSTERS, &with_annotation(cluster, "reported", &replicas)).await;
    if looks { updated } else { Ok(()) }
}
