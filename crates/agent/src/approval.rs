//! Approvals: sealed ids of tool calls that wait for a user's decision.
//!
//! An approval id contains everything about its call in sealed form, so that any replica can take the decision and no
//! replica needs to store it. The conversation ensures that an approval is used once: the decision is a message of the turn,
//! with an id that is derived from the call.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use wardgate_domain::{About, Ambient, Caller, Digest, SealKey, Timestamp};

/// Distinguishes sealed approvals from other texts sealed under the same key.
const PURPOSE: &str = "wardgate approval 1";

/// Maximum length of an approval id, in bytes. Longer ids are rejected before they are decoded.
const MAX_ID: usize = 4_096;

/// The key that seals approvals. All replicas share the same key.
#[derive(Clone)]
pub struct ApprovalKey([u8; 32]);

impl ApprovalKey {
    /// Creates a key from 32 random bytes.
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self(*bytes)
    }

    fn key(&self) -> SealKey {
        SealKey::from_bytes(&self.0)
    }

    /// Seals `approval` and returns its id, which is safe in a URL.
    pub(crate) fn seal(&self, approval: &Approval, ambient: &Ambient) -> Option<String> {
        let text = serde_json::to_vec(approval).ok()?;
        let sealed = self.key().seal(&About::new(PURPOSE), &text, ambient);
        Some(URL_SAFE_NO_PAD.encode(sealed.ok()?))
    }

    /// Returns the approval sealed in `id` if `caller` may decide on it at the time `now`.
    pub(crate) fn open(
        &self,
        id: &str,
        caller: &Caller,
        now: Timestamp,
    ) -> Result<Approval, InvalidApproval> {
        let approval = self.unseal(id).ok_or(InvalidApproval::Unknown)?;
        if approval.person != Person::from_caller(caller) {
            return Err(InvalidApproval::Foreign);
        }
        if now.as_micros() >= approval.expires_at_micros {
            return Err(InvalidApproval::Expired);
        }
        Ok(approval)
    }

    fn unseal(&self, id: &str) -> Option<Approval> {
        if id.len() > MAX_ID {
            return None;
        }
        let sealed = URL_SAFE_NO_PAD.decode(id).ok()?;
        let text = self.key().open(&About::new(PURPOSE), sealed).ok()?;
        serde_json::from_slice(&text).ok()
    }
}

impl fmt::Debug for ApprovalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApprovalKey")
    }
}

/// A tool call that waits for a decision.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Approval {
    /// The user who may decide.
    pub(crate) person: Person,
    pub(crate) assistant: String,
    pub(crate) conversation: String,
    pub(crate) turn: String,
    pub(crate) call_id: String,
    /// Digest of the tool and of the exact arguments of the call.
    pub(crate) terms: String,
    /// The id of the approval event in the turn's stream.
    pub(crate) event: u64,
    pub(crate) expires_at_micros: i64,
}

/// The identity of a user, independent of the user's current rights: a digest of issuer, subject and tenant.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Person(String);

impl Person {
    pub(crate) fn from_caller(caller: &Caller) -> Self {
        let parts = [caller.issuer(), caller.subject(), caller.tenant()];
        let parts = serde_json::Value::from(parts.as_slice()).to_string();
        Self(Digest::compute(parts.as_bytes()).to_string())
    }
}

/// The reason why a decision is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidApproval {
    #[error("this is not an approval id of this service")]
    Unknown,
    #[error("this approval is for another user")]
    Foreign,
    #[error(
        "this approval has expired; send the message again with its message_id to request a new one"
    )]
    Expired,
    #[error("the call was already decided; send the message again with its message_id to continue")]
    Used,
    #[error(
        "the call differs from the one that was shown; send the message again with its message_id to request a new approval"
    )]
    Changed,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::caller;
    use std::time::Duration;

    #[test]
    fn an_approval_is_for_one_person_for_a_time_and_cannot_be_forged() {
        let ambient = Ambient::system();
        let key = ApprovalKey::from_bytes(&[7; 32]);
        let yenji = caller("dr.yenji", &["Doctor"]);
        let now = Timestamp::from_seconds(1_000);
        let expires = now.plus(Duration::from_secs(60));
        let approval = Approval {
            person: Person::from_caller(&yenji),
            assistant: "clinic".to_owned(),
            conversation: "c".to_owned(),
            turn: "t".to_owned(),
            call_id: "call-1".to_owned(),
            terms: "terms".to_owned(),
            event: 7,
            expires_at_micros: expires.as_micros(),
        };
        let id = key.seal(&approval, &ambient).unwrap();
        assert!(!id.contains("clinic"));
        assert!(key.open(&id, &yenji, now).unwrap() == approval);
        let refused = |key: &ApprovalKey, id: &str, caller: &Caller, now| {
            key.open(id, caller, now).err().unwrap()
        };
        assert_eq!(
            refused(&key, &id, &yenji, expires),
            InvalidApproval::Expired
        );
        let other = caller("billing.bo", &["Doctor"]);
        assert_eq!(refused(&key, &id, &other, now), InvalidApproval::Foreign);
        for forged in ["", "junk", &id[1..], &format!("{id}A")] {
            assert_eq!(refused(&key, forged, &yenji, now), InvalidApproval::Unknown);
        }
        let other = ApprovalKey::from_bytes(&[8; 32]);
        assert_eq!(refused(&other, &id, &yenji, now), InvalidApproval::Unknown);
    }
}
