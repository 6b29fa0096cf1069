//! The owner of a conversation.

use wardgate_domain::Caller;

/// A person who owns conversations. All tokens of this person identify the same owner, whatever rights they carry.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) tenant: String,
    pub(crate) issuer: String,
    pub(crate) subject: String,
}

impl From<&Caller> for Owner {
    fn from(caller: &Caller) -> Self {
        Self {
            tenant: caller.tenant().to_owned(),
            issuer: caller.issuer().to_owned(),
            subject: caller.subject().to_owned(),
        }
    }
}
