//! The identity of a signed bundle of policies.

use std::fmt;

use crate::Digest;

/// The identity of a signed bundle of policies, displayed as `VERSION (sha256:DIGEST)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BundleReference {
    /// The version, at least 1.
    pub version: u64,
    /// The SHA-256 digest of the signed contents.
    pub digest: Digest,
}

impl fmt::Display for BundleReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (sha256:{})", self.version, self.digest)
    }
}
