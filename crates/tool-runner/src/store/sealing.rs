//! Encryption of the results of tools at rest, with a key that only this service's store uses.

use wardgate_domain::{About, Ambient, SealBroken, SealKey, derive_key};

use super::StoreError;

/// Label that distinguishes this key from other keys derived from the same material.
const LABEL: &[u8] = b"wardgate tool-runner store: results at rest v1";

/// The key that encrypts results in the store. Every replica derives it from the same material. Data that was sealed
/// with another key cannot be read.
#[derive(Debug)]
pub struct SealingKey(SealKey);

impl SealingKey {
    /// Derives the key from key material.
    #[must_use]
    pub fn derive(material: &[u8; 32]) -> Self {
        Self(SealKey::from_bytes(&derive_key(material, LABEL)))
    }

    /// Seals `plain`, which can be opened only with the same `about`.
    pub(super) fn seal(
        &self,
        about: &About,
        plain: &[u8],
        ambient: &Ambient,
    ) -> Result<Vec<u8>, StoreError> {
        Ok(self.0.seal(about, plain, ambient)?)
    }

    /// Opens data that was sealed with the same `about`.
    pub(super) fn open(&self, about: &About, sealed: Vec<u8>) -> Result<Vec<u8>, StoreError> {
        Ok(self.0.open(about, sealed)?)
    }
}

impl From<SealBroken> for StoreError {
    fn from(SealBroken: SealBroken) -> Self {
        Self::Sealed
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
}
