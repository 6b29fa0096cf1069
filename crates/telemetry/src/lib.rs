//! Logs, traces and metrics.
//!
//! ```text
//!  tracing ──▶ standard error (text or JSON lines)
//!     └──────▶ OpenTelemetry (OTLP over gRPC), when an endpoint is configured
//!  metrics ──▶ Prometheus text, served by whoever holds the [`Metrics`]
//! ```
//!
//! One job: set all three up, and fix every name in [`names`], so that a dashboard or a search works for
//! every service alike. What is never logged, measured or traced: tokens, keys, arguments, results, and
//! anything a person typed; [`contents`] has the one exception, for traces of who asks for it.

pub mod contents;
pub mod names;
pub mod trace_context;

use std::io::IsTerminal;
use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig};
use opentelemetry_sdk::{Resource, propagation::TraceContextPropagator, trace::SdkTracerProvider};
use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{EnvFilter, Layer};

/// How a process reports on itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Least severe level that is logged, or a filter such as `info,wardgate_gateway=debug`.
    pub log: String,
    /// Shape of a log line.
    pub log_format: LogFormat,
    /// OTLP endpoint for traces, for example `http://127.0.0.1:4317`; none: no traces are sent.
    pub otlp_endpoint: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            log: "info".to_owned(),
            log_format: LogFormat::Text,
            otlp_endpoint: None,
        }
    }
}

/// Shape of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Telemetry that could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `telemetry.log` is no filter.
    #[error("telemetry.log is not a level or filter: {0}")]
    Filter(#[from] ParseError),
    /// `telemetry.otlp_endpoint` cannot be used.
    #[error("telemetry.otlp_endpoint cannot be used: {0}")]
    Otlp(#[from] ExporterBuildError),
    /// A second set-up in one process.
    #[error("logging is already set up: {0}")]
    Logging(#[from] TryInitError),
    /// A second recorder in one process.
    #[error("metrics are already set up: {0}")]
    Metrics(#[from] BuildError),
}

/// How often samples are folded into the histograms.
const UPKEEP: Duration = Duration::from_secs(5);

/// Renders the process's metrics. Cheap to clone.
#[derive(Clone)]
pub struct Metrics(PrometheusHandle);

impl Metrics {
    /// Everything measured so far, in the Prometheus text format.
    pub fn render(&self) -> String {
        self.0.render()
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

/// Keeps telemetry running; dropping it sends what is still buffered.
#[derive(Debug)]
pub struct Guard {
    traces: Option<SdkTracerProvider>,
    metrics: Metrics,
}

impl Guard {
    /// The process's metrics.
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.traces.as_ref().map(SdkTracerProvider::shutdown) {
            tracing::warn!(%error, "some traces could not be sent");
        }
    }
}

/// Sets up logs, traces and metrics for this process; `role` becomes `service.name`. Call it once, inside
/// the async runtime.
pub fn init(config: &Config, role: &'static str) -> Result<Guard, Error> {
    let metrics = Metrics(
        PrometheusBuilder::new()
            .set_buckets(names::SECONDS_BUCKETS)?
            .set_buckets_for_metric(
                Matcher::Full(names::GENAI_TOKENS.to_owned()),
                names::GENAI_TOKENS_BUCKETS,
            )?
            .set_buckets_for_metric(
                Matcher::Prefix("gen_ai.client.operation.".to_owned()),
                names::GENAI_SECONDS_BUCKETS,
            )?
            .install_recorder()?,
    );
    let upkeep = metrics.clone();
    // A histogram keeps every sample until then; not every process is scraped.
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(UPKEEP);
        loop {
            ticks.tick().await;
            upkeep.0.run_upkeep();
        }
    });
    let logs = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let logs = match config.log_format {
        LogFormat::Text => logs.boxed(),
        LogFormat::Json => logs.json().boxed(),
    };
    let traces = config
        .otlp_endpoint
        .as_deref()
        .map(|endpoint| exporter(endpoint, role))
        .transpose()?;
    let spans = traces
        .as_ref()
        .map(|provider| tracing_opentelemetry::layer().with_tracer(provider.tracer("wardgate")));
    opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
    tracing_subscriber::registry()
        .with(EnvFilter::try_new(&config.log)?)
        .with(logs)
        .with(spans)
        .try_init()?;
    Ok(Guard { traces, metrics })
}

fn exporter(endpoint: &str, role: &'static str) -> Result<SdkTracerProvider, ExporterBuildError> {
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .build()?;
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(
            Resource::builder()
                .with_service_name(format!("wardgate-{role}"))
                .build(),
        )
        .build())
}
