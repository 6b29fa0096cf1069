//! Conversion of the claims of a verified token (RFC 7519 §4) to the facts about its caller.

use std::collections::BTreeMap;

use serde_json::Value;
use wardgate_domain::{CallerClaims, Delegation, Digest, Timestamp};

use super::claim_value::{MAX_ITEMS, MAX_NAME, attribute_value, plain, texts};
use super::token::VerifiedClaims;
use super::{AuthConfig, IssuerConfig, Scopes, TokenRefusal};

/// 9999-12-31T23:59:59Z, the last second that RFC 3339 can express.
const LAST_SECOND: i64 = 253_402_300_799;
/// Maximum number of resources of this gateway in the audience of a token.
const MAX_RESOURCES: usize = 64;

/// The time during which a token is accepted, including leeway: from `from` until before `until`.
#[derive(Debug, Clone, Copy)]
pub(super) struct AcceptedTime {
    from: Timestamp,
    until: Timestamp,
}

impl AcceptedTime {
    /// Creates the time that ends at `end`.
    pub(super) fn until(end: Timestamp) -> Self {
        Self {
            from: Timestamp::from_seconds(0),
            until: end,
        }
    }

    /// Reads the claims `exp`, which is required, `nbf` and `iat`.
    pub(super) fn from_claims(
        claims: &VerifiedClaims,
        rules: &IssuerConfig,
    ) -> Result<Self, TokenRefusal> {
        let expires_at = time(claims, "exp")?.ok_or_else(|| TokenRefusal::missing_claim("exp"))?;
        let starts = [time(claims, "nbf")?, time(claims, "iat")?];
        let start = starts.into_iter().flatten().max();
        let start = start.unwrap_or(Timestamp::from_seconds(0));
        Ok(Self {
            from: start.minus(rules.leeway()),
            until: expires_at.plus(rules.leeway()),
        })
    }

    /// Checks that the token is accepted at `now`.
    pub(super) fn check(&self, now: Timestamp) -> Result<(), TokenRefusal> {
        if now >= self.until {
            return Err(TokenRefusal::TokenExpired);
        }
        if now < self.from {
            return Err(TokenRefusal::TokenNotYetValid);
        }
        Ok(())
    }
}

/// Reads the caller from the claims. `rules` is the configuration of the issuer, one of those in `trusted`. `token` is
/// the digest of the whole token. The caller expires when its token is no longer accepted.
pub(super) fn read_caller(
    claims: &VerifiedClaims,
    trusted: &AuthConfig,
    rules: &IssuerConfig,
    token: Digest,
    accepted: AcceptedTime,
) -> Result<CallerClaims, TokenRefusal> {
    let subject = name(claims, "sub")?.ok_or_else(|| TokenRefusal::missing_claim("sub"))?;
    let subject = trusted.subject(rules, &subject);
    let subject = subject.ok_or_else(|| TokenRefusal::invalid_claim("sub"))?;
    let tenant = match &rules.tenant_claim {
        Some(claim) => name(claims, claim)?.ok_or_else(|| TokenRefusal::missing_claim(claim))?,
        None => String::new(),
    };
    let mut attributes = BTreeMap::new();
    for (attribute, claim) in &rules.attributes {
        if let Some(value) = claims.get(claim) {
            let value = attribute_value(value).ok_or_else(|| TokenRefusal::invalid_claim(claim))?;
            attributes.insert(attribute.clone(), value);
        }
    }
    Ok(CallerClaims {
        issuer: rules.issuer.clone(),
        subject,
        tenant,
        roles: roles(claims, &rules.roles_claim)?
            .into_iter()
            .filter(|role| rules.roles.as_ref().is_none_or(|may| may.contains(role)))
            .collect(),
        attributes,
        token_id: name(claims, "jti")?.unwrap_or_else(|| short(token)),
        expires_at: accepted.until,
    })
}

/// Reads the parties that use the token: its client, and the chain of actors in `act` (RFC 8693, section 4.1). A chain
/// that is too long or malformed is an error, because the record must be able to name every actor.
pub(super) fn delegation(claims: &VerifiedClaims) -> Result<Delegation, TokenRefusal> {
    const MOST_ACTORS: usize = 8;
    let mut client = ["client_id", "azp"].into_iter();
    let client = client.find_map(|claim| plain(claims.get(claim)?.as_str()?, 1..=MAX_NAME));
    let mut actors = Vec::new();
    let mut next = claims.get("act");
    while let Some(actor) = next {
        let subject = actor["sub"].as_str();
        let subject = subject.and_then(|subject| plain(subject, 1..=MAX_NAME));
        let subject = subject.filter(|_| actors.len() < MOST_ACTORS);
        actors.push(subject.ok_or_else(|| TokenRefusal::invalid_claim("act"))?);
        next = actor.get("act");
    }
    let client = client.unwrap_or_default();
    Ok(Delegation { client, actors })
}

/// Returns the session at the identity provider (`sid`). An unusable value counts as missing, because the claim
/// restricts nothing.
pub(super) fn sign_in(claims: &VerifiedClaims) -> Option<String> {
    plain(claims.get("sid")?.as_str()?, 1..=MAX_NAME)
}

/// Reads a claim in whole seconds since 1970. RFC 7519 also allows fractions, but no issuer needs them, and
/// implementations differ in how they treat fractions.
fn time(claims: &VerifiedClaims, claim: &str) -> Result<Option<Timestamp>, TokenRefusal> {
    let Some(value) = claims.get(claim) else {
        return Ok(None);
    };
    value
        .as_i64()
        .filter(|seconds| (0..=LAST_SECOND).contains(seconds))
        .map(|seconds| Some(Timestamp::from_seconds(seconds)))
        .ok_or_else(|| TokenRefusal::invalid_claim(claim))
}

/// The resources of this gateway for which a token is valid.
#[derive(Clone)]
pub(super) enum Audience {
    /// The whole gateway: `aud` contains the name by which the issuer knows it.
    Whole,
    /// The resources at these paths below the public URL (RFC 8707).
    Paths(Vec<String>),
}

impl Audience {
    /// Reads `aud`. A name or URL has to match exactly; a prefix of it is another audience.
    pub(super) fn from_claims(
        claims: &VerifiedClaims,
        name: Option<&str>,
        public_url: Option<&str>,
    ) -> Result<Self, TokenRefusal> {
        let meant: Vec<&str> = match claims.get("aud") {
            None => return Err(TokenRefusal::missing_claim("aud")),
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(several)) => several
                .iter()
                .map(Value::as_str)
                .collect::<Option<_>>()
                .ok_or_else(|| TokenRefusal::invalid_claim("aud"))?,
            Some(_) => return Err(TokenRefusal::invalid_claim("aud")),
        };
        if name.is_some_and(|name| meant.contains(&name)) {
            return Ok(Self::Whole);
        }
        let paths = meant
            .iter()
            .filter_map(|one| one.strip_prefix(public_url?))
            .take(MAX_RESOURCES)
            .map(ToOwned::to_owned);
        Ok(Self::Paths(paths.collect()))
    }

    /// Returns whether the audience includes no resource of this gateway.
    pub(super) fn includes_nothing(&self) -> bool {
        matches!(self, Self::Paths(own) if own.is_empty())
    }

    /// Returns whether the audience includes any of the resources at `paths`.
    pub(super) fn includes(&self, paths: &[&str]) -> bool {
        match self {
            Self::Whole => true,
            Self::Paths(own) => own.iter().any(|path| paths.contains(&path.as_str())),
        }
    }
}

/// Reads the scopes from `scope` (RFC 9068 §2.2.3), names separated by spaces, or from `scp`, which some issuers use
/// instead. Both may also be arrays.
pub(super) fn scopes(claims: &VerifiedClaims) -> Result<Scopes, TokenRefusal> {
    let (claim, names) = match (claims.get("scope"), claims.get("scp")) {
        (Some(names), _) => ("scope", names),
        (None, Some(names)) => ("scp", names),
        (None, None) => return Ok(Scopes::default()),
    };
    let split = |text: &str| -> Vec<String> { text.split(' ').map(ToOwned::to_owned).collect() };
    let names = match names {
        Value::String(names) => Some(split(names)),
        Value::Array(names) => texts(names, 1..=MAX_NAME),
        _ => None,
    };
    names
        .filter(|names| names.len() <= MAX_ITEMS)
        .map(|names| names.into_iter().filter(|name| !name.is_empty()).collect())
        .ok_or_else(|| TokenRefusal::invalid_claim(claim))
}

fn roles(claims: &VerifiedClaims, claim: &str) -> Result<Vec<String>, TokenRefusal> {
    match claims.get(claim) {
        None => Some(Vec::new()),
        Some(Value::String(role)) => plain(role, 1..=MAX_NAME).map(|role| vec![role]),
        Some(Value::Array(roles)) => texts(roles, 1..=MAX_NAME),
        Some(_) => None,
    }
    .ok_or_else(|| TokenRefusal::invalid_claim(claim))
}

fn name(claims: &VerifiedClaims, claim: &str) -> Result<Option<String>, TokenRefusal> {
    let Some(value) = claims.get(claim) else {
        return Ok(None);
    };
    let name = value.as_str().and_then(|text| plain(text, 1..=MAX_NAME));
    name.map(Some)
        .ok_or_else(|| TokenRefusal::invalid_claim(claim))
}

/// Returns the first 16 bytes of a digest in hexadecimal, as the id of a token without the claim `jti`.
fn short(token: Digest) -> String {
    token.to_string().chars().take(32).collect()
}
