//! What a user writes: controllers, steps, and what must hold.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;
use kube::core::Resource;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use setpoint::Metrics;
use setpoint::controller::Runtime;
use setpoint::facts::{Facts, Subscription};
use setpoint_env::Env;

use super::normal::{Mask, Normal};
use super::object::ObjectId;
use super::plan::PointKind;
use super::view::View;
use crate::faults::FaultLayer;
use crate::world::World;

pub(crate) type Start = Arc<dyn Fn(Seat) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;
pub(crate) type Acting = Arc<dyn Fn(World) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;
/// What the story hears of a runtime.
pub(crate) type Heard = Arc<Mutex<Vec<Subscription>>>;
pub(crate) type Look = Arc<dyn Fn() -> Value + Send + Sync>;
pub(crate) type Check = Arc<dyn Fn(&View) -> Result<(), String> + Send + Sync>;

/// One story without faults: which controllers run, what a user does, and what must hold. [`explore`](crate::explore) tells
/// it again and again, with everything going wrong that can.
///
/// Each step begins when the one before has come to rest: when nothing has been written for
/// [`quiet`](Scenario::quiet).
#[derive(Clone)]
#[must_use = "a scenario does nothing until it is explored"]
pub struct Scenario {
    pub(crate) given: Vec<Target>,
    pub(crate) controllers: Vec<Player>,
    pub(crate) steps: Vec<Step>,
    pub(crate) always: Vec<(String, Check)>,
    pub(crate) goals: Vec<(String, Check)>,
    pub(crate) outside: Vec<(String, Look)>,
    pub(crate) normal: Normal,
    pub(crate) quiet: Duration,
    pub(crate) rest: Duration,
    pub(crate) healing: Duration,
    pub(crate) requests_at_once: u32,
    pub(crate) collects_garbage: bool,
    pub(crate) has_history: bool,
    pub(crate) left_out: BTreeSet<PointKind>,
}

/// A controller: how it is started.
#[derive(Clone)]
pub(crate) struct Player {
    pub(crate) name: Arc<str>,
    pub(crate) start: Start,
    /// Whether faults happen to it.
    pub(crate) is_explored: bool,
}

/// An object, and where the API has it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) id: ObjectId,
    pub(crate) path: String,
    pub(crate) object: Value,
}

#[derive(Clone)]
pub(crate) enum Step {
    Apply(Target),
    Delete(Target),
    Act(String, Acting),
}

impl Step {
    pub(crate) fn target(&self) -> Option<&Target> {
        match self {
            Step::Apply(target) | Step::Delete(target) => Some(target),
            Step::Act(..) => None,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Apply(target) => write!(f, "apply {}", target.id),
            Step::Delete(target) => write!(f, "delete {}", target.id),
            Step::Act(name, _) => f.write_str(name),
        }
    }
}

impl Target {
    fn new<K>(object: &K) -> Target
    where
        K: Resource<DynamicType: Default> + Serialize,
    {
        let kind = K::DynamicType::default();
        let name = object.meta().name.as_deref().unwrap_or_default();
        let namespace = object.meta().namespace.as_deref();
        let path = format!("{}/{name}", K::url_path(&kind, namespace));
        let id = ObjectId {
            group: K::group(&kind).into(),
            resource: K::plural(&kind).into(),
            path: namespace.map_or_else(|| name.into(), |namespace| format!("{namespace}/{name}").into()),
        };
        let mut object = serde_json::to_value(object).expect("an object of the API is JSON");
        object["apiVersion"] = K::api_version(&kind).into();
        object["kind"] = K::kind(&kind).into();
        Target { id, path, object }
    }
}

impl Default for Scenario {
    fn default() -> Scenario {
        Scenario::new()
    }
}

impl Scenario {
    /// An empty one.
    pub fn new() -> Scenario {
        Scenario {
            given: Vec::new(),
            controllers: Vec::new(),
            steps: Vec::new(),
            always: Vec::new(),
            goals: Vec::new(),
            outside: Vec::new(),
            normal: Normal::default(),
            quiet: Duration::from_secs(10),
            rest: Duration::from_secs(120),
            healing: Duration::from_secs(900),
            requests_at_once: 20_000,
            collects_garbage: true,
            has_history: false,
            left_out: BTreeSet::new(),
        }
    }

    /// An object that is there before anything runs: a definition, a namespace.
    pub fn given<K>(mut self, object: &K) -> Scenario
    where
        K: Resource<DynamicType: Default> + Serialize,
    {
        self.given.push(Target::new(object));
        self
    }

    /// A controller that is explored. `name` is what its faults and its part of the story are told by. `start` runs it, and
    /// runs it again after each crash; what it holds in memory is gone then.
    pub fn controller<F, E>(
        mut self,
        name: &str,
        start: impl Fn(Seat) -> F + Send + Sync + 'static,
    ) -> Scenario
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display,
    {
        self.controllers.push(Player::new(name, true, start));
        self
    }

    /// Something that runs beside: no faults happen to it.
    pub fn beside<F, E>(mut self, name: &str, start: impl Fn(Seat) -> F + Send + Sync + 'static) -> Scenario
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display,
    {
        self.controllers.push(Player::new(name, false, start));
        self
    }

    /// A step: somebody applies this object (server-side, as `user`), and with it creates or changes it.
    pub fn apply<K>(mut self, object: &K) -> Scenario
    where
        K: Resource<DynamicType: Default> + Serialize,
    {
        self.steps.push(Step::Apply(Target::new(object)));
        self
    }

    /// A step: somebody deletes this object.
    pub fn delete<K>(mut self, object: &K) -> Scenario
    where
        K: Resource<DynamicType: Default> + Serialize,
    {
        self.steps.push(Step::Delete(Target::new(object)));
        self
    }

    /// A step of any other kind. Use [`World::direct`] in it: no fault reaches that.
    pub fn step<F, E>(mut self, name: &str, act: impl Fn(World) -> F + Send + Sync + 'static) -> Scenario
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display,
    {
        let act = move |world| act(world).map(|result| result.map_err(|error| error.to_string())).boxed();
        self.steps.push(Step::Act(name.to_owned(), Arc::new(act)));
        self
    }

    /// Something that must hold after every single write, faults or not.
    pub fn always(
        mut self,
        name: &str,
        check: impl Fn(&View) -> Result<(), String> + Send + Sync + 'static,
    ) -> Scenario {
        self.always.push((name.to_owned(), Arc::new(check)));
        self
    }

    /// Something that must hold in the end, when all faults are over and everything has come to rest.
    pub fn goal(
        mut self,
        name: &str,
        check: impl Fn(&View) -> Result<(), String> + Send + Sync + 'static,
    ) -> Scenario {
        self.goals.push((name.to_owned(), Arc::new(check)));
        self
    }

    /// The state of something beside the API server, which is compared with the objects: `look` is called at the end of a
    /// run. Make the thing itself in the closure of the scenario, so that each run has its own.
    pub fn outside(mut self, name: &str, look: impl Fn() -> Value + Send + Sync + 'static) -> Scenario {
        self.outside.push((name.to_owned(), Arc::new(look)));
        self
    }

    /// Does not compare the objects of this resource, nor count what is written to it. It is spelled as kubectl does:
    /// `leases.coordination.k8s.io`. Events and Leases are ignored already.
    pub fn ignore(mut self, resource: &str) -> Scenario {
        self.normal.ignored.insert(resource.to_owned());
        self
    }

    /// Changes objects before they are compared, to leave out what may differ from run to run. Uids, times, addresses,
    /// resourceVersions and generated names are left out already. What is made `null` is not compared at all.
    pub fn mask(mut self, mask: impl Fn(&ObjectId, &mut Value) + Send + Sync + 'static) -> Scenario {
        self.normal.masks.push(Arc::new(mask) as Mask);
        self
    }

    /// How long nothing is written until a step counts as done; 10 s unless set.
    pub fn quiet(mut self, time: Duration) -> Scenario {
        self.quiet = time;
        self
    }

    /// For how long nothing may be written in the end; 120 s unless set. Longer than two resyncs is best.
    pub fn rest(mut self, time: Duration) -> Scenario {
        self.rest = time;
        self
    }

    /// How long it may take until everything is as it should be, after the last fault; 15 minutes unless set.
    pub fn healing(mut self, time: Duration) -> Scenario {
        self.healing = time;
        self
    }

    /// How many requests a controller may send at one instant of virtual time; 20,000 unless set. One that sends more never
    /// waits, so that virtual time stands still. It is stopped, and that is a finding.
    pub fn requests_at_once(mut self, most: u32) -> Scenario {
        self.requests_at_once = most;
        self
    }

    /// Lets the world collect no garbage, because a garbage collector runs in the scenario. Unless this is said, what has
    /// no owner left is deleted a second later.
    pub fn no_garbage_collection(mut self) -> Scenario {
        self.collects_garbage = false;
        self
    }

    /// Says that where it ends depends on the way: a Deployment keeps its old ReplicaSets. Then a change and its opposite
    /// are not expected to lead back, nor two ways to end in the same place.
    pub fn with_history(mut self) -> Scenario {
        self.has_history = true;
        self
    }

    /// Leaves out a kind of faults, since nobody promises to live with it: the pods of a Job that is done do not come back.
    pub fn without(mut self, kind: PointKind) -> Scenario {
        self.left_out.insert(kind);
        self
    }
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.controllers.iter().map(|player| &player.name).collect();
        let steps: Vec<_> = self.steps.iter().map(ToString::to_string).collect();
        f.debug_struct("Scenario").field("controllers", &names).field("steps", &steps).finish_non_exhaustive()
    }
}

impl Player {
    fn new<F, E>(name: &str, is_explored: bool, start: impl Fn(Seat) -> F + Send + Sync + 'static) -> Player
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display,
    {
        let start = move |seat| start(seat).map(|result| result.map_err(|error| error.to_string())).boxed();
        Player { name: name.into(), start: Arc::new(start), is_explored }
    }
}

/// What a controller gets to run with. Everything it does has to come from here: then a crash ends all of it.
#[derive(Clone)]
pub struct Seat {
    pub(crate) name: Arc<str>,
    pub(crate) process: u32,
    pub(crate) client: Client,
    pub(crate) layer: FaultLayer,
    pub(crate) env: Env,
    pub(crate) world: World,
    /// Where the story hears what the runtime tells, if it is told.
    pub(crate) facts: Option<Heard>,
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat")
            .field("name", &self.name)
            .field("process", &self.process)
            .finish_non_exhaustive()
    }
}

impl Seat {
    /// The name of the controller in the scenario.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A name that no other process has: for leases.
    pub fn identity(&self) -> String {
        format!("{}-{}", self.name, self.process)
    }

    /// Its client: through it, faults reach the controller.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// What puts faults between the controller and a server beside the API server: wrap the client of that one in it.
    pub fn layer(&self) -> FaultLayer {
        self.layer.clone()
    }

    /// Its time, randomness and tasks.
    pub fn env(&self) -> Env {
        self.env.clone()
    }

    /// The world that it runs in, for systems beside the API server.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// A runtime for `Manager::with` and for controllers of `setpoint`: then the story tells why they reconcile.
    pub fn runtime(&self) -> Runtime {
        let runtime = Runtime::with(self.client(), self.env(), Metrics::default());
        self.listen(runtime.facts());
        runtime
    }

    /// Lets the story tell these facts, of a controller that does without a [`Runtime`].
    pub fn listen(&self, facts: &Facts) {
        if let Some(heard) = &self.facts {
            heard.lock().push(facts.subscribe());
        }
    }
}
