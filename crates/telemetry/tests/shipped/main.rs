//! Generates the dashboards and alert rules of the chart and the page of the metrics from the names of the metrics.
//!
//! ```text
//!  src/names.rs ──▶ metrics ─┬─▶ dashboards ──▶ deploy/helm/wardgate/dashboards/*.json
//!                            ├─▶ alerts ──────▶ deploy/helm/wardgate/rules/alerts.yaml
//!                            └─▶ page ────────▶ docs/src/reference/metrics.md
//! ```
//!
//! `make dashboards` writes the files; otherwise the tests compare them.

mod alerts;
mod dashboards;
mod expressions;
mod metrics;

use std::collections::BTreeSet;
use std::path::PathBuf;

use metrics::{Kind, Metric};

/// The environment variable that makes the tests write the files.
const WRITE: &str = "WARDGATE_WRITE_DASHBOARDS";

fn chart() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/helm/wardgate")
}

/// Returns the generated files: their paths below the chart, and their texts.
fn generated_files(metrics: &[Metric]) -> Vec<(&'static str, String)> {
    vec![
        ("dashboards/overview.json", dashboards::overview()),
        (
            "dashboards/everything.json",
            dashboards::everything(metrics),
        ),
        ("rules/alerts.yaml", alerts::rules()),
        (
            "../../../docs/src/reference/metrics.md",
            metrics::page(metrics),
        ),
        ("../../../docs/src/reference/alerts.md", alerts::page()),
    ]
}

#[test]
fn what_the_chart_ships_is_what_is_made_of_the_names() {
    for (path, text) in generated_files(&metrics::parse_all()) {
        let path = chart().join(path);
        if std::env::var_os(WRITE).is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
        } else {
            let shipped = std::fs::read_to_string(&path).unwrap_or_default();
            // The library does not guarantee the order of members.
            let same = match path.extension().unwrap().to_str() {
                Some("json") => {
                    let read = |text| serde_json::from_str::<serde_json::Value>(text).ok();
                    read(&shipped) == read(&text)
                }
                _ => shipped == text,
            };
            let path = path.display();
            assert!(same, "{path} is outdated: run `make dashboards`");
        }
    }
}

#[test]
fn every_metric_that_is_named_exists_and_is_asked_for_as_what_it_is() {
    let metrics = metrics::parse_all();
    let overview = dashboards::overview_expressions();
    let expressions: Vec<String> = overview.into_iter().chain(alerts::expressions()).collect();
    for expression in &expressions {
        let named = expressions::metrics_of(expression);
        assert!(!named.is_empty(), "{expression} asks for nothing");
        for name in named.into_iter().filter(|name| name != "up") {
            let exists = metrics.iter().any(|metric| metric.series().contains(&name));
            assert!(exists, "{name} is no series of a metric, in {expression}");
        }
    }
}

#[test]
fn every_metric_has_a_panel() {
    let metrics = metrics::parse_all();
    let text = dashboards::everything(&metrics);
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let shown: BTreeSet<String> = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().into_iter().flatten())
        .flat_map(|target| expressions::metrics_of(target["expr"].as_str().unwrap()))
        .collect();
    for metric in metrics {
        let is_shown = metric.series().iter().any(|series| shown.contains(series));
        assert!(is_shown, "{} has no panel", metric.name);
    }
}

#[test]
fn every_name_says_what_it_measures_and_counters_are_totals() {
    let metrics = metrics::parse_all();
    assert!(metrics.len() > 30, "names.rs is read");
    for metric in metrics {
        assert!(!metric.about.is_empty(), "{} says nothing", metric.name);
        let is_total = metric.name.ends_with("_total");
        // In `OpenMetrics` the names of all counters end with `_total`, and no others do.
        assert_eq!(is_total, metric.kind == Kind::Counter, "{}", metric.name);
    }
}
