//! A gauge whose value is worked out when somebody looks.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// What a gauge measured is gone.
pub(crate) struct Gone;

type Value = Box<dyn Fn() -> Result<Option<f64>, Gone> + Send + Sync>;

/// It shows the largest of what its functions say, those left out whose object is gone; nothing if none says anything.
#[derive(Clone, Default)]
pub(super) struct Computed(Arc<Mutex<Vec<Value>>>);

impl Computed {
    pub(super) fn add(&self, value: impl Fn() -> Result<Option<f64>, Gone> + Send + Sync + 'static) {
        let mut values = self.0.lock();
        values.retain(|value| value().is_ok());
        values.push(Box::new(value));
    }

    pub(super) fn get(&self) -> Option<f64> {
        let values = self.0.lock();
        values.iter().filter_map(|value| value().ok()?).reduce(f64::max)
    }
}

impl fmt::Debug for Computed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Computed")
    }
}

impl EncodeMetric for Computed {
    fn encode(&self, mut encoder: MetricEncoder) -> Result<(), fmt::Error> {
        self.get().map_or(Ok(()), |value| encoder.encode_gauge(&value))
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for Computed {
    const TYPE: MetricType = MetricType::Gauge;
}
