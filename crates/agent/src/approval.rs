//! Calls that wait for a person: what is handed out for the decision.

use std::fmt;

/// The key that approvals are sealed under; every replica has the same one.
#[derive(Clone)]
pub struct ApprovalKey(#[expect(dead_code, reason = "its user is the next commit")] [u8; 32]);

impl ApprovalKey {
    /// A key of 32 random bytes.
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self(*bytes)
    }
}

impl fmt::Debug for ApprovalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApprovalKey")
    }
}
