//! What the status of a pod says at each stage of its life.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use jiff::Timestamp;
use setpoint::k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodSpec, PodStatus,
};
use setpoint::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::annotations::Behaviour;
use super::life::{LastEnd, Life, Stage, format_pod, pull_message};
use super::obstacle::Needed;

/// What a status needs to know besides the pod and its life.
pub(super) struct Place {
    pub(super) host_ip: String,
    /// The pod's own address, or the host's.
    pub(super) pod_ip: Option<String>,
    pub(super) now: Timestamp,
}

/// The status that the pod should have. Conditions that others set stay.
pub(super) fn status(pod: &Pod, life: &Life, behaviour: &Behaviour, place: &Place) -> PodStatus {
    let mut status = pod.status.clone().unwrap_or_default();
    let Some(spec) = &pod.spec else { return status };
    status.observed_generation = pod.metadata.generation;
    status.start_time = Some(Time(life.arrived));
    status.host_ip = Some(place.host_ip.clone());
    status.host_ips = Some(vec![HostIP { ip: place.host_ip.clone() }]);
    if let Some(ip) = &place.pod_ip {
        status.pod_ip = Some(ip.clone());
        status.pod_ips = Some(vec![PodIP { ip: ip.clone() }]);
    }
    status.phase = Some(phase(life).to_owned());
    if let Stage::Ended { reason: Some("DeadlineExceeded"), .. } = life.stage {
        status.reason = Some("DeadlineExceeded".to_owned());
        status.message = Some("Pod was active on the node longer than the specified deadline".to_owned());
    }
    let view = View { pod, life, behaviour };
    let inits = spec.init_containers.iter().flatten().enumerate();
    let inits: Vec<_> = inits.map(|(n, container)| view.init_container(n, container)).collect();
    let containers: Vec<_> = spec.containers.iter().map(|container| view.container(container)).collect();
    status.conditions = Some(conditions(&view, spec, &status, &inits, &containers, place.now));
    status.init_container_statuses = Some(inits).filter(|inits| !inits.is_empty());
    status.container_statuses = Some(containers);
    status
}

fn phase(life: &Life) -> &'static str {
    match life.stage {
        Stage::Creating | Stage::Blocked(_) | Stage::PullFailed { .. } | Stage::Init(_) => "Pending",
        Stage::Running { .. } | Stage::BackOff { .. } => "Running",
        Stage::Stopping if life.started.is_some() => "Running",
        Stage::Stopping => "Pending",
        Stage::Ended { code: 0, .. } => "Succeeded",
        Stage::Ended { .. } => "Failed",
    }
}

struct View<'a> {
    pod: &'a Pod,
    life: &'a Life,
    behaviour: &'a Behaviour,
}

impl View<'_> {
    fn uid(&self) -> &str {
        &self.life.uid
    }

    fn container(&self, container: &Container) -> ContainerStatus {
        let life = self.life;
        let is_ready = matches!(life.stage, Stage::Running { is_ready: true });
        let id = container_id(self.uid(), &container.name, life.restarts);
        let before = || container_id(self.uid(), &container.name, life.restarts - 1);
        let ended = life.last_end.map(|end| terminated(end, &id));
        let earlier = life.last_end.filter(|_| life.restarts > 0).map(|end| terminated(end, &before()));
        let waiting = |reason: &str, message: Option<String>| (Some(waiting(reason, message)), None, false);
        let (state, last, has_started) = match &life.stage {
            Stage::Blocked(obstacle) if obstacle.by == Needed::ByContainer(container.name.clone()) => {
                waiting("CreateContainerConfigError", Some(obstacle.why.clone()))
            }
            Stage::Creating | Stage::Blocked(_) if self.has_inits() => waiting("PodInitializing", None),
            Stage::Init(_) => waiting("PodInitializing", None),
            Stage::Creating | Stage::Blocked(_) => waiting("ContainerCreating", None),
            Stage::PullFailed { is_waiting } => {
                let (reason, message) = self.pull_failure(container, *is_waiting);
                waiting(reason, Some(message))
            }
            Stage::Running { .. } => (Some(running(life.started)), earlier, true),
            Stage::Stopping if life.started.is_some() => (Some(running(life.started)), earlier, true),
            Stage::Stopping => waiting("ContainerCreating", None),
            Stage::BackOff { wait } => {
                let wait = go_duration(wait.as_secs());
                let message = format!(
                    "back-off {wait} restarting failed container={} pod={}",
                    container.name,
                    format_pod(self.pod)
                );
                (Some(self::waiting("CrashLoopBackOff", Some(message))), earlier, false)
            }
            Stage::Ended { .. } => match ended {
                Some(ended) => (Some(ended), None, false),
                None => waiting("ContainerCreating", None),
            },
        };
        let was_started = life.started.is_some();
        ContainerStatus {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            image_id: if was_started { image_id(container.image.as_deref()) } else { String::new() },
            container_id: was_started.then_some(id),
            ready: is_ready,
            started: Some(has_started),
            restart_count: life.restarts,
            // What a running container has; without it the server takes the node for one that cannot resize.
            resources: has_started.then(|| container.resources.clone().unwrap_or_default()),
            state,
            // The server writes an empty one where there is none; without it the status would never be as wanted.
            last_state: Some(last.unwrap_or_default()),
            ..ContainerStatus::default()
        }
    }

    fn has_inits(&self) -> bool {
        let spec = self.pod.spec.as_ref();
        spec.is_some_and(|spec| spec.init_containers.as_ref().is_some_and(|inits| !inits.is_empty()))
    }

    fn pull_failure(&self, container: &Container, is_waiting: bool) -> (&'static str, String) {
        let image = container.image.as_deref().unwrap_or_default();
        let error = self.behaviour.pull_error.as_deref().unwrap_or("not found");
        let message = pull_message(image, error);
        match is_waiting {
            false => ("ErrImagePull", message),
            true => {
                ("ImagePullBackOff", format!("Back-off pulling image {image:?}: ErrImagePull: {message}"))
            }
        }
    }

    fn init_container(&self, n: usize, container: &Container) -> ContainerStatus {
        let id = container_id(self.uid(), &container.name, 0);
        let is_sidecar = container.restart_policy.as_deref() == Some("Always");
        let current = match self.life.stage {
            Stage::Creating | Stage::Blocked(_) | Stage::PullFailed { .. } => 0,
            Stage::Init(current) => current,
            _ => usize::MAX,
        };
        let has_begun = n < current || (n == current && matches!(self.life.stage, Stage::Init(_)));
        let is_over = matches!(self.life.stage, Stage::Ended { .. });
        let started = Some(self.life.arrived);
        let (state, ready, is_started) = if !has_begun {
            (self.init_waiting(container), false, false)
        } else if (is_sidecar && !is_over) || n == current {
            (running(started), is_sidecar, true)
        } else {
            let finished = self.life.started.unwrap_or(self.life.arrived);
            (terminated(LastEnd { code: 0, started, finished }, &id), true, false)
        };
        ContainerStatus {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            image_id: if has_begun { image_id(container.image.as_deref()) } else { String::new() },
            container_id: has_begun.then_some(id),
            ready,
            started: Some(is_started),
            resources: is_started.then(|| container.resources.clone().unwrap_or_default()),
            state: Some(state),
            last_state: Some(ContainerState::default()),
            ..ContainerStatus::default()
        }
    }
}

impl View<'_> {
    /// Why an init container has not begun.
    fn init_waiting(&self, container: &Container) -> ContainerState {
        match &self.life.stage {
            Stage::Blocked(obstacle) if obstacle.by == Needed::ByContainer(container.name.clone()) => {
                waiting("CreateContainerConfigError", Some(obstacle.why.clone()))
            }
            _ => waiting("PodInitializing", None),
        }
    }
}

fn waiting(reason: &str, message: Option<String>) -> ContainerState {
    let waiting = ContainerStateWaiting { reason: Some(reason.to_owned()), message };
    ContainerState { waiting: Some(waiting), ..ContainerState::default() }
}

fn running(started: Option<Timestamp>) -> ContainerState {
    let running = ContainerStateRunning { started_at: started.map(Time) };
    ContainerState { running: Some(running), ..ContainerState::default() }
}

fn terminated(end: LastEnd, id: &str) -> ContainerState {
    let terminated = ContainerStateTerminated {
        exit_code: end.code,
        reason: Some(if end.code == 0 { "Completed" } else { "Error" }.to_owned()),
        started_at: end.started.map(Time),
        finished_at: Some(Time(end.finished)),
        container_id: Some(id.to_owned()),
        ..ContainerStateTerminated::default()
    };
    ContainerState { terminated: Some(terminated), ..ContainerState::default() }
}

/// What a condition is: `None` is true, otherwise why not.
type Verdict = Option<(&'static str, String)>;

fn conditions(
    view: &View<'_>,
    spec: &PodSpec,
    old: &PodStatus,
    inits: &[ContainerStatus],
    containers: &[ContainerStatus],
    now: Timestamp,
) -> Vec<PodCondition> {
    let mut conditions = old.conditions.clone().unwrap_or_default();
    let generation = view.pod.metadata.generation;
    let has_sandbox = !matches!(view.life.stage, Stage::Creating | Stage::Blocked(_) | Stage::Ended { .. });
    let sandbox = (!has_sandbox).then(|| ("", String::new()));
    let containers_ready = containers_ready(view, containers);
    let ready = containers_ready.clone().or_else(|| gates(spec, &conditions));
    let is_complete = matches!(view.life.stage, Stage::Ended { code: 0, .. });
    for (type_, verdict) in [
        ("PodReadyToStartContainers", sandbox),
        ("Initialized", initialized(inits)),
        ("Ready", ready),
        ("ContainersReady", containers_ready),
        ("PodScheduled", None),
    ] {
        let true_reason = (type_ == "Initialized" && is_complete).then_some("PodCompleted");
        set(&mut conditions, type_, verdict, true_reason, generation, now);
    }
    conditions
}

fn containers_ready(view: &View<'_>, containers: &[ContainerStatus]) -> Verdict {
    if let Stage::Ended { code, .. } = view.life.stage {
        return Some((if code == 0 { "PodCompleted" } else { "PodFailed" }, String::new()));
    }
    let unready: Vec<&str> = containers.iter().filter(|c| !c.ready).map(|c| c.name.as_str()).collect();
    let message = || format!("containers with unready status: [{}]", unready.join(" "));
    (!unready.is_empty()).then(|| ("ContainersNotReady", message()))
}

fn initialized(inits: &[ContainerStatus]) -> Verdict {
    let incomplete = inits.iter().filter(|init| !init.ready).map(|init| init.name.as_str());
    let incomplete: Vec<&str> = incomplete.collect();
    let message = || format!("containers with incomplete status: [{}]", incomplete.join(" "));
    (!incomplete.is_empty()).then(|| ("ContainersNotInitialized", message()))
}

fn gates(spec: &PodSpec, conditions: &[PodCondition]) -> Verdict {
    let unmet = spec.readiness_gates.iter().flatten().filter_map(|gate| {
        let type_ = &gate.condition_type;
        match conditions.iter().find(|condition| condition.type_ == *type_) {
            Some(condition) if condition.status == "True" => None,
            Some(condition) => Some(format!(
                "the status of pod readiness gate {type_:?} is not \"True\", but {}",
                condition.status
            )),
            None => Some(format!("corresponding condition of pod readiness gate {type_:?} does not exist.")),
        }
    });
    let unmet: Vec<String> = unmet.collect();
    (!unmet.is_empty()).then(|| ("ReadinessGatesNotReady", unmet.join(", ")))
}

fn set(
    conditions: &mut Vec<PodCondition>,
    type_: &str,
    verdict: Verdict,
    true_reason: Option<&str>,
    generation: Option<i64>,
    now: Timestamp,
) {
    let status = if verdict.is_none() { "True" } else { "False" };
    let (reason, message) = match verdict {
        Some((reason, message)) => (reason, message),
        None => (true_reason.unwrap_or_default(), String::new()),
    };
    let text = |text: String| Some(text).filter(|text| !text.is_empty());
    let old = conditions.iter_mut().find(|condition| condition.type_ == type_);
    let since =
        old.as_ref().filter(|old| old.status == status).and_then(|old| old.last_transition_time.clone());
    let condition = PodCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: text(reason.to_owned()),
        message: text(message),
        observed_generation: generation,
        last_transition_time: since.or(Some(Time(now))),
        last_probe_time: None,
    };
    match old {
        Some(old) => *old = condition,
        None => conditions.push(condition),
    }
}

/// Seconds as Go writes a duration: `10s`, `1m20s`, `5m0s`.
fn go_duration(seconds: u64) -> String {
    match seconds / 60 {
        0 => format!("{seconds}s"),
        minutes => format!("{minutes}m{}s", seconds % 60),
    }
}

/// The id of a container: the same for the same container in every run.
fn container_id(uid: &str, container: &str, restarts: i32) -> String {
    format!("containerd://{}", digest(&(uid, container, restarts)))
}

fn image_id(image: Option<&str>) -> String {
    let image = image.unwrap_or_default();
    let name = image.split_once('@').map_or(image, |(name, _)| name);
    let tag = name.rfind(':').filter(|colon| !name[*colon..].contains('/'));
    let repository = tag.map_or(name, |colon| &name[..colon]);
    let domain = match repository.split_once('/') {
        None => "docker.io/library/",
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => "",
        Some(_) => "docker.io/",
    };
    format!("{domain}{repository}@sha256:{}", digest(&image))
}

/// 64 hexadecimal digits that look like a SHA-256.
fn digest(value: &impl Hash) -> String {
    let part = |n: u64| {
        let mut hasher = DefaultHasher::new();
        (n, value).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    };
    (0..4).map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_the_id_that_a_registry_would_give_it() {
        let repository = |image| image_id(Some(image)).split_once('@').unwrap().0.to_owned();
        assert_eq!(repository("nginx"), "docker.io/library/nginx");
        assert_eq!(repository("nginx:1.27"), "docker.io/library/nginx");
        assert_eq!(repository("bitnami/redis:7"), "docker.io/bitnami/redis");
        assert_eq!(repository("registry.k8s.io/pause:3.10"), "registry.k8s.io/pause");
        assert_eq!(repository("localhost:5000/web"), "localhost:5000/web");
        assert_eq!(image_id(Some("nginx")).len(), "docker.io/library/nginx@sha256:".len() + 64);
    }

    #[test]
    fn durations_are_written_as_go_does() {
        let texts = [10, 80, 300].map(go_duration);
        assert_eq!(texts, ["10s", "1m20s", "5m0s"]);
    }
}
