//! Counters and gauges without a global registry: every part is given a [`Metrics`] and writes to it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// A set of metrics. Clones share it; give one to everything that one `/metrics` page shall show.
///
/// ```
/// use setpoint::Metrics;
///
/// let metrics = Metrics::default();
/// metrics.counter("requests_total", "How many requests came.", &[("verb", "get")]).add(2);
/// assert!(metrics.render().ends_with("requests_total{verb=\"get\"} 2\n"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    families: Arc<Mutex<BTreeMap<&'static str, Family>>>,
}

#[derive(Debug)]
struct Family {
    help: &'static str,
    kind: &'static str,
    /// Values by labels, as they are rendered.
    series: BTreeMap<String, Series>,
}

enum Series {
    Number(Arc<AtomicU64>),
    Histogram(Histogram),
    /// Worked out when somebody looks; none: what it measured is gone.
    Computed(Box<dyn Fn() -> Option<f64> + Send + Sync>),
}

impl std::fmt::Debug for Series {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Series::Number(number) => number.fmt(f),
            Series::Histogram(histogram) => histogram.fmt(f),
            Series::Computed(_) => f.write_str("computed"),
        }
    }
}

/// A number that only grows.
#[derive(Clone, Debug)]
pub struct Counter(Arc<AtomicU64>);

/// A number that goes up and down.
#[derive(Clone, Debug)]
pub struct Gauge(Arc<AtomicU64>);

/// How often a duration fell into each of some ranges.
#[derive(Clone, Debug)]
pub struct Histogram(Arc<Buckets>);

#[derive(Debug)]
struct Buckets {
    /// Upper bounds in seconds, ascending.
    bounds: &'static [f64],
    /// One more than bounds: the last is for what is above all of them.
    counts: Box<[AtomicU64]>,
    nanoseconds: AtomicU64,
}

impl Metrics {
    /// The counter of this name and these labels; the same one each time.
    pub fn counter(&self, name: &'static str, help: &'static str, labels: &[(&str, &str)]) -> Counter {
        Counter(self.series(name, "counter", help, labels))
    }

    /// The gauge of this name and these labels; the same one each time.
    pub fn gauge(&self, name: &'static str, help: &'static str, labels: &[(&str, &str)]) -> Gauge {
        Gauge(self.series(name, "gauge", help, labels))
    }

    /// The histogram of this name and these labels; the same one each time. `bounds` are the upper bounds of
    /// its ranges in seconds, ascending.
    pub fn histogram(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
        bounds: &'static [f64],
    ) -> Histogram {
        let mut families = self.families.lock();
        let family = family(&mut families, name, "histogram", help);
        let new = || Series::Histogram(Histogram::new(bounds));
        match family.series.entry(render_labels(labels)).or_insert_with(new) {
            Series::Histogram(histogram) => histogram.clone(),
            _ => Histogram::new(bounds),
        }
    }

    /// A gauge whose value is worked out when somebody looks. It replaces any earlier one of these labels; it
    /// is left out while `value` says `None`.
    pub fn computed_gauge(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
        value: impl Fn() -> Option<f64> + Send + Sync + 'static,
    ) {
        let mut families = self.families.lock();
        let family = family(&mut families, name, "gauge", help);
        family.series.insert(render_labels(labels), Series::Computed(Box::new(value)));
    }

    fn series(
        &self,
        name: &'static str,
        kind: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
    ) -> Arc<AtomicU64> {
        let mut families = self.families.lock();
        let family = family(&mut families, name, kind, help);
        let new = || Series::Number(Arc::default());
        match family.series.entry(render_labels(labels)).or_insert_with(new) {
            Series::Number(number) => number.clone(),
            // Another kind of metric has the name already: this one counts, but nobody sees it.
            _ => Arc::default(),
        }
    }

    /// Forgets the series of these labels: what it measured is gone.
    pub fn remove(&self, name: &str, labels: &[(&str, &str)]) {
        if let Some(family) = self.families.lock().get_mut(name) {
            family.series.remove(&render_labels(labels));
        }
    }

    /// The value of a counter or gauge, or how much a histogram has seen; `None` if there is no such series.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<u64> {
        let families = self.families.lock();
        match families.get(name)?.series.get(&render_labels(labels))? {
            Series::Number(number) => Some(number.load(Ordering::Relaxed)),
            Series::Histogram(histogram) => Some(histogram.count()),
            Series::Computed(_) => None,
        }
    }

    /// Everything in Prometheus' text format, ordered by name.
    pub fn render(&self) -> String {
        let mut text = String::new();
        for (name, family) in &*self.families.lock() {
            let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {}", family.help, family.kind);
            for (labels, series) in &family.series {
                let _ = match series {
                    Series::Number(number) => {
                        writeln!(text, "{name}{labels} {}", number.load(Ordering::Relaxed))
                    }
                    Series::Histogram(histogram) => histogram.render(name, labels, &mut text),
                    Series::Computed(value) => {
                        value().map_or(Ok(()), |value| writeln!(text, "{name}{labels} {value}"))
                    }
                };
            }
        }
        text
    }
}

fn family<'a>(
    families: &'a mut BTreeMap<&'static str, Family>,
    name: &'static str,
    kind: &'static str,
    help: &'static str,
) -> &'a mut Family {
    families.entry(name).or_insert_with(|| Family { help, kind, series: BTreeMap::new() })
}

fn render_labels(labels: &[(&str, &str)]) -> String {
    let escape = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
    if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) }
}

impl Counter {
    /// Counts one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Counts `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
}

impl Gauge {
    /// Sets the value.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds to the value.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Subtracts what was added before.
    pub fn sub(&self, n: u64) {
        self.0.fetch_sub(n, Ordering::Relaxed);
    }
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Histogram {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram(Arc::new(Buckets { bounds, counts, nanoseconds: AtomicU64::new(0) }))
    }

    /// Counts a duration.
    pub fn observe(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let at = self.0.bounds.partition_point(|bound| *bound < seconds);
        self.0.counts[at].fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.0.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    fn render(&self, name: &str, labels: &str, text: &mut String) -> std::fmt::Result {
        let inner = labels.strip_prefix('{').and_then(|labels| labels.strip_suffix('}')).unwrap_or_default();
        let comma = if inner.is_empty() { "" } else { "," };
        let mut total = 0;
        let bounds = self.0.bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(&self.0.counts) {
            total += count.load(Ordering::Relaxed);
            writeln!(text, "{name}_bucket{{{inner}{comma}le=\"{bound}\"}} {total}")?;
        }
        let sum = Duration::from_nanos(self.0.nanoseconds.load(Ordering::Relaxed)).as_secs_f64();
        writeln!(text, "{name}_sum{labels} {sum}\n{name}_count{labels} {total}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_escaped() {
        let metrics = Metrics::default();
        metrics.gauge("g", "Help.", &[("a", "x\"y\\z\n")]).set(1);
        assert!(metrics.render().contains(r#"g{a="x\"y\\z\n"} 1"#));
    }

    #[test]
    fn a_histogram_counts_what_is_below_each_bound() {
        let metrics = Metrics::default();
        let histogram = metrics.histogram("h", "Help.", &[("a", "b")], &[0.1, 1.0]);
        for milliseconds in [50, 100, 500, 5000] {
            histogram.observe(Duration::from_millis(milliseconds));
        }
        assert_eq!(
            metrics.render(),
            "# HELP h Help.\n# TYPE h histogram\nh_bucket{a=\"b\",le=\"0.1\"} 2\nh_bucket{a=\"b\",le=\"1\"} \
             3\nh_bucket{a=\"b\",le=\"+Inf\"} 4\nh_sum{a=\"b\"} 5.65\nh_count{a=\"b\"} 4\n"
        );
    }

    #[test]
    fn a_computed_gauge_is_asked_when_somebody_looks() {
        let metrics = Metrics::default();
        let value = Arc::new(AtomicU64::new(3));
        let shown = value.clone();
        metrics.computed_gauge("g", "Help.", &[], move || Some(shown.load(Ordering::Relaxed) as f64));
        value.store(4, Ordering::Relaxed);
        assert!(metrics.render().ends_with("g 4\n"));
    }

    #[test]
    fn the_same_labels_are_the_same_series() {
        let metrics = Metrics::default();
        metrics.counter("c", "Help.", &[]).inc();
        metrics.clone().counter("c", "Help.", &[]).inc();
        assert_eq!(metrics.value("c", &[]), Some(2));
        metrics.remove("c", &[]);
        assert_eq!(metrics.value("c", &[]), None);
    }
}
