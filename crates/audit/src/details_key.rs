//! The master keys of the keys of all data subjects.
//!
//! ```text
//!   master key ─┬─ wraps ──▶ a random key for each data subject
//!               └─ wraps ──▶ the key of the tags ── keyed digest of a data subject ──▶ its tag
//! ```
//!
//! Tags are part of the records, which never change. The key of the tags is therefore that of the first master key for as long
//! as the store exists: another master key only wraps it again.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::hmac;
use wardgate_domain::{About, Ambient, Digest, SealBroken, SealKey, derive_key};

use crate::Error;

const WRAPPING: &[u8] = b"wardgate audit: keys of data subjects v1";
const TAGS: &[u8] = b"wardgate audit: tags of data subjects v1";
const KNOWN_BY: &[u8] = b"wardgate audit: which master key v1";
const KEY_LEN: usize = 32;

/// Returns the tag of the common key of calls that concern no data subject. The tag is the same under every master key, so that
/// a wrong master key is detected.
pub(crate) fn common_tag() -> Digest {
    About::new("no data subject").digest()
}

/// The master key of the keys of all data subjects. Without it, no details can be read and no data subject can be found. Every
/// replica needs the same key.
#[derive(Clone)]
pub struct DetailsKey {
    wrapping: Arc<SealKey>,
    first_tags: TagKey,
    known_by: Digest,
}

impl DetailsKey {
    /// Creates the key from 32 random bytes.
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self {
            wrapping: Arc::new(SealKey::from_bytes(&derive_key(bytes, WRAPPING))),
            first_tags: TagKey::from_bytes(derive_key(bytes, TAGS)),
            known_by: Digest::from_bytes(derive_key(bytes, KNOWN_BY)),
        }
    }

    /// Returns a digest that identifies the key and reveals nothing else about it.
    pub(crate) fn known_by(&self) -> Digest {
        self.known_by
    }

    /// Returns the key of the tags in a store whose first master key this is.
    pub(crate) fn first_tags(&self) -> &TagKey {
        &self.first_tags
    }

    /// Creates a key for the data subject of `tag`, and wraps it.
    pub(crate) fn wrap(&self, tag: Digest, ambient: &Ambient) -> Result<Vec<u8>, SealBroken> {
        self.seal(tag, &ambient.random::<KEY_LEN>(), ambient)
    }

    fn seal(
        &self,
        tag: Digest,
        bytes: &[u8; KEY_LEN],
        ambient: &Ambient,
    ) -> Result<Vec<u8>, SealBroken> {
        self.wrapping.seal(&about_key(tag), bytes, ambient)
    }

    /// Unwraps the key of the data subject of `tag`.
    fn unwrap(&self, tag: Digest, wrapped: &[u8]) -> Result<[u8; KEY_LEN], SealBroken> {
        let bytes = self.wrapping.open(&about_key(tag), wrapped.to_vec())?;
        bytes.try_into().map_err(|_| SealBroken)
    }

    pub(crate) fn wrap_tag_key(
        &self,
        tags: &TagKey,
        ambient: &Ambient,
    ) -> Result<Vec<u8>, SealBroken> {
        self.wrapping.seal(&about_tag_key(), &tags.bytes, ambient)
    }

    pub(crate) fn unwrap_tag_key(&self, wrapped: Vec<u8>) -> Result<TagKey, SealBroken> {
        let bytes = self.wrapping.open(&about_tag_key(), wrapped)?;
        let bytes = bytes.try_into().map_err(|_| SealBroken)?;
        Ok(TagKey::from_bytes(bytes))
    }
}

impl fmt::Debug for DetailsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DetailsKey")
    }
}

/// The master key of the keys of all data subjects, and former ones while the store is moved from them to the current one.
#[derive(Debug, Clone)]
pub struct DetailsKeys {
    current: DetailsKey,
    former: Vec<DetailsKey>,
}

impl From<DetailsKey> for DetailsKeys {
    fn from(current: DetailsKey) -> Self {
        Self::new(current, Vec::new())
    }
}

impl DetailsKeys {
    /// Creates the keys of a service. The store determines which of them is in force: a current key that is new to the store
    /// encrypts nothing before [`rekey`](fn@crate::rekey) has begun.
    pub fn new(current: DetailsKey, former: Vec<DetailsKey>) -> Self {
        Self { current, former }
    }

    pub(crate) fn current(&self) -> &DetailsKey {
        &self.current
    }

    /// Returns whether the current key is also one of the former ones.
    pub(crate) fn repeats_current(&self) -> bool {
        let current = self.current.known_by;
        self.former.iter().any(|former| former.known_by == current)
    }

    /// Returns the key that `known_by` identifies.
    pub(crate) fn find(&self, known_by: Digest) -> Option<&DetailsKey> {
        self.all_keys().find(|key| key.known_by == known_by)
    }

    /// Returns the key that wraps `wrapped`, the key of the data subject of `tag`.
    pub(crate) fn find_wrapping(&self, tag: Digest, wrapped: &[u8]) -> Option<&DetailsKey> {
        self.find_unwrapping(tag, wrapped).map(|(key, _)| key)
    }

    /// Unwraps the key of the data subject of `tag`, whichever of the keys wraps it.
    pub(crate) fn unwrap(&self, tag: Digest, wrapped: &[u8]) -> Result<[u8; KEY_LEN], Error> {
        let found = self.find_unwrapping(tag, wrapped);
        found.map(|(_, key)| key).ok_or(Error::OtherDetailsKey)
    }

    /// Returns the first of the keys that wraps the key of the data subject of `tag`, and that key.
    fn find_unwrapping(&self, tag: Digest, wrapped: &[u8]) -> Option<(&DetailsKey, [u8; KEY_LEN])> {
        self.all_keys()
            .find_map(|key| Some((key, key.unwrap(tag, wrapped).ok()?)))
    }

    /// Wraps the key of the data subject of `tag` under the current key, whichever of the keys wraps it. Returns `None` if it is
    /// the current one.
    pub(crate) fn rewrap(
        &self,
        tag: Digest,
        wrapped: &[u8],
        ambient: &Ambient,
    ) -> Result<Option<Vec<u8>>, SealBroken> {
        let (wrapping, key) = self.find_unwrapping(tag, wrapped).ok_or(SealBroken)?;
        if wrapping.known_by == self.current.known_by {
            return Ok(None);
        }
        self.current.seal(tag, &key, ambient).map(Some)
    }

    /// Returns whether there are former keys.
    pub(crate) fn has_former(&self) -> bool {
        !self.former.is_empty()
    }

    /// Returns all keys, the current one first.
    fn all_keys(&self) -> impl Iterator<Item = &DetailsKey> {
        std::iter::once(&self.current).chain(&self.former)
    }
}

/// The key of the tags of data subjects. It stays the same for as long as the store exists.
#[derive(Clone)]
pub(crate) struct TagKey {
    bytes: [u8; KEY_LEN],
    hmac: hmac::Key,
}

impl TagKey {
    fn from_bytes(bytes: [u8; KEY_LEN]) -> Self {
        Self {
            bytes,
            hmac: hmac::Key::new(hmac::HMAC_SHA256, &bytes),
        }
    }

    /// Returns the tag of a data subject of `tenant`, which is the keyed digest of its `key`.
    pub(crate) fn tag(&self, tenant: &str, key: &str) -> Digest {
        let about = About::new("data subject")
            .and(tenant.as_bytes())
            .and(key.as_bytes());
        mac(&self.hmac, about.as_bytes())
    }
}

impl fmt::Debug for TagKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TagKey")
    }
}

fn about_key(tag: Digest) -> About {
    About::new("key of a data subject").and(tag.as_bytes())
}

fn about_tag_key() -> About {
    About::new("key of the tags of data subjects")
}

/// Returns the HMAC-SHA-256 of `text`.
pub(crate) fn mac(key: &hmac::Key, text: &[u8]) -> Digest {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(hmac::sign(key, text).as_ref());
    Digest::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_a_data_subject_moves_from_one_master_key_to_another() {
        let [former, current] = [1, 2].map(|byte| DetailsKey::from_bytes(&[byte; 32]));
        let (ambient, tag) = (Ambient::system(), common_tag());
        let wrapped = former.wrap(tag, &ambient).unwrap();
        let keys = DetailsKeys::new(current, vec![former.clone()]);
        let rewrap = |wrapped: &[u8]| keys.rewrap(tag, wrapped, &ambient);
        let moved = rewrap(&wrapped).unwrap().unwrap();
        assert!(rewrap(&moved).unwrap().is_none());
        assert!(rewrap(b"something else").is_err());
        assert!(former.unwrap(tag, &moved).is_err());
        let same = former.unwrap(tag, &wrapped).unwrap();
        for wrapped in [wrapped, moved] {
            assert_eq!(keys.unwrap(tag, &wrapped).unwrap(), same);
        }
        assert!(keys.unwrap(tag, b"something else").is_err());
    }

    #[test]
    fn a_key_of_a_data_subject_moves_from_whichever_former_master_key_wraps_it() {
        let [first, second, current] = [1, 2, 3].map(|byte| DetailsKey::from_bytes(&[byte; 32]));
        let (ambient, tag) = (Ambient::system(), common_tag());
        let keys = DetailsKeys::new(current.clone(), vec![first.clone(), second.clone()]);
        for former in [first, second] {
            let wrapped = former.wrap(tag, &ambient).unwrap();
            let moved = keys.rewrap(tag, &wrapped, &ambient).unwrap().unwrap();
            assert!(current.unwrap(tag, &moved).is_ok());
            assert!(keys.rewrap(tag, &moved, &ambient).unwrap().is_none());
        }
        assert!(keys.rewrap(tag, b"something else", &ambient).is_err());
    }

    #[test]
    fn tags_stay_the_same_under_another_master_key() {
        let [former, current] = [1, 2].map(|byte| DetailsKey::from_bytes(&[byte; 32]));
        let ambient = Ambient::system();
        let tags = former.first_tags();
        let wrapped = current.wrap_tag_key(tags, &ambient).unwrap();
        let same = current.unwrap_tag_key(wrapped.clone()).unwrap();
        assert_eq!(same.tag("north", "NUGWI"), tags.tag("north", "NUGWI"));
        assert!(former.unwrap_tag_key(wrapped).is_err());
        let other = current.first_tags();
        assert_ne!(other.tag("north", "NUGWI"), tags.tag("north", "NUGWI"));
    }

    #[test]
    fn printed_keys_show_nothing() {
        let key = DetailsKey::from_bytes(&[1; 32]);
        assert_eq!(format!("{:?}", key.first_tags()), "TagKey");
        assert_eq!(format!("{key:?}"), "DetailsKey");
    }
}
