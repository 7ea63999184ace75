//! Reads the Foo controller's log: what a worker does is said there and nowhere else.

use std::fmt::Debug;

use anyhow::Context;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context as LayerContext, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use super::notices::Notices;
use super::stage::Stage;

const TARGET: &str = "example_foo";

struct ControllerLog(Notices);

/// From now on, what the controller logs is noticed.
pub(crate) fn install(notices: &Notices) -> anyhow::Result<()> {
    let layer = ControllerLog(notices.clone());
    tracing_subscriber::registry().with(layer).try_init().context("cannot listen to the controller's log")
}

fn is_the_controllers(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with(TARGET) && *metadata.level() <= Level::DEBUG
}

impl<S: Subscriber> Layer<S> for ControllerLog {
    fn enabled(&self, metadata: &Metadata<'_>, _: LayerContext<'_, S>) -> bool {
        is_the_controllers(metadata)
    }

    fn on_event(&self, event: &Event<'_>, _: LayerContext<'_, S>) {
        let mut line = Line::default();
        event.record(&mut line);
        let Line { message, key, name, because, replicas, version } = line;
        match message.as_str() {
            "queued" => {
                if !version.is_empty() {
                    self.0.add(Stage::Reflector, format!("the watch brings it at resourceVersion {version}"));
                }
                self.0.add(Stage::Queue, format!("{key}, since {because}"));
            }
            "reconcile" => self.0.add(Stage::Reconcile, format!("a worker takes {key}")),
            "created the deployment" => self.0.add(Stage::Deployment, format!("deployment/{name} created")),
            "scaled the deployment" => {
                self.0.add(Stage::Deployment, format!("deployment/{name} scaled to {replicas}"));
            }
            "foo is gone; its deployment goes with it" => {
                self.0.add(Stage::Reconcile, format!("{key} is gone: the garbage collector does the rest"));
            }
            _ => {}
        }
    }
}

/// The fields of a line that matter here.
#[derive(Default)]
struct Line {
    message: String,
    key: String,
    name: String,
    because: String,
    replicas: String,
    version: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let place = match field.name() {
            "message" => &mut self.message,
            "key" => &mut self.key,
            "name" => &mut self.name,
            "because" => &mut self.because,
            "replicas" => &mut self.replicas,
            "version" => &mut self.version,
            _ => return,
        };
        *place = format!("{value:?}").trim_matches('"').to_owned();
    }
}
