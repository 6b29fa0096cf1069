//! Why a message of the wire is none of the types that everyone trusts.

/// A message that lacks a required field or holds an impossible value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("field `{field}` {problem}")]
pub struct InvalidMessage {
    field: &'static str,
    problem: String,
}

impl InvalidMessage {
    /// Names the field and says what is wrong with it.
    pub fn field(field: &'static str, problem: impl Into<String>) -> Self {
        Self {
            field,
            problem: problem.into(),
        }
    }

    /// The field, by its proto name.
    pub fn name(&self) -> &'static str {
        self.field
    }
}
