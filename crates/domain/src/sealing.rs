//! Authenticated encryption of texts, bound to a context so that a sealed text cannot be used in another place.
//!
//! The algorithm is AES-256-GCM with random nonces. With up to 2³² nonces under one key, the probability of a repeated
//! nonce stays below 2⁻³² (NIST SP 800-38D, section 8.3). A sealed text consists of the nonce, the ciphertext and the
//! tag.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};

use crate::{Ambient, Digest};

const KEY_LEN: usize = 32;

/// Initial capacity of an [`About`], in bytes; enough for most.
const USUAL_ABOUT: usize = 128;

/// An error for a sealed text that cannot be opened, because it was changed, has another context, or was sealed with
/// another key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it cannot be decrypted with this key")]
pub struct SealBroken;

/// A key that seals and opens texts.
pub struct SealKey(LessSafeKey);

impl SealKey {
    /// Creates a key from random or derived bytes.
    #[expect(
        clippy::expect_used,
        clippy::missing_panics_doc,
        reason = "AES-256 takes every key of 32 bytes"
    )]
    pub fn from_bytes(bytes: &[u8; KEY_LEN]) -> Self {
        Self(LessSafeKey::new(
            UnboundKey::new(&AES_256_GCM, bytes).expect("a key has 32 bytes"),
        ))
    }

    /// Encrypts `plain`. The result can only be opened with the same `about`.
    pub fn seal(
        &self,
        about: &About,
        plain: &[u8],
        ambient: &Ambient,
    ) -> Result<Vec<u8>, SealBroken> {
        let nonce = ambient.random::<NONCE_LEN>();
        let mut sealed = Vec::with_capacity(NONCE_LEN + plain.len() + AES_256_GCM.tag_len());
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(plain);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self
            .0
            .seal_in_place_separate_tag(nonce, Aad::from(&about.0), &mut sealed[NONCE_LEN..])
            .map_err(|_| SealBroken)?;
        sealed.extend_from_slice(tag.as_ref());
        Ok(sealed)
    }

    /// Decrypts a text that was sealed with the same `about`.
    pub fn open(&self, about: &About, mut sealed: Vec<u8>) -> Result<Vec<u8>, SealBroken> {
        let (nonce, text) = sealed.split_at_mut_checked(NONCE_LEN).ok_or(SealBroken)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SealBroken)?;
        let plain = self.0.open_in_place(nonce, Aad::from(&about.0), text);
        let length = plain.map_err(|_| SealBroken)?.len();
        sealed.copy_within(NONCE_LEN..NONCE_LEN + length, 0);
        sealed.truncate(length);
        Ok(sealed)
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey")
    }
}

/// The context of a sealed text (its associated data), so that one sealed text cannot replace another.
pub struct About(Vec<u8>);

impl About {
    /// Creates a context that begins with the kind of object.
    pub fn new(kind: &'static str) -> Self {
        Self(Vec::with_capacity(USUAL_ABOUT)).and(kind.as_bytes())
    }

    /// Adds a part, preceded by its length, so that different lists of parts never have the same bytes.
    #[must_use]
    pub fn and(mut self, part: &[u8]) -> Self {
        self.0.extend_from_slice(&(part.len() as u64).to_be_bytes());
        self.0.extend_from_slice(part);
        self
    }

    /// Returns the encoded parts.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the SHA-256 digest of the encoded parts.
    pub fn digest(&self) -> Digest {
        Digest::compute(&self.0)
    }
}

/// Derives one key for each label from key material that serves several purposes (HKDF-SHA256).
#[expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "HKDF fails only for lengths that are not these"
)]
pub fn derive_keys<const N: usize>(material: &[u8; 32], labels: [&[u8]; N]) -> [[u8; KEY_LEN]; N] {
    struct Bytes32;

    impl KeyType for Bytes32 {
        fn len(&self) -> usize {
            KEY_LEN
        }
    }

    let extracted = Salt::new(HKDF_SHA256, &[]).extract(material);
    labels.map(|label| {
        let mut bytes = [0; KEY_LEN];
        extracted
            .expand(&[label], Bytes32)
            .and_then(|derived| derived.fill(&mut bytes))
            .expect("32 bytes can be derived");
        bytes
    })
}

/// Derives the key for one label, in the same way as [`derive_keys`].
pub fn derive_key(material: &[u8; 32], label: &[u8]) -> [u8; KEY_LEN] {
    let [key] = derive_keys(material, [label]);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal(plain: &[u8]) -> Vec<u8> {
        SealKey::from_bytes(&[7; 32])
            .seal(&About::new("a"), plain, &Ambient::system())
            .unwrap()
    }

    #[test]
    fn a_changed_or_cut_text_does_not_open() {
        let key = SealKey::from_bytes(&[7; 32]);
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
