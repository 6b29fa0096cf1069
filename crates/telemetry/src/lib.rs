//! Logs, traces and metrics.
//!
//! ```text
//!  tracing ──▶ standard error (text or JSON lines)
//!     └──────▶ OpenTelemetry (OTLP over gRPC or HTTP), when an endpoint is configured
//!  metrics ──▶ Prometheus text or `OpenMetrics`, rendered by [`Metrics`]
//! ```
//!
//! This crate sets up all three and defines every name in [`names`], so that a dashboard or a search works for all
//! services. Tokens, keys, arguments, results, and anything a person typed are never logged, measured or traced. The
//! only exception is [`contents`], for traces if the configuration enables it.

mod exemplars;
mod exposition;
mod gauges;
mod logs;
mod otlp;
mod secret_files;

pub mod contents;
pub mod labels;
pub mod names;
pub mod trace_context;

use std::path::PathBuf;
use std::time::Duration;

use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use serde::{Deserialize, Serialize};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

pub use exposition::Exposition;
pub use gauges::as_float;
pub use otlp::{OtlpError, OtlpProtocol};
pub use secret_files::{SecretFilesInUse, SecretKind, record_secret_file};

use exemplars::{Exemplars, WithExemplars};
use otlp::Collector;

/// The telemetry settings of a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The least severe level that is logged, or a filter such as `info,wardgate_gateway=debug`. Events of libraries
    /// below `info` are never logged, because they can contain message contents.
    pub log: String,
    /// The format of log lines.
    pub log_format: LogFormat,
    /// The OTLP endpoint for traces, for example `http://127.0.0.1:4317`, or `None` if no traces are sent.
    pub otlp_endpoint: Option<String>,
    /// The protocol of the endpoint.
    pub otlp_protocol: OtlpProtocol,
    /// A PEM file with the certificate authorities of an `https` endpoint, or `None` for the system's.
    pub otlp_ca_file: Option<PathBuf>,
    /// A PEM file with the client certificate. It requires `otlp_key_file`.
    pub otlp_cert_file: Option<PathBuf>,
    /// A PEM file with the private key of the client certificate.
    pub otlp_key_file: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            log: "info".to_owned(),
            log_format: LogFormat::Text,
            otlp_endpoint: None,
            otlp_protocol: OtlpProtocol::default(),
            otlp_ca_file: None,
            otlp_cert_file: None,
            otlp_key_file: None,
        }
    }
}

impl Config {
    /// Checks the constraints that the types cannot express.
    pub fn validate(&self) -> Result<(), Error> {
        logs::check(&self.log)?;
        Ok(())
    }

    /// Checks the settings of the trace collector and loads the files that they name as [`init`] does. Sends no trace. Must
    /// be called in a Tokio runtime.
    pub fn check_files(&self) -> Result<(), Error> {
        if let Some(collector) = self.collector() {
            collector.exporter()?;
        }
        Ok(())
    }

    fn collector(&self) -> Option<Collector<'_>> {
        Some(Collector {
            endpoint: self.otlp_endpoint.as_deref()?,
            protocol: self.otlp_protocol,
            ca: self.otlp_ca_file.as_deref(),
            cert: self.otlp_cert_file.as_deref(),
            key: self.otlp_key_file.as_deref(),
        })
    }
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object per line, with `trace_id` and `span_id`.
    Json,
}

/// An error of the telemetry set-up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `telemetry.log` is not a level or filter.
    #[error("telemetry.log is not a level or filter: {0}")]
    Filter(#[from] ParseError),
    /// The trace collector cannot be used with these settings.
    #[error(transparent)]
    Otlp(#[from] OtlpError),
    /// Logging was already set up in this process.
    #[error("logging is already set up: {0}")]
    Logging(#[from] TryInitError),
    /// A histogram has no bounds.
    #[error("metrics cannot be set up: {0}")]
    Metrics(#[from] BuildError),
    /// A metrics recorder was already set up in this process.
    #[error("metrics are already set up")]
    Recorder,
}

/// Interval between two updates of the histograms with the recorded samples.
const UPKEEP: Duration = Duration::from_secs(5);

/// Renders the metrics of the process. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    handle: PrometheusHandle,
    exemplars: Exemplars,
}

impl Metrics {
    /// Returns all metrics in the format that the `Accept` header `accept` asks for.
    pub fn render(&self, accept: &str) -> Exposition {
        exposition::negotiate_format(accept, self.handle.render(), || self.exemplars.now())
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

/// Keeps telemetry running. Dropping it sends the traces that are still buffered.
#[derive(Debug)]
pub struct Guard {
    traces: Option<SdkTracerProvider>,
    metrics: Metrics,
}

impl Guard {
    /// Returns the metrics of the process.
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.traces.as_ref().map(SdkTracerProvider::shutdown) {
            tracing::warn!(%error, "some traces could not be exported");
        }
    }
}

/// Sets up logs, traces and metrics for this process. `role` becomes part of `service.name`. Call it once, inside the
/// async runtime.
pub fn init(config: &Config, role: &'static str) -> Result<Guard, Error> {
    let metrics = record(config.otlp_endpoint.is_some())?;
    let upkeep = metrics.clone();
    // A histogram keeps every sample until the upkeep runs, and not every process is scraped.
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(UPKEEP);
        loop {
            ticks.tick().await;
            upkeep.handle.run_upkeep();
        }
    });
    let traces = match (config.collector(), config.log_format) {
        (Some(collector), _) => Some(provider(collector, role)?),
        (None, LogFormat::Json) => Some(ids_alone()),
        (None, LogFormat::Text) => None,
    };
    let spans = traces.as_ref().map(|provider| {
        let tracer = provider.tracer("wardgate");
        let layer = tracing_opentelemetry::layer().with_tracer(tracer);
        layer.with_filter(logs::trace_filter())
    });
    opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
    let lines = tracing_subscriber::registry().with(logs::layer(config)?);
    // With a layer that is `None`, the interest in disabled call sites would not be cached, and every event would be
    // filtered anew.
    match spans {
        Some(spans) => lines.with(spans).try_init()?,
        None => lines.try_init()?,
    }
    Ok(Guard { traces, metrics })
}

/// Sets up the recorder, with exemplars if traces are sent.
fn record(has_traces: bool) -> Result<Metrics, Error> {
    let recorder = recorder()?;
    let metrics = Metrics {
        handle: recorder.handle(),
        exemplars: Exemplars::default(),
    };
    let set = if has_traces {
        let exemplars = metrics.exemplars.clone();
        let recorder = WithExemplars {
            recorder,
            exemplars,
        };
        metrics::set_global_recorder(recorder).is_ok()
    } else {
        metrics::set_global_recorder(recorder).is_ok()
    };
    if set {
        Ok(metrics)
    } else {
        Err(Error::Recorder)
    }
}

fn recorder() -> Result<PrometheusRecorder, BuildError> {
    Ok(PrometheusBuilder::new()
        .set_buckets(names::SECONDS_BUCKETS)?
        .set_buckets_for_metric(
            Matcher::Full(names::GENAI_TOKENS.to_owned()),
            names::GENAI_TOKENS_BUCKETS,
        )?
        .set_buckets_for_metric(
            Matcher::Prefix("gen_ai.client.operation.".to_owned()),
            names::GENAI_SECONDS_BUCKETS,
        )?
        .build_recorder())
}

/// Creates a provider that collects no traces, but gives the log lines of one call the same trace id in all services. A
/// trace that a client sampled stays sampled.
fn ids_alone() -> SdkTracerProvider {
    SdkTracerProvider::builder()
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOff)))
        .build()
}

fn provider(collector: Collector<'_>, role: &'static str) -> Result<SdkTracerProvider, OtlpError> {
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(collector.exporter()?)
        .with_resource(
            Resource::builder()
                .with_service_name(format!("wardgate-{role}"))
                .build(),
        )
        .build())
}
