//! What the server counts, and `/metrics`, which tells it to Prometheus under kube-apiserver's names.
//!
//! This is our own instead of the crate `prometheus-client`, because that one keeps every labelled metric in a map
//! behind a lock, and looks labels up by owned strings. Here the labels are known beforehand (the table of kinds), so
//! that a request costs one lookup in a map that never changes and a few atomic additions, no lock and no allocation.

mod exposition;
mod process;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use http::{Method, Response, StatusCode};
use setpoint_env::Env;
use setpoint_kinds::Verb;
use tokio::time::Instant;

use crate::options::Query;
use crate::resource::Resource;
use crate::response::{Body, respond as response};
use crate::routes::{ResourcePath, Route};
use crate::storage::Stats;

/// Upper bounds of the latency histogram in seconds: kube-apiserver's.
const BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0, 60.0,
];

/// The codes that are counted one by one; others count as the last, 0.
const CODES: [u16; 23] = [
    200, 201, 202, 204, 304, 400, 401, 403, 404, 405, 406, 408, 409, 410, 413, 415, 422, 429, 500, 503, 504,
    507, 0,
];

const VERBS: [&str; 9] = ["GET", "LIST", "WATCH", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OTHER"];
const GET: usize = 0;
const WATCH: usize = 2;
const CONNECT: usize = 7;
const OTHER: usize = 8;

const SCOPES: [&str; 4] = ["", "resource", "namespace", "cluster"];
const DRY_RUNS: [&str; 3] = ["", "All", "invalid"];
const SERIES: usize = VERBS.len() * SCOPES.len() * DRY_RUNS.len();

/// Pages about the server itself that are counted by name, in the place of the subresource as kube-apiserver does.
const PAGES: [&str; 8] =
    ["/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi", "/readyz", "/version"];

/// What other parts of the server count.
#[derive(Debug, Default)]
pub(crate) struct Own {
    /// Panics by background task.
    pub panics: Vec<(&'static str, u64)>,
    /// Audit events, and how many of them were lost.
    pub audit: Option<(u64, u64)>,
}

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    env: Env,
    /// When the server was made, in seconds since 1970.
    started: f64,
    /// In the order of [`Names::places`].
    places: Box<[Place]>,
    /// In the order of [`Names::watches`].
    watches: Box<[WatchCounts]>,
    /// In the same order.
    lists: Box<[ListCounts]>,
    reading: AtomicU64,
    mutating: AtomicU64,
    panics: AtomicU64,
}

/// Where a request goes: group, version, resource, subresource.
type Labels = (&'static str, &'static str, &'static str, &'static str);

/// What can be counted by name. All servers of a process share it.
struct Names {
    /// The first one is for what does not exist: it is counted, but not by name, or anybody could fill the memory
    /// with names.
    places: Vec<Labels>,
    place_of: HashMap<Labels, usize>,
    /// Group, version, resource.
    watches: Vec<(&'static str, &'static str, &'static str)>,
    watch_of: HashMap<(&'static str, &'static str, &'static str), usize>,
}

static NAMES: LazyLock<Names> = LazyLock::new(|| {
    let mut places = vec![("", "", "", "")];
    let mut watches = Vec::new();
    for resource in setpoint_kinds::table().resources() {
        let (group, version, plural) = (resource.group, resource.version, resource.plural);
        places.push((group, version, plural, ""));
        places.extend(resource.subresources.iter().map(|sub| (group, version, plural, sub.name)));
        watches.push((group, version, plural));
    }
    places.extend(PAGES.map(|page| ("", "", "", page)));
    let place_of = places.iter().enumerate().map(|(at, labels)| (*labels, at)).collect();
    let watch_of = watches.iter().enumerate().map(|(at, labels)| (*labels, at)).collect();
    Names { places, place_of, watches, watch_of }
});

/// The requests that go to one place, by verb, scope and dry run; made when the first one comes.
#[derive(Debug, Default)]
struct Place(OnceLock<Box<[OnceLock<Box<Series>>]>>);

#[derive(Debug, Default)]
struct Series {
    codes: [AtomicU64; CODES.len()],
    /// Not cumulative; the last one is for what is slower than the last bound.
    buckets: [AtomicU64; BUCKETS.len() + 1],
    nanoseconds: AtomicU64,
}

#[derive(Debug, Default)]
struct WatchCounts {
    running: AtomicU64,
    events: AtomicU64,
}

#[derive(Debug, Default)]
struct ListCounts {
    lists: AtomicU64,
    fetched: AtomicU64,
    returned: AtomicU64,
}

impl Metrics {
    pub(crate) fn new(env: &Env) -> Metrics {
        #[allow(clippy::cast_precision_loss)]
        let started = env.now().as_millisecond() as f64 / 1000.0;
        Metrics {
            shared: Arc::new(Shared {
                env: env.clone(),
                started,
                places: NAMES.places.iter().map(|_| Place::default()).collect(),
                watches: NAMES.watches.iter().map(|_| WatchCounts::default()).collect(),
                lists: NAMES.watches.iter().map(|_| ListCounts::default()).collect(),
                reading: AtomicU64::default(),
                mutating: AtomicU64::default(),
                panics: AtomicU64::default(),
            }),
        }
    }

    /// A request has arrived. It counts as in flight until the returned value is finished or dropped.
    pub(crate) fn request_started(&self, method: &Method, route: Option<&Route>, query: &Query) -> Started {
        let watch = query.flag("watch");
        let (labels, verb, scope) = match route {
            Some(Route::Resource(path)) => {
                let sub = path.subresource.as_deref().unwrap_or_default();
                let labels = (path.group.as_str(), path.version.as_str(), path.resource.as_str(), sub);
                (Some(labels), verb(method, path, watch), scope(method, path))
            }
            Some(Route::Server(segments)) => {
                let first = segments.first().map(String::as_str).unwrap_or_default();
                let page = PAGES.into_iter().find(|page| &page[1..] == first);
                (page.map(|page| ("", "", "", page)), page_verb(method), 0)
            }
            None => (None, page_verb(method), 0),
        };
        let dry_run = match query.get("dryRun") {
            None => 0,
            Some("All") => 1,
            Some(_) => 2,
        };
        let flight = match (verb, method) {
            // Long-running requests are counted as such, by `watch_started`.
            (WATCH | CONNECT, _) => None,
            (_, &Method::GET | &Method::HEAD) => Some(Flight::Reading),
            _ => Some(Flight::Mutating),
        };
        if let Some(flight) = flight {
            self.shared.in_flight(flight).fetch_add(1, Relaxed);
        }
        Started {
            place: labels.and_then(|labels| NAMES.place_of.get(&labels).copied()).unwrap_or(0),
            series: index(verb, scope, dry_run),
            at: self.shared.env.instant(),
            flight,
            shared: Arc::clone(&self.shared),
        }
    }

    /// A watch has begun; it counts as running until the returned value is dropped.
    pub(crate) fn watch_started(&self, resource: &Resource) -> RunningWatch {
        let labels = (resource.group(), resource.version(), resource.plural());
        let watch =
            RunningWatch { at: NAMES.watch_of.get(&labels).copied(), shared: Arc::clone(&self.shared) };
        if let Some(counts) = watch.counts() {
            counts.running.fetch_add(1, Relaxed);
        }
        watch
    }

    /// A list has looked at so many records and changes, and found so many objects.
    pub(crate) fn listed(&self, resource: &Resource, fetched: usize, returned: usize) {
        let labels = (resource.group(), resource.version(), resource.plural());
        let Some(at) = NAMES.watch_of.get(&labels) else { return };
        let counts = &self.shared.lists[*at];
        counts.lists.fetch_add(1, Relaxed);
        counts.fetched.fetch_add(fetched as u64, Relaxed);
        counts.returned.fetch_add(returned as u64, Relaxed);
    }

    /// The handler of a request has panicked.
    pub(crate) fn panicked(&self) {
        self.shared.panics.fetch_add(1, Relaxed);
    }

    /// Answers `/metrics`.
    pub(crate) fn respond(&self, storage: &Stats, own: &Own) -> Response<Body> {
        let text = exposition::text(&self.shared, storage, own);
        response(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text)
    }
}

impl Shared {
    fn in_flight(&self, flight: Flight) -> &AtomicU64 {
        match flight {
            Flight::Reading => &self.reading,
            Flight::Mutating => &self.mutating,
        }
    }
}

impl Place {
    fn series(&self, at: usize) -> &Series {
        let all = self.0.get_or_init(|| (0..SERIES).map(|_| OnceLock::new()).collect());
        all[at].get_or_init(Box::default)
    }

    /// What has been counted so far, with verb, scope and dry run.
    fn counted(&self) -> impl Iterator<Item = ([&'static str; 3], &Series)> {
        let all = self.0.get().into_iter().flatten().enumerate();
        all.filter_map(|(at, series)| Some((labels_at(at), series.get()?.as_ref())))
    }
}

impl Series {
    fn observe(&self, code: StatusCode, elapsed: Duration) {
        let code = CODES.iter().position(|known| *known == code.as_u16()).unwrap_or(CODES.len() - 1);
        let seconds = elapsed.as_secs_f64();
        let bucket = BUCKETS.iter().position(|bound| seconds <= *bound).unwrap_or(BUCKETS.len());
        self.codes[code].fetch_add(1, Relaxed);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.nanoseconds.fetch_add(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }
}

/// The place of a series among those of its [`Place`]. The arguments are places in [`VERBS`], [`SCOPES`], [`DRY_RUNS`].
fn index(verb: usize, scope: usize, dry_run: usize) -> usize {
    (verb * SCOPES.len() + scope) * DRY_RUNS.len() + dry_run
}

fn labels_at(index: usize) -> [&'static str; 3] {
    let (rest, dry_run) = (index / DRY_RUNS.len(), index % DRY_RUNS.len());
    [VERBS[rest / SCOPES.len()], SCOPES[rest % SCOPES.len()], DRY_RUNS[dry_run]]
}

/// The verb as kube-apiserver's metrics have it: a place in [`VERBS`].
fn verb(method: &Method, path: &ResourcePath, watch: bool) -> usize {
    if matches!(path.subresource.as_deref(), Some("exec" | "attach" | "portforward" | "proxy")) {
        return CONNECT;
    }
    match path.verb(method, watch) {
        Ok(Verb::Get) => GET,
        Ok(Verb::List) => 1,
        Ok(Verb::Watch) => WATCH,
        Ok(Verb::Create) => 3,
        Ok(Verb::Update) => 4,
        Ok(Verb::Patch) => 5,
        Ok(Verb::Delete | Verb::DeleteCollection) => 6,
        Err(_) => OTHER,
    }
}

fn page_verb(method: &Method) -> usize {
    match *method {
        Method::GET | Method::HEAD => GET,
        _ => OTHER,
    }
}

/// A place in [`SCOPES`].
fn scope(method: &Method, path: &ResourcePath) -> usize {
    match (&path.name, &path.namespace) {
        (Some(_), _) => 1,
        _ if *method == Method::POST => 1,
        (None, Some(_)) => 2,
        (None, None) => 3,
    }
}

#[derive(Clone, Copy, Debug)]
enum Flight {
    Reading,
    Mutating,
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct Started {
    shared: Arc<Shared>,
    place: usize,
    series: usize,
    at: Instant,
    flight: Option<Flight>,
}

impl Started {
    /// The answer is ready.
    pub(crate) fn finish(self, code: StatusCode) {
        let elapsed = self.shared.env.instant().saturating_duration_since(self.at);
        self.shared.places[self.place].series(self.series).observe(code, elapsed);
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(flight) = self.flight {
            self.shared.in_flight(flight).fetch_sub(1, Relaxed);
        }
    }
}

/// A watch that goes on.
#[derive(Debug)]
pub(crate) struct RunningWatch {
    shared: Arc<Shared>,
    /// None for what the table of kinds does not know.
    at: Option<usize>,
}

impl RunningWatch {
    /// An event has been sent.
    pub(crate) fn event(&self) {
        if let Some(counts) = self.counts() {
            counts.events.fetch_add(1, Relaxed);
        }
    }

    fn counts(&self) -> Option<&WatchCounts> {
        self.shared.watches.get(self.at?)
    }
}

impl Drop for RunningWatch {
    fn drop(&mut self) {
        if let Some(counts) = self.counts() {
            counts.running.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::resource::Registry;

    async fn scrape(metrics: &Metrics, storage: &Stats) -> String {
        let own = Own { panics: vec![("expiry", 2), ("roles", 0)], audit: Some((9, 1)) };
        let response = metrics.respond(storage, &own);
        assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
        String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[track_caller]
    fn check(text: &str, line: &str) {
        assert!(text.lines().any(|found| found == line), "no line {line} in\n{text}");
    }

    fn start(metrics: &Metrics, method: Method, url: &str) -> Started {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        metrics.request_started(&method, Route::parse(path).as_ref().ok(), &Query::parse(query))
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_counted_by_what_they_ask_for() {
        let metrics = Metrics::new(&Env::seeded(1));
        let started = start(&metrics, Method::GET, "/api/v1/namespaces/default/pods");
        tokio::time::advance(Duration::from_millis(30)).await;
        started.finish(StatusCode::OK);
        start(&metrics, Method::POST, "/apis/apps/v1/namespaces/x/deployments?dryRun=All")
            .finish(StatusCode::CREATED);
        start(&metrics, Method::PUT, "/apis/apps/v1/namespaces/x/deployments/a/scale")
            .finish(StatusCode::CONFLICT);
        start(&metrics, Method::GET, "/api/v1/pods?watch=1").finish(StatusCode::OK);
        start(&metrics, Method::GET, "/readyz").finish(StatusCode::OK);
        start(&metrics, Method::GET, "/apis/example.com/v1/foos").finish(StatusCode::NOT_FOUND);
        start(&metrics, Method::GET, "/api/v1/nodes").finish(StatusCode::IM_A_TEAPOT);
        let text = scrape(&metrics, &Stats::default()).await;
        let total = |labels: &str| format!("apiserver_request_total{{{labels}}} 1");
        for labels in [
            r#"code="200",component="apiserver",dry_run="",group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1""#,
            r#"code="201",component="apiserver",dry_run="All",group="apps",resource="deployments",scope="resource",subresource="",verb="POST",version="v1""#,
            r#"code="409",component="apiserver",dry_run="",group="apps",resource="deployments",scope="resource",subresource="scale",verb="PUT",version="v1""#,
            r#"code="200",component="apiserver",dry_run="",group="",resource="pods",scope="cluster",subresource="",verb="WATCH",version="v1""#,
            r#"code="200",component="apiserver",dry_run="",group="",resource="",scope="",subresource="/readyz",verb="GET",version="""#,
            r#"code="404",component="apiserver",dry_run="",group="",resource="",scope="cluster",subresource="",verb="LIST",version="""#,
            r#"code="0",component="apiserver",dry_run="",group="",resource="nodes",scope="cluster",subresource="",verb="LIST",version="v1""#,
        ] {
            check(&text, &total(labels));
        }
        let pods = r#"component="apiserver",dry_run="",group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1""#;
        check(&text, &format!("apiserver_request_duration_seconds_bucket{{{pods},le=\"0.025\"}} 0"));
        check(&text, &format!("apiserver_request_duration_seconds_bucket{{{pods},le=\"0.05\"}} 1"));
        check(&text, &format!("apiserver_request_duration_seconds_bucket{{{pods},le=\"60\"}} 1"));
        check(&text, &format!("apiserver_request_duration_seconds_bucket{{{pods},le=\"+Inf\"}} 1"));
        check(&text, &format!("apiserver_request_duration_seconds_sum{{{pods}}} 0.03"));
        check(&text, &format!("apiserver_request_duration_seconds_count{{{pods}}} 1"));
    }

    #[tokio::test]
    async fn what_is_going_on_is_counted_until_it_ends() {
        let metrics = Metrics::new(&Env::seeded(1));
        let flight =
            |kind: &str, n: u8| format!("apiserver_current_inflight_requests{{request_kind=\"{kind}\"}} {n}");
        let reading = start(&metrics, Method::GET, "/api/v1/pods");
        let writing = start(&metrics, Method::PATCH, "/api/v1/nodes/a");
        let watching = start(&metrics, Method::GET, "/api/v1/watch/pods");
        let watch = metrics.watch_started(Registry::built_in().expect("", "v1", "pods"));
        watch.event();
        watch.event();
        let text = scrape(&metrics, &Stats::default()).await;
        check(&text, &flight("readOnly", 1));
        check(&text, &flight("mutating", 1));
        let labels = r#"component="apiserver",group="",resource="pods",scope="",subresource="",verb="WATCH",version="v1""#;
        check(&text, &format!("apiserver_longrunning_requests{{{labels}}} 1"));
        check(&text, r#"apiserver_watch_events_total{group="",resource="pods",version="v1"} 2"#);
        drop((reading, writing, watching, watch));
        let text = scrape(&metrics, &Stats::default()).await;
        check(&text, &flight("readOnly", 0));
        check(&text, &flight("mutating", 0));
        check(&text, &format!("apiserver_longrunning_requests{{{labels}}} 0"));
    }

    #[tokio::test]
    async fn storage_and_process_have_their_figures() {
        let storage = Stats {
            revision: 7,
            history_events: 3,
            history_bytes: 99,
            is_full: true,
            writer_panics: 2,
            records: vec![("apps/deployments".into(), 2), ("core/pods".into(), 5)],
            #[cfg(feature = "etcd")]
            remote: None,
        };
        let text = scrape(&Metrics::new(&Env::seeded(1)), &storage).await;
        check(&text, r#"apiserver_storage_objects{resource="deployments.apps"} 2"#);
        check(&text, r#"apiserver_storage_objects{resource="pods"} 5"#);
        check(&text, r#"apiserver_resource_objects{group="apps",resource="deployments"} 2"#);
        check(&text, "setpoint_storage_revision 7");
        check(&text, "setpoint_storage_history_events 3");
        check(&text, "setpoint_storage_history_bytes 99");
        check(&text, r#"setpoint_task_panics_total{task="expiry"} 2"#);
        check(&text, r#"setpoint_task_panics_total{task="roles"} 0"#);
        check(&text, "apiserver_audit_event_total 9");
        check(&text, r#"apiserver_audit_error_total{plugin="log"} 1"#);
        check(&text, "setpoint_storage_full 1");
        check(&text, "setpoint_storage_writer_panics_total 2");
        if cfg!(target_os = "linux") {
            for name in ["process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"] {
                assert!(text.lines().any(|line| line.starts_with(&format!("{name} "))), "{text}");
            }
        }
    }

    #[test]
    fn every_combination_of_labels_has_its_own_place() {
        for at in 0..SERIES {
            let [verb, scope, dry_run] = labels_at(at);
            let find = |list: &[&str], wanted| list.iter().position(|known| *known == wanted).unwrap();
            assert_eq!(index(find(&VERBS, verb), find(&SCOPES, scope), find(&DRY_RUNS, dry_run)), at);
        }
    }
}
