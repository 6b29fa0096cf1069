//! Where the time of a call goes.

use std::time::Duration;

use metrics::histogram;
use wardgate_telemetry::names;

/// Reports that the stage `name` of a call took `spent`.
pub fn stage(name: &str, spent: Duration) {
    histogram!(names::STAGE_SECONDS, "stage" => name.to_owned()).record(spent);
    tracing::debug!(stage = name, micros = spent.as_micros(), "stage done");
}
