//! Revocations: they cause tokens to be refused although a trusted issuer signed them.

use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Caller, Timestamp};

/// The kind of object that a revocation names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RevocationKind {
    /// One token, by its id as it appears in records: the claim `jti` or a digest of the token; for an API key, its
    /// name.
    Token,
    /// All tokens of one subject.
    Subject,
    /// All tokens of one session at the identity provider, including refreshed tokens, by the claim `sid`.
    Session,
}

impl RevocationKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Token, Self::Subject, Self::Session];

    /// Returns the name of the kind in records and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Subject => "subject",
            Self::Session => "session",
        }
    }

    /// Returns the kind with this name, or `None` if there is none.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// The target of a revocation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RevocationTarget {
    /// The kind of object that `name` refers to.
    pub kind: RevocationKind,
    /// The id of the token or session, or the subject.
    pub name: String,
    /// The issuer of the tokens, or `None` for any issuer.
    pub issuer: Option<String>,
    /// The tenant of the callers, or `None` for every tenant.
    pub tenant: Option<String>,
}

impl RevocationTarget {
    fn concerns(&self, caller: &Caller) -> bool {
        let fits = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|it| it == is);
        fits(&self.issuer, caller.issuer()) && fits(&self.tenant, caller.tenant())
    }
}

impl fmt::Display for RevocationTarget {
    /// Formats the target as it appears in records.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(issuer) = &self.issuer {
            write!(f, " of {issuer}")?;
        }
        Ok(())
    }
}

/// A revocation in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// The revoked target.
    pub target: RevocationTarget,
    /// The reason in the operator's words; empty if none was given.
    pub reason: String,
    /// The operator who revoked the target.
    pub revoked_by: String,
    /// The time of the revocation.
    pub revoked_at: Timestamp,
}

/// A revocation in the format of the gateway's list, which clients of operators display. All texts in it are untrusted.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedRevocation {
    /// The name of the kind.
    pub kind: String,
    /// The id of the token or session, or the subject.
    pub name: String,
    /// The issuer of the tokens, or `None` for any issuer.
    pub issuer: Option<String>,
    /// The tenant of the callers, or `None` for every tenant.
    pub tenant: Option<String>,
    /// The reason; empty if none was given.
    pub reason: String,
    /// The operator who revoked the target.
    pub revoked_by: String,
    /// The time of the revocation, in RFC 3339 format.
    pub revoked_at: String,
}

impl From<Revocation> for ListedRevocation {
    fn from(revocation: Revocation) -> Self {
        let RevocationTarget {
            kind,
            name,
            issuer,
            tenant,
        } = revocation.target;
        Self {
            kind: kind.as_str().to_owned(),
            name,
            issuer,
            tenant,
            reason: revocation.reason,
            revoked_by: revocation.revoked_by,
            revoked_at: revocation.revoked_at.to_string(),
        }
    }
}

/// The revocations in force, indexed so that every request can be checked against them.
#[derive(Debug, Default)]
pub struct RevocationSet(HashMap<RevocationKind, HashMap<String, Vec<RevocationTarget>>>);

impl RevocationSet {
    /// Returns whether the token of `caller` is revoked.
    pub fn revokes(&self, caller: &Caller) -> bool {
        // Fast path: usually there is no revocation at all.
        if self.0.is_empty() {
            return false;
        }
        let names = [
            (RevocationKind::Token, Some(caller.token_id())),
            (RevocationKind::Subject, Some(caller.subject())),
            (RevocationKind::Session, caller.sign_in()),
        ];
        names.into_iter().any(|(kind, name)| {
            let targets = name.and_then(|name| self.0.get(&kind)?.get(name));
            targets.is_some_and(|targets| targets.iter().any(|it| it.concerns(caller)))
        })
    }
}

impl FromIterator<RevocationTarget> for RevocationSet {
    fn from_iter<I: IntoIterator<Item = RevocationTarget>>(targets: I) -> Self {
        let mut set = Self::default();
        for target in targets {
            let named = set.0.entry(target.kind).or_default();
            named.entry(target.name.clone()).or_default().push(target);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::CallerClaims;

    fn caller(tenant: &str, sign_in: Option<&str>) -> Caller {
        let caller = Caller::from_verified(CallerClaims {
            issuer: "https://issuer.example".to_owned(),
            subject: "nurse.joy".to_owned(),
            tenant: tenant.to_owned(),
            roles: Vec::new(),
            attributes: BTreeMap::new(),
            token_id: "t-1".to_owned(),
            expires_at: Timestamp::from_seconds(0),
        });
        caller.with_sign_in(sign_in.map(ToOwned::to_owned))
    }

    fn set(
        kind: RevocationKind,
        name: &str,
        issuer: Option<&str>,
        tenant: Option<&str>,
    ) -> RevocationSet {
        let target = RevocationTarget {
            kind,
            name: name.to_owned(),
            issuer: issuer.map(ToOwned::to_owned),
            tenant: tenant.map(ToOwned::to_owned),
        };
        [target].into_iter().collect()
    }

    #[test]
    fn a_token_a_subject_and_a_sign_in_are_each_revoked_by_their_own_name() {
        use RevocationKind::{Session, Subject, Token};
        let joy = caller("north", Some("s-1"));
        for (kind, name) in [(Token, "t-1"), (Subject, "nurse.joy"), (Session, "s-1")] {
            assert!(set(kind, name, None, None).revokes(&joy), "{kind:?}");
            for other in RevocationKind::ALL
                .into_iter()
                .filter(|other| *other != kind)
            {
                assert!(!set(other, name, None, None).revokes(&joy), "{other:?}");
            }
        }
        assert!(!set(Session, "s-1", None, None).revokes(&caller("north", None)));
        assert!(!RevocationSet::default().revokes(&joy));
    }

    #[test]
    fn a_revocation_of_one_issuer_or_tenant_concerns_no_other() {
        let joy = caller("north", None);
        let subject = |issuer, tenant| set(RevocationKind::Subject, "nurse.joy", issuer, tenant);
        assert!(subject(Some("https://issuer.example"), Some("north")).revokes(&joy));
        assert!(!subject(Some("https://other.example"), None).revokes(&joy));
        assert!(!subject(None, Some("south")).revokes(&joy));
    }
}
