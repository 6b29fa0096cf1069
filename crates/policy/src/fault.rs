//! Why a decision could not be reached. Every fault is a denial.

use crate::denial::Denial;

/// A fault for which no decision could be reached. It goes to the log, so it names rules and types and never a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecisionFault {
    /// The schema makes an attribute of callers mandatory, and this caller has none that fits.
    #[error("the caller lacks the attribute `{0}`, which the schema makes mandatory")]
    MissingAttribute(String),
    /// A tool's rows are of a type no `read` applies to.
    #[error(
        "the schema has no row type `{0}`; declare `entity {0}` in a `.cedarschema`, as `wardgate policy schema` prints it, or mend the tool"
    )]
    UnknownEntity(String),
    /// A policy looks at an argument whose value the declared type cannot hold.
    #[error(
        "the argument `{0}` is not of the type that the schema of the policies gives it, and a policy looks at it"
    )]
    UnfitArgument(String),
    /// Policies that fail when evaluated.
    #[error("policies fail to evaluate: {}", .0.join(", "))]
    Policies(Vec<String>),
    /// What is left of a policy cannot be decided by looking at one row.
    #[error("policy {policy} cannot be decided by looking at one row: {problem}")]
    NotByRow {
        /// The policy.
        policy: String,
        /// What it needs besides.
        problem: &'static str,
    },
    /// Cedar refuses something that was made according to the schema.
    #[error("cedar refuses {0}")]
    Refused(&'static str),
}

impl DecisionFault {
    /// The denial that it is.
    pub(crate) fn denial(&self) -> Denial {
        match self {
            Self::Policies(ids) => Denial::failed(ids.clone()),
            Self::NotByRow { policy, .. } => Denial::failed(vec![policy.clone()]),
            Self::MissingAttribute(_)
            | Self::UnknownEntity(_)
            | Self::UnfitArgument(_)
            | Self::Refused(_) => Denial::failed(Vec::new()),
        }
    }
}
