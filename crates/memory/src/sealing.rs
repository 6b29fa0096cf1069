//! Keys, and the encryption (sealing) of texts.
//!
//! ```text
//!   master key ─┬─ wraps ──▶ a random key for each conversation ── seals ──▶ its texts
//!               └─ with the owner ──▶ the key of that owner's search words
//! ```
//!
//! Destroying the wrapped key of a conversation destroys its texts.

use aws_lc_rs::hmac;
use wardgate_domain::{About, Ambient, ConversationKey, Digest, SealBroken, SealKey, derive_key};

use crate::owner::Owner;

const WRAPPING: &[u8] = b"wardgate memory: keys of conversations v1";
const TAGS: &[u8] = b"wardgate memory: keyed digests v1";
const KNOWN_BY: &[u8] = b"wardgate memory: which master key v1";
const KEY_LEN: usize = 32;

/// The root key from which all others are derived or by which they are wrapped. Without it no conversation can be read.
/// Every replica needs the same master key.
pub struct MasterKey {
    wrapping: SealKey,
    tags: hmac::Key,
    known_by: Digest,
}

/// The key of one conversation.
pub(crate) struct DataKey(SealKey);

/// The key that hides one owner's search words.
pub(crate) struct WordKey(hmac::Key);

impl MasterKey {
    /// Creates the master key from 32 random bytes.
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self {
            wrapping: SealKey::from_bytes(&derive_key(bytes, WRAPPING)),
            tags: hmac::Key::new(hmac::HMAC_SHA256, &derive_key(bytes, TAGS)),
            known_by: Digest::from_bytes(derive_key(bytes, KNOWN_BY)),
        }
    }

    /// Returns a digest that identifies the key and reveals nothing else about it.
    pub(crate) fn known_by(&self) -> Digest {
        self.known_by
    }

    /// Returns a new key for a conversation and its wrapped form.
    pub(crate) fn new_data_key(
        &self,
        conversation: ConversationKey,
        ambient: &Ambient,
    ) -> Result<(DataKey, Vec<u8>), SealBroken> {
        let bytes = ambient.random::<KEY_LEN>();
        let about = About::new("data key").and(conversation.to_string().as_bytes());
        let wrapped = self.wrapping.seal(&about, &bytes, ambient)?;
        Ok((DataKey(SealKey::from_bytes(&bytes)), wrapped))
    }

    pub(crate) fn unwrap(
        &self,
        conversation: ConversationKey,
        wrapped: Vec<u8>,
    ) -> Result<DataKey, SealBroken> {
        let bytes = self.unwrap_bytes(conversation, wrapped)?;
        Ok(DataKey(SealKey::from_bytes(&bytes)))
    }

    fn unwrap_bytes(
        &self,
        conversation: ConversationKey,
        wrapped: Vec<u8>,
    ) -> Result<[u8; KEY_LEN], SealBroken> {
        let about = About::new("data key").and(conversation.to_string().as_bytes());
        let bytes = self.wrapping.open(&about, wrapped)?;
        bytes.try_into().map_err(|_| SealBroken)
    }

    /// Returns a keyed digest (HMAC). Equal inputs have equal digests, and a digest reveals nothing about its input.
    pub(crate) fn tag(&self, about: &About) -> Digest {
        let mut bytes = [0; KEY_LEN];
        bytes.copy_from_slice(hmac::sign(&self.tags, about.as_bytes()).as_ref());
        Digest::from_bytes(bytes)
    }

    /// Returns the key of the search words of `owner`.
    pub(crate) fn word_key(&self, owner: &Owner) -> WordKey {
        let about = About::new("owner")
            .and(owner.tenant.as_bytes())
            .and(owner.issuer.as_bytes())
            .and(owner.subject.as_bytes());
        let tag = self.tag(&about);
        WordKey(hmac::Key::new(hmac::HMAC_SHA256, tag.as_bytes()))
    }
}

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MasterKey")
    }
}

/// The master key of a service, and former ones while the store is moved from them to the current one.
#[derive(Debug)]
pub struct MasterKeys {
    current: MasterKey,
    former: Vec<MasterKey>,
}

impl From<MasterKey> for MasterKeys {
    fn from(current: MasterKey) -> Self {
        Self::new(current, Vec::new())
    }
}

impl MasterKeys {
    /// Creates the keys of a service. The store says under which of them it is: a current key that is new to it is used
    /// once [`rekey`](fn@crate::rekey) has begun.
    pub fn new(current: MasterKey, former: Vec<MasterKey>) -> Self {
        Self { current, former }
    }

    pub(crate) fn current(&self) -> &MasterKey {
        &self.current
    }

    /// Returns whether the current key is also one of the former ones.
    pub(crate) fn repeats_current(&self) -> bool {
        let current = self.current.known_by;
        self.former.iter().any(|former| former.known_by == current)
    }

    /// Returns all keys, the current one first.
    pub(crate) fn all_keys(&self) -> impl Iterator<Item = &MasterKey> {
        std::iter::once(&self.current).chain(&self.former)
    }

    /// Returns the former keys.
    pub(crate) fn former(&self) -> &[MasterKey] {
        &self.former
    }

    /// Returns the key that this digest identifies.
    pub(crate) fn find(&self, known_by: &[u8]) -> Option<&MasterKey> {
        self.all_keys()
            .find(|key| key.known_by.as_bytes() == known_by)
    }

    /// Unwraps a conversation's key under whichever master key it is wrapped.
    pub(crate) fn unwrap(
        &self,
        conversation: ConversationKey,
        wrapped: &[u8],
    ) -> Result<DataKey, SealBroken> {
        let mut unwrapped = self
            .all_keys()
            .filter_map(|key| key.unwrap(conversation, wrapped.to_vec()).ok());
        unwrapped.next().ok_or(SealBroken)
    }

    /// Wraps a conversation's key under the current master key, whichever former one wraps it. Returns `None` if it is wrapped under
    /// the current one already.
    pub(crate) fn rewrap(
        &self,
        conversation: ConversationKey,
        wrapped: &[u8],
        ambient: &Ambient,
    ) -> Result<Option<Vec<u8>>, SealBroken> {
        if self.current.unwrap(conversation, wrapped.to_vec()).is_ok() {
            return Ok(None);
        }
        let mut unwrapped = self
            .former
            .iter()
            .filter_map(|key| key.unwrap_bytes(conversation, wrapped.to_vec()).ok());
        let bytes = unwrapped.next().ok_or(SealBroken)?;
        let about = About::new("data key").and(conversation.to_string().as_bytes());
        self.current
            .wrapping
            .seal(&about, &bytes, ambient)
            .map(Some)
    }
}

impl DataKey {
    /// Encrypts `plain`. Decryption requires the same `about`.
    pub(crate) fn seal(
        &self,
        about: &About,
        plain: &[u8],
        ambient: &Ambient,
    ) -> Result<Vec<u8>, SealBroken> {
        self.0.seal(about, plain, ambient)
    }

    /// Decrypts what was sealed with the same `about`.
    pub(crate) fn open(&self, about: &About, sealed: Vec<u8>) -> Result<Vec<u8>, SealBroken> {
        self.0.open(about, sealed)
    }
}

impl WordKey {
    /// Returns the index term for `word`: 64 bits of a keyed digest.
    pub(crate) fn blind(&self, word: &str) -> String {
        let tag = hmac::sign(&self.0, word.as_bytes());
        let mut first = [0; 8];
        first.copy_from_slice(&tag.as_ref()[..8]);
        format!("{:016x}", u64::from_be_bytes(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> (MasterKey, ConversationKey, DataKey, Vec<u8>) {
        let ambient = Ambient::system();
        let (master, conversation) = (
            MasterKey::from_bytes(&[7; 32]),
            ConversationKey::new(&ambient),
        );
        let (key, wrapped) = master.new_data_key(conversation, &ambient).unwrap();
        (master, conversation, key, wrapped)
    }

    #[test]
    fn what_is_sealed_opens_for_the_same_thing_under_the_same_key_only() {
        let (master, conversation, key, wrapped) = keys();
        for plain in [&b""[..], b"x", &[0xab; 10_000]] {
            let sealed = key
                .seal(&About::new("a"), plain, &Ambient::system())
                .unwrap();
            let same = master.unwrap(conversation, wrapped.clone()).unwrap();
            assert_eq!(same.open(&About::new("a"), sealed.clone()).unwrap(), plain);
            assert!(key.open(&About::new("b"), sealed.clone()).is_err());
            assert!(keys().2.open(&About::new("a"), sealed.clone()).is_err());
            for position in 0..sealed.len().min(64) {
                let mut changed = sealed.clone();
                changed[position] ^= 1;
                assert!(key.open(&About::new("a"), changed).is_err(), "{position}");
                let cut = sealed[..position].to_vec();
                assert!(key.open(&About::new("a"), cut).is_err(), "{position}");
            }
        }
    }

    #[test]
    fn a_wrapped_key_serves_its_own_conversation_and_master_key_only() {
        let (master, conversation, _, wrapped) = keys();
        let other = ConversationKey::new(&Ambient::system());
        assert!(master.unwrap(other, wrapped.clone()).is_err());
        let stranger = MasterKey::from_bytes(&[8; 32]);
        assert!(stranger.unwrap(conversation, wrapped).is_err());
        assert_ne!(stranger.known_by(), master.known_by());
    }

    #[test]
    fn a_wrapped_key_moves_from_one_master_key_to_another() {
        let (former, conversation, key, wrapped) = keys();
        let (ambient, about) = (Ambient::system(), About::new("a"));
        let sealed = key.seal(&about, b"x", &ambient).unwrap();
        let [current, other] = [8, 9].map(|byte| MasterKey::from_bytes(&[byte; 32]));
        // Whichever of the former keys wraps it.
        let keys = MasterKeys::new(current, vec![other, former]);
        let move_key = |wrapped: &[u8]| keys.rewrap(conversation, wrapped, &ambient);
        let moved = move_key(&wrapped).unwrap().unwrap();
        assert!(move_key(&moved).unwrap().is_none());
        assert!(move_key(b"something else").is_err());
        let mut former = keys.former().iter();
        assert!(former.all(|key| key.unwrap(conversation, moved.clone()).is_err()));
        for wrapped in [wrapped, moved] {
            let same = keys.unwrap(conversation, &wrapped).unwrap();
            assert_eq!(same.open(&about, sealed.clone()).unwrap(), b"x");
        }
        assert!(keys.unwrap(conversation, b"something else").is_err());
    }

    #[test]
    fn a_word_reads_differently_for_every_owner() {
        let master = MasterKey::from_bytes(&[7; 32]);
        let of = |subject: &str, tenant: &str| {
            let owner = Owner {
                tenant: tenant.to_owned(),
                issuer: "i".to_owned(),
                subject: subject.to_owned(),
            };
            master.word_key(&owner).blind("tooth")
        };
        assert_eq!(of("a", "t"), of("a", "t"));
        assert_eq!(of("a", "t").len(), 16);
        assert_ne!(of("a", "t"), of("b", "t"));
        assert_ne!(of("a", "ti"), of("a", "t"));
        assert_eq!(format!("{master:?}"), "MasterKey");
    }
}
