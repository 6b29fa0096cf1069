//! The fields of text lines, whose values show their invisible characters as marks.

use std::error::Error;
use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing_subscriber::field::{RecordFields, VisitOutput as _};
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultVisitor, Writer};
use wardgate_domain::mark_invisible;

/// The format of the fields of events and spans: that of `tracing-subscriber`, with the invisible characters of values
/// marked. By itself, that format escapes the control characters of messages and errors only. The marks are set before
/// the colours, which are control characters themselves.
pub(super) struct MarkedFields;

impl<'w> FormatFields<'w> for MarkedFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut visitor = MarkingVisitor(DefaultVisitor::new(writer, true));
        fields.record(&mut visitor);
        visitor.0.finish()
    }
}

/// A visitor that passes on every value with its invisible characters marked.
struct MarkingVisitor<'w>(DefaultVisitor<'w>);

impl Visit for MarkingVisitor<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.record_str(field, &mark_invisible(value));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.0.record_error(field, &MarkedError::new(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.record_debug(field, &MarkedValue(value));
    }
}

/// A copy of the messages of an error and its sources, with their invisible characters marked.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct MarkedError {
    message: String,
    source: Option<Box<MarkedError>>,
}

impl MarkedError {
    fn new(error: &(dyn Error + 'static)) -> Self {
        Self {
            message: mark_invisible(&error.to_string()).into_owned(),
            source: error.source().map(|source| Box::new(Self::new(source))),
        }
    }
}

/// A value whose invisible characters are marked when it is formatted, without a copy of the text.
struct MarkedValue<'v>(&'v dyn fmt::Debug);

impl fmt::Debug for MarkedValue<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(MarkingWriter(formatter), "{:?}", self.0)
    }
}

/// A writer that marks the invisible characters of every text.
struct MarkingWriter<'f, 'b>(&'f mut fmt::Formatter<'b>);

impl fmt::Write for MarkingWriter<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write_str(&mark_invisible(text))
    }
}
