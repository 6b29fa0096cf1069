//! A wrapper type that marks values as redacted.

use std::fmt;

use serde::{Serialize, Serializer};

/// A value whose fields were redacted. Only [`crate::Redactor::rows`] creates one from raw rows, and only this crate
/// derives others from it, using only what it contains. So a function that takes this type cannot receive raw values:
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
/// Fields of the clear tier are contained unchanged, so the `Debug` output shows nothing.
#[derive(Clone, PartialEq)]
pub struct Redacted<T>(T);

impl<T> Redacted<T> {
    /// Wraps a value. This is the only constructor. Call it only with a value to which every field's tier was applied,
    /// or with a value that is computed only from such values.
    pub(crate) fn new(value: T) -> Self {
        Self(value)
    }

    /// Returns the value.
    pub fn get(&self) -> &T {
        &self.0
    }

    /// Returns the value, for operations of this crate.
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
