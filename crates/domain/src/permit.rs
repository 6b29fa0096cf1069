//! Permits as the policy service writes them: the terms of the right to run one call, and the signed bytes.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::{ColumnClass, ColumnTier, DecisionId, Digest, PermitId, Timestamp, ToolName};

/// Which rows may leave: the Cedar residual of `Action::"read"` for one caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowRule {
    /// Entity type of a row.
    pub entity: String,
    /// Residual policies in Cedar's JSON policy format; a row is admitted when they allow it.
    pub policies_json: Vec<String>,
    /// Every row is admitted.
    pub all: bool,
    /// The attributes the policies mention. A row without such a column, or with a value of another type in
    /// it, is not admitted.
    pub attributes: BTreeMap<String, AttributeType>,
}

/// The type of a row's attribute. NULL is an absent attribute of any type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributeType {
    /// A text.
    Text,
    /// A whole number of 64 bits.
    Integer,
    /// A truth value.
    Boolean,
}

/// What a permit says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermitTerms {
    /// Its id.
    pub id: PermitId,
    /// The decision it carries out.
    pub decision_id: DecisionId,
    /// [`Caller::digest`] of the caller that was decided on.
    pub caller_digest: Digest,
    /// Canonical tool name.
    pub tool: ToolName,
    /// The tool's definition.
    pub definition_digest: Digest,
    /// SHA-256 of the arguments; `None` when the decision does not depend on them.
    pub arguments_digest: Option<Digest>,
    /// Schema and policies in force.
    pub policy_hash: Digest,
    /// First instant of validity.
    pub not_before: Timestamp,
    /// First instant of invalidity.
    pub expires_at: Timestamp,
    /// Which rows may leave; `None` where rows are not governed as entities.
    pub row_rule: Option<RowRule>,
    /// What happens to the fields of a class. A class that is not listed is dropped.
    pub column_tiers: BTreeMap<ColumnClass, ColumnTier>,
}

impl PermitTerms {
    /// What happens to fields of `class`; what is not named is dropped.
    pub fn tier(&self, class: &ColumnClass) -> ColumnTier {
        let tier = self.column_tiers.get(class).copied();
        tier.unwrap_or(ColumnTier::Dropped)
    }
}

/// A permit on its way: bytes and a signature, not yet trusted. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SignedPermit {
    pub(crate) permit: Bytes,
    pub(crate) signature: Bytes,
}
