//! The suite `helm-shapes`: charts of the shapes that people install (`xtask/charts`), on a cluster that lives: installed,
//! upgraded, rolled back, a node drained under them, uninstalled. Nothing is left in the end.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Helm;
use crate::real::kubectl::Kubectl;
use crate::real::peers::{HELM, KUBECTL, Peers};
use crate::real::process::poll;
use crate::real::report::Report;
use crate::real::servers::Server;

pub(crate) const SUITE: &str = "helm-shapes";

/// How long anything may take to come about, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(90);
/// How often kubectl looks again: each look is a process.
const PAUSE: Duration = Duration::from_millis(200);

/// A chart, and what is looked at after each step of its life.
struct Shape {
    chart: &'static str,
    /// The values that an upgrade sets.
    upgrade: &'static str,
    installed: fn(&Kubectl) -> Result<()>,
    upgraded: fn(&Kubectl) -> Result<()>,
    /// Looks while a node is drained, and after it.
    drained: fn(&Kubectl) -> Result<()>,
}

const SHAPES: [Shape; 3] = [
    Shape {
        chart: "database",
        upgrade: "image.tag=17.2,maxConnections=200",
        installed: |kubectl| database(kubectl, "postgres:17.1"),
        upgraded: |kubectl| database(kubectl, "postgres:17.2"),
        drained: |kubectl| database(kubectl, "postgres:17.1"),
    },
    Shape {
        chart: "ingress",
        upgrade: "image.tag=1.14.1,surge=true",
        installed: |kubectl| ingress(kubectl, "ingress-controller:1.14.0"),
        upgraded: |kubectl| ingress(kubectl, "ingress-controller:1.14.1"),
        // Pods of DaemonSets stay on a node that is drained.
        drained: |kubectl| ingress(kubectl, "ingress-controller:1.14.0"),
    },
    Shape {
        chart: "batch",
        upgrade: "completions=6,parallelism=3",
        installed: |kubectl| batch(kubectl, 4, 2),
        upgraded: |kubectl| batch(kubectl, 6, 3),
        drained: |kubectl| batch(kubectl, 4, 2),
    },
];

const STEPS: [&str; 5] = ["install", "upgrade", "roll back", "drain a node", "uninstall"];

/// The names of the checks, for `--list`.
pub(crate) fn names() -> impl Iterator<Item = String> {
    SHAPES.iter().flat_map(|shape| STEPS.map(|step| format!("{}: {step}", shape.chart)))
}

/// Runs the life of each chart on one cluster.
pub(crate) fn run(report: &mut Report, peers: &Peers, setpoint: &Path) {
    if !report.filter().takes_suite(SUITE) {
        return;
    }
    let programs = peers.get(&KUBECTL).and_then(|kubectl| Ok((kubectl, peers.get(&HELM)?)));
    let (kubectl, helm) = match programs {
        Ok(programs) => programs,
        Err(error) => return report.skip(SUITE, &format!("{error:#}")),
    };
    let begun = Instant::now();
    if let Err(error) = on_a_cluster(report, &kubectl, &helm, setpoint) {
        report.record(SUITE, "the cluster starts", begun.elapsed(), Err(error));
    }
}

fn on_a_cluster(report: &mut Report, kubectl: &Path, helm: &Path, setpoint: &Path) -> Result<()> {
    let server = Server::setpoint_cluster(setpoint)?;
    for shape in &SHAPES {
        let kubectl = Kubectl::new(kubectl, "", server.kubeconfig(), format!("team-{}", shape.chart))?;
        kubectl.ok("create namespace {ns}")?;
        until(|| Ok(words(&kubectl, "get nodes -o name")?.len() == 2))?;
        let release = Release { helm: Helm::new(helm, &server)?, kubectl, shape };
        let before = release.everything()?;
        let steps: [(&str, &dyn Fn() -> Result<()>); 5] = [
            (STEPS[0], &|| release.install()),
            (STEPS[1], &|| release.upgrade()),
            (STEPS[2], &|| release.roll_back()),
            (STEPS[3], &|| release.drain()),
            (STEPS[4], &|| release.uninstall(&before)),
        ];
        for (step, act) in steps {
            report.check(SUITE, &format!("{}: {step}", shape.chart), act);
        }
    }
    Ok(())
}

/// A chart that is installed in a namespace of its own.
struct Release<'a> {
    helm: Helm<'a>,
    kubectl: Kubectl,
    shape: &'a Shape,
}

impl Release<'_> {
    fn chart(&self) -> String {
        let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts").join(self.shape.chart);
        folder.display().to_string()
    }

    /// Runs helm in the release's namespace, until everything is there.
    fn run(&self, arguments: &[&str], expect: &str) -> Result<()> {
        let mut all = arguments.to_vec();
        all.extend(["--namespace", self.kubectl.namespace(), "--wait", "--timeout", "55s"]);
        self.helm.run(&all, expect)
    }

    fn install(&self) -> Result<()> {
        self.run(&["install", "demo", &self.chart()], "STATUS: deployed")?;
        (self.shape.installed)(&self.kubectl)
    }

    fn upgrade(&self) -> Result<()> {
        let values = self.shape.upgrade;
        self.run(&["upgrade", "demo", &self.chart(), "--set", values], "REVISION: 2")?;
        (self.shape.upgraded)(&self.kubectl)
    }

    fn roll_back(&self) -> Result<()> {
        self.run(&["rollback", "demo", "1"], "success")?;
        (self.shape.installed)(&self.kubectl)
    }

    /// Empties a node as people do before they switch it off; budgets hold meanwhile.
    fn drain(&self) -> Result<()> {
        let kubectl = &self.kubectl;
        kubectl.ok("drain node-2 --ignore-daemonsets --delete-emptydir-data --timeout=55s")?;
        let on_node = "get pods -o jsonpath='{range .items[?(@.spec.nodeName==\"node-2\")]}\
                       {.metadata.ownerReferences[0].kind} {end}'";
        let is_daemon = |owner: &String| owner == "DaemonSet";
        until(|| Ok(words(kubectl, on_node)?.iter().all(is_daemon)))?;
        (self.shape.drained)(kubectl)?;
        kubectl.ok("uncordon node-2").map(drop)
    }

    fn uninstall(&self, before: &[String]) -> Result<()> {
        self.run(&["uninstall", "demo"], "uninstalled")?;
        let mut left = Vec::new();
        let is_clean = until(|| {
            left = self.everything()?;
            left.retain(|object| !before.contains(object));
            Ok(left.is_empty())
        });
        is_clean.with_context(|| format!("something is left: {left:?}"))?;
        self.kubectl.ok("delete namespace {ns} --timeout=55s").map(drop)
    }

    /// Every object of the namespace and of the cluster that a release may have made, but for those that come and go by
    /// themselves.
    fn everything(&self) -> Result<Vec<String>> {
        let mut all = Vec::new();
        for scope in ["true", "false"] {
            let line = format!("api-resources --verbs=list --namespaced={scope} -o name");
            let kinds: Vec<String> = words(&self.kubectl, &line)?
                .into_iter()
                .filter(|kind| !kind.starts_with("events") && !kind.starts_with("componentstatuses"))
                .collect();
            all.extend(words(&self.kubectl, &format!("get {} -o name", kinds.join(",")))?);
        }
        Ok(all)
    }
}

fn words(kubectl: &Kubectl, line: &str) -> Result<Vec<String>> {
    Ok(kubectl.ok(line)?.split_whitespace().map(str::to_owned).collect())
}

fn until(mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let found = poll(LIMIT, || {
        let found = is_so()?;
        if !found {
            std::thread::sleep(PAUSE);
        }
        Ok(found.then_some(()))
    })?;
    found.with_context(|| format!("it did not come about in {LIMIT:?}"))
}

/// Waits until a command prints this.
fn wait(kubectl: &Kubectl, line: &str, expected: &str) -> Result<()> {
    let mut last = String::new();
    until(|| {
        last = kubectl.ok(line)?.trim().to_owned();
        Ok(last == expected)
    })
    .with_context(|| format!("kubectl {line}\nexpected: {expected}\nprinted:  {last}"))
}

/// Three members of one version, each with its volume and its name in the network, of which one may be away.
fn database(kubectl: &Kubectl, image: &str) -> Result<()> {
    let status = "{.status.availableReplicas} {.status.updatedReplicas} {.status.replicas}";
    wait(kubectl, &format!("get statefulset demo -o jsonpath='{status}'"), "3 3 3")?;
    let images =
        "get pods -l app.kubernetes.io/component=primary -o jsonpath='{.items[*].spec.containers[0].image}'";
    wait(kubectl, images, &[image; 3].join(" "))?;
    let claims =
        "get persistentvolumeclaims -o jsonpath='{range .items[*]}{.metadata.name}={.status.phase} {end}'";
    wait(kubectl, claims, "data-demo-0=Bound data-demo-1=Bound data-demo-2=Bound")?;
    let budget = "{.status.expectedPods} {.status.currentHealthy} {.status.disruptionsAllowed}";
    wait(kubectl, &format!("get poddisruptionbudget demo -o jsonpath='{budget}'"), "3 3 1")?;
    let addresses = "get endpointslices -l kubernetes.io/service-name=demo-headless -o \
                     jsonpath='{.items[*].endpoints[*].hostname}'";
    until(|| {
        let mut names = words(kubectl, addresses)?;
        names.sort();
        Ok(names == ["demo-0", "demo-1", "demo-2"])
    })
    .context("the members have no names in the network")?;
    // The job of an upgrade is gone when it has succeeded.
    wait(kubectl, "get jobs -o name", "")
}

/// A pod of one version on each node, and a leader among them.
fn ingress(kubectl: &Kubectl, image: &str) -> Result<()> {
    let status =
        "{.status.desiredNumberScheduled} {.status.numberAvailable} {.status.updatedNumberScheduled}";
    wait(kubectl, &format!("get daemonset demo -o jsonpath='{status}'"), "2 2 2")?;
    wait(kubectl, "get pods -o jsonpath='{.items[*].spec.containers[0].image}'", &[image; 2].join(" "))?;
    lead(kubectl)
}

/// What the leader's process would do, with the rights that the chart gives it: take the Lease, renew it, and no more.
fn lead(kubectl: &Kubectl) -> Result<()> {
    let leader = words(kubectl, "get pods -o jsonpath='{.items[0].metadata.name}'")?.remove(0);
    let account = format!("--as=system:serviceaccount:{}:demo", kubectl.namespace());
    let owner = kubectl.field("daemonset demo", ".metadata.uid")?;
    kubectl.file(
        "lease.yaml",
        format!(
            "apiVersion: coordination.k8s.io/v1
kind: Lease
metadata:
  name: demo-leader
  ownerReferences: [{{apiVersion: apps/v1, kind: DaemonSet, name: demo, uid: {owner}}}]
spec: {{holderIdentity: {leader}, leaseDurationSeconds: 15}}"
        ),
    )?;
    let exists = kubectl.ok("get lease demo-leader --ignore-not-found -o name")?;
    if exists.trim().is_empty() {
        kubectl.ok(&format!("create -f lease.yaml {account}"))?;
    }
    let renewal = format!("{{\"spec\":{{\"holderIdentity\":\"{leader}\"}}}}");
    kubectl.ok(&format!("patch lease demo-leader --type=merge -p '{renewal}' {account}"))?;
    let holder = kubectl.field("lease demo-leader", ".spec.holderIdentity")?;
    ensure!(holder == leader, "the lease is held by {holder:?}");
    let refused = kubectl.run(&format!("delete lease demo-leader {account}"), None)?;
    ensure!(!refused.status.success(), "the chart does not let the leader delete its lease, the server does");
    Ok(())
}

/// All indices are done, with the priority that they have; as many workers as the values say.
fn batch(kubectl: &Kubectl, completions: usize, workers: usize) -> Result<()> {
    let job = format!("demo-sum-{completions}");
    kubectl.ok(&format!("wait --for=condition=complete --timeout=55s job/{job}"))?;
    let status = "{.status.succeeded} {.status.completedIndexes}";
    let status = kubectl.ok(&format!("get job {job} -o jsonpath='{status}'"))?;
    let expected = format!("{completions} 0-{}", completions.saturating_sub(1));
    ensure!(status == expected, "the job is done with {status:?}, not {expected:?}");
    let priorities =
        format!("get pods -l batch.kubernetes.io/job-name={job} -o jsonpath='{{.items[*].spec.priority}}'");
    let priorities = words(kubectl, &priorities)?;
    ensure!(
        !priorities.is_empty() && priorities.iter().all(|one| one == "100000"),
        "priorities {priorities:?}"
    );
    kubectl.ok("rollout status deployment/demo-worker --timeout=55s")?;
    wait(
        kubectl,
        "get deployment demo-worker -o jsonpath='{.status.availableReplicas}'",
        &workers.to_string(),
    )?;
    quota(kubectl, workers)
}

/// What the quota counts.
fn quota(kubectl: &Kubectl, workers: usize) -> Result<()> {
    let used = "get resourcequota demo -o jsonpath='{.status.used.pods}'";
    wait(kubectl, used, &workers.to_string()).context("pods that have ended count no more")
}
