//! `setpoint demo --web`: what can be played with.

use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context, bail};
use example_foo::{Foo, FooController, RESYNC, WORKERS};
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use serde_json::json;
use setpoint::facts::LoopEvent;
use setpoint::kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use setpoint::kube::{Client, ResourceExt};
use setpoint::{Facts, SharedInformerFactory};
use setpoint_apiserver::ApiServer;
use setpoint_apiserver::serve::CancellationToken;
use setpoint_dashboard::{Act, Button, Scene, Stage};
use setpoint_env::{Env, Process, Task};
use tokio::sync::oneshot;

use super::gate::Gate;
use super::looper;
use super::rivals;
use super::world::{FASTEST, World};

/// What is made, scaled and deleted.
pub(crate) const NAME: &str = "example-foo";
/// A Foo whose Deployment belongs to somebody else.
const CLASH: &str = "clash";
/// The name that the controller's facts have.
const CONTROLLER: &str = "foo";
/// How long a crashed controller is away, as if somebody had to start it.
const AWAY: Duration = Duration::from_millis(1500);
const MOST_REPLICAS: i64 = 50;
/// How far time jumps if nothing happens.
const FARTHEST: Duration = Duration::from_secs(3600);

pub(crate) struct Playground {
    server: ApiServer,
    client: Client,
    env: Env,
    facts: Facts,
    gate: Gate,
    /// None while it is away after a crash.
    controller: Mutex<Option<Running>>,
    /// Lets it come back.
    returning: Mutex<Option<Task<()>>>,
    looper: Mutex<Option<Task<()>>>,
    rivals: Mutex<Option<Task<()>>>,
    crashes: Mutex<u32>,
    began: Timestamp,
    time: Mutex<Time>,
}

/// What the time of the world does, if it can be played with.
struct Time {
    world: Option<World>,
    speed: f64,
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
            returning: Mutex::default(),
            looper: Mutex::default(),
            rivals: Mutex::default(),
            crashes: Mutex::default(),
            began: env.now(),
            time: Mutex::new(Time { world: None, speed: 1.0 }),
        }
    }

    /// Its time is that of this world, and can be played with.
    pub(crate) fn with_time(mut self, world: &World) -> Playground {
        self.time.get_mut().world = Some(world.clone());
        self
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

    /// Not one more line of it runs; after a while another one starts, whether or not somebody waits for it.
    fn crash(self: &Arc<Self>) -> anyhow::Result<String> {
        let Some(running) = self.controller.lock().take() else { bail!("the controller is stopped already") };
        running.process.kill();
        drop(running);
        *self.crashes.lock() += 1;
        let playground: Weak<Playground> = Arc::downgrade(self);
        let returning = self.env.spawn(async move {
            tokio::time::sleep(AWAY).await;
            if let Some(playground) = playground.upgrade() {
                playground.start_controller();
            }
        });
        *self.returning.lock() = Some(returning);
        Ok("The controller was killed where it stood. Another one starts 1.5 s later.".to_owned())
    }

    /// Lets time go as it shall, and messages pass or not.
    fn set_time(&self, is_paused: bool, speed: f64) {
        self.gate.pause(is_paused);
        let mut time = self.time.lock();
        time.speed = speed;
        if let Some(world) = &time.world {
            world.set_rate(if is_paused { 0.0 } else { speed });
        }
    }

    /// Goes on at once until the controller begins to reconcile something.
    async fn skip(&self) -> anyhow::Result<String> {
        let world = self.time.lock().world.clone().context("time does not jump here")?;
        let (before, mut facts) = (self.facts.now(), self.facts.subscribe());
        let (told, begun) = oneshot::channel();
        let begins = async move {
            let key = loop {
                let Some(fact) = facts.next().await else { return };
                match &fact.event {
                    LoopEvent::ReconcileStarted { controller, key, .. } if **controller == *CONTROLLER => {
                        break key.clone();
                    }
                    _ => {}
                }
            };
            // Who asked is gone, maybe.
            let _gone = told.send(key);
        };
        // It outlives whoever asked for it: whatever it waits for, time does not stay as it is in a jump.
        world.jump(FARTHEST, begins).await;
        let passed = self.facts.now().duration_since(before).as_secs_f64();
        Ok(match begun.await {
            Ok(key) => format!("{passed:.1} s later, the controller begins to reconcile {key}."),
            Err(_) if passed < FARTHEST.as_secs_f64() - 1.0 => format!("It was stopped after {passed:.0} s."),
            Err(_) => format!("{passed:.0} s later, nothing has happened."),
        })
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

    async fn turn_rivals(&self) -> anyhow::Result<String> {
        if self.rivals.lock().take().is_some() {
            return Ok("Both writers have stopped.".to_owned());
        }
        let task = rivals::start(self.client.clone(), &self.env, &self.facts).await?;
        *self.rivals.lock() = Some(task);
        Ok("A controller and another writer want different values. Findings will name both.".to_owned())
    }

    pub(crate) async fn perform(self: &Arc<Self>, Act { act, value }: Act) -> anyhow::Result<String> {
        let said = match act.as_str() {
            "pause" => {
                self.set_time(true, self.speed());
                "Time stands still, and nothing passes between the Foo controller and the server.".to_owned()
            }
            "resume" => {
                self.set_time(false, self.speed());
                "It goes on.".to_owned()
            }
            "skip" => self.skip().await?,
            "speed" => {
                let speed =
                    value.and_then(|speed| u32::try_from(speed).ok()).unwrap_or(1).clamp(1, FASTEST as u32);
                self.gate.slow(0);
                self.set_time(self.gate.is_paused(), speed.into());
                match speed {
                    1 => "Time goes as it does for you.".to_owned(),
                    _ => format!("Time goes {speed} times as fast."),
                }
            }
            "step" => {
                self.gate.step();
                "One message passes: a request, or an event of a watch.".to_owned()
            }
            "slow" => {
                self.set_time(self.gate.is_paused(), 1.0);
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
            "crash" => self.crash()?,
            "scale" => self.scale(value.unwrap_or(3)).await?,
            "delete-pod" => self.delete_pod().await?,
            "delete-foos" => self.delete_foos().await?,
            "clash" => self.clash().await?,
            "loop" => self.turn_looper().await?,
            "rivals" => self.turn_rivals().await?,
            other => bail!("there is no act {other:?}"),
        };
        Ok(said)
    }
}

/// What the page plays on, from outside of its world.
pub(crate) struct OnStage {
    pub(crate) playground: Arc<Playground>,
    pub(crate) world: World,
}

impl Stage for OnStage {
    fn scene(&self) -> Scene {
        self.playground.scene()
    }

    fn rate(&self) -> f64 {
        self.world.rate()
    }

    fn act(&self, act: Act) -> BoxFuture<'_, Result<String, String>> {
        let playground = self.playground.clone();
        Box::pin(async move {
            let said = self.world.run(async move { playground.perform(act).await }).await;
            said.flatten().map_err(|error| setpoint::in_words(error.as_ref()))
        })
    }
}

impl Playground {
    fn speed(&self) -> f64 {
        self.time.lock().speed
    }

    fn speed_of_world(&self) -> Option<f64> {
        let time = self.time.lock();
        time.world.is_some().then_some(time.speed)
    }

    pub(crate) fn scene(&self) -> Scene {
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
        let are_rivals = self.rivals.lock().is_some();
        let rivalling = if are_rivals { "Stop both writers" } else { "Two writers" };
        Scene {
            title: "A cluster to play with".to_owned(),
            is_paused: self.gate.is_paused(),
            slow_ms: self.gate.slow_ms(),
            speed: self.speed_of_world(),
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
                    "The connection breaks. It should watch again, without a relist.",
                    None,
                ),
                button(
                    wire,
                    "expire-watch",
                    "Answer 410",
                    "The server no longer has these revisions. It should relist.",
                    None,
                ),
                button(
                    wire,
                    "lose-answer",
                    "Lose an answer",
                    "Its next write is stored, and the response is lost.",
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
                    "rivals",
                    rivalling,
                    "A controller keeps a field at one value, and another writer changes it back.",
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
                ("time in this world".to_owned(), since(self.began, self.env.now())),
                ("Foo controller".to_owned(), if is_running { "runs" } else { "crashed" }.to_owned()),
                ("messages passed".to_owned(), self.gate.passed().to_string()),
                ("answers to lose".to_owned(), self.gate.to_lose().to_string()),
                ("crashes".to_owned(), self.crashes.lock().to_string()),
            ],
            controllers: vec![CONTROLLER.to_owned()],
        }
    }
}

/// Hours, minutes and seconds from one time to another.
fn since(from: Timestamp, to: Timestamp) -> String {
    let seconds = to.duration_since(from).as_secs().max(0);
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn act(act: &str) -> Act {
        Act { act: act.to_owned(), value: None }
    }

    fn is_running(playground: &Playground) -> bool {
        playground.scene().status.contains(&("Foo controller".to_owned(), "runs".to_owned()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_controller_that_crashed_comes_back_though_nobody_waits_for_it() {
        let env = Env::system();
        let server = ApiServer::builder().env(env.clone()).build();
        let playground = Arc::new(Playground::new(&server, &env, &Facts::new(env.clone())));
        playground.start_controller();
        // The page is closed as soon as it has sent this.
        drop(playground.perform(act("crash")).now_or_never());
        assert!(!is_running(&playground));
        assert!(playground.perform(act("crash")).await.is_err(), "it is away");
        tokio::time::sleep(2 * AWAY).await;
        assert!(is_running(&playground));
        playground.perform(act("crash")).await.unwrap();
        tokio::time::sleep(2 * AWAY).await;
        assert!(is_running(&playground));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn time_jumps_to_the_next_reconcile_of_the_controller() {
        let world = World::begin().await.unwrap();
        let stage = world.clone();
        let playground = world.run(async move {
            let env = stage.env().clone();
            let server = ApiServer::builder().env(env.clone()).build();
            let facts = Facts::new(env.clone());
            super::super::steps::install_foo(&server.client()).await.unwrap();
            let playground = Arc::new(Playground::new(&server, &env, &facts).with_time(&stage));
            playground.start_controller();
            playground.clash().await.unwrap();
            playground
        });
        let stage = OnStage { playground: playground.await.unwrap(), world: world.clone() };
        let ours = Env::system();
        let _driving = ours.spawn(world.clone().drive(ours.clone()));
        let before = world.env().now();
        // Its reconcile fails, and is tried again later and later: minutes later after a while.
        for _ in 0..20 {
            let said = tokio::time::timeout(Duration::from_secs(20), stage.act(act("skip"))).await;
            let said = said.expect("in no time of ours").unwrap();
            assert!(said.contains("begins to reconcile default/clash"), "{said}");
        }
        let passed = world.env().now().duration_since(before).as_secs();
        assert!(passed > 60, "{passed} s");
        stage.act(act("pause")).await.unwrap();
        assert_eq!(stage.rate(), 0.0);
        stage.act(Act { act: "speed".to_owned(), value: Some(100) }).await.unwrap();
        assert_eq!((stage.rate(), stage.scene().speed), (0.0, Some(100.0)));
        stage.act(act("resume")).await.unwrap();
        assert_eq!(stage.rate(), 100.0);
    }
}
