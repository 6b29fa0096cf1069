//! Faults because of which no decision could be reached. Every fault is treated as a denial.

use crate::denial::Denial;

/// A fault because of which no decision could be reached. It is logged, so it names rules and types but never a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecisionFault {
    /// The schema requires an attribute of callers that this caller does not have, or has with another type.
    #[error("the caller lacks the attribute `{0}`, which is mandatory in the schema")]
    MissingAttribute(String),
    /// The rows of a tool have a type to which `read` does not apply.
    #[error(
        "the schema has no row type `{0}`; declare `entity {0}` in a `.cedarschema`, as `wardgate policy schema` prints it, or correct \
         the tool"
    )]
    UnknownEntity(String),
    /// A policy reads an argument whose value does not fit the declared type.
    #[error(
        "the argument `{0}`, which a policy uses, does not have the type that the schema of the policies declares"
    )]
    UnfitArgument(String),
    /// Policies failed to evaluate.
    #[error("policies fail to evaluate: {}", .0.join(", "))]
    Policies(Vec<String>),
    /// The residual of a policy cannot be decided from a single row.
    #[error("policy {policy} cannot be evaluated for a single row: {problem}")]
    NotByRow {
        /// The id of the policy.
        policy: String,
        /// What the policy needs besides the row.
        problem: &'static str,
    },
    /// Cedar rejected a value that was built according to the schema.
    #[error("cedar rejected {0}")]
    Refused(&'static str),
}

impl DecisionFault {
    /// Returns the denial that results from the fault.
    pub(crate) fn denial(&self) -> Denial {
        match self {
            Self::Policies(ids) => Denial::for_policy_error(ids.clone()),
            Self::NotByRow { policy, .. } => Denial::for_policy_error(vec![policy.clone()]),
            Self::MissingAttribute(_)
            | Self::UnknownEntity(_)
            | Self::UnfitArgument(_)
            | Self::Refused(_) => Denial::for_policy_error(Vec::new()),
        }
    }
}
