//! Texts that only a key's holder can read, and only as what they were sealed as.
//!
//! AES-256-GCM with random nonces: 2³² of them under one key keep a repetition less likely than 2⁻³² (NIST SP 800-38D,
//! 8.3). A sealed text is the nonce, the encrypted text and the tag.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};

use crate::{Ambient, Digest};

const KEY_LEN: usize = 32;

/// Room for most of what something is about.
const USUAL_ABOUT: usize = 128;

/// What is sealed cannot be opened: it was changed, is about something else, or is under another key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it cannot be opened with this key")]
pub struct SealBroken;

/// A key that seals.
pub struct SealKey(LessSafeKey);

impl SealKey {
    /// The key of these bytes, random or derived.
    #[expect(
        clippy::expect_used,
        clippy::missing_panics_doc,
        reason = "AES-256 takes every key of 32 bytes"
    )]
    pub fn from_bytes(bytes: &[u8; KEY_LEN]) -> Self {
        Self(LessSafeKey::new(
            UnboundKey::new(&AES_256_GCM, bytes).expect("32 bytes are a key"),
        ))
    }

    /// `plain`, readable again only with the same `about`.
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

    /// What was sealed with the same `about`.
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

/// What a sealed text is about, so that none can stand in the place of another.
pub struct About(Vec<u8>);

impl About {
    /// Begins with the kind of thing.
    pub fn new(kind: &'static str) -> Self {
        Self(Vec::with_capacity(USUAL_ABOUT)).and(kind.as_bytes())
    }

    /// Adds a part, with its length before it, so that no two lists of parts are alike.
    #[must_use]
    pub fn and(mut self, part: &[u8]) -> Self {
        self.0.extend_from_slice(&(part.len() as u64).to_be_bytes());
        self.0.extend_from_slice(part);
        self
    }

    /// The parts as they are sealed with.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// SHA-256 of the parts.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.0)
    }
}

/// A key for each purpose that `labels` name, of material that serves several (HKDF-SHA256).
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

/// A key for one purpose, as [`derive_keys`] derives it.
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
