//! Keyed tokens in place of values.

use std::fmt::{self, Write};

use aws_lc_rs::hmac;
use wardgate_domain::ColumnClass;

/// The secret all pseudonyms of a deployment come from. Whoever has it can test guesses against tokens;
/// whoever changes it changes every token.
pub struct PseudonymKey([u8; 32]);

impl PseudonymKey {
    /// From 32 random bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for PseudonymKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PseudonymKey")
    }
}

/// Hexadecimal digits of a token: 64 bits, so that among a billion values two share a token with a
/// probability of about 1 in 37.
const DIGITS: usize = 16;

/// The tokens of one tenant.
pub(crate) struct Pseudonyms(hmac::Key);

impl Pseudonyms {
    /// The tenant's own key keeps tokens of different tenants apart.
    pub(crate) fn new(key: &PseudonymKey, tenant: &str) -> Self {
        let root = hmac::Key::new(hmac::HMAC_SHA256, &key.0);
        let mut context = hmac::Context::with_key(&root);
        context.update(b"wardgate pseudonym tenant\0");
        context.update(tenant.as_bytes());
        Self(hmac::Key::new(hmac::HMAC_SHA256, context.sign().as_ref()))
    }

    /// For example `[NAME_7f3a9c0be1d24a58]`.
    pub(crate) fn token(&self, class: &ColumnClass, value: &str) -> String {
        let mut context = hmac::Context::with_key(&self.0);
        // A class holds no NUL, so no two pairs of class and value give the same bytes.
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
            // Writing to a `String` does not fail.
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
        // Computed apart: HMAC-SHA-256(HMAC-SHA-256(key, label || tenant), class || 0 || value).
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
