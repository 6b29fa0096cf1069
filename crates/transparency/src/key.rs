//! Keys of signed notes, for signing and verification.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::Error;
use crate::hash::sha256;
use crate::note::{NoteSignature, SignedNote, is_key_name};

/// The type of a signature, with the type byte of signed-note as its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SignatureType {
    /// A signature of the text.
    Ed25519 = 1,
    /// A signature of the text and of the time at which a witness found it consistent (tlog-cosignature, version 1).
    Cosignature = 4,
}

/// A public key with the name of its holder. Its text is the `vkey` of signed-note: `example.com/log+0f3a1b2c+AX…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifierKey {
    name: String,
    id: [u8; 4],
    of: SignatureType,
    public: [u8; 32],
}

impl VerifierKey {
    fn new(name: &str, of: SignatureType, public: [u8; 32]) -> Result<Self, Error> {
        if !is_key_name(name) {
            return Err(Error::VerifierKey(
                "its name is empty, or contains white space or a plus sign",
            ));
        }
        let input = [name.as_bytes(), &[b'\n', of as u8], &public].concat();
        let mut id = [0; 4];
        id.copy_from_slice(&sha256(&input)[..4]);
        Ok(Self {
            name: name.to_owned(),
            id,
            of,
            public,
        })
    }

    fn of_pair(name: &str, of: SignatureType, pair: &Ed25519KeyPair) -> Result<Self, Error> {
        let public = pair.public_key().as_ref().try_into();
        Self::new(name, of, public.map_err(|_| Error::SigningKey)?)
    }

    /// Returns the name of the holder. The name of a log is its origin.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the key belongs to a witness, which cosigns, rather than to a log.
    pub fn is_of_witness(&self) -> bool {
        self.of == SignatureType::Cosignature
    }

    /// Returns whether `other` has the same public key, even with another name.
    pub(crate) fn is_same_public_key(&self, other: &Self) -> bool {
        self.public == other.public
    }

    /// Fails unless `note` is signed with this key, and every signature in the name of this key is valid.
    pub fn verify(&self, note: &SignedNote) -> Result<(), Error> {
        self.find_signature(note).map(drop)
    }

    /// Returns the last signature of `note` with this key. Fails if any signature in the name of this key is invalid.
    pub fn find_signature<'a>(&self, note: &'a SignedNote) -> Result<&'a NoteSignature, Error> {
        let mut found = None;
        for signature in note.signatures() {
            if signature.is_by(&self.name, self.id) {
                if !self.is_right(signature, note.text()) {
                    return Err(Error::Signature(self.name.clone()));
                }
                found = Some(signature);
            }
        }
        found.ok_or_else(|| Error::NotSigned(self.name.clone()))
    }

    fn is_right(&self, signature: &NoteSignature, text: &str) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, &self.public);
        match self.of {
            SignatureType::Ed25519 => key.verify(text.as_bytes(), signature.bytes()).is_ok(),
            SignatureType::Cosignature => {
                let Some((time, signature)) = signature.bytes().split_first_chunk() else {
                    return false;
                };
                let message = cosigned_message(u64::from_be_bytes(*time), text);
                key.verify(message.as_bytes(), signature).is_ok()
            }
        }
    }

    fn signature(&self, bytes: Vec<u8>) -> NoteSignature {
        NoteSignature::new(self.name.clone(), self.id, bytes)
    }
}

impl FromStr for VerifierKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (name, id, key) = split(text).ok_or(Error::VerifierKey("it is not NAME+ID+KEY"))?;
        let (of, public) = match key.split_first() {
            Some((1, public)) => (SignatureType::Ed25519, public),
            Some((4, public)) => (SignatureType::Cosignature, public),
            _ => return Err(Error::VerifierKey("its type is not supported (1 or 4)")),
        };
        let public = public.try_into();
        let public = public.map_err(|_| Error::VerifierKey("its key does not have 32 bytes"))?;
        let key = Self::new(name, of, public)?;
        if id != hex(key.id) {
            return Err(Error::VerifierKey("its id does not match its name and key"));
        }
        Ok(key)
    }
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = [[self.of as u8].as_slice(), &self.public].concat();
        write!(f, "{}+{}+{}", self.name, hex(self.id), STANDARD.encode(key))
    }
}

/// Splits a verifier key into its name, its id, and the key with its type byte.
fn split(text: &str) -> Option<(&str, &str, Vec<u8>)> {
    let mut parts = text.splitn(3, '+');
    let (name, id, key) = (parts.next()?, parts.next()?, parts.next()?);
    Some((name, id, STANDARD.decode(key).ok()?))
}

/// Returns the public key, with its type byte, of a verifier key with an unknown signature type.
pub(crate) fn public_key_of_unknown_type(text: &str) -> Option<Vec<u8>> {
    let (name, id, key) = split(text)?;
    let has_id = id.len() == 8 && id.bytes().all(|digit| digit.is_ascii_hexdigit());
    let is_unknown = matches!(*key, [of, _, ..] if of != SignatureType::Ed25519 as u8 && of != SignatureType::Cosignature as u8);
    (is_key_name(name) && has_id && is_unknown).then_some(key)
}

fn hex(id: [u8; 4]) -> String {
    format!("{:08x}", u32::from_be_bytes(id))
}

/// Signs notes for a log.
pub struct Signer {
    pair: Ed25519KeyPair,
    key: VerifierKey,
}

impl Signer {
    /// Creates the signer `name` with an Ed25519 private key in PKCS#8 DER (RFC 8410).
    pub fn from_pkcs8(name: &str, der: &[u8]) -> Result<Self, Error> {
        let pair = pair(der)?;
        let key = VerifierKey::of_pair(name, SignatureType::Ed25519, &pair)?;
        Ok(Self { pair, key })
    }

    /// Returns the key that verifies the signatures of this signer.
    pub fn verifier_key(&self) -> &VerifierKey {
        &self.key
    }

    /// Returns a note of `text` with a signature.
    pub fn sign(&self, text: &str) -> Result<SignedNote, Error> {
        let signature = self.pair.sign(text.as_bytes()).as_ref().to_vec();
        SignedNote::new(text, self.key.signature(signature))
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Signer").field(&self.key).finish()
    }
}

/// Cosigns checkpoints for a witness. A cosignature states that the tree is the largest consistent one that the witness saw.
pub struct Cosigner {
    pair: Ed25519KeyPair,
    key: VerifierKey,
}

impl Cosigner {
    /// Creates the cosigner `name` with an Ed25519 private key in PKCS#8 DER. The key must sign nothing else.
    pub fn from_pkcs8(name: &str, der: &[u8]) -> Result<Self, Error> {
        let pair = pair(der)?;
        let key = VerifierKey::of_pair(name, SignatureType::Cosignature, &pair)?;
        Ok(Self { pair, key })
    }

    /// Returns the key that verifies the cosignatures of this cosigner.
    pub fn verifier_key(&self) -> &VerifierKey {
        &self.key
    }

    /// Returns a cosignature of the text of `note` at `time`, in seconds since 1970.
    pub fn cosign(&self, note: &SignedNote, time: u64) -> NoteSignature {
        let signature = self
            .pair
            .sign(cosigned_message(time, note.text()).as_bytes());
        let bytes = [time.to_be_bytes().as_slice(), signature.as_ref()].concat();
        self.key.signature(bytes)
    }
}

impl fmt::Debug for Cosigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cosigner").field(&self.key).finish()
    }
}

fn pair(der: &[u8]) -> Result<Ed25519KeyPair, Error> {
    Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).map_err(|_| Error::SigningKey)
}

/// Returns the message that a cosignature signs.
fn cosigned_message(time: u64, text: &str) -> String {
    format!("cosignature/v1\ntime {time}\n{text}")
}
