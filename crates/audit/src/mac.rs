//! Keyed digests, which represent arguments and results in records.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::hmac;
use wardgate_domain::Digest;

const CHECK: &[u8] = b"wardgate audit: check of the key of digests v1";

/// The key for the digests of arguments and results. A plain digest of a short code can be guessed by hashing every possible
/// code; a keyed digest can be guessed only with the key.
#[derive(Clone)]
pub struct MacKey(Arc<hmac::Key>);

impl MacKey {
    /// Creates the key from 32 random bytes.
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, bytes)))
    }

    /// Returns a value that identifies the key and reveals nothing else about it.
    pub(crate) fn check_value(&self) -> Digest {
        self.mac(Digest::compute(CHECK))
    }

    /// Returns the HMAC-SHA-256 of the 32 bytes of `digest`.
    pub(crate) fn mac(&self, digest: Digest) -> Digest {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(hmac::sign(&self.0, digest.as_bytes()).as_ref());
        Digest::from_bytes(bytes)
    }
}

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MacKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected value is that of Python `hmac.new(bytes([7]*32), sha256(b"NUGWI").digest(), "sha256")`.
    #[test]
    fn is_hmac_sha_256_over_the_digest() {
        let mac = MacKey::from_bytes(&[7; 32]).mac(Digest::compute(b"NUGWI"));
        assert_eq!(
            mac.to_string(),
            "5f858e08b9af944f8c2498d0646b2983ebc0cab784b6a313a504995759ea968a"
        );
    }

    #[test]
    fn a_printed_key_shows_nothing() {
        assert_eq!(format!("{:?}", MacKey::from_bytes(&[7; 32])), "MacKey");
    }
}
