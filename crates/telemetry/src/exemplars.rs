//! Exemplars: for the buckets of every histogram, the trace of one value each, so that a slow call on a dashboard leads
//! to its trace.
//!
//! The exporter has none, so this stands before it: it sees every value on its way, and adds to the text that the
//! exporter renders. Only where traces are sent.

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

/// A recorder that remembers traces. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Exemplars(Arc<RwLock<HashMap<Key, Arc<Series>>>>);

/// What goes before the exporter.
pub(crate) struct WithExemplars<R> {
    pub(crate) recorder: R,
    pub(crate) exemplars: Exemplars,
}

/// One series of a histogram.
struct Series {
    /// As the exporter begins each of its buckets: `name_bucket{label="value",`.
    opening: String,
    /// The newest of each range of [`SECONDS_BUCKETS`].
    newest: Mutex<[Option<Exemplar>; SECONDS_BUCKETS.len() + 1]>,
}

/// A value, and the span it was measured in.
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

    /// The exemplars there are now.
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

/// The exemplars of one moment.
#[derive(Default)]
pub(crate) struct ExemplarSnapshot(HashMap<String, [Option<Exemplar>; SECONDS_BUCKETS.len() + 1]>);

impl ExemplarSnapshot {
    /// Adds to a line, which begins with `opening`, an exemplar of the values above `above`, up to `up_to`.
    pub(crate) fn add_to(&self, line: &mut String, opening: &str, (above, up_to): (f64, f64)) {
        let newest = self.0.get(opening).into_iter().flatten().flatten();
        let mut fitting = newest.filter(|it| it.value > above && it.value <= up_to);
        if let Some(Exemplar { value, span }) = fitting.next() {
            let (trace, span) = (span.trace_id(), span.span_id());
            // A string takes everything.
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
            // A string takes everything.
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
        // One that cannot be kept at once is not worth waiting for.
        if let Ok(mut newest) = self.newest.try_lock() {
            newest[range] = Some(Exemplar { value, span });
        }
    }
}

/// A histogram that shows its values on their way.
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
