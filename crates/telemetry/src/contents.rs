//! Contents of messages by people, models and tools, for traces only. They are not span fields, because logs print the
//! fields of spans.

use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Adds `text` as an attribute to the span's trace, if traces are sent. Call this only if the configuration enables it.
pub fn release(span: &Span, name: &'static str, text: String) {
    span.set_attribute(name, text);
}
