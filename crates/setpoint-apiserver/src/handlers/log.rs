//! GET of `pods/log`.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::unfold;
use http::{HeaderValue, Response, StatusCode, header};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::get;
use crate::logs::{LogLine, LogSource};
use crate::object;
use crate::options::Query;
use crate::request::ResourceRequest;
use crate::response::{Body, respond};
use crate::server::Core;
use crate::status::{Result, Status};
use crate::storage::{Key, Record};

/// How often a log that is followed is looked at.
const LOOK: Duration = Duration::from_millis(500);
const PLAIN: &str = "text/plain";

/// What the client wants of a log.
struct Options {
    container: String,
    previous: bool,
    follow: bool,
    timestamps: bool,
    tail: Option<usize>,
    since: Option<Timestamp>,
    limit_bytes: Option<usize>,
}

pub(crate) async fn handle(
    core: &Arc<Core>,
    source: &Arc<dyn LogSource>,
    request: &ResourceRequest,
) -> Result<Response<Body>> {
    let record = get::find(core, request).await?;
    let pod = decode(&record)?;
    let now = core.env.now();
    let options = Options::parse(&request.query, &pod, now)?;
    if pod.spec.as_ref().is_none_or(|spec| spec.node_name.as_deref().unwrap_or_default().is_empty()) {
        return Ok(respond(StatusCode::OK, PLAIN, Bytes::new()));
    }
    check_started(&pod, &options)?;
    let lines = source.lines(&pod, &options.container, options.previous, now);
    let lines = lines.ok_or_else(|| no_previous(&pod, &options.container))?;
    let first = options.render(options.select(&lines));
    if !options.follow || options.previous {
        return Ok(respond(StatusCode::OK, PLAIN, first));
    }
    let key = request.resource.key(request.namespace.as_deref(), request.name());
    let last = lines.last().map(|line| line.time);
    let follower = Follower {
        core: core.clone(),
        source: source.clone(),
        key,
        uid: pod.metadata.uid.unwrap_or_default(),
        options,
        last,
        first: Some(first.into()),
        good_until: request.good_until,
        _place: core.limits.watch(&request.user)?,
    };
    let mut response = Response::new(Body::stream(unfold(follower, Follower::next)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(PLAIN));
    Ok(response)
}

fn decode(record: &Record) -> Result<Pod> {
    let pod = serde_json::from_value(object::decode(&record.value, record.revision));
    pod.map_err(|error| Status::internal(format!("the stored pod cannot be read: {error}")))
}

impl Options {
    fn parse(query: &Query, pod: &Pod, now: Timestamp) -> Result<Options> {
        let number = |name: &str| -> Result<Option<usize>> {
            let parse = |text: &str| {
                text.parse().map_err(|_| Status::bad_request(format!("{name} must be a non-negative number")))
            };
            query.get(name).map(parse).transpose()
        };
        let since = match (query.get("sinceTime"), number("sinceSeconds")?) {
            (Some(_), Some(_)) => {
                return Err(Status::bad_request(
                    "at most one of `sinceTime` or `sinceSeconds` may be specified",
                ));
            }
            (Some(time), None) => {
                Some(time.parse().map_err(|_| Status::bad_request(format!("bad sinceTime {time:?}")))?)
            }
            (None, Some(seconds)) => now.checked_sub(Duration::from_secs(seconds as u64)).ok(),
            (None, None) => None,
        };
        Ok(Options {
            container: container(pod, query.get("container"))?,
            previous: query.flag("previous"),
            follow: query.flag("follow"),
            timestamps: query.flag("timestamps"),
            tail: number("tailLines")?,
            since,
            limit_bytes: number("limitBytes")?,
        })
    }

    fn select<'a>(&self, lines: &'a [LogLine]) -> &'a [LogLine] {
        let from = lines.partition_point(|line| self.since.is_some_and(|since| line.time < since));
        let lines = &lines[from..];
        &lines[lines.len() - self.tail.unwrap_or(lines.len()).min(lines.len())..]
    }

    fn render(&self, lines: &[LogLine]) -> String {
        let mut text = String::new();
        for line in lines {
            if self.timestamps {
                let _ = write!(text, "{:.9} ", line.time);
            }
            text.push_str(&line.text);
            text.push('\n');
        }
        if let Some(limit) = self.limit_bytes {
            text.truncate(text.floor_char_boundary(limit));
        }
        text
    }
}

/// The container that is meant.
fn container(pod: &Pod, named: Option<&str>) -> Result<String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let Some(spec) = &pod.spec else { return Err(Status::bad_request(format!("pod {name} has no spec"))) };
    let names: Vec<&str> = spec.containers.iter().map(|container| container.name.as_str()).collect();
    let inits: Vec<&str> =
        spec.init_containers.iter().flatten().map(|container| container.name.as_str()).collect();
    match named.filter(|named| !named.is_empty()) {
        Some(named) if names.contains(&named) || inits.contains(&named) => Ok(named.to_owned()),
        Some(named) => Err(Status::bad_request(format!("container {named} is not valid for pod {name}"))),
        None => match names.as_slice() {
            [only] => Ok((*only).to_owned()),
            _ => {
                let mut message = format!(
                    "a container name must be specified for pod {name}, choose one of: [{}]",
                    names.join(" ")
                );
                if !inits.is_empty() {
                    let _ = write!(message, " or one of the init containers: [{}]", inits.join(" "));
                }
                Err(Status::bad_request(message))
            }
        },
    }
}

fn status_of<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let all = status.container_statuses.iter().chain(&status.init_container_statuses);
    all.flatten().find(|status| status.name == container)
}

/// A container that never ran has written nothing; the kubelet says why it does not run.
fn check_started(pod: &Pod, options: &Options) -> Result<()> {
    let Options { container, previous, .. } = options;
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let status = status_of(pod, container);
    let waiting = status.and_then(|status| status.state.as_ref()?.waiting.as_ref());
    let has_run =
        status.is_some_and(|status| status.last_state.as_ref().is_some_and(|last| last.terminated.is_some()));
    if *previous && !has_run {
        return Err(no_previous(pod, container));
    }
    match (status, waiting) {
        (None, _) => {
            Err(Status::bad_request(format!("container {container:?} in pod {name:?} is not available")))
        }
        (Some(_), Some(waiting)) if !has_run => {
            let reason = match waiting.reason.as_deref().unwrap_or_default() {
                "ErrImagePull" | "ImagePullBackOff" => "trying and failing to pull image",
                reason => reason,
            };
            let message = format!("container {container:?} in pod {name:?} is waiting to start: {reason}");
            Err(Status::bad_request(message))
        }
        _ => Ok(()),
    }
}

fn no_previous(pod: &Pod, container: &str) -> Status {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    Status::bad_request(format!("previous terminated container {container:?} in pod {name:?} not found"))
}

/// A log that is followed until its container ends.
struct Follower {
    core: Arc<Core>,
    source: Arc<dyn LogSource>,
    key: Key,
    uid: String,
    options: Options,
    /// The time of the last line that was sent.
    last: Option<Timestamp>,
    first: Option<Bytes>,
    /// When the certificate of the reader ends.
    good_until: Option<Timestamp>,
    _place: crate::limits::Place,
}

impl Follower {
    async fn next(mut self) -> Option<(Bytes, Follower)> {
        if let Some(first) = self.first.take().filter(|first| !first.is_empty()) {
            return Some((first, self));
        }
        let ended = self.core.watch_token();
        loop {
            tokio::select! {
                biased;
                () = ended.cancelled() => return None,
                () = tokio::time::sleep(LOOK) => {}
            }
            if self.good_until.is_some_and(|end| self.core.env.now() > end) {
                return None;
            }
            let record = get::read(&self.core, &self.key).await.ok()??;
            let pod = decode(&record).ok()?;
            if pod.metadata.uid.as_deref() != Some(&self.uid) {
                return None;
            }
            let now = self.core.env.now();
            let mut lines = self.source.lines(&pod, &self.options.container, false, now).unwrap_or_default();
            lines.retain(|line| self.last.is_none_or(|last| line.time > last));
            if let Some(last) = lines.last() {
                self.last = Some(last.time);
                return Some((self.options.render(&lines).into(), self));
            }
            let state = status_of(&pod, &self.options.container).and_then(|status| status.state.as_ref());
            if state.is_some_and(|state| state.terminated.is_some()) {
                return None;
            }
        }
    }
}
