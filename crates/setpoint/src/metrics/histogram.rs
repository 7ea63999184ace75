//! How often a duration fell into each of some ranges, without a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Counts durations. The histogram of `prometheus-client` takes a lock for each; this one adds to two atomics, since
/// every key of every queue passes through two of them. Clones are the same histogram.
#[derive(Clone, Debug)]
pub(crate) struct Histogram(Arc<Buckets>);

#[derive(Debug)]
struct Buckets {
    /// Upper bounds in seconds, ascending.
    bounds: &'static [f64],
    /// One more than bounds: the last is for what is above all of them.
    counts: Box<[AtomicU64]>,
    nanoseconds: AtomicU64,
}

impl Histogram {
    pub(super) fn new(bounds: &'static [f64]) -> Histogram {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram(Arc::new(Buckets { bounds, counts, nanoseconds: AtomicU64::new(0) }))
    }

    /// Counts a duration.
    pub(crate) fn observe(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let at = self.0.bounds.partition_point(|bound| *bound < seconds);
        self.0.counts[at].fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// How many durations were counted.
    pub(crate) fn count(&self) -> u64 {
        self.0.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder) -> Result<(), std::fmt::Error> {
        let bounds = self.0.bounds.iter().copied().chain([f64::INFINITY]);
        let counts = self.0.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = Duration::from_nanos(self.0.nanoseconds.load(Ordering::Relaxed)).as_secs_f64();
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}
