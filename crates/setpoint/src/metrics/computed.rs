//! A gauge whose value is worked out when somebody looks.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::{MetricType, TypedMetric};

type Value = Box<dyn Fn() -> Option<f64> + Send + Sync>;

/// It is left out while its function says `None`: what it measured is gone.
#[derive(Clone, Default)]
pub(super) struct Computed(Arc<Mutex<Option<Value>>>);

impl Computed {
    pub(super) fn set(&self, value: impl Fn() -> Option<f64> + Send + Sync + 'static) {
        *self.0.lock() = Some(Box::new(value));
    }

    pub(super) fn get(&self) -> Option<f64> {
        self.0.lock().as_ref().and_then(|value| value())
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
