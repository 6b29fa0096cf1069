//! What is kept of tools' results, encrypted: AES-256-GCM under a key that only this service's store uses.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use wardgate_domain::Ambient;

use super::StoreError;

/// Tells this key from every other that is derived of the same material.
const LABEL: &[u8] = b"wardgate tool-runner store: results at rest v1";

/// Encrypts what the store holds of results. Every replica derives it of the same material; what was sealed
/// under another can no longer be read.
pub struct SealingKey(LessSafeKey);

impl SealingKey {
    /// The key of this key material.
    #[expect(
        clippy::expect_used,
        clippy::missing_panics_doc,
        reason = "HKDF and AES fail only for lengths that are not these"
    )]
    #[must_use]
    pub fn derive(material: &[u8; 32]) -> Self {
        let secret = Salt::new(HKDF_SHA256, &[]).extract(material);
        let label = [LABEL];
        let derived = secret
            .expand(&label, &AES_256_GCM)
            .expect("the length of an AES-256 key can be derived");
        Self(LessSafeKey::new(UnboundKey::from(derived)))
    }

    /// `plain`, readable again only with the same `about`.
    ///
    /// Nonces are random: 2³² of them keep a repetition less likely than 2⁻³² (NIST SP 800-38D, 8.3).
    pub(super) fn seal(
        &self,
        about: &About,
        plain: &[u8],
        ambient: &Ambient,
    ) -> Result<Vec<u8>, StoreError> {
        let nonce = ambient.random::<NONCE_LEN>();
        let mut sealed = Vec::with_capacity(NONCE_LEN + plain.len() + AES_256_GCM.tag_len());
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(plain);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self
            .0
            .seal_in_place_separate_tag(nonce, about.aad(), &mut sealed[NONCE_LEN..])
            .map_err(|_| StoreError::Sealed)?;
        sealed.extend_from_slice(tag.as_ref());
        Ok(sealed)
    }

    /// What was sealed with the same `about`.
    pub(super) fn open(&self, about: &About, mut sealed: Vec<u8>) -> Result<Vec<u8>, StoreError> {
        let (nonce, text) = sealed
            .split_at_mut_checked(NONCE_LEN)
            .ok_or(StoreError::Sealed)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| StoreError::Sealed)?;
        let plain = self.0.open_in_place(nonce, about.aad(), text);
        let length = plain.map_err(|_| StoreError::Sealed)?.len();
        sealed.copy_within(NONCE_LEN..NONCE_LEN + length, 0);
        sealed.truncate(length);
        Ok(sealed)
    }
}

impl std::fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealingKey")
    }
}

/// What a sealed text is about, so that none can stand in the place of another.
pub(super) struct About(Vec<u8>);

impl About {
    pub(super) fn new(kind: &'static str) -> Self {
        Self(Vec::new()).and(kind.as_bytes())
    }

    /// Adds a part, with its length before it, so that no two lists of parts are alike.
    pub(super) fn and(mut self, part: &[u8]) -> Self {
        self.0.extend_from_slice(&(part.len() as u64).to_be_bytes());
        self.0.extend_from_slice(part);
        self
    }

    /// The parts as they are sealed with.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn aad(&self) -> Aad<&[u8]> {
        Aad::from(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal(plain: &[u8]) -> Vec<u8> {
        SealingKey::derive(&[7; 32])
            .seal(&About::new("a"), plain, &Ambient::system())
            .unwrap()
    }

    #[test]
    fn what_is_sealed_opens_under_the_same_key_and_for_the_same_thing_only() {
        for plain in [&b""[..], b"x", &[0xab; 10_000]] {
            let opened = SealingKey::derive(&[7; 32]).open(&About::new("a"), seal(plain));
            assert_eq!(opened.unwrap(), plain);
        }
        let other_thing = SealingKey::derive(&[7; 32]).open(&About::new("b"), seal(b"x"));
        assert!(matches!(other_thing, Err(StoreError::Sealed)));
        let other_key = SealingKey::derive(&[8; 32]).open(&About::new("a"), seal(b"x"));
        assert!(matches!(other_key, Err(StoreError::Sealed)));
    }

    #[test]
    fn a_changed_or_cut_text_does_not_open() {
        let key = SealingKey::derive(&[7; 32]);
        let sealed = seal(b"secret");
        for position in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[position] ^= 1;
            assert!(key.open(&About::new("a"), changed).is_err(), "{position}");
            let cut = sealed[..position].to_vec();
            assert!(key.open(&About::new("a"), cut).is_err(), "{position}");
        }
    }

    #[test]
    fn the_same_text_is_never_sealed_alike() {
        assert_ne!(seal(b"secret"), seal(b"secret"));
    }

    #[test]
    fn parts_do_not_run_together() {
        let one = About::new("a").and(b"bc").and(b"");
        let other = About::new("a").and(b"b").and(b"c");
        assert_ne!(one.as_bytes(), other.as_bytes());
    }
}
