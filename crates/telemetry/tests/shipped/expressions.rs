//! Metric names in `PromQL` expressions.

/// Returns the metrics in `expression`. A name counts as a metric if a selector follows it, as it always does in our
/// expressions.
pub(crate) fn metrics_of(expression: &str) -> Vec<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let named = expression.match_indices('{').map(|(at, _)| {
        let before = &expression[..at];
        let start = before.rfind(|c| !is_name(c)).map_or(0, |at| at + 1);
        before[start..].to_owned()
    });
    named.filter(|name| !name.is_empty()).collect()
}
