//! Metrics of the time that the stages of a call take.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use metrics::{Histogram, histogram};
use wardgate_telemetry::names;

/// The stages of the pipeline.
static STAGES: StageHistograms = StageHistograms::new("");

/// The stages of a run, as the tool-runner names them.
static RUN_STAGES: StageHistograms = StageHistograms::new("run.");

/// The histograms of stages by their names. Each is resolved once, when it is first used: a call has eight stages, and
/// the lookup of a histogram by name and labels takes longer than the recording of a value.
struct StageHistograms {
    prefix: &'static str,
    by_stage: RwLock<BTreeMap<String, Arc<StageHistogram>>>,
}

/// The histogram of one stage, and the name of the stage with its prefix.
struct StageHistogram {
    name: String,
    histogram: Histogram,
}

impl StageHistograms {
    const fn new(prefix: &'static str) -> Self {
        Self {
            prefix,
            by_stage: RwLock::new(BTreeMap::new()),
        }
    }

    fn record(&self, stage: &str, spent: Duration) {
        let stage = self
            .cached_histogram(stage)
            .unwrap_or_else(|| self.resolve(stage));
        stage.histogram.record(spent);
        tracing::debug!(stage = stage.name, micros = spent.as_micros(), "stage done");
    }

    fn cached_histogram(&self, stage: &str) -> Option<Arc<StageHistogram>> {
        let known = self.by_stage.read().unwrap_or_else(PoisonError::into_inner);
        known.get(stage).cloned()
    }

    fn resolve(&self, stage: &str) -> Arc<StageHistogram> {
        let name = format!("{}{stage}", self.prefix);
        let histogram = histogram!(names::STAGE_SECONDS, "stage" => name.clone());
        let resolved = Arc::new(StageHistogram { name, histogram });
        let mut known = self
            .by_stage
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        known.insert(stage.to_owned(), Arc::clone(&resolved));
        resolved
    }
}

/// Reports that the stage `name` of a call took `spent`.
pub fn stage(name: &str, spent: Duration) {
    STAGES.record(name, spent);
}

/// Reports that the stage `name` of a run in the tool-runner took `spent`.
pub fn run_stage(name: &str, spent: Duration) {
    RUN_STAGES.record(name, spent);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_resolved_once_under_its_whole_name() {
        let stages = StageHistograms::new("run.");
        for _ in 0..2 {
            stages.record("execute", Duration::from_millis(1));
        }
        let known = stages.cached_histogram("execute").unwrap();
        assert_eq!(known.name, "run.execute");
        assert!(stages.cached_histogram("redact").is_none());
    }
}
