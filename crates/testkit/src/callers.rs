//! Callers, tokens and tools for tests of the services.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use wardgate_domain::{BearerToken, Caller, CallerClaims, Digest, OfferKind, Timestamp, ToolFacts};

use crate::token_message;

/// Returns claims of a subject with these roles, issued by `https://issuer.example`, which expire in the far future.
pub fn claims(subject: &str, roles: &[&str]) -> CallerClaims {
    CallerClaims {
        issuer: "https://issuer.example".to_owned(),
        subject: subject.to_owned(),
        tenant: String::new(),
        roles: roles.iter().map(ToString::to_string).collect(),
        attributes: BTreeMap::new(),
        token_id: "t".to_owned(),
        expires_at: Timestamp::from_seconds(4_000_000_000),
    }
}

/// Returns a verified caller with these roles.
pub fn caller(subject: &str, roles: &[&str]) -> Caller {
    Caller::from_verified(claims(subject, roles))
}

/// Returns a token of this subject and tenant, for fakes that do not verify signatures.
pub fn unverified_token(subject: &str, tenant: &str) -> String {
    let claims = json!({
        "iss": "https://issuer.example", "sub": subject, "tenant": tenant, "roles": ["Auditor"],
        "exp": 4_000_000_000_u64,
    });
    format!("{}.signature", token_message(&json!({}), &claims))
}

/// Returns the caller that `token` names, without verifying its signature.
pub fn caller_of(token: &str) -> Caller {
    let payload = token.split('.').nth(1).expect("a token has three parts");
    let payload = URL_SAFE_NO_PAD.decode(payload).expect("a part is base64");
    let said: Value = serde_json::from_slice(&payload).expect("claims are JSON");
    let text = |name: &str| said[name].as_str().expect("a claim is a text").to_owned();
    let roles = said["roles"].as_array().into_iter().flatten();
    let roles: Vec<&str> = roles.filter_map(Value::as_str).collect();
    let ends = said["exp"].as_i64().expect("a token has an end");
    let caller = Caller::from_verified(CallerClaims {
        issuer: text("iss"),
        tenant: said["tenant"].as_str().unwrap_or_default().to_owned(),
        expires_at: Timestamp::from_seconds(ends),
        ..claims(&text("sub"), &roles)
    });
    caller.with_token(BearerToken::new(token))
}

/// Returns the facts of a read-only tool.
pub fn tool_facts(name: &str) -> ToolFacts {
    ToolFacts {
        kind: OfferKind::Tool,
        name: name.parse().expect("a name of a tool"),
        definition_digest: Digest::compute(name.as_bytes()),
        read_only: true,
        tags: Arc::default(),
        entity: None,
        classes: Vec::new(),
        argument_defaults: BTreeMap::new(),
    }
}
