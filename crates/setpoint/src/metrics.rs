//! Counters and gauges without a global registry: every part is given a [`Metrics`] and writes to it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// A set of metrics. Clones share it; give one to everything that one `/metrics` page shall show.
///
/// ```
/// use setpoint::Metrics;
///
/// let metrics = Metrics::default();
/// metrics.counter("requests_total", "How many requests came.", &[("verb", "get")]).add(2);
/// assert_eq!(
///     metrics.render(),
///     "# HELP requests_total How many requests came.\n\
///      # TYPE requests_total counter\n\
///      requests_total{verb=\"get\"} 2\n",
/// );
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
    series: BTreeMap<String, Arc<AtomicU64>>,
}

/// A number that only grows.
#[derive(Clone, Debug)]
pub struct Counter(Arc<AtomicU64>);

/// A number that goes up and down.
#[derive(Clone, Debug)]
pub struct Gauge(Arc<AtomicU64>);

impl Metrics {
    /// The counter of this name and these labels; the same one each time.
    pub fn counter(&self, name: &'static str, help: &'static str, labels: &[(&str, &str)]) -> Counter {
        Counter(self.series(name, "counter", help, labels))
    }

    /// The gauge of this name and these labels; the same one each time.
    pub fn gauge(&self, name: &'static str, help: &'static str, labels: &[(&str, &str)]) -> Gauge {
        Gauge(self.series(name, "gauge", help, labels))
    }

    fn series(
        &self,
        name: &'static str,
        kind: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
    ) -> Arc<AtomicU64> {
        let mut families = self.families.lock();
        let family = families.entry(name).or_insert_with(|| Family { help, kind, series: BTreeMap::new() });
        family.series.entry(render_labels(labels)).or_default().clone()
    }

    /// Forgets the series of these labels: what it measured is gone.
    pub fn remove(&self, name: &str, labels: &[(&str, &str)]) {
        if let Some(family) = self.families.lock().get_mut(name) {
            family.series.remove(&render_labels(labels));
        }
    }

    /// The value of a series, if there is one.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<u64> {
        let families = self.families.lock();
        let value = families.get(name)?.series.get(&render_labels(labels))?;
        Some(value.load(Ordering::Relaxed))
    }

    /// Everything in Prometheus' text format, ordered by name.
    pub fn render(&self) -> String {
        let mut text = String::new();
        for (name, family) in &*self.families.lock() {
            let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {}", family.help, family.kind);
            for (labels, value) in &family.series {
                let _ = writeln!(text, "{name}{labels} {}", value.load(Ordering::Relaxed));
            }
        }
        text
    }
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
    fn the_same_labels_are_the_same_series() {
        let metrics = Metrics::default();
        metrics.counter("c", "Help.", &[]).inc();
        metrics.clone().counter("c", "Help.", &[]).inc();
        assert_eq!(metrics.value("c", &[]), Some(2));
        metrics.remove("c", &[]);
        assert_eq!(metrics.value("c", &[]), None);
    }
}
