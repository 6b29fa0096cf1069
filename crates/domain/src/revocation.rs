//! Revocations: whose tokens are refused although a trusted issuer vouches for them.

use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Caller, Timestamp};

/// What a revocation names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RevocationKind {
    /// One token, by its id as records have it: the claim `jti`, or a digest of the token; of an API key its name.
    Token,
    /// Every token of one subject.
    Subject,
    /// Every token of one sign-in at the identity provider, refreshed ones too: the claim `sid`.
    Session,
}

impl RevocationKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Token, Self::Subject, Self::Session];

    /// The kind as people and records spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Subject => "subject",
            Self::Session => "session",
        }
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// What is revoked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RevocationTarget {
    /// What `name` names.
    pub kind: RevocationKind,
    /// The id of the token or session, or the subject.
    pub name: String,
    /// The issuer of the tokens; none: whichever issuer names it.
    pub issuer: Option<String>,
    /// The tenant of the callers; none: of every tenant.
    pub tenant: Option<String>,
}

impl RevocationTarget {
    fn concerns(&self, caller: &Caller) -> bool {
        let fits = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|it| it == is);
        fits(&self.issuer, caller.issuer()) && fits(&self.tenant, caller.tenant())
    }
}

impl fmt::Display for RevocationTarget {
    /// As records show it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(issuer) = &self.issuer {
            write!(f, " of {issuer}")?;
        }
        Ok(())
    }
}

/// One revocation in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// What is revoked.
    pub target: RevocationTarget,
    /// Why, in the operator's words; empty where none were given.
    pub reason: String,
    /// The operator.
    pub revoked_by: String,
    /// When.
    pub revoked_at: Timestamp,
}

/// A revocation as the gateway lists it and operators' clients show it. All of it may be somebody else's words.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedRevocation {
    /// The kind, as it is spelt.
    pub kind: String,
    /// The id of the token or session, or the subject.
    pub name: String,
    /// The issuer of the tokens; none: whichever issuer names it.
    pub issuer: Option<String>,
    /// The tenant of the callers; none: of every tenant.
    pub tenant: Option<String>,
    /// Why; empty where nothing was said.
    pub reason: String,
    /// The operator.
    pub revoked_by: String,
    /// When, RFC 3339.
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

/// The revocations in force, as every request is checked against them.
#[derive(Debug, Default)]
pub struct RevocationSet(HashMap<RevocationKind, HashMap<String, Vec<RevocationTarget>>>);

impl RevocationSet {
    /// Whether a token of `caller` is refused.
    pub fn revokes(&self, caller: &Caller) -> bool {
        // The common case has no revocation at all.
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
