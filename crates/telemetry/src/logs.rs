//! The log layer: filters events, adds trace ids, and makes invisible characters visible.

mod marked_fields;

use std::fmt;
use std::io::IsTerminal;

use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::{FilterExt, LevelFilter, ParseError, filter_fn};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::Filter;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer};
use wardgate_domain::escape_invisible_json;

use self::marked_fields::MarkedFields;
use crate::{Config, LogFormat, names, trace_context};

/// Creates the layer that writes log lines to standard error.
pub(crate) fn layer<S>(config: &Config) -> Result<impl Layer<S> + use<S>, ParseError>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let is_colored = std::io::stderr().is_terminal() && !is_color_refused();
    let lines = create_line_layer(config.log_format, std::io::stderr, is_colored);
    Ok(lines.with_filter(filter(&config.log)?))
}

/// Creates the layer that writes a line to `writer` for every event. In text, the invisible characters of values are
/// marked; in JSON, they are escaped.
fn create_line_layer<S, W>(
    format: LogFormat,
    writer: W,
    is_colored: bool,
) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .with_ansi(is_colored);
    match format {
        LogFormat::Text => lines.fmt_fields(MarkedFields).boxed(),
        LogFormat::Json => lines.json().map_event_format(WithTrace).boxed(),
    }
}

/// Returns whether the user disabled colours (<https://no-color.org>).
fn is_color_refused() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Checks that `directives` is a level or filter.
pub(crate) fn check(directives: &str) -> Result<(), ParseError> {
    EnvFilter::try_new(directives).map(drop)
}

/// The target of the standard error output of tool programs and MCP servers, which contains arguments and results.
const STANDARD_ERROR: &str = "wardgate::standard_error";

/// Creates the filter of `directives`. Libraries are limited to `info`, because below it some of them log whole
/// messages. Output of programs is logged only if the directives contain its target.
fn filter<S>(directives: &str) -> Result<impl Filter<S> + use<S>, ParseError> {
    let names_programs = directives.contains(STANDARD_ERROR);
    let allowed = filter_fn(move |metadata| match metadata.target() {
        STANDARD_ERROR => names_programs,
        _ => is_ours(metadata) || *metadata.level() <= Level::INFO,
    });
    // With a level hint on both sides, an event below the level of every directive costs only one comparison.
    let allowed = allowed.with_max_level_hint(LevelFilter::TRACE);
    Ok(EnvFilter::try_new(directives)?.and(allowed))
}

/// Creates the filter of traces: spans of Wardgate up to `debug`, and its events up to `info`.
pub(crate) fn trace_filter<S>() -> impl Filter<S> {
    filter_fn(|metadata| {
        let most = if metadata.is_span() {
            Level::DEBUG
        } else {
            Level::INFO
        };
        is_ours(metadata) && *metadata.level() <= most
    })
    .with_max_level_hint(LevelFilter::DEBUG)
}

fn is_ours(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with("wardgate")
}

/// A JSON formatter that escapes invisible characters and adds the ids of the current span.
struct WithTrace<F>(F);

impl<S, N, F> FormatEvent<S, N> for WithTrace<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.0
            .format_event(context, Writer::new(&mut line), event)?;
        let line = escape_invisible_json(&line);
        let Some(span) = trace_context::current() else {
            return writer.write_str(&line);
        };
        let open = line.trim_end().strip_suffix('}').ok_or(fmt::Error)?;
        writeln!(
            writer,
            "{open},\"{}\":\"{}\",\"{}\":\"{}\"}}",
            names::TRACE_ID,
            span.trace_id(),
            names::SPAN_ID,
            span.span_id(),
        )
    }
}

#[cfg(test)]
mod tests;
