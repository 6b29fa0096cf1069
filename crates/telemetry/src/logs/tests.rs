use opentelemetry::trace::TracerProvider as _;
use serde_json::Value;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt;

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
