//! One run: parents that come, change and go, while a seed decides what goes wrong; then everything heals, and must come
//! to rest as it should.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use setpoint_sim::{FaultKind, Match, Rule, Swarm, Trace, World};
use tokio::time::sleep;
use tower::Layer;

use crate::controller::{LABEL, SIZE, wanted_size};
use crate::dice::Dice;
use crate::judge::{Judge, WORLD};
use crate::replica::Replica;

const SECOND: Duration = Duration::from_secs(1);
const REPLICAS: [&str; 2] = ["a", "b"];
const PARENTS: u64 = 4;
/// How long things go wrong.
const FAULTY: Duration = Duration::from_secs(75);
/// How long everything may take to come to rest.
const HEALING: Duration = Duration::from_secs(300);
/// No request is longer on its way: a lease is only worth what `lease - renew_deadline` is longer than that.
const LONGEST: Duration = Duration::from_secs(4);

/// How a run ended.
pub(crate) struct Verdict {
    pub(crate) violations: Vec<String>,
    /// What went wrong, and what happened: for the report.
    pub(crate) story: Vec<String>,
    pub(crate) trace: Trace,
}

/// What happens at a moment.
#[derive(Clone, Copy, Debug)]
enum Act {
    Create(u64),
    Resize(u64),
    Delete(u64),
    DeleteChild,
    Pause(Who),
    Resume(usize),
    Kill(Who),
    Stop(Who),
    Start(usize),
    RestartServer,
    Compact,
    /// A replica cannot reach the lease for a while.
    Cut(Who),
    /// A watch of a replica is silent for a while.
    Hold(Who, &'static str),
    Release(usize),
}

#[derive(Clone, Copy, Debug)]
enum Who {
    Leader,
    Replica(usize),
}

struct Run {
    world: World,
    judge: Judge,
    dice: Dice,
    replicas: Vec<Replica>,
    agenda: BTreeMap<(Duration, u64), Act>,
    rules: Vec<Rule>,
    story: Vec<String>,
    maps: Api<ConfigMap>,
    secrets: Api<Secret>,
}

/// Runs the world of a seed.
pub(crate) fn run(seed: u64) -> Verdict {
    World::run(seed, async |world| {
        let mut run = Run::new(world);
        run.replicas.iter_mut().for_each(Replica::start);
        run.faulty().await;
        run.heal().await;
        let world = &run.world;
        let mut story: Vec<(Duration, String)> = Vec::new();
        story.extend(
            world.faults().fired().iter().map(|fault| (fault.at, format!("{}: {fault}", fault.client))),
        );
        story.sort_by_key(|(at, _)| *at);
        let mut story: Vec<String> =
            story.into_iter().map(|(at, what)| format!("{:8.3}s {what}", at.as_secs_f64())).collect();
        story.append(&mut run.story);
        story.sort();
        Verdict { violations: run.judge.violations(), story, trace: world.trace() }
    })
}

impl Run {
    fn new(world: World) -> Run {
        let judge = Judge::new(&world);
        let mut dice = Dice::new(world.seed());
        world.faults().swarm(faults(&mut dice));
        let thinks = thinks(&mut dice);
        let replicas =
            REPLICAS.iter().map(|name| Replica::new(name, &world, &judge, thinks.clone())).collect();
        let hand = world.faults().observer(WORLD).layer(judge.server(WORLD));
        let hand = Client::new(hand, "default");
        let (maps, secrets) = (Api::default_namespaced(hand.clone()), Api::default_namespaced(hand));
        let (agenda, rules, story) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut run = Run { world, judge, dice, replicas, agenda, rules, story, maps, secrets };
        run.plan();
        run
    }

    fn at(&mut self, time: Duration, act: Act) {
        let number = self.agenda.len() as u64;
        self.agenda.insert((time, number), act);
    }

    /// What happens when, as far as it can be known before.
    fn plan(&mut self) {
        let dice = &mut self.dice;
        let mut acts: Vec<(Duration, Act)> =
            (0..PARENTS).map(|n| (SECOND / 10 * n as u32, Act::Create(n))).collect();
        let mut now = SECOND;
        while now < FAULTY {
            now += dice.time(SECOND / 20, 5 * SECOND);
            let n = dice.below(PARENTS);
            let act = match dice.below(20) {
                0..4 => Act::Create(n),
                4..14 => Act::Resize(n),
                14..18 => Act::Delete(n),
                _ => Act::DeleteChild,
            };
            acts.push((now, act));
            // Changes come in bursts, too.
            if dice.chance(30) {
                acts.push((now + dice.time(Duration::ZERO, SECOND / 5), Act::Resize(n)));
            }
        }
        let mut now = 4 * SECOND;
        while now < FAULTY {
            now += dice.time(SECOND, 14 * SECOND);
            let who = if dice.chance(70) { Who::Leader } else { Who::Replica(dice.below(2) as usize) };
            acts.push((
                now,
                match dice.below(9) {
                    0 | 1 => Act::Pause(who),
                    2 => Act::Kill(who),
                    3 => Act::Stop(who),
                    4 => Act::Cut(who),
                    5 | 6 => Act::Hold(who, dice.pick(&["secrets", "configmaps"])),
                    7 => Act::RestartServer,
                    _ => Act::Compact,
                },
            ));
        }
        acts.into_iter().for_each(|(time, act)| self.at(time, act));
    }

    async fn faulty(&mut self) {
        while let Some(((time, _), act)) = self.agenda.pop_first() {
            if time >= FAULTY {
                break;
            }
            sleep(time.saturating_sub(self.world.now())).await;
            self.replicas.iter_mut().for_each(Replica::look);
            self.act(act).await;
        }
    }

    async fn act(&mut self, act: Act) {
        let now = self.world.now();
        let holder = self.judge.holder();
        let find = |who| match who {
            Who::Leader => REPLICAS.iter().position(|name| holder.starts_with(name)).unwrap_or(0),
            Who::Replica(n) => n,
        };
        self.story.push(format!("{:8.3}s ({holder} has the lease) {act:?}", now.as_secs_f64()));
        match act {
            Act::Create(n) => {
                let parent = parent(n, self.dice.below(5));
                let _exists = self.maps.create(&PostParams::default(), &parent).await;
            }
            Act::Resize(n) => {
                let size = size(self.dice.below(5));
                let patch = Patch::Merge(json!({"data": {SIZE: size}}));
                let _missing = self.maps.patch(&name(n), &PatchParams::default(), &patch).await;
            }
            Act::Delete(n) => {
                let _missing = self.maps.delete(&name(n), &DeleteParams::default()).await;
            }
            Act::DeleteChild => {
                let children = self.secrets.list(&ListParams::default().labels(LABEL)).await.expect("a list");
                if let Some(child) = children.items.first() {
                    let _deleted = self.secrets.delete(&child.name_any(), &DeleteParams::default()).await;
                }
            }
            Act::Pause(who) => {
                let who = find(who);
                self.replicas[who].pause();
                let time = self.dice.time(SECOND, 25 * SECOND);
                self.at(now + time, Act::Resume(who));
            }
            Act::Resume(n) => self.replicas[n].resume(),
            Act::Kill(who) => {
                let who = find(who);
                self.replicas[who].kill();
                let time = self.dice.time(Duration::ZERO, 20 * SECOND);
                self.at(now + time, Act::Start(who));
            }
            Act::Stop(who) => {
                let who = find(who);
                self.replicas[who].stop();
                let time = self.dice.time(2 * SECOND, 40 * SECOND);
                self.at(now + time, Act::Start(who));
            }
            Act::Start(n) => {
                // What does not end is killed: nobody waits longer.
                if self.dice.chance(50) {
                    self.replicas[n].kill();
                }
                self.replicas[n].start();
            }
            Act::RestartServer => self.world.restart_server(),
            Act::Compact => self.world.server().compact(),
            Act::Cut(who) => {
                let leases = Match::any().resource("leases").client(REPLICAS[find(who)]);
                self.rules.push(self.world.faults().on(leases).refuse_connection().always());
                let time = self.dice.time(5 * SECOND, 18 * SECOND);
                self.at(now + time, Act::Release(self.rules.len() - 1));
            }
            Act::Hold(who, resource) => {
                let watches = Match::watch(resource).client(REPLICAS[find(who)]);
                let events = self.dice.below(4);
                self.rules.push(self.world.faults().on(watches).hold_after_events(events));
                let time = self.dice.time(2 * SECOND, 40 * SECOND);
                self.at(now + time, Act::Release(self.rules.len() - 1));
                // The rule meets the watches that begin now.
                self.world.server().end_watches();
            }
            Act::Release(n) => self.rules[n].release(),
        }
    }

    /// Ends all faults, and waits until everything is as it should be, and stays so.
    async fn heal(&mut self) {
        self.world.faults().heal();
        self.replicas.iter().for_each(Replica::resume);
        let end = self.world.now() + HEALING;
        let mut wrong = Vec::new();
        while self.world.now() < end {
            sleep(2 * SECOND).await;
            for replica in &mut self.replicas {
                replica.look();
                replica.start();
            }
            wrong = self.wrong().await;
            if wrong.is_empty() {
                break;
            }
        }
        if !wrong.is_empty() {
            self.story.extend(self.replicas.iter().flat_map(Replica::state));
        }
        for what in wrong {
            self.judge.accuse(format!("{HEALING:?} after all faults ended: {what}"));
        }
        // The last reconciles may still be on their way.
        sleep(10 * SECOND).await;
        let commits = self.judge.commits();
        sleep(20 * SECOND).await;
        self.replicas.iter_mut().for_each(Replica::look);
        let more = self.judge.commits() - commits;
        if more > 0 {
            self.judge.accuse(format!("{more} writes at rest"));
        }
        for what in self.wrong().await {
            self.judge.accuse(format!("at rest: {what}"));
        }
    }

    /// What is not as it should be.
    async fn wrong(&self) -> Vec<String> {
        let those = ListParams::default().labels(LABEL);
        let parents = self.maps.list(&those).await.expect("a list").items;
        let children = self.secrets.list(&those).await.expect("a list").items;
        let owner = |child: &Secret| child.owner_references().first().map(|owner| owner.uid.clone());
        let mut wrong = Vec::new();
        for parent in &parents {
            let name = parent.name_any();
            if parent.metadata.deletion_timestamp.is_some() {
                wrong.push(format!("{name} is still being deleted"));
                continue;
            }
            let own: Vec<&Secret> = children.iter().filter(|child| owner(child) == parent.uid()).collect();
            let sizes: Vec<_> =
                own.iter().map(|child| child.annotations().get(SIZE).map(String::as_str)).collect();
            let wanted: Vec<_> = wanted_size(parent).into_iter().map(Some).collect();
            if sizes != wanted {
                wrong.push(format!("{name} wants {wanted:?} and has {sizes:?}"));
            }
        }
        let is_orphan = |child: &&Secret| !parents.iter().any(|parent| parent.uid() == owner(child));
        wrong.extend(
            children.iter().filter(is_orphan).map(|child| format!("{} is an orphan", child.name_any())),
        );
        wrong
    }
}

/// Which kinds of faults there are, and how many of them: the seed switches each of them on or off.
fn faults(dice: &mut Dice) -> Swarm {
    let often = dice.pick(&[0.03, 0.08, 0.2]);
    let swarm = FaultKind::ALL.into_iter().fold(Swarm::quiet(), |swarm, kind| swarm.chance(kind, often));
    swarm.chance(FaultKind::DelayEvents, 0.5).longest(LONGEST).subset()
}

/// How long reconciles take: none, or some of them long.
fn thinks(dice: &mut Dice) -> Vec<Duration> {
    if dice.chance(50) {
        return vec![Duration::ZERO];
    }
    (0..7)
        .map(|_| if dice.chance(70) { Duration::ZERO } else { dice.time(SECOND / 10, 12 * SECOND) })
        .collect()
}

fn name(n: u64) -> String {
    format!("p{n}")
}

/// None: no child is wanted.
fn size(dice: u64) -> Option<String> {
    (dice > 0).then(|| dice.to_string())
}

fn parent(n: u64, dice: u64) -> ConfigMap {
    let metadata = json!({"name": name(n), "labels": {LABEL: name(n)}});
    let data = size(dice).map(|size| json!({SIZE: size})).unwrap_or_else(|| json!({}));
    serde_json::from_value(json!({"metadata": metadata, "data": data})).expect("a ConfigMap")
}
