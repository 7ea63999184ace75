//! The story: apply, heal, scale, delete. Each step ends when the world is as it should be.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, bail};
use example_foo::{Foo, crd};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::json;
use setpoint::kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use setpoint::kube::{Client, ResourceExt};
use setpoint::{ObjectKey, conditions};
use setpoint_env::Env;
use tokio::time::Instant;

use super::notices::Notices;
use super::observer::Observer;
use super::requests::Requests;
use super::screen::Screen;
use super::stage::{Notice, Stage};
use crate::yaml;

const EXAMPLE: &str = include_str!("../../../../examples/foo/manifests/example-foo.yaml");
const NAME: &str = "example-foo";
/// To how many pods the Foo is scaled.
const MORE: i32 = 3;

/// How often to look whether a step is done.
const LOOK: Duration = Duration::from_millis(20);
/// How long a step may take.
const STEP_LIMIT: Duration = Duration::from_secs(15);

pub(crate) struct Steps {
    client: Client,
    observer: Observer,
    notices: Notices,
    screen: Screen,
    env: Env,
    done: Vec<(&'static str, Duration)>,
    /// What this step has shown already.
    shown: BTreeSet<(Stage, String)>,
}

/// Installs the custom resource, and waits until the server has it.
pub(crate) async fn install_foo(client: &Client) -> anyhow::Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let made = crds.create(&PostParams::default(), &crd()).await.context("cannot install Foo")?;
    let is_served = async || -> anyhow::Result<bool> {
        let crd = crds.get(&made.name_any()).await?;
        let conditions = crd.status.iter().flat_map(|status| status.conditions.iter().flatten());
        Ok(conditions.into_iter().any(|found| found.type_ == "Established" && found.status == "True"))
    };
    for _ in 0..(STEP_LIMIT.as_millis() / LOOK.as_millis()) {
        if is_served().await? {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
    bail!("the server does not serve Foo")
}

/// Waits until every node is ready.
pub(crate) async fn wait_for_nodes(observer: &Observer, count: usize) -> anyhow::Result<()> {
    for _ in 0..(STEP_LIMIT.as_millis() / LOOK.as_millis()) {
        if observer.ready_nodes() == count {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
    bail!("only {} of {count} nodes are ready", observer.ready_nodes())
}

impl Steps {
    pub(crate) fn new(
        client: Client,
        observer: Observer,
        notices: Notices,
        screen: Screen,
        env: Env,
    ) -> Steps {
        Steps { client, observer, notices, screen, env, done: Vec::new(), shown: BTreeSet::new() }
    }

    pub(crate) fn screen(&self) -> &Screen {
        &self.screen
    }

    pub(crate) async fn run(&mut self) -> anyhow::Result<()> {
        self.apply().await?;
        self.heal().await?;
        self.scale().await?;
        self.delete().await
    }

    fn foos(&self) -> Api<Foo> {
        Api::default_namespaced(self.client.clone())
    }

    async fn apply(&mut self) -> anyhow::Result<()> {
        let started = self.begin("Apply a Foo: one pod is wanted")?;
        let wanted: Foo = yaml::read(EXAMPLE).context("the example is not a Foo")?;
        let replicas = wanted.spec.replicas.unwrap_or(1);
        self.notices.add(Stage::Object, format!("foo/{NAME} is created with replicas: {replicas}"));
        self.foos().create(&PostParams::default(), &wanted).await?;
        let is_done = move |seen: &Observer| is_at(seen, replicas);
        self.until("apply: the Foo has its pod", "pods ready", started, is_done).await
    }

    async fn heal(&mut self) -> anyhow::Result<()> {
        let started = self.begin("Delete its pod: another one replaces it")?;
        let victim =
            self.observer.ready_pods().first().map(|pod| pod.name_any()).context("there is no pod")?;
        let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
        self.notices.add(Stage::Object, format!("pod/{victim} is deleted by hand"));
        pods.delete(&victim, &DeleteParams::default()).await?;
        let is_done = move |seen: &Observer| {
            let is_gone = seen.pods.get(&ObjectKey::namespaced("default", &victim)).is_none();
            is_gone && is_at(seen, 1)
        };
        self.until("heal: a new pod is ready", "a new pod", started, is_done).await
    }

    async fn scale(&mut self) -> anyhow::Result<()> {
        let started = self.begin("Scale the Foo: three pods are wanted")?;
        let patch = Patch::Merge(json!({"spec": {"replicas": MORE}}));
        self.notices.add(Stage::Object, format!("foo/{NAME} is patched to replicas: {MORE}"));
        self.foos().patch(NAME, &PatchParams::default(), &patch).await?;
        self.until("scale: three pods are ready", "pods ready", started, |seen| is_at(seen, MORE)).await
    }

    async fn delete(&mut self) -> anyhow::Result<()> {
        let started = self.begin("Delete the Foo: its dependents are deleted too")?;
        self.notices.add(Stage::Object, format!("foo/{NAME} is deleted"));
        self.foos().delete(NAME, &DeleteParams::background()).await?;
        let is_done = |seen: &Observer| {
            seen.foos.is_empty()
                && seen.deployments.is_empty()
                && seen.replica_sets.is_empty()
                && seen.pods.is_empty()
        };
        self.until("delete: nothing is left", "the rest to be deleted", started, is_done).await
    }

    fn begin(&mut self, title: &str) -> anyhow::Result<Instant> {
        self.screen.begin(self.done.len() + 1, title).context("cannot read from standard input")?;
        self.notices.take();
        self.shown.clear();
        Ok(self.env.instant())
    }

    /// Shows what happens until the world is as it should be.
    async fn until(
        &mut self,
        what: &'static str,
        waiting_for: &str,
        started: Instant,
        is_done: impl Fn(&Observer) -> bool,
    ) -> anyhow::Result<()> {
        let mut turn = 0;
        loop {
            // Before the notices are taken: what made it done is then among them.
            let ended = is_done(&self.observer);
            let notices = self.notices.take();
            self.show(notices, started);
            let took = self.env.instant().saturating_duration_since(started);
            if ended {
                self.screen.done(what, took);
                self.done.push((what, took));
                return Ok(());
            }
            if took > STEP_LIMIT {
                bail!("{what}: did not converge within {STEP_LIMIT:?}");
            }
            self.screen.waiting(&format!("waiting for {waiting_for}"), turn / 4);
            turn += 1;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Shows what is new. A key that is queued again and again in a step, and looked at again, is one line.
    fn show(&mut self, mut notices: Vec<Notice>, started: Instant) {
        notices.sort_by_key(|notice| notice.at);
        for notice in notices {
            let same = match notice.stage {
                Stage::Reflector => String::new(),
                _ => notice.text.clone(),
            };
            if self.shown.insert((notice.stage, same)) {
                self.screen.notice(&notice, notice.at.saturating_duration_since(started));
            }
        }
    }

    pub(crate) fn summary(&self, requests: &Requests, took: Duration) {
        let by_sender = requests.by_sender();
        let total: u64 = by_sender.iter().map(|(_, count)| count).sum();
        self.screen.line("");
        if self.done.len() == 4 {
            self.screen.title("All steps converged.");
        } else {
            self.screen.failed("Not all steps converged.");
        }
        for (what, took) in &self.done {
            self.screen.line(&format!("{:>6} ms  {what}", took.as_millis()));
        }
        let counts: Vec<String> = by_sender.iter().map(|(who, count)| format!("{who} {count}")).collect();
        self.screen.line(&format!(
            "{total} requests ({}) in {:.1} s, in one process, without a container.",
            counts.join(", "),
            took.as_secs_f64()
        ));
    }
}

/// Whether the Foo says that it has so many pods, and has them.
fn is_at(seen: &Observer, replicas: i32) -> bool {
    let Some(found) = seen.foos.get(&ObjectKey::namespaced("default", NAME)) else { return false };
    let status = found.status.clone().unwrap_or_default();
    status.available_replicas == replicas
        && conditions::is_condition_true(&status.conditions, "Ready")
        && usize::try_from(replicas).is_ok_and(|replicas| seen.ready_pods().len() == replicas)
}
