//! The scopes of a token (RFC 6749 §3.3), which the caller granted to the client.

use std::collections::BTreeSet;

/// A sorted set of scope names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scopes(BTreeSet<String>);

impl Scopes {
    /// Returns whether the set contains the scope.
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// Returns the scopes, sorted.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Returns whether there are no scopes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<String> for Scopes {
    fn from_iter<T: IntoIterator<Item = String>>(names: T) -> Self {
        Self(names.into_iter().collect())
    }
}

impl std::fmt::Display for Scopes {
    /// Formats the scopes separated by spaces, as in requests and challenges.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, name) in self.iter().enumerate() {
            if index > 0 {
                f.write_str(" ")?;
            }
            f.write_str(name)?;
        }
        Ok(())
    }
}
