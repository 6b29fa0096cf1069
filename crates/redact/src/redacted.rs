//! The mark that a value went through redaction.

use std::fmt;

use serde::{Serialize, Serializer};

/// A value whose fields were redacted. Only [`crate::Redactor::rows`] makes one, and only this crate makes another of one,
/// from what is in it alone, so a function that takes it cannot be handed anything raw:
///
/// ```compile_fail,E0423
/// let raw = wardgate_redact::Redacted(vec!["Jane Doe"]);
/// ```
///
/// ```compile_fail,E0624
/// let raw = wardgate_redact::Redacted::new(vec!["Jane Doe"]);
/// ```
///
/// ```compile_fail,E0599
/// # fn smuggle(redacted: wardgate_redact::Redacted<Vec<wardgate_redact::Row>>) {
/// let raw = redacted.map(|_| vec!["Jane Doe"]);
/// # }
/// ```
///
/// ```compile_fail,E0624
/// # fn smuggle(redacted: wardgate_redact::Redacted<Vec<wardgate_redact::Row>>) {
/// let mut raw = redacted.into_inner();
/// # }
/// ```
///
/// Fields of tier clear are in it as stored; its `Debug` form therefore shows nothing.
#[derive(Clone, PartialEq)]
pub struct Redacted<T>(T);

impl<T> Redacted<T> {
    /// The only constructor. Call it with what every field's tier was applied to, or with what is computed from such values
    /// alone.
    pub(crate) fn new(value: T) -> Self {
        Self(value)
    }

    /// The value.
    pub fn get(&self) -> &T {
        &self.0
    }

    /// The value, for what this crate makes of it.
    pub(crate) fn into_inner(self) -> T {
        self.0
    }
}

impl<T: Serialize> Serialize for Redacted<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<T> fmt::Debug for Redacted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redacted(..)")
    }
}
