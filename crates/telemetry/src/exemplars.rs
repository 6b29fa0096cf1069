//! Exemplars: the trace of one value for each histogram bucket, so that a slow call on a dashboard links to its trace.
//!
//! The exporter does not support exemplars, so this recorder wraps it: it sees every value and adds to the rendered
//! text. It is used only if traces are sent.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use metrics_exporter_prometheus::formatting::{
    sanitize_label_key, sanitize_label_value, sanitize_metric_name,
};
use opentelemetry::trace::SpanContext;

use crate::names::SECONDS_BUCKETS;
use crate::trace_context;

/// A recorder of exemplars. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Exemplars(Arc<RwLock<HashMap<Key, Arc<Series>>>>);

/// A recorder that wraps the exporter's and adds exemplars.
pub(crate) struct WithExemplars<R> {
    pub(crate) recorder: R,
    pub(crate) exemplars: Exemplars,
}

/// The exemplars of one histogram series.
struct Series {
    /// The beginning of each bucket in the exporter's text: `name_bucket{label="value",`.
    opening: String,
    /// The newest exemplar of each range of [`SECONDS_BUCKETS`].
    newest: Mutex<[Option<Exemplar>; SECONDS_BUCKETS.len() + 1]>,
}

/// A value and the span in which it was measured.
#[derive(Clone)]
struct Exemplar {
    value: f64,
    span: SpanContext,
}

impl Exemplars {
    fn series(&self, key: &Key) -> Arc<Series> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(series) = known.get(key) {
            return Arc::clone(series);
        }
        drop(known);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let series = known.entry(key.clone());
        Arc::clone(series.or_insert_with(|| Arc::new(Series::new(key))))
    }

    /// Returns the current exemplars.
    pub(crate) fn now(&self) -> ExemplarSnapshot {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let series = known.values().map(|series| {
            let newest = series
                .newest
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            (series.opening.clone(), newest)
        });
        ExemplarSnapshot(series.collect())
    }
}

/// A snapshot of all exemplars.
#[derive(Default)]
pub(crate) struct ExemplarSnapshot(HashMap<String, [Option<Exemplar>; SECONDS_BUCKETS.len() + 1]>);

impl ExemplarSnapshot {
    /// Adds to a line, which begins with `opening`, an exemplar of the values above `above`, up to `up_to`.
    pub(crate) fn add_to(&self, line: &mut String, opening: &str, above: f64, up_to: f64) {
        let newest = self.0.get(opening).into_iter().flatten().flatten();
        let mut fitting = newest.filter(|it| it.value > above && it.value <= up_to);
        if let Some(Exemplar { value, span }) = fitting.next() {
            let (trace, span) = (span.trace_id(), span.span_id());
            // Writing to a `String` cannot fail.
            let _ = write!(
                line,
                " # {{trace_id=\"{trace}\",span_id=\"{span}\"}} {value}"
            );
        }
    }
}

impl Series {
    fn new(key: &Key) -> Self {
        let mut opening = sanitize_metric_name(key.name()) + "_bucket{";
        for label in key.labels() {
            let (name, value) = (
                sanitize_label_key(label.key()),
                sanitize_label_value(label.value()),
            );
            // Writing to a `String` cannot fail.
            let _ = write!(opening, "{name}=\"{value}\",");
        }
        Self {
            opening,
            newest: Mutex::default(),
        }
    }

    fn see(&self, value: f64) {
        let Some(span) = trace_context::current().filter(SpanContext::is_sampled) else {
            return;
        };
        let range = SECONDS_BUCKETS.partition_point(|bound| *bound < value);
        // An exemplar is not worth waiting for the lock.
        if let Ok(mut newest) = self.newest.try_lock() {
            newest[range] = Some(Exemplar { value, span });
        }
    }
}

/// A histogram that also records exemplars.
struct ExemplarHistogram {
    histogram: Histogram,
    series: Arc<Series>,
}

impl HistogramFn for ExemplarHistogram {
    fn record(&self, value: f64) {
        self.histogram.record(value);
        self.series.see(value);
    }
}

impl<R: Recorder> Recorder for WithExemplars<R> {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.recorder.describe_counter(key, unit, description);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.recorder.describe_gauge(key, unit, description);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.recorder.describe_histogram(key, unit, description);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        self.recorder.register_counter(key, metadata)
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        self.recorder.register_gauge(key, metadata)
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(ExemplarHistogram {
            histogram: self.recorder.register_histogram(key, metadata),
            series: self.exemplars.series(key),
        }))
    }
}
