//! Whose a conversation is.

use wardgate_domain::Caller;

/// One person: the same for every token of theirs, whatever rights it carries.
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
