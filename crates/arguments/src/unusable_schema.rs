//! Why a schema is of no use.

/// Why arguments cannot be checked against a schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnusableSchema {
    /// Its root describes something else.
    #[error("it does not describe an object")]
    NotAnObject,
    /// It is no JSON Schema, or refers to something outside itself, which is never fetched.
    #[error("{problem}")]
    Invalid {
        /// JSON Pointer (RFC 6901) to what is at fault in the schema.
        path: String,
        /// What is wrong there.
        problem: String,
    },
}
