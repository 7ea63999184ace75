//! The script.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use super::sample::Sample;
use super::transcript::{Transcript, plain};
use crate::real::client_go;
use crate::real::http::Client;
use crate::real::kubectl::Kubectl;
use crate::real::servers::{Server, free_port, spawn};

pub(super) const NAMES: [&str; 9] =
    [REGISTER, "kubectl-VERSION: objects", RESTART, COLLECT, DEAD, UNREGISTER, EXAMPLE, WRITTEN, SCALED];
const REGISTER: &str = "a group-version is registered";
const RESTART: &str = "the server restarts";
const COLLECT: &str = "namespaces and owners take objects with them";
const DEAD: &str = "the server is away";
const UNREGISTER: &str = "the group-version goes";
const EXAMPLE: &str = "our own extension server";
const WRITTEN: &str = "a kind of our own extension server is written";
const SCALED: &str = "an autoscaler by the figures of our own extension server";

/// How long something may take that comes by itself.
const LIMIT: Duration = Duration::from_secs(150);
const PAUSE: Duration = Duration::from_millis(200);
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const GROUP: &str = "wardle.example.com";

const SERVICE: &str = "\
apiVersion: v1
kind: Service
metadata: {name: api, namespace: wardle}
spec: {type: ExternalName, externalName: localhost}
";

const MEASURED: &str = "\
apiVersion: v1
kind: Node
metadata: {name: measured}
---
apiVersion: v1
kind: Pod
metadata: {name: measured, annotations: {metrics.example.com/millicpu: '400', metrics.example.com/mebibytes: '100'}}
spec:
  nodeName: measured
  containers: [{name: main, image: nginx}]
";

const ALARM: &str = "\
apiVersion: peaks.example.com/v1
kind: Alarm
metadata: {name: busy}
spec: {cpu: 900m}
";

/// Each pod uses a fifth of what it requests.
const WEB: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {metrics.example.com/millicpu: '200'}}
    spec:
      containers: [{name: main, image: nginx, resources: {requests: {cpu: 1, memory: 64Mi}}}]
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 1
  maxReplicas: 4
  metrics:
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}
";

/// Our own extension server, and a program on client-go that reads its kinds.
pub(super) struct Own<'a> {
    pub(super) example: &'a Path,
    pub(super) tides: &'a Path,
    pub(super) client_go: &'a Path,
}

/// Who plays, and what is played with.
pub(super) struct Player<'a> {
    pub(super) transcript: &'a mut Transcript,
    pub(super) kubectl: Kubectl,
    pub(super) client: Client,
    sample: &'a mut Sample,
}

pub(super) fn play(
    transcript: &mut Transcript,
    kubectls: &[(String, PathBuf)],
    server: &Server,
    sample: &mut Sample,
    own: &Own<'_>,
) -> Result<()> {
    let Some((_, newest)) = kubectls.first() else { bail!("there is no kubectl") };
    let kubectl = |binary: &PathBuf, namespace: &str| {
        Kubectl::new(binary, "", server.kubeconfig(), namespace.to_owned())
    };
    let mut player =
        Player { transcript, kubectl: kubectl(newest, "default")?, client: server.client()?, sample };
    player.register()?;
    for (number, (name, binary)) in kubectls.iter().enumerate() {
        player.kubectl = kubectl(binary, &format!("sea-{number}"))?;
        player.transcript.begin(format!("{name}: objects"));
        player.objects()?;
    }
    player.kubectl = kubectl(newest, "default")?;
    player.restart()?;
    player.collect()?;
    player.dead()?;
    player.unregister()?;
    player.attacks(server)?;
    player.tides(own, server)?;
    player.example(own, server)
}

impl Player<'_> {
    fn plain(&self, text: &str) -> String {
        plain(text, self.sample.port)
    }

    /// Runs a command, which must succeed; what it prints is a step.
    pub(super) fn say(&mut self, line: &str) -> Result<()> {
        self.say_given(line, None)
    }

    pub(super) fn say_given(&mut self, line: &str, input: Option<&str>) -> Result<()> {
        let text = self.printed(line, input)?;
        ensure!(text.starts_with("0 "), "kubectl {line}\nfails: {text}");
        self.transcript.step(line, text);
        Ok(())
    }

    /// Runs a command that must fail, and say this.
    pub(super) fn fails(&mut self, line: &str, input: Option<&str>, words: &str) -> Result<()> {
        let text = self.printed(line, input)?;
        ensure!(!text.starts_with("0 "), "kubectl {line}\nsucceeds, and must not: {text}");
        ensure!(text.contains(words), "kubectl {line}\nlacks:  {words}\nprints: {text}");
        self.transcript.step(line, text);
        Ok(())
    }

    /// Runs a command, which must print this: what fails in the same way on both is no success.
    pub(super) fn expect(&mut self, line: &str, input: Option<&str>, expected: &str) -> Result<()> {
        let text = self.printed(line, input)?;
        ensure!(text.contains(expected), "kubectl {line}\nlacks:  {expected}\nprints: {text}");
        self.transcript.step(line, text);
        Ok(())
    }

    fn printed(&self, line: &str, input: Option<&str>) -> Result<String> {
        let done = self.kubectl.run(line, input)?;
        let code = done.status.code().unwrap_or(-1);
        Ok(format!("{code} {} {}", self.plain(&done.stdout), self.plain(&done.stderr)))
    }

    /// Runs a command until it prints this; what it prints then is a step.
    pub(super) fn until(&mut self, line: &str, expected: &str) -> Result<()> {
        let begun = Instant::now();
        loop {
            let text = self.printed(line, None)?;
            if text.contains(expected) {
                self.transcript.step(line, text);
                return Ok(());
            }
            if begun.elapsed() > LIMIT {
                bail!("kubectl {line}\nnever prints: {expected}\nprints:       {text}");
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// The condition of an APIService, once it has this reason.
    fn condition(&mut self, version: &str, reason: &str) -> Result<()> {
        let path =
            "{.status.conditions[0].status}|{.status.conditions[0].reason}|{.status.conditions[0].message}";
        self.until(&format!("get apiservice {version}.{GROUP} -o jsonpath='{path}'"), reason)
    }

    /// What the newer form of discovery says about the group, once it says this.
    fn discovered(&mut self, expected: &str) -> Result<()> {
        let begun = Instant::now();
        loop {
            let all = self.client.get_json("/apis", AGGREGATED)?;
            let items = all["items"].as_array().cloned().unwrap_or_default();
            let names: Vec<&Value> = items.iter().map(|group| &group["metadata"]["name"]).collect();
            let position = names.iter().position(|name| **name == GROUP).map(|at| names.len() - at);
            let group =
                items.iter().find(|group| group["metadata"]["name"] == GROUP).cloned().unwrap_or_default();
            let text = format!("{position:?} from the end: {group}");
            if text.contains(expected) {
                self.transcript.step("discovery", text);
                return Ok(());
            }
            if begun.elapsed() > LIMIT {
                bail!("discovery never says {expected}, but {text}");
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// A path as it is answered: code, media type, and text.
    fn raw(&mut self, path: &str) -> Result<()> {
        let response = self.client.get(path)?;
        let (status, media) =
            (response.status, response.header("content-type").unwrap_or_default().to_owned());
        let text = self.plain(&response.text()?);
        self.transcript.step(path, format!("{status} {media} {text}"));
        Ok(())
    }

    fn register(&mut self) -> Result<()> {
        self.transcript.begin(REGISTER.to_owned());
        self.fails("get flunders", None, "flunders")?;
        self.say(&format!("api-resources --api-group={GROUP}"))?;
        let (port, bundle) = (self.sample.port, self.sample.bundle.clone());
        let begun = Instant::now();
        for (version, priority) in [("v1alpha1", 15), ("v1beta1", 20)] {
            let object = format!(
                "apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {{name: {version}.{GROUP}}}\nspec:\n  \
                 group: {GROUP}\n  version: {version}\n  groupPriorityMinimum: 1000\n  versionPriority: {priority}\n  \
                 service: {{name: api, namespace: wardle, port: {port}}}\n  caBundle: {bundle}\n"
            );
            self.say_given("create -f -", Some(&object))?;
        }
        self.condition("v1alpha1", "ServiceNotFound")?;
        self.discovered("Stale")?;
        self.fails("get flunders", None, "flunders")?;
        self.raw(&format!("/apis/{GROUP}"))?;
        self.raw(&format!("/apis/{GROUP}/v1alpha1"))?;
        self.raw(&format!("/apis/{GROUP}/v1alpha1/flunders"))?;
        self.say("create namespace wardle")?;
        self.say_given("create -n wardle -f -", Some(SERVICE))?;
        self.condition("v1alpha1", "FailedDiscoveryCheck")?;
        self.raw(&format!("/apis/{GROUP}/v1alpha1/flunders"))?;
        self.sample.start()?;
        self.condition("v1alpha1", "Passed")?;
        self.condition("v1beta1", "Passed")?;
        self.transcript.first_answer = begun.elapsed();
        self.discovered("fischers")?;
        self.until(&format!("api-resources --api-group={GROUP}"), "flunders")?;
        self.raw(&format!("/apis/{GROUP}/v1alpha1"))?;
        self.raw(&format!("/apis/{GROUP}"))?;
        self.until("get --raw /openapi/v3/apis/wardle.example.com/v1alpha1", "v1alpha1.Flunder")?;
        self.until("explain flunders --api-version=wardle.example.com/v1alpha1", "Flunder")
    }

    fn objects(&mut self) -> Result<()> {
        self.say("create namespace {ns}")?;
        self.until("explain flunders.spec", "FIELDS")?;
        self.say("explain fischers --recursive")?;
        let flunder = "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: one, labels: {a: b}}\nspec: {reference: two}\n";
        let mut watch = self
            .kubectl
            .start("get flunders.v1beta1.wardle.example.com --watch --output-watch-events -o name")?;
        self.say_given("create -f -", Some(flunder))?;
        self.fails("create -f -", Some(flunder), "AlreadyExists")?;
        self.expect("get flunders", None, "one")?;
        self.say("get flunders one -o json")?;
        self.say("get flunders.v1alpha1.wardle.example.com one -o json")?;
        self.expect("get flunders -A -l a=b -o name", None, "/one")?;
        self.say("get flunders --field-selector metadata.name=other -o name")?;
        self.say("describe flunder one")?;
        self.say("patch flunder one --type=merge -p '{\"spec\":{\"flunderReference\":\"three\"}}'")?;
        self.say("patch flunder one --type=json -p '[{\"op\":\"add\",\"path\":\"/metadata/annotations\",\"value\":{\"k\":\"v\"}}]'")?;
        self.say("label flunder one c=d")?;
        self.expect("get flunder one -o json", None, "\"three\"")?;
        let applied = "apiVersion: wardle.example.com/v1beta1\nkind: Flunder\nmetadata: {name: applied}\nspec: {flunderReference: x, referenceType: Flunder}\n";
        self.say_given("apply --server-side --field-manager=first -f -", Some(applied))?;
        self.fails(
            "apply --server-side --field-manager=second -f -",
            Some(&applied.replace("flunderReference: x", "flunderReference: other")),
            "conflict with \"first\"",
        )?;
        self.say_given(
            "apply --server-side --force-conflicts --field-manager=second -f -",
            Some(&applied.replace("flunderReference: x", "flunderReference: other")),
        )?;
        self.say("get flunder applied -o json --show-managed-fields")?;
        self.say_given("apply -f -", Some(&applied.replace("name: applied", "name: old-way")))?;
        self.say_given(
            "apply -f -",
            Some(&applied.replace("name: applied", "name: old-way").replace("x,", "z,")),
        )?;
        self.say_given("create --dry-run=server -f -", Some(&flunder.replace("one", "dry")))?;
        self.fails(
            "create -f -",
            Some(&flunder.replace("{reference: two}", "{reference: 7}")),
            "Error from server (BadRequest)",
        )?;
        self.fails(
            "create -f -",
            Some(&flunder.replace("one", "strange").replace("{reference: two}", "{strange: yes}")),
            "unknown field \"spec.strange\"",
        )?;
        self.fails(
            "create -f -",
            Some(&applied.replace("name: applied", "name: wrong/name")),
            "may not contain",
        )?;
        let fischer = "apiVersion: wardle.example.com/v1alpha1\nkind: Fischer\nmetadata: {name: '{ns}'}\ndisallowedFlunders: [banned]\n";
        self.say_given("create -f -", Some(&fischer.replace("{ns}", "fritz")))?;
        self.say("get fischers -o name")?;
        self.say("get flunders -o name --chunk-size=1")?;
        for event in 0..6 {
            let line = watch.next(Duration::from_secs(30))?;
            self.transcript.step(&format!("event {event}"), line);
        }
        drop(watch);
        self.say("auth can-i create flunders")?;
        self.fails("--as=bob get flunders", None, "Forbidden")?;
        let others = flunder.replace("one", "bobs");
        self.fails("--as=bob create -f - --dry-run=server", Some(&others), "Forbidden")?;
        self.say("delete fischer fritz")?;
        self.say("delete flunder one")?;
        self.fails("get flunder one", None, "NotFound")?;
        self.say("delete flunders --all")?;
        self.say("get flunders")
    }

    fn restart(&mut self) -> Result<()> {
        self.transcript.begin(RESTART.to_owned());
        let flunder =
            "apiVersion: wardle.example.com/v1beta1\nkind: Flunder\nmetadata: {name: stays}\nspec: {}\n";
        self.say_given("create -f -", Some(flunder))?;
        self.sample.kill();
        self.raw(&format!("/apis/{GROUP}/v1beta1/flunders")).map(|()| self.forget_words())?;
        self.fails("get flunders", None, "ServiceUnavailable")?;
        self.condition("v1beta1", "FailedDiscoveryCheck")?;
        self.sample.start()?;
        self.condition("v1beta1", "Passed")?;
        self.condition("v1alpha1", "Passed")?;
        self.until("get flunders -o name", "stays")?;
        self.say("delete flunder stays")
    }

    /// How a connection that breaks is described depends on the moment: the code counts.
    fn forget_words(&mut self) {
        self.transcript.shorten_last(3);
    }

    fn collect(&mut self) -> Result<()> {
        self.transcript.begin(COLLECT.to_owned());
        self.say("create namespace doomed")?;
        let flunder = "apiVersion: wardle.example.com/v1beta1\nkind: Flunder\nmetadata: {name: gone, namespace: doomed}\nspec: {}\n";
        self.say_given("create -n doomed -f -", Some(flunder))?;
        self.say("delete namespace doomed --timeout=120s")?;
        self.say("get flunders -n doomed")?;
        self.say("create configmap owner")?;
        let uid = self.kubectl.field("configmap owner", ".metadata.uid")?;
        let owned = format!(
            "apiVersion: wardle.example.com/v1beta1\nkind: Flunder\nmetadata:\n  name: owned\n  ownerReferences: [{{apiVersion: v1, kind: ConfigMap, name: owner, uid: {uid}}}]\nspec: {{}}\n"
        );
        self.say_given("create -f -", Some(&owned))?;
        self.say("delete configmap owner")?;
        self.until("get flunder owned", "NotFound")
    }

    fn dead(&mut self) -> Result<()> {
        self.transcript.begin(DEAD.to_owned());
        self.say("create namespace stuck")?;
        self.say("create configmap -n stuck map")?;
        let flunder = "apiVersion: wardle.example.com/v1beta1\nkind: Flunder\nmetadata: {name: left, namespace: stuck}\nspec: {}\n";
        self.say_given("create -n stuck -f -", Some(flunder))?;
        self.sample.kill();
        self.condition("v1beta1", "FailedDiscoveryCheck")?;
        self.condition("v1alpha1", "FailedDiscoveryCheck")?;
        self.discovered("{\"freshness\":\"Stale\",\"version\":\"v1beta1\"},{\"freshness\":\"Stale\"")?;
        self.fails("get flunders", None, "flunders")?;
        self.raw(&format!("/apis/{GROUP}/v1beta1/flunders"))?;
        self.raw(&format!("/apis/{GROUP}/v1beta1"))?;
        self.say("get configmaps -n stuck map -o name")?;
        // Owners of kinds that are served take what they own with them all the same.
        self.say("create configmap owner")?;
        let uid = self.kubectl.field("configmap owner", ".metadata.uid")?;
        let owned = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: owned\n  ownerReferences: [{{apiVersion: v1, kind: ConfigMap, name: owner, uid: {uid}}}]\n"
        );
        self.say_given("create -f -", Some(&owned))?;
        self.say("delete configmap owner")?;
        self.until("get configmap owned", "NotFound")?;
        self.say("delete namespace stuck --wait=false")?;
        self.until("get configmaps -n stuck map", "NotFound")?;
        self.until(
            "get namespace stuck -o jsonpath='{.status.conditions[?(@.type==\"NamespaceDeletionDiscoveryFailure\")].reason}|{.status.conditions[?(@.type==\"NamespaceDeletionDiscoveryFailure\")].message}'",
            "DiscoveryFailed",
        )?;
        self.sample.start()?;
        self.condition("v1beta1", "Passed")?;
        self.until("get namespace stuck", "NotFound")?;
        self.until("get flunders -A -o name", "0")
    }

    /// `metrics.k8s.io` and a kind with a change feed of its own, by a server in Rust.
    fn example(&mut self, own: &Own<'_>, server: &Server) -> Result<()> {
        self.transcript.begin(EXAMPLE.to_owned());
        let port = free_port()?;
        let folder = tempfile::TempDir::new()?;
        let mut command = Command::new(own.example);
        command.arg(format!("--listen=127.0.0.1:{port}")).arg("--kubeconfig").arg(server.kubeconfig());
        let running = spawn(command, folder.path(), "extension-server.log")?;
        let status = "{.status.conditions[0].reason}";
        for name in ["v1beta1.metrics.k8s.io", "v1.peaks.example.com"] {
            self.until(&format!("get apiservice {name} -o jsonpath='{status}'"), "Passed")?;
        }
        self.say_given("create -f -", Some(MEASURED))?;
        self.say("patch node measured --subresource=status --type=merge -p '{\"status\":{\"capacity\":{\"cpu\":\"4\",\"memory\":\"8Gi\"},\"allocatable\":{\"cpu\":\"4\",\"memory\":\"8Gi\"}}}'")?;
        self.say(
            "patch pod measured --subresource=status --type=merge -p '{\"status\":{\"phase\":\"Running\"}}'",
        )?;
        self.until("top node measured", "measured")?;
        self.until("top pod measured --containers", "main")?;
        self.say("top pod -l app=none")?;
        self.say(
            "get pods.metrics.k8s.io measured -o jsonpath='{.kind} {.apiVersion} {.containers[0].usage.cpu}'",
        )?;
        self.until("get peaks measured -o jsonpath='cpu={.cpu}'", "450m")?;
        self.say("get peaks measured -o name")?;
        self.fails("delete peak measured", None, "MethodNotAllowed")?;
        self.say("api-resources --api-group=peaks.example.com")?;
        self.until("explain peaks", "FIELDS")?;
        self.fails("--as=bob get peaks", None, "Forbidden")?;
        let mut watch = self
            .kubectl
            .start("get peaks measured --watch -o jsonpath='{.metadata.name} {.cpu}{\"\\n\"}'")?;
        let line = watch.next(Duration::from_secs(30))?;
        self.transcript.step("watch peaks", line);
        self.say("annotate pod measured metrics.example.com/millicpu=900 --overwrite")?;
        let line = watch.next(Duration::from_secs(30))?;
        self.transcript.step("watch peaks", line);
        drop(watch);
        let verdicts = client_go::verdicts(own.client_go, server.kubeconfig(), &["--aggregated"])?;
        for verdict in verdicts.lines() {
            ensure!(verdict.starts_with("ok "), "{verdict}");
            // How long it took is no part of it.
            let name = verdict.split(" (").next().unwrap_or_default();
            self.transcript.step("client-go", name.to_owned());
        }
        // What cannot be deleted keeps no namespace.
        self.say("create namespace brief")?;
        self.say("create configmap -n brief map")?;
        self.say("delete namespace brief --timeout=120s")?;
        self.written()?;
        self.scaled()?;
        drop(running);
        self.say("delete apiservice v1beta1.metrics.k8s.io v1.peaks.example.com")?;
        self.say("delete pod measured --force --grace-period=0")?;
        self.say("delete node measured")
    }

    /// Clients write a kind that the library keeps: kubectl's own apply, and the server's.
    fn written(&mut self) -> Result<()> {
        self.transcript.begin(WRITTEN.to_owned());
        let mut watch = self.kubectl.start("get alarms --watch --output-watch-events -o name")?;
        self.expect("apply -f -", Some(ALARM), "alarm.peaks.example.com/busy created")?;
        self.expect("apply -f -", Some(ALARM), "unchanged")?;
        let lower = ALARM.replace("900m", "400m");
        self.expect("apply -f -", Some(&lower), "configured")?;
        self.until("get alarm busy -o jsonpath='raised={.status.raised}'", "measured")?;
        for _ in 0..3 {
            let line = watch.next(Duration::from_secs(30))?;
            self.transcript.step("watch alarms", line);
        }
        drop(watch);
        self.say("get alarm busy -o json")?;
        self.say("get alarms")?;
        self.say("describe alarm busy")?;
        self.until("explain alarms.spec", "FIELDS")?;
        let calm = |cpu: &str| ALARM.replace("busy", "calm").replace("900m", cpu);
        let (one, other) = ("--server-side --field-manager=first", "--server-side --field-manager=second");
        self.expect(&format!("apply {one} -f -"), Some(&calm("2000m")), "serverside-applied")?;
        self.expect(&format!("apply {other} -f -"), Some(&calm("3000m")), "conflict with \"first\"")?;
        self.expect(
            &format!("apply {other} --dry-run=server -f -"),
            Some(&calm("2000m")),
            "(server dry run)",
        )?;
        let force = format!("apply {other} --force-conflicts -f -");
        self.expect(&force, Some(&calm("3000m")), "serverside-applied")?;
        self.expect("get alarm calm -o json --show-managed-fields", None, "\"operation\":\"Apply\"")?;
        self.expect("apply -f -", Some(&calm("much")), "must be a quantity")?;
        self.expect(
            "apply --server-side -f -",
            Some(&calm("2000m, volume: loud")),
            "field not declared in schema",
        )?;
        self.expect("create -f -", Some(&calm("2000m, volume: loud")), "unknown field \"spec.volume\"")?;
        self.expect("patch alarm calm --type=merge -p '{\"spec\":{\"reason\":\"heat\"}}'", None, "patched")?;
        self.expect("label alarm calm a=b", None, "labeled")?;
        self.expect("get alarms -l a=b -o name", None, "calm")?;
        self.expect("delete alarm calm", None, "deleted")?;
        self.expect("delete alarms --all", None, "deleted")?;
        self.say("get alarms")
    }

    /// A HorizontalPodAutoscaler reads `metrics.k8s.io`.
    fn scaled(&mut self) -> Result<()> {
        self.transcript.begin(SCALED.to_owned());
        self.say("create namespace scaled")?;
        self.say_given("create -n scaled -f -", Some(WEB))?;
        let available = "get deployment -n scaled web -o jsonpath='available={.status.availableReplicas}'";
        self.until(available, "available=1")?;
        let state = "get hpa -n scaled web -o jsonpath='at={.status.currentMetrics[0].resource.current.averageUtilization} wanted={.status.desiredReplicas}'";
        self.until(state, "at=20 wanted=1")?;
        // The pod has a name of its own.
        self.kubectl.ok("annotate pods -n scaled --all metrics.example.com/millicpu=900 --overwrite")?;
        // The second pod uses 200: together they are within the tolerance.
        self.until(state, "at=55 wanted=2")?;
        self.until(available, "available=2")?;
        self.say("get hpa -n scaled web")?;
        let told = "get events -n scaled --field-selector reason=SuccessfulRescale -o jsonpath='{.items[*].message}'";
        self.until(told, "New size: 2")?;
        self.say("delete namespace scaled --timeout=120s")
    }

    fn unregister(&mut self) -> Result<()> {
        self.transcript.begin(UNREGISTER.to_owned());
        self.say(&format!("delete apiservice v1alpha1.{GROUP} v1beta1.{GROUP}"))?;
        self.discovered("None from the end")?;
        let begun = Instant::now();
        while self.client.get("/openapi/v3")?.text()?.contains(GROUP) {
            if begun.elapsed() > LIMIT {
                bail!("its schemas stay");
            }
            std::thread::sleep(PAUSE);
        }
        // kube-apiserver has no Status for paths that lead nowhere, and kubectl says so.
        self.fails("get flunders", None, "flunders")?;
        self.transcript.shorten_last("1  Error from server (NotFound): Unable to list".len());
        self.say(&format!("api-resources --api-group={GROUP}"))?;
        let status = self.client.get(&format!("/apis/{GROUP}/v1beta1/flunders"))?.status;
        self.transcript.step("its paths", status.to_string());
        Ok(())
    }
}
