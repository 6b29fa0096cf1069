//! The mark that a value went through redaction.

use std::fmt;

use serde::{Serialize, Serializer};

/// A value whose fields were redacted. Only [`crate::Redactor::rows`] makes one, so a function that takes
/// it cannot be handed anything raw:
///
/// ```compile_fail,E0423
/// let raw = wardgate_redact::Redacted(vec!["Jane Doe"]);
/// ```
///
/// ```compile_fail,E0624
/// let raw = wardgate_redact::Redacted::new(vec!["Jane Doe"]);
/// ```
///
/// Fields of tier clear are in it as stored; its `Debug` form therefore shows nothing.
#[derive(Clone, PartialEq)]
pub struct Redacted<T>(T);

impl<T> Redacted<T> {
    /// The only constructor. Call it with what every field's tier was applied to.
    pub(crate) fn new(value: T) -> Self {
        Self(value)
    }

    /// The value.
    pub fn get(&self) -> &T {
        &self.0
    }

    /// What `choose` takes of the value: a page of it, or a figure about it. Whatever is computed from redacted
    /// values alone is redacted.
    pub fn map<U>(self, choose: impl FnOnce(T) -> U) -> Redacted<U> {
        Redacted(choose(self.0))
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
