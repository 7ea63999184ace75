//! The runtime's own metrics: made when they are first counted, and forgotten with what they measure.

use std::collections::BTreeMap;
use std::fmt::Error;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::family::{Family, MetricConstructor};

use super::computed::Computed;
use super::names::{Description, Kind};
use super::{Counter, Gauge, Histogram};

type Labels = Vec<(String, String)>;

#[derive(Debug, Default)]
pub(super) struct Families {
    counters: Of<Counter>,
    gauges: Of<Gauge>,
    histograms: Of<Histogram>,
    computed: Of<Computed>,
}

/// Those of one type, by name.
#[derive(Debug)]
struct Of<M>(Mutex<BTreeMap<&'static str, Described<M>>>);

type Described<M> = (&'static Description, Family<Labels, M, Make>);

impl<M> Default for Of<M> {
    fn default() -> Of<M> {
        Of(Mutex::default())
    }
}

/// Makes the metrics of a family.
#[derive(Clone, Copy, Debug)]
struct Make(&'static Description);

impl MetricConstructor<Counter> for Make {
    fn new_metric(&self) -> Counter {
        Counter::default()
    }
}

impl MetricConstructor<Gauge> for Make {
    fn new_metric(&self) -> Gauge {
        Gauge::default()
    }
}

impl MetricConstructor<Computed> for Make {
    fn new_metric(&self) -> Computed {
        Computed::default()
    }
}

impl MetricConstructor<Histogram> for Make {
    fn new_metric(&self) -> Histogram {
        match self.0.kind {
            Kind::Histogram(bounds) => Histogram::new(bounds),
            Kind::Counter | Kind::Gauge => Histogram::new(&[]),
        }
    }
}

impl<M: Clone> Of<M>
where
    Make: MetricConstructor<M>,
{
    fn series(&self, description: &'static Description, values: &[&str]) -> M {
        debug_assert_eq!(description.labels.len(), values.len(), "{}", description.name);
        let names = description.labels.iter().map(|name| (*name).to_owned());
        let labels: Labels = names.zip(values.iter().map(|value| (*value).to_owned())).collect();
        let mut all = self.0.lock();
        let new = || (description, Family::new_with_constructor(Make(description)));
        let (_, family) = all.entry(description.name).or_insert_with(new);
        family.get_or_create_owned(&labels)
    }
}

impl<M> Of<M> {
    fn family(&self, name: &str) -> Option<Family<Labels, M, Make>> {
        self.0.lock().get(name).map(|(_, family)| family.clone())
    }
}

impl<M: EncodeMetric + TypedMetric> Of<M>
where
    Make: MetricConstructor<M>,
{
    fn encode(&self, encoder: &mut DescriptorEncoder) -> Result<(), Error> {
        // What is computed takes other locks: this one is not held meanwhile.
        let all: Vec<_> =
            self.0.lock().values().map(|(description, family)| (*description, family.clone())).collect();
        for (description, family) in all.into_iter().filter(|(_, family)| !family.is_empty()) {
            // The encoder ends the names of counters itself.
            let name = description.name.trim_end_matches("_total");
            family.encode(encoder.encode_descriptor(name, description.help, None, M::TYPE)?)?;
        }
        Ok(())
    }
}

impl Families {
    pub(super) fn counter(&self, description: &'static Description, values: &[&str]) -> Counter {
        self.counters.series(description, values)
    }

    pub(super) fn gauge(&self, description: &'static Description, values: &[&str]) -> Gauge {
        self.gauges.series(description, values)
    }

    pub(super) fn histogram(&self, description: &'static Description, values: &[&str]) -> Histogram {
        self.histograms.series(description, values)
    }

    pub(super) fn computed(&self, description: &'static Description, values: &[&str]) -> Computed {
        self.computed.series(description, values)
    }

    pub(super) fn remove(&self, description: &'static Description, values: &[&str]) {
        let names = description.labels.iter().map(|name| (*name).to_owned());
        let labels: Labels = names.zip(values.iter().map(|value| (*value).to_owned())).collect();
        if let Some(family) = self.gauges.family(description.name) {
            family.remove(&labels);
        }
    }

    pub(super) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<u64> {
        let labels: Labels =
            labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        if let Some(family) = self.counters.family(name) {
            return family.get(&labels).map(|counter| counter.get());
        }
        if let Some(family) = self.gauges.family(name) {
            return family.get(&labels).map(|gauge| gauge.get());
        }
        self.histograms.family(name)?.get(&labels).map(|histogram| histogram.count())
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        self.counters.encode(&mut encoder)?;
        self.gauges.encode(&mut encoder)?;
        self.histograms.encode(&mut encoder)?;
        self.computed.encode(&mut encoder)
    }
}
