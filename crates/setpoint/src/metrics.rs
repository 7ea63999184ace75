//! What is measured, without a global registry: every part is given a [`Metrics`] and writes to it.
//!
//! `docs/metrics.md` has a table of the names. They are those of controller-runtime and client-go where these have
//! one. The format is OpenMetrics; the types and the registry are those of [`prometheus_client`].

mod computed;
mod families;
mod histogram;
pub(crate) mod names;
mod process;

use std::fmt::Error;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
pub use prometheus_client;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

pub(crate) use self::computed::Gone;
use self::families::Families;
pub(crate) use self::histogram::Histogram;
use self::names::Description;
use self::process::Process;

pub(crate) type Counter = prometheus_client::metrics::counter::Counter;
pub(crate) type Gauge = prometheus_client::metrics::gauge::Gauge<u64, AtomicU64>;

/// The media type of [`Metrics::render`].
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A set of metrics. Clones share it; give one to everything that one `/metrics` page shall show.
///
/// Metrics of yours can be on the same page, in a registry of `prometheus_client`:
///
/// ```
/// use setpoint::Metrics;
/// use setpoint::metrics::prometheus_client::metrics::counter::Counter;
///
/// let metrics = Metrics::default();
/// let orders: Counter = Counter::default();
/// metrics.register(|registry| registry.register("orders", "Orders that came", orders.clone()));
/// orders.inc();
/// assert!(metrics.render().contains("\norders_total 1\n"));
/// ```
///
/// The other way around, a page of yours can show what the runtime measures: a `Metrics` is a collector.
///
/// ```
/// use setpoint::Metrics;
/// use setpoint::metrics::prometheus_client::registry::Registry;
///
/// let metrics = Metrics::default();
/// let mut registry = Registry::default();
/// registry.register_collector(Box::new(metrics.clone()));
/// ```
#[derive(Clone, Debug)]
pub struct Metrics {
    own: Arc<Families>,
    registry: Arc<Mutex<Registry>>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let own = Arc::new(Families::default());
        let mut registry = Registry::default();
        registry.register_collector(Box::new(own.clone()));
        registry.register_collector(Box::new(Process));
        Metrics { own, registry: Arc::new(Mutex::new(registry)) }
    }
}

impl Metrics {
    /// Adds metrics of yours to the page: `add` gets the registry.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.registry.lock());
    }

    /// Everything, in the text format of OpenMetrics ([`MEDIA_TYPE`]).
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail; a collector of somebody's may, and what comes after it is missing then.
        if prometheus_client::encoding::text::encode(&mut text, &self.registry.lock()).is_err() {
            tracing::error!("a collector of metrics failed; the response is incomplete");
        }
        text
    }

    /// The value of a counter or gauge of the runtime, or how much a histogram has seen; `None` if there is no such
    /// series. For tests: labels are in the order of the table.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<u64> {
        self.own.value(name, labels)
    }

    /// The counter of these labels' values; the same one each time.
    pub(crate) fn counter(&self, description: &'static Description, values: &[&str]) -> Counter {
        self.own.counter(description, values)
    }

    /// The gauge of these labels' values; the same one each time.
    pub(crate) fn gauge(&self, description: &'static Description, values: &[&str]) -> Gauge {
        self.own.gauge(description, values)
    }

    /// The histogram of these labels' values; the same one each time.
    pub(crate) fn histogram(&self, description: &'static Description, values: &[&str]) -> Histogram {
        self.own.histogram(description, values)
    }

    /// A gauge whose value is worked out when somebody looks: the largest of all that were given for these labels. It is
    /// left out while there is none.
    pub(crate) fn computed_gauge(
        &self,
        description: &'static Description,
        values: &[&str],
        value: impl Fn() -> Result<Option<f64>, Gone> + Send + Sync + 'static,
    ) {
        self.own.computed(description, values).add(value);
    }

    /// Forgets a gauge: what it measured is gone.
    pub(crate) fn remove(&self, description: &'static Description, values: &[&str]) {
        self.own.remove(description, values);
    }
}

/// What the runtime measures, for a registry of yours; without what was [registered](Metrics::register) here, and without what
/// the process takes, which your registry may tell itself.
impl Collector for Metrics {
    fn encode(&self, encoder: DescriptorEncoder) -> Result<(), Error> {
        self.own.encode(encoder)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use super::names::{Kind, *};
    use super::*;

    #[test]
    fn label_values_are_escaped() {
        let metrics = Metrics::default();
        metrics.gauge(MASTER_STATUS, &["x\"y\\z\n"]).set(1);
        assert!(metrics.render().contains(r#"leader_election_master_status{name="x\"y\\z\n"} 1"#));
    }

    #[test]
    fn a_histogram_counts_what_is_below_each_bound() {
        let metrics = Metrics::default();
        let histogram = metrics.histogram(QUEUE_DURATION, &["b"]);
        for milliseconds in [50, 100, 500, 5000] {
            histogram.observe(Duration::from_millis(milliseconds));
        }
        let page = metrics.render();
        for line in [
            "# TYPE workqueue_queue_duration_seconds histogram",
            "workqueue_queue_duration_seconds_sum{name=\"b\"} 5.65",
            "workqueue_queue_duration_seconds_count{name=\"b\"} 4",
            "workqueue_queue_duration_seconds_bucket{le=\"0.01\",name=\"b\"} 0",
            "workqueue_queue_duration_seconds_bucket{le=\"0.1\",name=\"b\"} 2",
            "workqueue_queue_duration_seconds_bucket{le=\"1.0\",name=\"b\"} 3",
            "workqueue_queue_duration_seconds_bucket{le=\"+Inf\",name=\"b\"} 4",
        ] {
            assert!(page.lines().any(|found| found == line), "no {line} in\n{page}");
        }
    }

    #[test]
    fn a_computed_gauge_is_asked_when_somebody_looks_and_left_out_when_it_is_gone() {
        let metrics = Metrics::default();
        let value = Arc::new(AtomicU64::new(3));
        let shown = Arc::downgrade(&value);
        metrics.computed_gauge(QUEUE_DEPTH, &["q"], move || {
            Ok(Some(shown.upgrade().ok_or(Gone)?.load(Ordering::Relaxed) as f64))
        });
        value.store(4, Ordering::Relaxed);
        assert!(metrics.render().contains("workqueue_depth{name=\"q\"} 4.0\n"));
        drop(value);
        assert!(!metrics.render().contains("workqueue_depth{"));
    }

    #[test]
    fn the_same_labels_are_the_same_series() {
        let metrics = Metrics::default();
        metrics.counter(QUEUE_ADDS, &["q"]).inc();
        metrics.clone().counter(QUEUE_ADDS, &["q"]).inc();
        assert_eq!(metrics.value("workqueue_adds_total", &[("name", "q")]), Some(2));
        metrics.gauge(HANDLER_LAG, &["a", "b"]).set(1);
        metrics.remove(HANDLER_LAG, &["a", "b"]);
        assert_eq!(metrics.value("informer_handler_lag", &[("name", "a"), ("handler", "b")]), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_page_says_what_the_process_takes() {
        let page = Metrics::default().render();
        for name in ["process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"] {
            assert!(page.contains(&format!("\n{name} ")), "no {name} in\n{page}");
        }
    }

    #[test]
    fn registries_are_joined_both_ways() {
        let (metrics, theirs) = (Metrics::default(), Counter::default());
        metrics.counter(QUEUE_ADDS, &["q"]).inc();
        metrics.register(|registry| registry.register("orders", "Orders", theirs.clone()));
        theirs.inc_by(7);
        let page = metrics.render();
        assert!(page.contains("\norders_total 7\n") && page.contains("workqueue_adds_total{name=\"q\"} 1\n"));
        assert_eq!(page.matches("# EOF\n").count(), 1);

        let mut registry = Registry::default();
        registry.register("orders", "Orders", theirs.clone());
        registry.register_collector(Box::new(metrics.clone()));
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        assert!(page.contains("\norders_total 7\n"));
        assert!(page.contains("workqueue_adds_total{name=\"q\"} 1\n"), "{page}");
        assert_eq!(page.matches("orders_total").count(), 1, "what was added to ours stays there");
    }

    /// What `docs/metrics.md` has to contain.
    fn table() -> String {
        let mut table = "| name | type | labels | |\n| --- | --- | --- | --- |\n".to_owned();
        for Description { name, kind, labels, help } in ALL {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram(_) => "histogram",
            };
            let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
            table.push_str(&format!("| `{name}` | {kind} | {} | {help} |\n", labels.join(", ")));
        }
        table
    }

    #[test]
    fn the_guide_has_every_metric() {
        let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md"));
        let table = table();
        assert!(guide.unwrap().contains(&table), "docs/metrics.md needs this table:\n{table}");
    }

    #[test]
    fn counters_end_in_total_and_no_name_is_given_twice() {
        let mut names: Vec<_> = ALL.iter().map(|description| description.name).collect();
        for description in ALL {
            let is_counter = matches!(description.kind, Kind::Counter);
            assert_eq!(description.name.ends_with("_total"), is_counter, "{}", description.name);
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }
}
