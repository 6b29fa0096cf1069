//! Where the time of a call goes.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use metrics::{Histogram, histogram};
use wardgate_telemetry::names;

/// The stages of the pipeline.
static STAGES: StageHistograms = StageHistograms::new("");

/// The stages of a run, as the tool-runner names them.
static RUN_STAGES: StageHistograms = StageHistograms::new("run.");

/// The histograms of stages by their names. Each is resolved once, when it is first used: a call has eight, and to find one
/// by its name and labels takes longer than to record a value.
struct StageHistograms {
    prefix: &'static str,
    by_stage: RwLock<BTreeMap<String, Histogram>>,
}

impl StageHistograms {
    const fn new(prefix: &'static str) -> Self {
        Self {
            prefix,
            by_stage: RwLock::new(BTreeMap::new()),
        }
    }

    fn record(&self, stage: &str, spent: Duration) {
        let known = self.by_stage.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(histogram) = known.get(stage) {
            histogram.record(spent);
        } else {
            drop(known);
            let name = format!("{}{stage}", self.prefix);
            let histogram = histogram!(names::STAGE_SECONDS, "stage" => name);
            histogram.record(spent);
            let mut known = self
                .by_stage
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            known.insert(stage.to_owned(), histogram);
        }
        let (prefix, micros) = (self.prefix, spent.as_micros());
        tracing::debug!(
            stage = format_args!("{prefix}{stage}"),
            micros,
            "stage done"
        );
    }
}

/// Reports that the stage `name` of a call took `spent`.
pub fn stage(name: &str, spent: Duration) {
    STAGES.record(name, spent);
}

/// The same of the stage `name` of the run in the tool-runner.
pub fn run_stage(name: &str, spent: Duration) {
    RUN_STAGES.record(name, spent);
}
