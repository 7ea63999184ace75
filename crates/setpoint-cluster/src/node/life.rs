//! The life of one pod on a node: which stage it is in, and when the next one begins.
//!
//! It is a function of time: [`Life::advance`] moves it to where it is at a moment, and tells what happened on
//! the way. Nothing here talks to a server.

use std::time::Duration;

use jiff::Timestamp;
use setpoint::Event;
use setpoint::k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStateWaiting, Pod};
use setpoint::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use setpoint_env::{Env, Later};
use tokio::time::Instant;

use super::Delays;
use super::annotations::{Behaviour, parse};
use super::obstacle::{Needed, Obstacle};

/// How long a container that keeps failing, or an image that cannot be pulled, waits at first and at most.
const BACK_OFF: Duration = Duration::from_secs(10);
const MOST_BACK_OFF: Duration = Duration::from_secs(300);
/// A container that ran this long starts with a clean record.
const GOOD_RUN: Duration = Duration::from_secs(600);
/// How long a failed pull is shown before the wait for the next.
const PULL_ERROR_SHOWN: Duration = Duration::from_secs(1);

/// Where a pod is in its life.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stage {
    /// The sandbox and the images are being made ready.
    Creating,
    /// Something that the pod needs is not there.
    Blocked(Obstacle),
    /// The images could not be pulled; later, it waits to try again.
    PullFailed { is_waiting: bool },
    /// The init container of this number runs.
    Init(usize),
    /// The containers run.
    Running { is_ready: bool },
    /// The containers have ended and wait to be started again.
    BackOff { wait: Duration },
    /// The containers are told to end.
    Stopping,
    /// The containers have ended for good, with this code.
    Ended { code: i32, reason: Option<&'static str> },
}

/// A pod's life so far.
#[derive(Clone, Debug)]
pub(super) struct Life {
    pub(super) uid: String,
    /// The node that it is on.
    pub(super) node: String,
    pub(super) stage: Stage,
    /// When the pod came to the node.
    pub(super) arrived: Timestamp,
    /// When the containers that run, or ran last, started.
    pub(super) started: Option<Timestamp>,
    pub(super) restarts: i32,
    /// How the containers ended last.
    pub(super) last_end: Option<LastEnd>,
    /// How often in a row containers failed, or images could not be pulled.
    failures: u32,
    /// When the stage began.
    since: Instant,
    /// When it ends by itself.
    due: Option<Instant>,
}

/// How containers ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LastEnd {
    pub(super) code: i32,
    pub(super) started: Option<Timestamp>,
    pub(super) finished: Timestamp,
}

/// A moment, on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) instant: Instant,
    /// Whole seconds, as the server keeps them.
    pub(super) wall: Timestamp,
}

/// Something to tell about a pod: an event, about one of its containers or about the whole pod.
pub(super) type Told = (Option<String>, Event);

impl Moment {
    pub(super) fn now(env: &Env) -> Moment {
        let wall = env.now();
        Moment { instant: env.instant(), wall: Timestamp::from_second(wall.as_second()).unwrap_or(wall) }
    }
}

impl Life {
    /// The life of a pod that a node hears of: from its beginning, or from where its status says that it is.
    pub(super) fn find(pod: &Pod, now: Moment, env: &Env, delays: &Delays) -> Life {
        let status = pod.status.as_ref();
        let arrived = status.and_then(|status| status.start_time.as_ref()).map_or(now.wall, |time| time.0);
        let mut life = Life {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            node: crate::pod::node_name(pod).to_owned(),
            stage: Stage::Creating,
            arrived,
            started: None,
            restarts: 0,
            last_end: None,
            failures: 0,
            since: now.instant,
            due: Some(now.instant.later(env.jitter(delays.start, 0.5))),
        };
        life.recover(pod, now, env, delays);
        life
    }

    /// Takes over what another process, which ran this node before, wrote.
    fn recover(&mut self, pod: &Pod, now: Moment, env: &Env, delays: &Delays) {
        let Some(status) = &pod.status else { return };
        let container = status.container_statuses.iter().flatten().next();
        let state = container.and_then(|container| container.state.as_ref());
        self.restarts = container.map_or(0, |container| container.restart_count);
        self.failures = self.restarts.unsigned_abs();
        let last = container.and_then(|container| container.last_state.as_ref()?.terminated.as_ref());
        self.last_end = last.map(|end| LastEnd::from(end, now));
        let inits = status.init_container_statuses.as_deref().unwrap_or_default();
        let last_init =
            inits.iter().rposition(|init| init.state.as_ref().is_some_and(|state| state.running.is_some()));
        let waiting = state.and_then(|state| state.waiting.as_ref());
        if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
            let ended = state.and_then(|state| state.terminated.as_ref());
            self.last_end = ended.map(|end| LastEnd::from(end, now)).or(self.last_end);
            let code = ended.map_or(0, |end| end.exit_code);
            self.enter(Stage::Ended { code, reason: None }, now, None);
        } else if let Some(running) = state.and_then(|state| state.running.as_ref()) {
            self.started = Some(running.started_at.as_ref().map_or(now.wall, |time| time.0));
            let is_ready = container.is_some_and(|container| container.ready);
            self.enter(Stage::Running { is_ready }, now, Some(now.instant));
        } else if let Some(waiting) = waiting.filter(|waiting| is_for(waiting, "CrashLoopBackOff")) {
            self.recover_back_off(waiting.message.as_deref().unwrap_or_default(), now);
        } else if waiting.is_some_and(|waiting| is_for(waiting, "ImagePullBackOff")) {
            // When it failed is not in the status: it waits once more.
            self.failures = 1;
            let until = now.instant.later(back_off(self.failures));
            self.enter(Stage::PullFailed { is_waiting: true }, now, Some(until));
        } else if waiting.is_some_and(|waiting| is_for(waiting, "ErrImagePull")) {
            self.failures = 1;
            let shown = now.instant.later(PULL_ERROR_SHOWN);
            self.enter(Stage::PullFailed { is_waiting: false }, now, Some(shown));
        } else if let Some(n) = last_init {
            let until = now.instant.later(env.jitter(delays.init, 0.5));
            self.enter(Stage::Init(n), now, Some(until));
        }
    }

    /// Goes on waiting until a container that keeps failing is started again. How long it waits is in the message.
    fn recover_back_off(&mut self, message: &str, now: Moment) {
        let told = message.strip_prefix("back-off ").and_then(|rest| parse(rest.split(' ').next()?));
        let wait = told.unwrap_or_else(|| back_off(self.failures.saturating_sub(1)));
        let steps = (1..=MOST_STEPS).find(|failures| back_off(*failures) >= wait).unwrap_or(MOST_STEPS);
        // The first failure has no wait.
        self.failures = steps.saturating_add(1);
        let ended = self.last_end.map_or(now.wall, |end| end.finished);
        self.started = self.last_end.and_then(|end| end.started).or(Some(ended));
        let waited = Duration::try_from(now.wall.duration_since(ended)).unwrap_or_default();
        let until = now.instant.later(wait.saturating_sub(waited));
        self.enter(Stage::BackOff { wait }, now, Some(until));
    }

    /// When there is something to do without any change of the pod.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    fn is_due(&self, now: Moment) -> bool {
        self.due.is_some_and(|due| due <= now.instant)
    }

    fn enter(&mut self, stage: Stage, now: Moment, due: Option<Instant>) {
        self.stage = stage;
        self.since = now.instant;
        self.due = due;
    }

    /// Whether the containers may have to wait for something that is not there.
    pub(super) fn is_before_start(&self) -> bool {
        matches!(self.stage, Stage::Creating | Stage::Blocked(_) | Stage::PullFailed { .. })
    }

    /// Moves to where the life is now, and says what happened. It does not start as long as there is an `obstacle`.
    pub(super) fn advance(
        &mut self,
        pod: &Pod,
        obstacle: Option<&Obstacle>,
        now: Moment,
        env: &Env,
        delays: &Delays,
    ) -> Vec<Told> {
        let mut told = Vec::new();
        let behaviour = Behaviour::of(pod, delays.job);
        if self.must_stop(pod, now, env, delays, &mut told) {
            return told;
        }
        match (&self.stage, obstacle) {
            (Stage::Blocked(known), Some(obstacle)) if known == obstacle => return told,
            (Stage::Blocked(_), None) => self.due = Some(now.instant),
            (stage, Some(obstacle))
                if (self.is_due(now) || matches!(stage, Stage::Blocked(_))) && self.is_before_start() =>
            {
                tell_obstacle(obstacle, &mut told);
                self.enter(Stage::Blocked(obstacle.clone()), now, None);
                return told;
            }
            _ => {}
        }
        // A stage may end at the moment at which it began; there are few of them.
        while self.is_due(now) {
            self.step(pod, &behaviour, now, env, delays, &mut told);
        }
        told
    }

    /// Ends the life of a pod that is deleted or past its deadline. Says whether nothing else matters.
    fn must_stop(
        &mut self,
        pod: &Pod,
        now: Moment,
        env: &Env,
        delays: &Delays,
        told: &mut Vec<Told>,
    ) -> bool {
        if matches!(self.stage, Stage::Ended { .. }) {
            return true;
        }
        if pod.metadata.deletion_timestamp.is_some() {
            if self.stage != Stage::Stopping {
                if self.started.is_some() {
                    tell_each(pod, told, |name| {
                        Event::normal("Killing", format!("Stopping container {name}"))
                    });
                }
                let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(30).max(0).unsigned_abs();
                let stop = env.jitter(delays.stop, 0.5).min(Duration::from_secs(grace));
                self.enter(Stage::Stopping, now, Some(now.instant.later(stop)));
            }
            if self.due.is_some_and(|due| due <= now.instant) {
                // A server ends well when it is told to; the work of a Job is cut off.
                let is_server = policy(pod) == "Always";
                self.end(if is_server { 0 } else { 143 }, None, now);
            }
            return true;
        }
        if self.deadline(pod).is_some_and(|deadline| deadline <= now.wall) {
            self.end(137, Some("DeadlineExceeded"), now);
            return true;
        }
        false
    }

    /// When a pod with `activeDeadlineSeconds` must end.
    pub(super) fn deadline(&self, pod: &Pod) -> Option<Timestamp> {
        let seconds = pod.spec.as_ref()?.active_deadline_seconds?;
        self.arrived.checked_add(Duration::from_secs(seconds.max(0).unsigned_abs())).ok()
    }

    fn end(&mut self, code: i32, reason: Option<&'static str>, now: Moment) {
        if self.started.is_some() {
            self.last_end = Some(LastEnd { code, started: self.started, finished: now.wall });
        }
        self.enter(Stage::Ended { code, reason }, now, None);
    }

    /// Does what is due.
    fn step(
        &mut self,
        pod: &Pod,
        behaviour: &Behaviour,
        now: Moment,
        env: &Env,
        delays: &Delays,
        told: &mut Vec<Told>,
    ) {
        match self.stage {
            Stage::Creating | Stage::Blocked(_) | Stage::PullFailed { is_waiting: true } => {
                if let Some(error) = &behaviour.pull_error {
                    self.failures = self.failures.saturating_add(1);
                    tell_pull_failure(pod, error, told);
                    let shown = Some(now.instant.later(PULL_ERROR_SHOWN));
                    return self.enter(Stage::PullFailed { is_waiting: false }, now, shown);
                }
                self.failures = 0;
                self.start_init(0, pod, behaviour, now, env, delays, told);
            }
            Stage::PullFailed { is_waiting: false } => {
                tell_each_image(pod, told, |image| {
                    Event::normal("BackOff", format!("Back-off pulling image {image:?}"))
                });
                tell_each(pod, told, |_| Event::warning("Failed", "Error: ImagePullBackOff"));
                let until = now.instant.later(back_off(self.failures));
                self.enter(Stage::PullFailed { is_waiting: true }, now, Some(until));
            }
            Stage::Init(n) => self.start_init(n + 1, pod, behaviour, now, env, delays, told),
            Stage::Running { is_ready } => self.run(is_ready, pod, behaviour, now, told),
            Stage::BackOff { .. } => self.start(pod, behaviour, now, told),
            Stage::Stopping | Stage::Ended { .. } => self.due = None,
        }
    }

    /// Runs the init container of this number, or the containers after the last.
    #[expect(clippy::too_many_arguments, reason = "a stage is made of all of these")]
    fn start_init(
        &mut self,
        n: usize,
        pod: &Pod,
        behaviour: &Behaviour,
        now: Moment,
        env: &Env,
        delays: &Delays,
        told: &mut Vec<Told>,
    ) {
        let containers =
            pod.spec.as_ref().and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
        let Some(container) = containers.get(n) else {
            return self.start(pod, behaviour, now, told);
        };
        let path = format!("spec.initContainers{{{}}}", container.name);
        tell_start(&path, container.image.as_deref(), told);
        // A sidecar is started, and the next one does not wait for its end.
        let is_sidecar = container.restart_policy.as_deref() == Some("Always");
        let time = if is_sidecar { Duration::ZERO } else { env.jitter(delays.init, 0.5) };
        self.enter(Stage::Init(n), now, Some(now.instant.later(time)));
    }

    fn start(&mut self, pod: &Pod, behaviour: &Behaviour, now: Moment, told: &mut Vec<Told>) {
        for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
            tell_start(&path_of(&container.name), container.image.as_deref(), told);
        }
        self.started = Some(now.wall);
        self.enter(Stage::Running { is_ready: false }, now, None);
        self.run(false, pod, behaviour, now, told);
    }

    /// The containers become ready, and end, in their time.
    fn run(
        &mut self,
        mut is_ready: bool,
        pod: &Pod,
        behaviour: &Behaviour,
        now: Moment,
        told: &mut Vec<Told>,
    ) {
        let ready_at = self.since.later(behaviour.ready_after);
        let since = self.since;
        if let Some((after, code)) = behaviour.end {
            let end_at = since.later(after);
            if end_at <= now.instant {
                return self.exit(code, pod, behaviour, now, told);
            }
            is_ready |= ready_at <= now.instant;
            self.due = Some(if is_ready { end_at } else { end_at.min(ready_at) });
        } else {
            is_ready |= ready_at <= now.instant;
            self.due = (!is_ready).then_some(ready_at);
        }
        self.stage = Stage::Running { is_ready };
    }

    /// The containers end by themselves; the pod's policy says what then.
    fn exit(&mut self, code: i32, pod: &Pod, behaviour: &Behaviour, now: Moment, told: &mut Vec<Told>) {
        let restarts = match policy(pod) {
            "Always" => true,
            "OnFailure" => code != 0,
            _ => false,
        };
        if !restarts {
            return self.end(code, None, now);
        }
        self.last_end = Some(LastEnd { code, started: self.started, finished: now.wall });
        if now.instant.saturating_duration_since(self.since) >= GOOD_RUN {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        self.restarts = self.restarts.saturating_add(1);
        if self.failures == 1 {
            return self.start(pod, behaviour, now, told);
        }
        let wait = back_off(self.failures - 1);
        let id = format_pod(pod);
        tell_each(pod, told, |name| {
            Event::warning("BackOff", format!("Back-off restarting failed container {name} in pod {id}"))
        });
        self.enter(Stage::BackOff { wait }, now, Some(now.instant.later(wait)));
    }
}

impl LastEnd {
    fn from(end: &ContainerStateTerminated, now: Moment) -> LastEnd {
        let time = |time: &Option<Time>| time.as_ref().map(|time| time.0);
        LastEnd {
            code: end.exit_code,
            started: time(&end.started_at),
            finished: time(&end.finished_at).unwrap_or(now.wall),
        }
    }
}

/// From this many failures on the wait is the longest.
const MOST_STEPS: u32 = 9;

fn is_for(waiting: &ContainerStateWaiting, reason: &str) -> bool {
    waiting.reason.as_deref() == Some(reason)
}

/// The wait after this many failures in a row.
fn back_off(failures: u32) -> Duration {
    BACK_OFF.saturating_mul(1 << failures.saturating_sub(1).min(MOST_STEPS - 1)).min(MOST_BACK_OFF)
}

/// A pod as the kubelet writes it in messages.
pub(super) fn format_pod(pod: &Pod) -> String {
    let meta = &pod.metadata;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("{}_{}({})", text(&meta.name), text(&meta.namespace), text(&meta.uid))
}

pub(super) fn policy(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()).unwrap_or("Always")
}

fn path_of(container: &str) -> String {
    format!("spec.containers{{{container}}}")
}

fn tell_each(pod: &Pod, told: &mut Vec<Told>, event: impl Fn(&str) -> Event) {
    for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
        told.push((Some(path_of(&container.name)), event(&container.name)));
    }
}

fn tell_each_image(pod: &Pod, told: &mut Vec<Told>, event: impl Fn(&str) -> Event) {
    for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
        told.push((Some(path_of(&container.name)), event(container.image.as_deref().unwrap_or_default())));
    }
}

fn tell_obstacle(obstacle: &Obstacle, told: &mut Vec<Told>) {
    let why = &obstacle.why;
    told.push(match &obstacle.by {
        Needed::ByVolume(volume) => {
            let note = format!("MountVolume.SetUp failed for volume {volume:?} : {why}");
            (None, Event::warning("FailedMount", note))
        }
        Needed::ByContainer(container) => {
            (Some(path_of(container)), Event::warning("Failed", format!("Error: {why}")))
        }
    });
}

fn tell_start(path: &str, image: Option<&str>, told: &mut Vec<Told>) {
    let image = image.unwrap_or_default();
    let events = [
        Event::normal("Pulled", format!("Container image {image:?} already present on machine")),
        Event::normal("Created", "Container created"),
        Event::normal("Started", "Container started"),
    ];
    told.extend(events.into_iter().map(|event| (Some(path.to_owned()), event)));
}

fn tell_pull_failure(pod: &Pod, error: &str, told: &mut Vec<Told>) {
    tell_each_image(pod, told, |image| Event::normal("Pulling", format!("Pulling image {image:?}")));
    tell_each_image(pod, told, |image| {
        Event::warning("Failed", format!("Failed to pull image {image:?}: {}", pull_message(image, error)))
    });
    tell_each(pod, told, |_| Event::warning("Failed", "Error: ErrImagePull"));
}

/// What a container runtime says about an image that it cannot pull.
pub(super) fn pull_message(image: &str, error: &str) -> String {
    format!("failed to pull and unpack image {image:?}: {error}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::annotations::{FAIL_AFTER, READY_AFTER};
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_time_beyond_all_time_is_waited_for() {
        let (env, delays) = (Env::seeded(1), Delays::default());
        for annotation in [READY_AFTER, FAIL_AFTER] {
            let pod = json!({"metadata": {"annotations": {annotation: "1e19"}}, "spec": {"containers": [{"name": "c"}]}});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let mut life = Life::find(&pod, Moment::now(&env), &env, &delays);
            tokio::time::advance(Duration::from_secs(60)).await;
            life.advance(&pod, None, Moment::now(&env), &env, &delays);
            assert_eq!(life.stage, Stage::Running { is_ready: annotation == FAIL_AFTER });
            assert!(life.due().is_some_and(|due| due > Moment::now(&env).instant));
        }
    }
}
