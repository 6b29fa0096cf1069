use opentelemetry::trace::TracerProvider as _;
use serde_json::Value;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt;

use wardgate_domain::find_invisible;
use wardgate_testkit::CapturedLog;

use super::*;

#[test]
fn every_json_line_in_a_span_bears_the_ids_of_its_trace_and_others_bear_none() {
    let lines = CapturedLog::default();
    let provider = crate::ids_alone();
    let subscriber = Registry::default()
        .with(
            tracing_subscriber::fmt::layer()
                .with_writer(lines.writer())
                .json()
                .map_event_format(WithTrace),
        )
        .with(
            tracing_opentelemetry::layer()
                .with_tracer(provider.tracer("test"))
                .with_filter(trace_filter()),
        );
    tracing::subscriber::with_default(subscriber, || {
        tracing::info!("before");
        tracing::debug_span!("outer").in_scope(|| {
            tracing::info!(answer = "}\"\n", "outside");
            tracing::info_span!("inner").in_scope(|| tracing::warn!("inside"));
        });
    });
    let read: Vec<Value> = lines
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let [before, outside, inside] = read.as_slice() else {
        panic!("{read:?}");
    };
    assert_eq!(before.get("trace_id"), None);
    assert_eq!(outside["fields"]["answer"], "}\"\n");
    assert_eq!(outside["trace_id"], inside["trace_id"]);
    assert_eq!(outside["trace_id"].as_str().unwrap().len(), 32);
    assert_ne!(outside["span_id"], inside["span_id"]);
    assert_eq!(inside["span_id"].as_str().unwrap().len(), 16);
}

/// Returns what the layer for `format` writes while `log` runs.
fn capture_lines(format: LogFormat, is_colored: bool, log: impl FnOnce()) -> String {
    let lines = CapturedLog::default();
    let layer = create_line_layer(format, lines.writer(), is_colored);
    tracing::subscriber::with_default(Registry::default().with(layer), log);
    lines.text()
}

#[derive(Debug, thiserror::Error)]
#[error("cannot read {0}")]
struct ReadFailure(&'static str, #[source] std::io::Error);

/// The output of a program that clears the screen of a terminal and hides characters.
const HOSTILE: &str = "\u{1b}[2J\u{e0041}\u{9b}\ra\u{7f}";

fn log_hostile_values() {
    let failure = ReadFailure("a\u{202e}b", std::io::Error::other("c\u{200b}d"));
    tracing::info_span!("call", tool = %"e\u{2066}f").in_scope(|| {
        tracing::info!(
            error = &failure as &dyn std::error::Error,
            text = %HOSTILE,
            name = "g\u{ad}h",
            list = ?["i\u{3164}"],
            ordinary = %"Bệnh án ❤\u{fe0f}",
            "message \u{1b}]0;{}",
            "j\u{feff}"
        );
    });
}

#[test]
fn invisible_characters_of_values_are_marked_in_lines_of_text() {
    let line = capture_lines(LogFormat::Text, false, log_hostile_values);
    for marked in [
        "call{tool=e‹U+2066›f}",
        "message ‹U+001B›]0;j‹U+FEFF›",
        "error=cannot read a‹U+202E›b error.sources=[c‹U+200B›d]",
        "text=‹U+001B›[2J‹U+E0041›‹U+009B›‹U+000D›a‹U+007F›",
        "name=\"g‹U+00AD›h\"",
        "ordinary=Bệnh án ❤\u{fe0f}",
    ] {
        assert!(line.contains(marked), "{marked}: {line:?}");
    }
    assert_eq!(find_invisible(&line).count(), 0, "{line:?}");
    assert!(
        line.ends_with('\n') && line.lines().count() == 1,
        "{line:?}"
    );
}

#[test]
fn colored_lines_contain_no_control_characters_but_those_of_their_colors() {
    let line = capture_lines(LogFormat::Text, true, log_hostile_values);
    let text = "\u{1b}[3mtext\u{1b}[0m\u{1b}[2m=\u{1b}[0m‹U+001B›[2J‹U+E0041›‹U+009B›‹U+000D›a";
    assert!(line.contains(text), "{line:?}");
    assert!(!line.contains("\u{1b}[2J"), "{line:?}");
    assert!(!line.contains("\u{1b}]0;"), "{line:?}");
    let mut left = find_invisible(&line);
    assert!(left.all(|it| it.character == '\u{1b}'), "{line:?}");
}

#[test]
fn invisible_characters_of_values_are_escaped_in_lines_of_json() {
    let line = capture_lines(LogFormat::Json, false, log_hostile_values);
    assert_eq!(find_invisible(&line).count(), 0, "{line:?}");
    let value: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(value["fields"]["text"], HOSTILE);
    assert_eq!(value["fields"]["name"], "g\u{ad}h");
    assert_eq!(value["fields"]["message"], "message \u{1b}]0;j\u{feff}");
    assert_eq!(value["span"]["tool"], "e\u{2066}f");
}

#[test]
fn libraries_never_log_below_info_whatever_was_asked_for() {
    let lines = CapturedLog::default();
    let subscriber = Registry::default().with(
        tracing_subscriber::fmt::layer()
            .with_writer(lines.writer())
            .with_filter(filter("trace,h2=trace").unwrap()),
    );
    tracing::subscriber::with_default(subscriber, || {
        tracing::debug!(target: "h2::codec", "a whole message");
        tracing::info!(target: "h2::codec", "a library's word");
        tracing::trace!(target: "wardgate_gateway::http", "our own detail");
    });
    let read = lines.text();
    assert!(!read.contains("a whole message"), "{read}");
    assert!(read.contains("a library's word"), "{read}");
    assert!(read.contains("our own detail"), "{read}");
}

#[test]
fn what_programs_write_is_logged_only_where_a_directive_names_it() {
    for (directives, is_written) in [
        ("trace", false),
        ("info,wardgate=trace", false),
        ("info,wardgate::standard_error=debug", true),
    ] {
        let lines = CapturedLog::default();
        let subscriber = Registry::default().with(
            tracing_subscriber::fmt::layer()
                .with_writer(lines.writer())
                .with_filter(filter(directives).unwrap()),
        );
        tracing::subscriber::with_default(subscriber, || {
            tracing::debug!(target: "wardgate::standard_error", "somebody's name");
        });
        let read = lines.text();
        assert_eq!(read.contains("somebody's name"), is_written, "{directives}");
    }
}

#[test]
fn what_is_less_severe_than_every_directive_is_turned_away_by_its_level_alone() {
    for (directives, most) in [
        ("info", LevelFilter::INFO),
        ("info,wardgate_gateway=debug", LevelFilter::DEBUG),
    ] {
        let config = Config {
            log: directives.to_owned(),
            ..Config::default()
        };
        let layer = layer::<Registry>(&config).unwrap();
        assert_eq!(layer.max_level_hint(), Some(most), "{directives}");
    }
}
