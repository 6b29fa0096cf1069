//! The master key of the keys of all data subjects.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::hmac;
use wardgate_domain::{About, Ambient, Digest, SealBroken, SealKey, derive_key};

use crate::Error;

const WRAPPING: &[u8] = b"wardgate audit: keys of data subjects v1";
const TAGS: &[u8] = b"wardgate audit: tags of data subjects v1";

/// The master key of the keys of all data subjects. Without it, no details can be read and no data subject can be found. Every
/// replica needs the same key.
#[derive(Clone)]
pub struct DetailsKey {
    wrapping: Arc<SealKey>,
    tags: hmac::Key,
}

impl DetailsKey {
    /// Creates the key from 32 random bytes.
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self {
            wrapping: Arc::new(SealKey::from_bytes(&derive_key(bytes, WRAPPING))),
            tags: hmac::Key::new(hmac::HMAC_SHA256, &derive_key(bytes, TAGS)),
        }
    }

    /// Returns the tag of a data subject of `tenant`, which is the keyed digest of its `key`.
    pub(crate) fn tag(&self, tenant: &str, key: &str) -> Digest {
        let about = About::new("data subject")
            .and(tenant.as_bytes())
            .and(key.as_bytes());
        mac(&self.tags, about.as_bytes())
    }

    /// Creates a key for the data subject of `tag`, and wraps it.
    pub(crate) fn wrap(&self, tag: Digest, ambient: &Ambient) -> Result<Vec<u8>, SealBroken> {
        self.wrapping
            .seal(&about_key(tag), &ambient.random::<32>(), ambient)
    }

    /// Unwraps the key of the data subject of `tag`.
    pub(crate) fn unwrap(&self, tag: Digest, wrapped: Vec<u8>) -> Result<[u8; 32], Error> {
        let bytes = self.wrapping.open(&about_key(tag), wrapped);
        let bytes = bytes.ok().and_then(|bytes| bytes.try_into().ok());
        bytes.ok_or(Error::OtherDetailsKey)
    }
}

impl fmt::Debug for DetailsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DetailsKey")
    }
}

fn about_key(tag: Digest) -> About {
    About::new("key of a data subject").and(tag.as_bytes())
}

/// Returns the HMAC-SHA-256 of `text`.
pub(crate) fn mac(key: &hmac::Key, text: &[u8]) -> Digest {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(hmac::sign(key, text).as_ref());
    Digest::from_bytes(bytes)
}
