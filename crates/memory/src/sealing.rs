//! Keys, and what is sealed under them.
//!
//! ```text
//!   master key ─┬─ wraps ──▶ a random key for each conversation ── seals ──▶ its texts
//!               └─ with the owner ──▶ the key of that owner's search words
//! ```
//!
//! Destroying the wrapped key of a conversation destroys its texts. All sealing is AES-256-GCM with random
//! nonces: 2³² of them under one key keep a repetition less likely than 2⁻³² (NIST SP 800-38D, 8.3).

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use aws_lc_rs::hmac;
use wardgate_domain::{Ambient, ConversationKey, Digest};

use crate::owner::Owner;

const WRAPPING: &[u8] = b"wardgate memory: keys of conversations v1";
const TAGS: &[u8] = b"wardgate memory: keyed digests v1";
const KNOWN_BY: &[u8] = b"wardgate memory: which master key v1";
const KEY_LEN: usize = 32;

/// What is sealed cannot be opened: it was changed, is about something else, or is under another key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it cannot be opened with this key")]
pub struct SealBroken;

/// The one key above all others. Without it no conversation can be read again; every replica needs the same.
pub struct MasterKey {
    wrapping: LessSafeKey,
    tags: hmac::Key,
    known_by: Digest,
}

/// The key of one conversation.
pub(crate) struct DataKey(LessSafeKey);

/// The key of one owner's search words.
pub(crate) struct WordKey(hmac::Key);

struct Bytes32;

impl KeyType for Bytes32 {
    fn len(&self) -> usize {
        KEY_LEN
    }
}

impl MasterKey {
    /// The key of these 32 random bytes.
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self {
            wrapping: aes(&derive(bytes, WRAPPING)),
            tags: hmac::Key::new(hmac::HMAC_SHA256, &derive(bytes, TAGS)),
            known_by: Digest::from_bytes(derive(bytes, KNOWN_BY)),
        }
    }

    /// Says which key it is, and nothing else about it.
    pub(crate) fn known_by(&self) -> Digest {
        self.known_by
    }

    /// A new key for a conversation, and its wrapped form.
    pub(crate) fn new_data_key(
        &self,
        conversation: ConversationKey,
        ambient: &Ambient,
    ) -> Result<(DataKey, Vec<u8>), SealBroken> {
        let bytes = ambient.random::<KEY_LEN>();
        let about = About::new("data key").and(conversation.to_string().as_bytes());
        let wrapped = seal(&self.wrapping, &about, &bytes, ambient)?;
        Ok((DataKey(aes(&bytes)), wrapped))
    }

    pub(crate) fn unwrap(
        &self,
        conversation: ConversationKey,
        wrapped: Vec<u8>,
    ) -> Result<DataKey, SealBroken> {
        let about = About::new("data key").and(conversation.to_string().as_bytes());
        let bytes = open(&self.wrapping, &about, wrapped)?;
        let bytes: [u8; KEY_LEN] = bytes.try_into().map_err(|_| SealBroken)?;
        Ok(DataKey(aes(&bytes)))
    }

    /// A keyed digest, equal for equal things and telling nothing of them.
    pub(crate) fn tag(&self, about: &About) -> Digest {
        let mut bytes = [0; KEY_LEN];
        bytes.copy_from_slice(hmac::sign(&self.tags, &about.0).as_ref());
        Digest::from_bytes(bytes)
    }

    /// The key of the words of `owner`.
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

impl DataKey {
    /// `plain`, readable again only with the same `about`.
    pub(crate) fn seal(
        &self,
        about: &About,
        plain: &[u8],
        ambient: &Ambient,
    ) -> Result<Vec<u8>, SealBroken> {
        seal(&self.0, about, plain, ambient)
    }

    /// What was sealed with the same `about`.
    pub(crate) fn open(&self, about: &About, sealed: Vec<u8>) -> Result<Vec<u8>, SealBroken> {
        open(&self.0, about, sealed)
    }
}

impl WordKey {
    /// What stands in the index for `word`: 64 bits of a keyed digest.
    pub(crate) fn blind(&self, word: &str) -> String {
        let tag = hmac::sign(&self.0, word.as_bytes());
        let mut first = [0; 8];
        first.copy_from_slice(&tag.as_ref()[..8]);
        format!("{:016x}", u64::from_be_bytes(first))
    }
}

/// What a sealed text is about, so that none can stand in the place of another.
pub(crate) struct About(Vec<u8>);

impl About {
    pub(crate) fn new(kind: &'static str) -> Self {
        Self(Vec::new()).and(kind.as_bytes())
    }

    /// Adds a part, with its length before it, so that no two lists of parts are alike.
    pub(crate) fn and(mut self, part: &[u8]) -> Self {
        self.0.extend_from_slice(&(part.len() as u64).to_be_bytes());
        self.0.extend_from_slice(part);
        self
    }

    /// SHA-256 of the parts.
    pub(crate) fn digest(&self) -> Digest {
        Digest::of(&self.0)
    }
}

#[expect(
    clippy::expect_used,
    reason = "HKDF fails only for lengths that are not these"
)]
fn derive(material: &[u8; 32], label: &[u8]) -> [u8; KEY_LEN] {
    let mut bytes = [0; KEY_LEN];
    Salt::new(HKDF_SHA256, &[])
        .extract(material)
        .expand(&[label], Bytes32)
        .and_then(|derived| derived.fill(&mut bytes))
        .expect("32 bytes can be derived");
    bytes
}

#[expect(clippy::expect_used, reason = "AES-256 takes every key of 32 bytes")]
fn aes(bytes: &[u8; KEY_LEN]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes).expect("32 bytes are a key"))
}

fn seal(
    key: &LessSafeKey,
    about: &About,
    plain: &[u8],
    ambient: &Ambient,
) -> Result<Vec<u8>, SealBroken> {
    let nonce = ambient.random::<NONCE_LEN>();
    let mut sealed = Vec::with_capacity(NONCE_LEN + plain.len() + AES_256_GCM.tag_len());
    sealed.extend_from_slice(&nonce);
    sealed.extend_from_slice(plain);
    let nonce = Nonce::assume_unique_for_key(nonce);
    let tag = key
        .seal_in_place_separate_tag(nonce, Aad::from(&about.0), &mut sealed[NONCE_LEN..])
        .map_err(|_| SealBroken)?;
    sealed.extend_from_slice(tag.as_ref());
    Ok(sealed)
}

fn open(key: &LessSafeKey, about: &About, mut sealed: Vec<u8>) -> Result<Vec<u8>, SealBroken> {
    let (nonce, text) = sealed.split_at_mut_checked(NONCE_LEN).ok_or(SealBroken)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SealBroken)?;
    let plain = key.open_in_place(nonce, Aad::from(&about.0), text);
    let length = plain.map_err(|_| SealBroken)?.len();
    sealed.copy_within(NONCE_LEN..NONCE_LEN + length, 0);
    sealed.truncate(length);
    Ok(sealed)
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
