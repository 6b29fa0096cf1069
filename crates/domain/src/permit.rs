//! Permits as the policy service issues them: the terms of the right to run one call, and the signed bytes.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::{
    BundleReference, ColumnClass, ColumnTier, DecisionId, Digest, PermitId, Timestamp, ToolName,
};

/// The rule that selects the rows that may be released: the Cedar residual of `Action::"read"` for one caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowRule {
    /// The entity type of a row.
    pub entity: String,
    /// The residual policies in Cedar's JSON policy format. A row is released if they allow it.
    pub policies_json: Vec<String>,
    /// Whether every row is released.
    pub all: bool,
    /// The attributes that the policies mention, with their types. A row that lacks such a column, or has a value of
    /// another type in it, is not released.
    pub attributes: BTreeMap<String, AttributeType>,
}

/// The type of an attribute of a row. NULL counts as an absent attribute of any type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributeType {
    /// A string.
    Text,
    /// A 64-bit integer.
    Integer,
    /// A Boolean.
    Boolean,
}

/// The contents of a permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermitTerms {
    /// The id of the permit.
    pub id: PermitId,
    /// The decision that the permit carries out.
    pub decision_id: DecisionId,
    /// [`Caller::digest`](crate::Caller::digest) of the caller whom the decision was about.
    pub caller_digest: Digest,
    /// The canonical name of the tool.
    pub tool: ToolName,
    /// The digest of the tool's definition.
    pub definition_digest: Digest,
    /// The SHA-256 digest of the arguments, or `None` if the decision does not depend on them.
    pub arguments_digest: Option<Digest>,
    /// The digest of the schema and policies in force.
    pub policy_hash: Digest,
    /// The bundle that these policies come from, or `None` if they come from a directory.
    pub bundle: Option<BundleReference>,
    /// The first instant at which the permit is valid.
    pub not_before: Timestamp,
    /// The instant from which on the permit is no longer valid.
    pub expires_at: Timestamp,
    /// The rule for the rows that may be released, or `None` if rows are not governed as entities.
    pub row_rule: Option<RowRule>,
    /// The treatment of the fields of each class. The fields of a class that is not listed are dropped.
    pub column_tiers: BTreeMap<ColumnClass, ColumnTier>,
}

impl PermitTerms {
    /// Returns the treatment of the fields of `class`. The fields of a class that is not listed are dropped.
    pub fn tier(&self, class: &ColumnClass) -> ColumnTier {
        let tier = self.column_tiers.get(class).copied();
        tier.unwrap_or(ColumnTier::Dropped)
    }
}

/// A signed permit that has not been verified yet. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SignedPermit {
    pub(crate) permit: Bytes,
    pub(crate) signature: Bytes,
}
