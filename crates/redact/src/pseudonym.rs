//! Pseudonyms: keyed tokens that replace values.

use std::fmt::{self, Write};

use aws_lc_rs::hmac;
use wardgate_domain::ColumnClass;

/// The secret from which all pseudonyms of a deployment are derived. Anyone who knows it can test guesses against
/// tokens. If it changes, every token changes.
pub struct PseudonymKey([u8; 32]);

impl PseudonymKey {
    /// Creates the key from 32 random bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for PseudonymKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PseudonymKey")
    }
}

/// Number of hexadecimal digits of a token. These are 64 bits, so the probability that any two of a billion values
/// share a token is about 1 in 37.
const DIGITS: usize = 16;

/// The pseudonyms of one tenant.
pub(crate) struct Pseudonyms(hmac::Key);

impl Pseudonyms {
    /// Derives the key of the tenant, so that equal values of different tenants have different tokens.
    pub(crate) fn new(key: &PseudonymKey, tenant: &str) -> Self {
        let root = hmac::Key::new(hmac::HMAC_SHA256, &key.0);
        let mut context = hmac::Context::with_key(&root);
        context.update(b"wardgate pseudonym tenant\0");
        context.update(tenant.as_bytes());
        Self(hmac::Key::new(hmac::HMAC_SHA256, context.sign().as_ref()))
    }

    /// Returns the token of a value, for example `[NAME_7f3a9c0be1d24a58]`.
    pub(crate) fn token(&self, class: &ColumnClass, value: &str) -> String {
        let mut context = hmac::Context::with_key(&self.0);
        // A class contains no NUL, so different pairs of class and value give different bytes.
        context.update(class.as_str().as_bytes());
        context.update(&[0]);
        context.update(value.as_bytes());
        let tag = context.sign();

        let kind = class.as_str().rsplit('.').next().unwrap_or_default();
        let mut token = String::with_capacity(kind.len() + DIGITS + 3);
        token.push('[');
        token.push_str(&kind.to_ascii_uppercase());
        token.push('_');
        for byte in &tag.as_ref()[..DIGITS / 2] {
            // Writing to a `String` cannot fail.
            let _ = write!(token, "{byte:02x}");
        }
        token.push(']');
        token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(key: u8, tenant: &str, class: &str, value: &str) -> String {
        Pseudonyms::new(&PseudonymKey::new([key; 32]), tenant).token(&class.parse().unwrap(), value)
    }

    #[test]
    fn equal_values_give_equal_tokens_within_tenant_and_class_only() {
        let one = token(1, "a", "phi.name", "Jane Doe");
        assert_eq!(one, token(1, "a", "phi.name", "Jane Doe"));
        for other in [
            token(1, "a", "phi.name", "Jane Do"),
            token(1, "a", "staff.name", "Jane Doe"),
            token(1, "b", "phi.name", "Jane Doe"),
            token(1, "", "phi.name", "Jane Doe"),
            token(2, "a", "phi.name", "Jane Doe"),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn tokens_survive_a_new_version() {
        // Computed independently: HMAC-SHA-256(HMAC-SHA-256(key, label || tenant), class || 0 || value).
        assert_eq!(
            token(1, "a", "phi.name", "Jane Doe"),
            "[NAME_5e4cd8dd92298551]"
        );
    }

    #[test]
    fn the_key_is_never_shown() {
        assert_eq!(format!("{:?}", PseudonymKey::new([7; 32])), "PseudonymKey");
    }
}
