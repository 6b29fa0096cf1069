//! What was once worked out for a signed permit.

use wardgate_domain::{ColumnClass, ColumnTier, Permit, VerifiedTerms};
use wardgate_redact::Redactor;

use crate::pushdown::PushedCondition;
use crate::row_rule::RowGate;

/// A verified permit, compiled for its tool, or for what a source offers besides tools.
pub(crate) struct CompiledPermit {
    pub(crate) verified: VerifiedTerms,
    /// `None` where rows are not governed.
    pub(crate) gate: Option<RowGate>,
    /// The rule in the terms of the source, where it can leave rows out itself.
    pub(crate) pushed: Option<PushedCondition>,
    pub(crate) redactor: Redactor,
}

impl CompiledPermit {
    /// Whether anything of what can come is not to be seen as it is. Then nothing goes on that no rule of the permit is
    /// about: no words besides the result, and no question. `classes` are those that can come.
    pub(crate) fn restricts(&self, permit: &Permit, classes: &[ColumnClass]) -> bool {
        let has_rule = self.gate.as_ref().and_then(RowGate::policies).is_some();
        let is_hidden = |class| permit.tier(class) != ColumnTier::Clear;
        has_rule || classes.iter().any(is_hidden)
    }
}
