//! The formats of `/metrics`: the exporter's Prometheus text, or `OpenMetrics`, which supports exemplars.

use crate::exemplars::ExemplarSnapshot;

/// The response to a scraper.
#[derive(Debug)]
pub struct Exposition {
    /// The content type of the text.
    pub content_type: &'static str,
    /// All metrics.
    pub text: String,
}

const OPEN_METRICS: &str = "application/openmetrics-text";

/// Returns the metrics in the format that the `Accept` header `accept` asks for.
pub(crate) fn negotiate_format(
    accept: &str,
    text: String,
    exemplars: impl FnOnce() -> ExemplarSnapshot,
) -> Exposition {
    if accept.contains(OPEN_METRICS) {
        Exposition {
            content_type: "application/openmetrics-text; version=1.0.0; charset=utf-8",
            text: open_metrics(&text, &exemplars()),
        }
    } else {
        Exposition {
            content_type: "text/plain; version=0.0.4",
            text,
        }
    }
}

/// Converts `text` to `OpenMetrics`: declares counters without their `_total`, writes bounds as fractions, removes
/// empty lines, and adds exemplars and the end marker.
fn open_metrics(text: &str, exemplars: &ExemplarSnapshot) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 4);
    let mut below = f64::NEG_INFINITY;
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(name) = line.strip_suffix("_total counter") {
            out.push_str(name);
            out.push_str(" counter");
        } else if let Some((opening, bound, count)) = bucket(line) {
            let up_to = bound.parse().unwrap_or(f64::INFINITY);
            out.push_str(opening);
            out.push_str("le=\"");
            out.push_str(bound);
            if !bound.contains(['.', 'e', 'I']) {
                out.push_str(".0");
            }
            out.push_str("\"} ");
            out.push_str(count);
            exemplars.add_to(&mut out, opening, below, up_to);
            // The last bucket has no bound. The next bucket is the first of another series.
            below = if up_to.is_finite() {
                up_to
            } else {
                f64::NEG_INFINITY
            };
        } else {
            out.push_str(line);
        }
        out.push('\n');
    }
    out.push_str("# EOF\n");
    out
}

/// Splits a line `name_bucket{…,le="BOUND"} COUNT` into the parts before and after its bound, and the bound.
fn bucket(line: &str) -> Option<(&str, &str, &str)> {
    let at = line.rfind("le=\"")?;
    let (opening, rest) = line.split_at(at);
    if line.starts_with('#') || !opening.contains("_bucket{") {
        return None;
    }
    let (bound, count) = rest.strip_prefix("le=\"")?.split_once("\"} ")?;
    Some((opening, bound, count))
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;
    use opentelemetry::trace::{Tracer, TracerProvider};
    use opentelemetry_sdk::trace::SdkTracerProvider;

    use super::*;
    use crate::exemplars::{Exemplars, WithExemplars};

    /// Records two counters, a gauge and a histogram, one value of which is measured in a span with the returned ids.
    fn record_metrics() -> (String, Exemplars, [String; 2]) {
        let recorder = PrometheusBuilder::new()
            .set_buckets(&[0.1, 1.0])
            .unwrap()
            .build_recorder();
        let handle = recorder.handle();
        let exemplars = Exemplars::default();
        let recorder = WithExemplars {
            recorder,
            exemplars: exemplars.clone(),
        };
        let ids = metrics::with_local_recorder(&recorder, || {
            metrics::counter!("calls_total", "status" => "le=\"1\"").increment(3);
            metrics::gauge!("open").set(1.5);
            let seconds = || metrics::histogram!("call.seconds", "tool" => "a\"b");
            seconds().record(0.05);
            let provider = SdkTracerProvider::builder().build();
            let ids = provider.tracer("test").in_span("call", |_| {
                seconds().record(0.5);
                let span = crate::trace_context::current().unwrap();
                [span.trace_id().to_string(), span.span_id().to_string()]
            });
            seconds().record(7.0);
            ids
        });
        (handle.render(), exemplars, ids)
    }

    #[test]
    fn open_metrics_leads_from_a_slow_value_to_its_trace() {
        let (text, exemplars, [trace, span]) = record_metrics();
        let given = negotiate_format(
            "application/openmetrics-text;version=1.0.0,*/*;q=0.1",
            text,
            || exemplars.now(),
        );
        assert!(
            given
                .content_type
                .starts_with("application/openmetrics-text")
        );
        let expected = format!(
            "\
# TYPE call_seconds histogram
call_seconds_bucket{{tool=\"a\\\"b\",le=\"0.1\"}} 1
call_seconds_bucket{{tool=\"a\\\"b\",le=\"1.0\"}} 2 # {{trace_id=\"{trace}\",span_id=\"{span}\"}} 0.5
call_seconds_bucket{{tool=\"a\\\"b\",le=\"+Inf\"}} 3
call_seconds_sum{{tool=\"a\\\"b\"}} 7.55
call_seconds_count{{tool=\"a\\\"b\"}} 3
# EOF
"
        );
        assert!(given.text.ends_with(&expected), "{}", given.text);
        for line in [
            "# TYPE calls counter\n",
            "calls_total{status=\"le=\\\"1\\\"\"} 3\n",
            "# TYPE open gauge\nopen 1.5\n",
        ] {
            assert!(given.text.contains(line), "{line} in {}", given.text);
        }
        assert!(!given.text.contains("\n\n"), "{}", given.text);
    }

    #[test]
    fn prometheus_text_is_the_exporters_own() {
        let (text, exemplars, _) = record_metrics();
        let given = negotiate_format("text/plain", text.clone(), || exemplars.now());
        assert_eq!(given.text, text);
        assert_eq!(given.content_type, "text/plain; version=0.0.4");
    }
}
