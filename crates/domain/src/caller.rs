//! The caller: a person or service whose bearer token was verified.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::{About, Digest, Timestamp};

/// A bearer token (RFC 6750) as the client sent it, without the scheme. Cheap to clone. Its `Debug` output does not
/// contain the token, and the token is never stored.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerToken(Arc<str>);

impl BearerToken {
    /// The prefix of every API key, by which a key can be recognised wherever it appears, for example in a leaked file.
    pub const API_KEY_PREFIX: &'static str = "wgk_";

    /// Creates a token from `text`.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// Returns the text of the token, for verification or token exchange.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(..)")
    }
}

/// The value of one attribute of a caller, taken from a configured claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttributeValue {
    /// A string.
    Text(String),
    /// A 64-bit integer.
    Integer(i64),
    /// A Boolean.
    Boolean(bool),
    /// A list of strings.
    List(Vec<String>),
}

/// The claims of a verified token; the input of [`Caller::from_verified`].
#[derive(Debug, Clone)]
pub struct CallerClaims {
    /// The claim `iss`.
    pub issuer: String,
    /// The claim `sub`.
    pub subject: String,
    /// The tenant; empty if the deployment has only one.
    pub tenant: String,
    /// The roles, as the issuer names them.
    pub roles: Vec<String>,
    /// The attributes by name.
    pub attributes: BTreeMap<String, AttributeValue>,
    /// The claim `jti`, or a digest of the token.
    pub token_id: String,
    /// The claim `exp`.
    pub expires_at: Timestamp,
}

/// Roles and attributes that were looked up for a caller, in addition to those of the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerRights {
    /// The roles.
    pub roles: Vec<String>,
    /// The attributes by name.
    pub attributes: BTreeMap<String, AttributeValue>,
    /// Whether the roles and attributes of the token are ignored.
    pub replaces_claims: bool,
    /// The time at which the rights have to be looked up again.
    pub expires_at: Timestamp,
}

/// A caller. There is no anonymous caller: each stands for a token whose signature, issuer, audience and times were
/// checked, either by this gateway or by the gateway at the other end of an authenticated connection.
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

/// The parties that use a caller's token on behalf of the caller.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Delegation {
    /// The OAuth client to which the token was issued (`client_id` or `azp`); empty if the token does not name one.
    pub client: String,
    /// The subjects of the claim `act` (RFC 8693, section 4.1): the current actor, then the actor on whose behalf it
    /// acts, and so on.
    pub actors: Vec<String>,
}

/// Returns the digest that identifies a person across tokens, as [`Caller::person`] does.
pub fn person(tenant: &str, issuer: &str, subject: &str) -> Digest {
    let about = About::new("owner")
        .and(tenant.as_bytes())
        .and(issuer.as_bytes())
        .and(subject.as_bytes());
    about.digest()
}

impl Caller {
    /// Creates the caller of a token that was just verified. Only the code that verified the token may call this.
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
            digest: Digest::compute(b""),
        };
        caller.digest = caller.rights_digest();
        caller
    }

    /// Returns the same caller with the verified token, which services verify again before they act on it.
    #[must_use]
    pub fn with_token(self, token: BearerToken) -> Self {
        Self {
            token: Some(token),
            ..self
        }
    }

    /// Returns the same caller with the parties that use the token.
    #[must_use]
    pub fn with_delegation(self, delegation: Delegation) -> Self {
        let delegation = (delegation != Delegation::default()).then(|| Arc::new(delegation));
        Self { delegation, ..self }
    }

    /// Returns the same caller with rights that were looked up. The roles of both are combined; an attribute that was
    /// looked up replaces the attribute of the token with the same name.
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

    /// Returns the same caller with the time at which roles and attributes have to be looked up again.
    pub(crate) fn with_rights_until(self, rights_expire_at: Option<Timestamp>) -> Self {
        Self {
            rights_expire_at,
            ..self
        }
    }

    /// Returns the time at which roles and attributes have to be looked up again, or `None` if they come from the token
    /// alone.
    pub fn rights_expire_at(&self) -> Option<Timestamp> {
        self.rights_expire_at
    }

    /// Returns the parties that use the token, or `None` if the token names none or the caller was sent by another
    /// service.
    pub fn delegation(&self) -> Option<&Delegation> {
        self.delegation.as_deref()
    }

    /// Returns the same caller with the session at the identity provider to which the token belongs.
    #[must_use]
    pub fn with_sign_in(self, sign_in: Option<String>) -> Self {
        Self { sign_in, ..self }
    }

    /// Returns the session at the identity provider to which the token belongs (`sid`, `OpenID` Connect Front-Channel
    /// Logout 1.0, section 3), or `None` if the token does not state it or the caller was sent by another service.
    pub fn sign_in(&self) -> Option<&str> {
        self.sign_in.as_deref()
    }

    /// Returns the token that was verified, or `None` if the caller was sent by a service that does not pass the token
    /// on.
    pub fn token(&self) -> Option<&BearerToken> {
        self.token.as_ref()
    }

    /// Returns the text of the token for a source. `is_given` states whether the source may receive the token. The
    /// result is `None` if it may not, if there is no token, or if the token is an API key: an API key is valid only at
    /// this gateway, and no authorization server could exchange it.
    pub fn token_for_source(&self, is_given: bool) -> Option<&str> {
        let token = self.token().filter(|_| is_given)?.expose();
        (!token.starts_with(BearerToken::API_KEY_PREFIX)).then_some(token)
    }

    /// Returns the token issuer.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Returns the token subject, which is unique within the issuer.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Returns the tenant; empty if the deployment has only one.
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// Returns the roles, sorted and without duplicates.
    pub fn roles(&self) -> &[String] {
        &self.roles
    }

    /// Returns the attributes by name.
    pub fn attributes(&self) -> &BTreeMap<String, AttributeValue> {
        &self.attributes
    }

    /// Returns the id of the token.
    pub fn token_id(&self) -> &str {
        &self.token_id
    }

    /// Returns the time at which the token expires.
    pub fn expires_at(&self) -> Timestamp {
        self.expires_at
    }

    /// Returns the SHA-256 digest of everything about the caller that a policy can see. Two tokens of one person with
    /// the same rights have the same digest, so a permit stays valid after a token refresh but not after a change of
    /// rights.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the digest that identifies the person. It is the same for every token of the person, whatever rights the
    /// token carries.
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
                AttributeValue::Text(text) => canonical.tagged_bytes(0, text.as_bytes()),
                AttributeValue::Integer(number) => canonical.tagged_bytes(1, &number.to_be_bytes()),
                AttributeValue::Boolean(truth) => canonical.tagged_bytes(2, &[u8::from(*truth)]),
                AttributeValue::List(items) => {
                    canonical.0.push(3);
                    canonical.texts(items);
                }
            }
        }
        Digest::compute(&canonical.0)
    }
}

/// A buffer of length-prefixed fields, so that two different callers never produce the same bytes.
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

    fn tagged_bytes(&mut self, tag: u8, bytes: &[u8]) {
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
