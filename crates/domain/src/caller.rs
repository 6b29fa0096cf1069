//! The caller: a person or service whose bearer token was verified.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::{About, Digest, Timestamp};

/// A bearer token (RFC 6750) as its holder sent it, without the scheme. Cheap to clone. Its `Debug` form shows nothing of
/// it, and it is never stored.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerToken(Arc<str>);

impl BearerToken {
    /// What every API key begins with, so that a key is known wherever it turns up.
    pub const API_KEY_PREFIX: &'static str = "wgk_";

    /// The token `text`.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The token itself, for whoever verifies or exchanges it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(..)")
    }
}

/// One attribute of a caller, taken from a configured claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttributeValue {
    /// A text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A truth value.
    Boolean(bool),
    /// Several texts.
    List(Vec<String>),
}

/// What a verified token says; the input of [`Caller::from_verified`].
#[derive(Debug, Clone)]
pub struct CallerClaims {
    /// `iss`.
    pub issuer: String,
    /// `sub`.
    pub subject: String,
    /// Tenant, empty where the deployment has only one.
    pub tenant: String,
    /// Roles as the issuer names them.
    pub roles: Vec<String>,
    /// Attributes by name.
    pub attributes: BTreeMap<String, AttributeValue>,
    /// `jti`, or a digest of the token.
    pub token_id: String,
    /// `exp`.
    pub expires_at: Timestamp,
}

/// Roles and attributes that were looked up for a caller, besides those of the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerRights {
    /// Roles.
    pub roles: Vec<String>,
    /// Attributes by name.
    pub attributes: BTreeMap<String, AttributeValue>,
    /// Roles and attributes of the token count for nothing.
    pub replaces_claims: bool,
    /// When they have to be looked up again.
    pub expires_at: Timestamp,
}

/// A caller. There is no anonymous one: each stands for a token whose signature, issuer, audience and
/// times were checked, by the gateway, or by the gateway on the other side of an authenticated link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    issuer: String,
    subject: String,
    tenant: String,
    roles: Vec<String>,
    attributes: BTreeMap<String, AttributeValue>,
    token_id: String,
    expires_at: Timestamp,
    token: Option<BearerToken>,
    delegation: Option<Arc<Delegation>>,
    sign_in: Option<String>,
    rights_expire_at: Option<Timestamp>,
    digest: Digest,
}

/// By whom a caller's token is used in the caller's name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Delegation {
    /// The OAuth client that the token was issued to (`client_id`, or `azp`); empty: the token does not say.
    pub client: String,
    /// Subjects of the claim `act` (RFC 8693, section 4.1): who acts, then for whom that one acts, and so on.
    pub actors: Vec<String>,
}

/// One digest for everything of one person, as [`Caller::person`] gives it.
pub fn person(tenant: &str, issuer: &str, subject: &str) -> Digest {
    let about = About::new("owner")
        .and(tenant.as_bytes())
        .and(issuer.as_bytes())
        .and(subject.as_bytes());
    about.digest()
}

impl Caller {
    /// The caller of a token that was just verified. Call it nowhere else.
    pub fn from_verified(claims: CallerClaims) -> Self {
        let mut roles = claims.roles;
        roles.sort_unstable();
        roles.dedup();
        let mut caller = Self {
            issuer: claims.issuer,
            subject: claims.subject,
            tenant: claims.tenant,
            roles,
            attributes: claims.attributes,
            token_id: claims.token_id,
            expires_at: claims.expires_at,
            token: None,
            delegation: None,
            sign_in: None,
            rights_expire_at: None,
            digest: Digest::of(b""),
        };
        caller.digest = caller.rights_digest();
        caller
    }

    /// The same caller with the token that was verified, which services verify anew before they act on it.
    #[must_use]
    pub fn with_token(self, token: BearerToken) -> Self {
        Self {
            token: Some(token),
            ..self
        }
    }

    /// The same caller, and by whom their token is used.
    #[must_use]
    pub fn with_delegation(self, delegation: Delegation) -> Self {
        let delegation = (delegation != Delegation::default()).then(|| Arc::new(delegation));
        Self { delegation, ..self }
    }

    /// The same caller, with roles and attributes that were looked up. Roles are those of both; of an attribute that both
    /// have, the one that was looked up counts.
    #[must_use]
    pub fn with_rights(mut self, rights: &CallerRights) -> Self {
        if rights.replaces_claims {
            self.roles.clear();
            self.attributes.clear();
        }
        self.roles.extend_from_slice(&rights.roles);
        self.roles.sort_unstable();
        self.roles.dedup();
        let attributes = rights.attributes.iter();
        let attributes = attributes.map(|(name, value)| (name.clone(), value.clone()));
        self.attributes.extend(attributes);
        self.rights_expire_at = Some(rights.expires_at);
        self.digest = self.rights_digest();
        self
    }

    /// The same caller, whose roles and attributes have to be looked up again at that time.
    pub(crate) fn with_rights_until(self, rights_expire_at: Option<Timestamp>) -> Self {
        Self {
            rights_expire_at,
            ..self
        }
    }

    /// When the roles and attributes have to be looked up again; none where the token alone gives them.
    pub fn rights_expire_at(&self) -> Option<Timestamp> {
        self.rights_expire_at
    }

    /// By whom the token is used; none where it does not say, or the caller came from another service.
    pub fn delegation(&self) -> Option<&Delegation> {
        self.delegation.as_deref()
    }

    /// The same caller, and the session at the identity provider that the token came out of.
    #[must_use]
    pub fn with_sign_in(self, sign_in: Option<String>) -> Self {
        Self { sign_in, ..self }
    }

    /// The session at the identity provider that the token came out of (`sid`, of the specification Front-Channel Logout 1.0, section
    /// 3); none where the token does not say, or the caller came from another service.
    pub fn sign_in(&self) -> Option<&str> {
        self.sign_in.as_deref()
    }

    /// The token that was verified; none where the caller came from a service that does not pass it on.
    pub fn token(&self) -> Option<&BearerToken> {
        self.token.as_ref()
    }

    /// The text of the token, where a source `is_given` it; none where there is none, or the source gets none. An API key is
    /// for this gateway alone: no authorization server elsewhere could exchange it.
    pub fn token_for_source(&self, is_given: bool) -> Option<&str> {
        let token = self.token().filter(|_| is_given)?.expose();
        (!token.starts_with(BearerToken::API_KEY_PREFIX)).then_some(token)
    }

    /// Token issuer.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Token subject, unique within the issuer.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Tenant, empty where the deployment has only one.
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// Roles, sorted, each once.
    pub fn roles(&self) -> &[String] {
        &self.roles
    }

    /// Attributes by name.
    pub fn attributes(&self) -> &BTreeMap<String, AttributeValue> {
        &self.attributes
    }

    /// Which token it was.
    pub fn token_id(&self) -> &str {
        &self.token_id
    }

    /// When the token ends.
    pub fn expires_at(&self) -> Timestamp {
        self.expires_at
    }

    /// SHA-256 over everything a policy can see of the caller. Two tokens of one person with the same
    /// rights give the same digest, so permits outlive a token refresh but no change of rights.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Stands for the person: the same for every token of theirs, whatever rights it carries.
    pub fn person(&self) -> Digest {
        person(&self.tenant, &self.issuer, &self.subject)
    }

    fn rights_digest(&self) -> Digest {
        let mut canonical = Canonical::default();
        canonical.text(&self.issuer);
        canonical.text(&self.subject);
        canonical.text(&self.tenant);
        canonical.texts(&self.roles);
        canonical.count(self.attributes.len());
        for (name, value) in &self.attributes {
            canonical.text(name);
            match value {
                AttributeValue::Text(text) => canonical.tagged(0, text.as_bytes()),
                AttributeValue::Integer(number) => canonical.tagged(1, &number.to_be_bytes()),
                AttributeValue::Boolean(truth) => canonical.tagged(2, &[u8::from(*truth)]),
                AttributeValue::List(items) => {
                    canonical.0.push(3);
                    canonical.texts(items);
                }
            }
        }
        Digest::of(&canonical.0)
    }
}

/// Length-prefixed fields, so that no two different callers give the same bytes.
#[derive(Default)]
struct Canonical(Vec<u8>);

impl Canonical {
    fn count(&mut self, count: usize) {
        self.0.extend_from_slice(&(count as u64).to_be_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn texts(&mut self, texts: &[String]) {
        self.count(texts.len());
        for text in texts {
            self.text(text);
        }
    }

    fn tagged(&mut self, tag: u8, bytes: &[u8]) {
        self.0.push(tag);
        self.bytes(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(subject: &str, roles: &[&str], token_id: &str) -> Caller {
        Caller::from_verified(CallerClaims {
            issuer: "https://issuer.example".to_owned(),
            subject: subject.to_owned(),
            tenant: String::new(),
            roles: roles.iter().map(ToString::to_string).collect(),
            attributes: BTreeMap::from([(
                "ward".to_owned(),
                AttributeValue::Text("W2".to_owned()),
            )]),
            token_id: token_id.to_owned(),
            expires_at: Timestamp::from_seconds(0),
        })
    }

    #[test]
    fn a_caller_shows_nothing_of_the_token() {
        let caller = caller("a", &[], "t").with_token(BearerToken::new("eyJ.secret.sig"));
        assert_eq!(caller.token().unwrap().expose(), "eyJ.secret.sig");
        assert!(!format!("{caller:?}").contains("secret"));
    }

    #[test]
    fn what_was_looked_up_adds_roles_and_takes_the_place_of_attributes() {
        let text = |text: &str| AttributeValue::Text(text.to_owned());
        let rights = |replaces_claims| CallerRights {
            roles: vec!["Nurse".to_owned(), "Auditor".to_owned()],
            attributes: BTreeMap::from([("ward".to_owned(), text("W7"))]),
            replaces_claims,
            expires_at: Timestamp::from_seconds(60),
        };
        let of_token = caller("a", &["Nurse", "Trainee"], "t");
        let both = of_token.clone().with_rights(&rights(false));
        assert_eq!(both.roles(), ["Auditor", "Nurse", "Trainee"]);
        assert_eq!(both.attributes()["ward"], text("W7"));
        assert_eq!(both.rights_expire_at(), Some(Timestamp::from_seconds(60)));
        assert_ne!(both.digest(), of_token.digest());
        let only = of_token.with_rights(&CallerRights {
            attributes: BTreeMap::new(),
            ..rights(true)
        });
        assert_eq!(only.roles(), ["Auditor", "Nurse"]);
        assert_eq!(only.attributes(), &BTreeMap::new());
    }

    #[test]
    fn the_digest_follows_rights_not_tokens() {
        let one = caller("a", &["Nurse", "Doctor"], "t1");
        assert_eq!(
            one.digest(),
            caller("a", &["Doctor", "Nurse", "Nurse"], "t2").digest()
        );
        assert_ne!(one.digest(), caller("a", &["Doctor"], "t1").digest());
        assert_ne!(
            one.digest(),
            caller("b", &["Nurse", "Doctor"], "t1").digest()
        );
    }
}
