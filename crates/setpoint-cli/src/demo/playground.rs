//! `setpoint demo --web`: what can be played with.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use example_foo::{Foo, FooController, RESYNC, WORKERS};
use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use serde_json::json;
use setpoint::kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use setpoint::kube::{Client, ResourceExt};
use setpoint::{Facts, SharedInformerFactory};
use setpoint_apiserver::ApiServer;
use setpoint_apiserver::serve::CancellationToken;
use setpoint_dashboard::{Act, Button, Scene, Stage};
use setpoint_env::{Env, Process, Task};

use super::gate::Gate;
use super::looper;

/// What is made, scaled and deleted.
pub(crate) const NAME: &str = "example-foo";
/// A Foo whose Deployment belongs to somebody else.
const CLASH: &str = "clash";
/// The name that the controller's facts have.
const CONTROLLER: &str = "foo";
/// How long a crashed controller is away, as if somebody had to start it.
const AWAY: Duration = Duration::from_millis(1500);
const MOST_REPLICAS: i64 = 50;

pub(crate) struct Playground {
    server: ApiServer,
    client: Client,
    env: Env,
    facts: Facts,
    gate: Gate,
    /// None while it is away after a crash.
    controller: Mutex<Option<Running>>,
    looper: Mutex<Option<Task<()>>>,
    crashes: Mutex<u32>,
}

/// The Foo controller, as the process that it would be.
struct Running {
    process: Process,
    _task: Task<()>,
    _factory: SharedInformerFactory,
}

impl Playground {
    /// Nothing runs yet.
    pub(crate) fn new(server: &ApiServer, env: &Env, facts: &Facts) -> Playground {
        Playground {
            server: server.clone(),
            client: server.client(),
            env: env.clone(),
            facts: facts.clone(),
            gate: Gate::new(),
            controller: Mutex::default(),
            looper: Mutex::default(),
            crashes: Mutex::default(),
        }
    }

    pub(crate) fn start_controller(&self) {
        let (env, process) = self.env.process();
        let client = self.gate.client(&self.server);
        let factory = SharedInformerFactory::new(client.clone()).env(env.clone()).resync(RESYNC);
        let factory = factory.with_facts(&self.facts);
        let controller = FooController::new(client, &factory, env.clone());
        // Whoever drops the task ends it: nobody asks it to.
        let never = CancellationToken::new();
        let task = env.spawn(async move {
            if let Err(error) = controller.run(WORKERS, never).await {
                tracing::warn!(%error, "the Foo controller has failed");
            }
        });
        *self.controller.lock() = Some(Running { process, _task: task, _factory: factory });
    }

    /// Not one more line of it runs; after a while another one starts.
    async fn crash(&self) -> anyhow::Result<String> {
        let Some(running) = self.controller.lock().take() else { bail!("it is away already") };
        running.process.kill();
        drop(running);
        *self.crashes.lock() += 1;
        tokio::time::sleep(AWAY).await;
        self.start_controller();
        Ok("The controller was killed where it stood, and another one has started.".to_owned())
    }

    /// Makes the Foo, or scales it.
    pub(crate) async fn scale(&self, replicas: i64) -> anyhow::Result<String> {
        let replicas = replicas.clamp(0, MOST_REPLICAS);
        let wanted = json!({
            "apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo", "metadata": {"name": NAME},
            "spec": {"deploymentName": NAME, "replicas": replicas},
        });
        self.apply::<Foo>(NAME, wanted).await?;
        Ok(format!("foo/{NAME} wants {replicas} replicas now."))
    }

    async fn apply<K>(&self, name: &str, object: serde_json::Value) -> anyhow::Result<()>
    where
        K: setpoint::kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + serde::de::DeserializeOwned
            + Clone
            + std::fmt::Debug,
    {
        let api: Api<K> = Api::default_namespaced(self.client.clone());
        api.patch(name, &PatchParams::apply("you").force(), &Patch::Apply(object)).await?;
        Ok(())
    }

    async fn delete_pod(&self) -> anyhow::Result<String> {
        let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
        let all = pods.list(&ListParams::default()).await?;
        let pod = all.items.iter().find(|pod| pod.metadata.deletion_timestamp.is_none());
        let name = pod.context("there is no pod to delete; scale the Foo first")?.name_any();
        pods.delete(&name, &DeleteParams::default()).await?;
        Ok(format!("pod/{name} is deleted. Who notices?"))
    }

    async fn delete_foos(&self) -> anyhow::Result<String> {
        let foos: Api<Foo> = Api::default_namespaced(self.client.clone());
        foos.delete_collection(&DeleteParams::background(), &ListParams::default()).await?;
        Ok("All Foos are deleted; what they own goes with them.".to_owned())
    }

    /// A Foo that wants a Deployment which is there and not its own: its controller fails, again and again.
    async fn clash(&self) -> anyhow::Result<String> {
        let labels = json!({"app": CLASH});
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": CLASH},
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "nginx"}]},
            }},
        });
        self.apply::<Deployment>(CLASH, deployment).await?;
        let wanted = json!({
            "apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo", "metadata": {"name": CLASH},
            "spec": {"deploymentName": CLASH, "replicas": 1},
        });
        self.apply::<Foo>(CLASH, wanted).await?;
        Ok(format!("foo/{CLASH} wants deployment/{CLASH}, which belongs to somebody else."))
    }

    async fn turn_looper(&self) -> anyhow::Result<String> {
        if self.looper.lock().take().is_some() {
            return Ok("The controller with the bug has stopped.".to_owned());
        }
        let task = looper::start(self.client.clone(), &self.env, &self.facts).await?;
        *self.looper.lock() = Some(task);
        Ok("A controller with a bug has started. Findings will name what it does wrong.".to_owned())
    }

    async fn perform(&self, Act { act, value }: Act) -> anyhow::Result<String> {
        let said = match act.as_str() {
            "pause" => {
                self.gate.pause(true);
                "Nothing passes between the Foo controller and the server any more.".to_owned()
            }
            "resume" => {
                self.gate.pause(false);
                "It goes on.".to_owned()
            }
            "step" => {
                self.gate.step();
                "One message passes: a request, or an event of a watch.".to_owned()
            }
            "slow" => {
                self.gate.slow(value.and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0).min(5000));
                format!("Each message takes {} ms more.", self.gate.slow_ms())
            }
            "cut-watch" => {
                self.gate.cut_watches();
                "Its watches are cut. It watches again from where it was.".to_owned()
            }
            "expire-watch" => {
                self.gate.expire_watches();
                "Its watches were told 410: the past is forgotten. It lists again.".to_owned()
            }
            "lose-answer" => {
                self.gate.lose_an_answer();
                "The answer to its next write will be lost. Scale the Foo to see what it does.".to_owned()
            }
            "crash" => self.crash().await?,
            "scale" => self.scale(value.unwrap_or(3)).await?,
            "delete-pod" => self.delete_pod().await?,
            "delete-foos" => self.delete_foos().await?,
            "clash" => self.clash().await?,
            "loop" => self.turn_looper().await?,
            other => bail!("there is no act {other:?}"),
        };
        Ok(said)
    }
}

/// What the page plays on.
pub(crate) struct OnStage(pub(crate) Arc<Playground>);

impl Stage for OnStage {
    fn scene(&self) -> Scene {
        self.0.scene()
    }

    fn act(&self, act: Act) -> BoxFuture<'_, Result<String, String>> {
        Box::pin(async move { self.0.perform(act).await.map_err(|error| format!("{error:#}")) })
    }
}

impl Playground {
    fn scene(&self) -> Scene {
        let is_running = self.controller.lock().is_some();
        let is_looping = self.looper.lock().is_some();
        let button = |group: &str, act: &str, label: &str, help: &str, value| Button {
            act: act.to_owned(),
            label: label.to_owned(),
            help: help.to_owned(),
            group: group.to_owned(),
            value,
        };
        let (world, wire, bugs) =
            ("The world", "Between the Foo controller and the server", "Something to find");
        let looping = if is_looping { "Stop the loop" } else { "Start a loop" };
        Scene {
            title: "A cluster to play with".to_owned(),
            is_paused: self.gate.is_paused(),
            slow_ms: self.gate.slow_ms(),
            buttons: vec![
                button(
                    world,
                    "scale",
                    "Scale",
                    "How many pods the Foo wants. It is made if there is none.",
                    Some(3),
                ),
                button(world, "delete-pod", "Delete a pod", "As if somebody had done it by hand.", None),
                button(world, "delete-foos", "Delete the Foos", "Everything that they own goes, too.", None),
                button(
                    wire,
                    "cut-watch",
                    "Cut the watches",
                    "The connection breaks. It should watch again, and list nothing.",
                    None,
                ),
                button(
                    wire,
                    "expire-watch",
                    "Answer 410",
                    "The server has forgotten the past. It should list.",
                    None,
                ),
                button(
                    wire,
                    "lose-answer",
                    "Lose an answer",
                    "Its next write is done, and it never hears of it.",
                    None,
                ),
                button(
                    wire,
                    "crash",
                    "Crash the controller",
                    "Killed in the middle of whatever it does; another one starts 1.5 s later.",
                    None,
                ),
                button(
                    bugs,
                    "loop",
                    looping,
                    "A controller that writes into its object at each reconcile, and so causes the next.",
                    None,
                ),
                button(
                    bugs,
                    "clash",
                    "A name that is taken",
                    "A Foo wants a Deployment that is not its own. Its reconcile fails.",
                    None,
                ),
            ],
            status: vec![
                ("Foo controller".to_owned(), if is_running { "runs" } else { "crashed" }.to_owned()),
                ("messages passed".to_owned(), self.gate.passed().to_string()),
                ("answers to lose".to_owned(), self.gate.to_lose().to_string()),
                ("crashes".to_owned(), self.crashes.lock().to_string()),
            ],
            controllers: vec![CONTROLLER.to_owned()],
        }
    }
}
