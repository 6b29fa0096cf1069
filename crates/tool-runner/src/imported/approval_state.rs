//! Logs and records changes in the approval state of imported tools, once per change.

use std::collections::BTreeMap;

use metrics::gauge;
use tracing::{info, warn};
use wardgate_domain::Digest;
use wardgate_mcp_client::CanonicalDefinition;
use wardgate_telemetry::names;

use super::importing::PinnedSource;
use super::recorder::{ITSELF, Recorder};
use wardgate_catalogue::{Grade, JudgedTool, PinJudgement, Pins};

/// The approval state of each tool when it was last judged, by source, by whether a tool of the catalogue calls it, and by
/// the name that clients see.
#[derive(Default)]
pub(super) struct ApprovalStates(BTreeMap<(String, bool, String), ApprovalState>);

#[derive(Clone, Copy, PartialEq, Eq)]
struct ApprovalState {
    state: &'static str,
    digest: Option<Digest>,
}

impl ApprovalStates {
    /// Stores the latest judgements. Each change is logged and recorded.
    pub(super) fn update(
        &mut self,
        sources: &[PinnedSource],
        judged: &[Vec<JudgedTool>],
        pins: &Pins,
        recorder: &Recorder,
    ) {
        let mut states = BTreeMap::new();
        for (source, judged) in sources.iter().zip(judged) {
            let kept_out = judged
                .iter()
                .filter(|tool| is_kept_out(&tool.judged))
                .count();
            #[expect(clippy::cast_precision_loss, reason = "a count of tools")]
            gauge!(names::QUARANTINED_TOOLS, "upstream" => source.name.clone())
                .set(kept_out as f64);
            for tool in judged {
                let key = (source.name.clone(), tool.is_configured, tool.shown.clone());
                let state = ApprovalState {
                    state: tool.judged.as_str(),
                    digest: tool.definition.as_ref().map(CanonicalDefinition::digest),
                };
                let before = self.0.get(&key);
                if before != Some(&state) {
                    log_change(&source.name, tool, before.is_none());
                    record(source, tool, before.is_none(), pins, recorder);
                }
                states.insert(key, state);
            }
        }
        self.0 = states;
    }
}

fn is_kept_out(judged: &PinJudgement) -> bool {
    matches!(
        judged,
        PinJudgement::New { .. } | PinJudgement::Drifted { .. } | PinJudgement::Refused { .. }
    )
}

fn log_change(upstream: &str, tool: &JudgedTool, at_first_sight: bool) {
    let name = tool.shown.as_str();
    let grade = tool.judged.grade().map(Grade::as_str);
    match &tool.judged {
        // An approved tool at startup is not a change.
        PinJudgement::Approved if at_first_sight => {}
        PinJudgement::Approved => info!(
            upstream,
            tool = name,
            "a tool of an upstream server is approved and in force"
        ),
        PinJudgement::Gone => info!(
            upstream,
            tool = name,
            "an upstream server no longer offers an approved tool"
        ),
        PinJudgement::New { .. } => warn!(
            upstream,
            tool = name,
            grade,
            "a new tool of an upstream server is not offered until it is approved"
        ),
        PinJudgement::Drifted { .. } => warn!(
            upstream,
            tool = name,
            grade,
            "a tool of an upstream server changed and is not offered until the change is approved"
        ),
        PinJudgement::Refused { reason } => {
            warn!(
                upstream,
                tool = name,
                reason,
                "a tool of an upstream server cannot be offered"
            );
        }
    }
}

fn record(
    source: &PinnedSource,
    tool: &JudgedTool,
    at_first_sight: bool,
    pins: &Pins,
    recorder: &Recorder,
) {
    let digest = tool.definition.as_ref().map(CanonicalDefinition::digest);
    match tool.judged {
        PinJudgement::Approved if !at_first_sight => {
            let by = pins.approver(&source.name, &tool.name).unwrap_or(ITSELF);
            recorder.record(by, "tool.approved", tool.shown.clone(), digest);
        }
        PinJudgement::New { .. } | PinJudgement::Drifted { .. } | PinJudgement::Refused { .. } => {
            recorder.record(ITSELF, "tool.quarantined", tool.shown.clone(), digest);
        }
        PinJudgement::Approved | PinJudgement::Gone => {}
    }
}
