//! The error of a wire message that cannot be converted to a validated type.

/// A message that lacks a required field or holds an impossible value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("field `{field}` {problem}")]
pub struct InvalidMessage {
    field: &'static str,
    problem: String,
}

impl InvalidMessage {
    /// Creates an error that names the field and states the problem.
    pub fn field(field: &'static str, problem: impl Into<String>) -> Self {
        Self {
            field,
            problem: problem.into(),
        }
    }

    /// Returns the name of the field in the proto file.
    pub fn name(&self) -> &'static str {
        self.field
    }
}
