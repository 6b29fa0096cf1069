//! Lines of the log: whose they are, and which trace they belong to.

use std::fmt;
use std::io::IsTerminal;

use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::{FilterExt, LevelFilter, ParseError, filter_fn};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::Filter;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer};

use crate::{Config, LogFormat, names, trace_context};

/// The layer that writes them to standard error.
pub(crate) fn layer<S>(config: &Config) -> Result<impl Layer<S> + use<S>, ParseError>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && !is_color_refused());
    let lines = match config.log_format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().map_event_format(WithTrace).boxed(),
    };
    Ok(lines.with_filter(filter(&config.log)?))
}

/// Whether the user wants no colours (<https://no-color.org>).
fn is_color_refused() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Whether `directives` is a level or filter.
pub(crate) fn check(directives: &str) -> Result<(), ParseError> {
    EnvFilter::try_new(directives).map(drop)
}

/// The target of what programs of tools and MCP servers write to standard error, which holds arguments and results.
const STANDARD_ERROR: &str = "wardgate::standard_error";

/// What `directives` let through. Of libraries that is never more than `info`: below it some write whole messages. What
/// programs write is there only where the directives name its target.
fn filter<S>(directives: &str) -> Result<impl Filter<S> + use<S>, ParseError> {
    let names_programs = directives.contains(STANDARD_ERROR);
    let allowed = filter_fn(move |metadata| match metadata.target() {
        STANDARD_ERROR => names_programs,
        _ => is_ours(metadata) || *metadata.level() <= Level::INFO,
    });
    // With a hint on either side, what is less severe than every directive costs one comparison wherever it stands.
    let allowed = allowed.with_max_level_hint(LevelFilter::TRACE);
    Ok(EnvFilter::try_new(directives)?.and(allowed))
}

/// What belongs into a trace: our own spans, and the events among them that are no details.
pub(crate) fn traced<S>() -> impl Filter<S> {
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

/// A JSON line with the ids of the span it was written in.
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
        let Some(span) = trace_context::current() else {
            return self.0.format_event(context, writer, event);
        };
        let mut line = String::new();
        self.0
            .format_event(context, Writer::new(&mut line), event)?;
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
