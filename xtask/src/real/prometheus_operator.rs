//! The suite `prometheus-operator`: an operator of the field, unmodified, on `setpoint up`. It makes StatefulSets of its
//! custom resources, waits for their pods and says how they are.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::kubectl::Kubectl;
use super::peers::{KUBECTL, PROMETHEUS_OPERATOR, Peers};
use super::process::poll;
use super::report::Report;
use super::servers::{Server, free_port};

pub(crate) const SUITE: &str = "prometheus-operator";

/// The names of the checks, for `--list`.
pub(crate) const NAMES: [&str; 5] = [
    "its definitions are installed",
    "prometheus",
    "alertmanager",
    "thanosruler",
    "it has nothing to complain of",
];

/// How long anything may take to come about, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// How often kubectl looks again: each look is a process.
const PAUSE: Duration = Duration::from_millis(200);

/// A custom resource of the operator, and what becomes of it.
struct Instance {
    /// As kubectl spells it.
    resource: &'static str,
    /// The StatefulSet that the operator makes.
    set: &'static str,
    manifest: &'static str,
    /// The container that runs what it is about.
    container: &'static str,
}

const INSTANCES: [Instance; 3] = [
    Instance {
        resource: "prometheus/web",
        set: "prometheus-web",
        container: "prometheus",
        manifest: "
apiVersion: monitoring.coreos.com/v1
kind: Prometheus
metadata: {name: web}
spec:
  replicas: 1
  serviceMonitorSelector: {}
  ruleSelector: {}
  storage: {volumeClaimTemplate: {spec: {resources: {requests: {storage: 1Gi}}}}}
",
    },
    Instance {
        resource: "alertmanager/web",
        set: "alertmanager-web",
        container: "alertmanager",
        manifest: "
apiVersion: monitoring.coreos.com/v1
kind: Alertmanager
metadata: {name: web}
spec: {replicas: 1}
",
    },
    Instance {
        resource: "thanosruler/web",
        set: "thanos-ruler-web",
        container: "thanos-ruler",
        manifest: "
apiVersion: monitoring.coreos.com/v1
kind: ThanosRuler
metadata: {name: web}
spec: {replicas: 1, image: quay.io/thanos/thanos:v0.39.2, ruleSelector: {}, queryEndpoints: [http://query]}
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: rules}
spec: {groups: [{name: a, rules: [{record: one, expr: '1'}]}]}
",
    },
];

/// Runs the operator on a cluster of its own.
pub(crate) fn run(report: &mut Report, peers: &Peers, setpoint: &Path) {
    if !report.filter().takes_suite(SUITE) {
        return;
    }
    let programs = peers.get(&KUBECTL).and_then(|kubectl| Ok((kubectl, peers.get(&PROMETHEUS_OPERATOR)?)));
    let (kubectl, operator) = match programs {
        Ok(programs) => programs,
        Err(error) => return report.skip(SUITE, &format!("{error:#}")),
    };
    let begun = Instant::now();
    if let Err(error) = on_a_cluster(report, &kubectl, &operator, setpoint) {
        report.record(SUITE, "the operator runs", begun.elapsed(), Err(error));
    }
}

fn on_a_cluster(report: &mut Report, kubectl: &Path, operator: &Path, setpoint: &Path) -> Result<()> {
    let [definitions, .., complaints] = NAMES;
    let mut server = Server::setpoint_cluster(setpoint)?;
    let kubectl = Kubectl::new(kubectl, "", server.kubeconfig(), "monitoring".to_owned())?;
    kubectl.ok("create namespace {ns}")?;
    // The checks after it need them, whatever is asked for.
    let begun = Instant::now();
    let installed = install(&kubectl);
    let is_installed = installed.is_ok();
    report.record(SUITE, definitions, begun.elapsed(), installed);
    if !is_installed {
        return Ok(());
    }
    let mut command = Command::new(operator);
    command.env("KUBECONFIG", server.kubeconfig()).env("GOMAXPROCS", "2");
    command.arg(format!("--web.listen-address=127.0.0.1:{}", free_port()?));
    server.run_beside(command, "operator.log")?;
    for (name, instance) in NAMES[1..].iter().zip(&INSTANCES) {
        report.check(SUITE, name, || {
            live(&kubectl, instance).with_context(|| {
                let log = fs::read_to_string(server.file("operator.log")).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                format!("the operator's last words:\n{}", lines[lines.len().saturating_sub(12)..].join("\n"))
            })
        });
    }
    report.check(SUITE, complaints, || {
        server.still_running()?;
        let log = fs::read_to_string(server.file("operator.log"))?;
        let is_complaint = |line: &&str| line.contains("level=warn") || line.contains("level=error");
        let complaints: Vec<&str> = log.lines().filter(is_complaint).collect();
        ensure!(log.contains("level=info"), "it does not say what it does: {log}");
        ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
        Ok(())
    });
    Ok(())
}

/// Its definitions, as the module has them. They are larger than what `kubectl apply` can note in an annotation.
fn install(kubectl: &Kubectl) -> Result<()> {
    let folder = PROMETHEUS_OPERATOR.source()?.join("example/prometheus-operator-crd");
    kubectl.ok(&format!("create -f {}", folder.display()))?;
    kubectl.ok("wait --for=condition=established --timeout=55s crd --all").map(drop)
}

/// From its creation to its end: available, scaled up, changed, scaled down, deleted.
fn live(kubectl: &Kubectl, instance: &Instance) -> Result<()> {
    let Instance { resource, set, manifest, container } = instance;
    kubectl.file("instance.yaml", manifest)?;
    kubectl.ok("create -f instance.yaml")?;
    available(kubectl, instance, 1)?;
    kubectl.ok(&format!("patch {resource} --type=merge -p '{{\"spec\":{{\"replicas\":3}}}}'"))?;
    available(kubectl, instance, 3)?;
    let change = "{\"spec\":{\"logLevel\":\"debug\",\"podMetadata\":{\"labels\":{\"changed\":\"yes\"}}}}";
    kubectl.ok(&format!("patch {resource} --type=merge -p '{change}'"))?;
    wait(kubectl, "get pods -l changed=yes -o jsonpath='{.items[*].metadata.name}'", |names| {
        names.split_whitespace().count() == 3
    })?;
    available(kubectl, instance, 3)?;
    let arguments = "{.spec.containers[?(@.name==\"CONTAINER\")].args}".replace("CONTAINER", container);
    let arguments = kubectl.ok(&format!("get pod {set}-0 -o jsonpath='{arguments}'"))?;
    ensure!(arguments.contains("log.level=debug"), "the change did not arrive: {arguments}");
    kubectl.ok(&format!("patch {resource} --type=merge -p '{{\"spec\":{{\"replicas\":1}}}}'"))?;
    available(kubectl, instance, 1)?;
    wait(kubectl, &format!("get pods -l {} -o name", selector(kubectl, set)?), |pods| {
        pods.lines().count() == 1
    })?;
    kubectl.ok(&format!("delete {resource}"))?;
    wait(kubectl, "get statefulsets,pods -o name", |left| left.trim().is_empty())
}

/// The labels of the set's pods, as `-l` takes them.
fn selector(kubectl: &Kubectl, set: &str) -> Result<String> {
    let path = "{range .spec.selector.matchLabels}{@}{end}";
    let labels = kubectl.ok(&format!("get statefulset {set} -o jsonpath='{path}'"))?;
    let labels: std::collections::BTreeMap<String, String> =
        serde_json::from_str(&labels).with_context(|| format!("labels: {labels}"))?;
    Ok(labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(","))
}

/// Waits until the operator says that as many replicas are there, of its newest configuration.
fn available(kubectl: &Kubectl, instance: &Instance, replicas: usize) -> Result<()> {
    let generation = kubectl.field(instance.resource, ".metadata.generation")?;
    let status = "{.status.availableReplicas} {.status.updatedReplicas} {.status.unavailableReplicas} \
                  {range .status.conditions[*]}{.type}={.status}:{.observedGeneration} {end}";
    let numbers = format!("{replicas} {replicas} 0 ");
    let (available, reconciled) =
        (format!("Available=True:{generation}"), format!("Reconciled=True:{generation}"));
    wait(kubectl, &format!("get {} -o jsonpath='{status}'", instance.resource), |status| {
        status.starts_with(&numbers) && status.contains(&available) && status.contains(&reconciled)
    })
    .with_context(|| format!("{} with {replicas} replicas", instance.resource))
}

/// Waits until a command prints what is wanted.
fn wait(kubectl: &Kubectl, line: &str, is_it: impl Fn(&str) -> bool) -> Result<()> {
    let mut last = String::new();
    let found = poll(LIMIT, || {
        let done = kubectl.run(line, None)?;
        last = format!("{}{}", done.stdout, done.stderr);
        let found = done.status.success() && is_it(&done.stdout);
        if !found {
            std::thread::sleep(PAUSE);
        }
        Ok(found.then_some(()))
    })?;
    found.with_context(|| format!("kubectl {line}\nprinted: {}", last.trim()))
}
