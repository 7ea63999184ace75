//! The greeting controller, with its spans sent to an OpenTelemetry collector (docs/metrics.md).
//!
//! `OTEL_EXPORTER_OTLP_ENDPOINT` says where that is; `http://localhost:4317` unless set.

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use setpoint::{ClientConfig, Manager};
use tracing_subscriber::prelude::*;

/// Spans go to the collector, and lines to standard error.
fn trace(service: &'static str) -> Result<SdkTracerProvider, Box<dyn std::error::Error>> {
    let exporter = SpanExporter::builder().with_tonic().build()?;
    let resource = Resource::builder().with_service_name(service).build();
    let traces = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
    tracing_subscriber::registry()
        .with(tracing_subscriber::EnvFilter::new("info"))
        .with(tracing_subscriber::fmt::layer().with_writer(std::io::stderr))
        .with(tracing_opentelemetry::layer().with_tracer(traces.tracer(service)))
        .init();
    Ok(traces)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let traces = trace("greeting")?;
    let client = ClientConfig::new().connect().await?;
    let controller = example_first_controller::controller();
    Manager::new(client).controller(controller).stop_on_signals().run().await?;
    traces.shutdown()?; // sends what is left
    Ok(())
}
