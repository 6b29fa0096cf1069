//! The results of compiling a signed permit, which are computed once and reused.

use wardgate_domain::{ColumnClass, ColumnTier, Permit, VerifiedTerms};
use wardgate_redact::Redactor;

use crate::pushdown::PushedCondition;
use crate::row_rule::RowGate;

/// A verified permit, compiled for its tool or for the prompts and resources of a source.
pub(crate) struct CompiledPermit {
    pub(crate) verified: VerifiedTerms,
    /// The row rule, or `None` if rows are not governed.
    pub(crate) gate: Option<RowGate>,
    /// The row rule in the language of the source, or `None` if the source cannot filter rows itself.
    pub(crate) pushed: Option<PushedCondition>,
    /// Whether the rule may withhold rows that the source uses, because the source does not apply the whole rule.
    pub(crate) may_withhold: bool,
    pub(crate) redactor: Redactor,
}

impl CompiledPermit {
    /// Returns whether the permit restricts any of the data that can be returned. If it does, nothing is released that
    /// the permit has no rule for, such as messages besides the result and questions to the client. `classes` are the
    /// classes that a result can have.
    pub(crate) fn restricts(&self, permit: &Permit, classes: &[ColumnClass]) -> bool {
        let has_rule = self.gate.as_ref().and_then(RowGate::policies).is_some();
        let is_hidden = |class| permit.tier(class) != ColumnTier::Clear;
        has_rule || classes.iter().any(is_hidden)
    }
}
