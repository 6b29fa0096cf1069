//! A secret string that is never shown.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A provider's key, or the value of a header that may contain one.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// Returns the secret itself, which may only be used in a request.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

/// Implemented by hand, because the error of the derived implementation would show a key that consists only of digits.
impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self(text)),
            _ => Err(D::Error::custom(
                "a key or the value of a header is not a string; put it in quotes",
            )),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
