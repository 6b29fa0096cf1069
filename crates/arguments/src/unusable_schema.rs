//! The error of a schema that cannot be used.

/// The reason why arguments cannot be checked against a schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnusableSchema {
    /// The root does not describe an object.
    #[error("it does not describe an object")]
    NotAnObject,
    /// The schema is not a valid JSON Schema, or refers to something outside itself, which is never fetched.
    #[error("{problem}")]
    Invalid {
        /// JSON Pointer (RFC 6901) to the faulty part of the schema.
        path: String,
        /// The problem.
        problem: String,
    },
}
