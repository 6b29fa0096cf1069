//! Propagation of the W3C trace context in headers, so that a call is one trace across processes.

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::propagation::{Extractor, Injector};
use opentelemetry::trace::{SpanContext, TraceContextExt};
use opentelemetry::{Context, global};
use serde::Serialize;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Writes the current span's context into `headers`.
pub fn inject(headers: &mut HeaderMap) {
    let context = Span::current().context();
    global::get_text_map_propagator(|propagator| {
        propagator.inject_context(&context, &mut HeaderInjector(headers));
    });
}

/// The context of a span in the W3C format, for messages without headers.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TraceContext {
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracestate: Option<String>,
}

impl TraceContext {
    /// Returns the context of the current span, which is empty if calls are not traced.
    pub fn current() -> Self {
        let mut headers = HeaderMap::new();
        inject(&mut headers);
        let text = |name| Some(headers.get(name)?.to_str().ok()?.to_owned());
        Self {
            traceparent: text("traceparent"),
            tracestate: text("tracestate").filter(|state| !state.is_empty()),
        }
    }

    /// Creates a context from the values of the header fields of these names, which are empty if there is no context.
    pub fn from_fields(traceparent: String, tracestate: String) -> Self {
        let field = |value: String| (!value.is_empty()).then_some(value);
        Self {
            traceparent: field(traceparent),
            tracestate: field(tracestate),
        }
    }

    /// Returns the values of `traceparent` and `tracestate`, which are empty if there is no context.
    pub fn fields(&self) -> [String; 2] {
        [&self.traceparent, &self.tracestate].map(|field| field.clone().unwrap_or_default())
    }

    /// Returns the header fields.
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let mut injector = HeaderInjector(&mut headers);
        for (name, value) in [
            ("traceparent", &self.traceparent),
            ("tracestate", &self.tracestate),
        ] {
            if let Some(value) = value {
                injector.set(name, value.clone());
            }
        }
        headers
    }

    /// Returns whether there is no context.
    pub fn is_empty(&self) -> bool {
        self.traceparent.is_none()
    }
}

/// Makes `span` a child of the context found in `headers`, if there is one.
pub fn adopt(span: &Span, headers: &HeaderMap) {
    if !headers.contains_key("traceparent") {
        return;
    }
    let context =
        global::get_text_map_propagator(|propagator| propagator.extract(&HeaderExtractor(headers)));
    // An error means that no traces are collected; the span then has no parent to set.
    let _ = span.set_parent(context);
}

/// Returns the id of the current trace (W3C, 32 hexadecimal digits), or `None` if calls are not traced.
pub fn trace_id() -> Option<String> {
    current().map(|span| span.trace_id().to_string())
}

/// Returns the context of the current span, or `None` if it has no valid ids.
pub(crate) fn current() -> Option<SpanContext> {
    Context::map_current(|context| {
        let span = context.span();
        let context = span.span_context();
        context.is_valid().then(|| context.clone())
    })
}

struct HeaderInjector<'a>(&'a mut HeaderMap);

impl Injector for HeaderInjector<'_> {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}

struct HeaderExtractor<'a>(&'a HeaderMap);

impl Extractor for HeaderExtractor<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}
