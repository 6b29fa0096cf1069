//! Conversions of shadow reports.

use wardgate_proto::policy::v1 as pb;

use super::{optional_digest, require_field};
use crate::{ComparedDecision, DecisionFlip, Digest, InvalidMessage, ShadowReport};

impl TryFrom<pb::ListShadowFlipsResponse> for ShadowReport {
    type Error = InvalidMessage;

    fn try_from(report: pb::ListShadowFlipsResponse) -> Result<Self, Self::Error> {
        let flips = report.flips.into_iter().map(DecisionFlip::try_from);
        Ok(Self {
            policy_hash: optional_digest(&report.policy_hash, "policy_hash")?,
            candidate_hash: optional_digest(&report.candidate_hash, "candidate_hash")?,
            fault: report.fault,
            equal: report.equal,
            skipped: report.skipped,
            flips: flips.collect::<Result<_, _>>()?,
        })
    }
}

impl From<ShadowReport> for pb::ListShadowFlipsResponse {
    fn from(report: ShadowReport) -> Self {
        let wire = |hash: Option<Digest>| hash.map(Digest::to_wire).unwrap_or_default();
        Self {
            policy_hash: wire(report.policy_hash),
            candidate_hash: wire(report.candidate_hash),
            fault: report.fault,
            equal: report.equal,
            skipped: report.skipped,
            flips: report.flips.into_iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<pb::DecisionFlip> for DecisionFlip {
    type Error = InvalidMessage;

    fn try_from(flip: pb::DecisionFlip) -> Result<Self, Self::Error> {
        Ok(Self {
            subject: flip.subject,
            tenant: flip.tenant,
            action: flip.action,
            tool: flip.tool,
            change: flip.change.parse()?,
            count: flip.count,
            first_at: require_field(flip.first_at, "first_at")?.try_into()?,
            last_at: require_field(flip.last_at, "last_at")?.try_into()?,
            decided: require_field(flip.decided, "decided")?.into(),
            candidate: require_field(flip.candidate, "candidate")?.into(),
        })
    }
}

impl From<DecisionFlip> for pb::DecisionFlip {
    fn from(flip: DecisionFlip) -> Self {
        Self {
            subject: flip.subject,
            tenant: flip.tenant,
            action: flip.action,
            tool: flip.tool,
            change: flip.change.as_str().to_owned(),
            count: flip.count,
            first_at: Some(flip.first_at.into()),
            last_at: Some(flip.last_at.into()),
            decided: Some(flip.decided.into()),
            candidate: Some(flip.candidate.into()),
        }
    }
}

impl From<pb::ComparedDecision> for ComparedDecision {
    fn from(decision: pb::ComparedDecision) -> Self {
        Self {
            access: decision.access,
            reason: decision.reason,
            policies: decision.policies,
        }
    }
}

impl From<ComparedDecision> for pb::ComparedDecision {
    fn from(decision: ComparedDecision) -> Self {
        Self {
            access: decision.access,
            reason: decision.reason,
            policies: decision.policies,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DecisionChange, Timestamp};

    #[test]
    fn a_report_survives_the_wire_and_an_unknown_change_is_refused() {
        let decision = |access: &str| ComparedDecision {
            access: access.to_owned(),
            reason: "forbidden".to_owned(),
            policies: vec!["p".to_owned()],
        };
        let flip = |change| DecisionFlip {
            subject: "anna".to_owned(),
            tenant: "north".to_owned(),
            action: "call_tool".to_owned(),
            tool: "t".to_owned(),
            change,
            count: 2,
            first_at: Timestamp::from_seconds(1),
            last_at: Timestamp::from_seconds(2),
            decided: decision("allowed"),
            candidate: decision("hidden"),
        };
        let report = ShadowReport {
            policy_hash: Some(Digest::compute(b"a")),
            candidate_hash: None,
            fault: "a fault".to_owned(),
            equal: 3,
            skipped: 4,
            flips: DecisionChange::ALL.map(flip).to_vec(),
        };
        let mut sent = pb::ListShadowFlipsResponse::from(report.clone());
        assert_eq!(ShadowReport::try_from(sent.clone()).unwrap(), report);
        sent.flips[0].change = "better".to_owned();
        let refused = ShadowReport::try_from(sent).unwrap_err();
        assert_eq!(refused.name(), "change");
    }
}
