//! The keys that sign bundles and verify them: Ed25519 (RFC 8032) in PEM (RFC 8410).

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The DER encoding of an Ed25519 public key up to its 32 bytes (RFC 8410, section 4).
const PUBLIC_KEY_PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// A key that signs bundles.
pub struct BundleSigner(Ed25519KeyPair);

impl BundleSigner {
    /// Creates a signer from an Ed25519 private key in PKCS#8 DER. Returns `None` if it is not one.
    pub fn from_pkcs8(der: &[u8]) -> Option<Self> {
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(der)
            .ok()
            .map(Self)
    }

    /// Returns the public key in PEM.
    pub fn public_key_pem(&self) -> String {
        let mut der = PUBLIC_KEY_PREFIX.to_vec();
        der.extend_from_slice(self.0.public_key().as_ref());
        let body = STANDARD.encode(der);
        format!("-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n")
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.0.sign(message).as_ref().to_vec()
    }
}

/// The public keys by which a bundle may be signed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BundleVerifier {
    keys: Vec<[u8; 32]>,
}

impl BundleVerifier {
    /// Adds the Ed25519 public key of a PEM text. Returns whether it is one.
    #[must_use]
    pub fn add_pem(&mut self, pem: &str) -> bool {
        let key = public_key(pem);
        self.keys.extend(key);
        key.is_some()
    }

    /// Returns whether one of the keys made the signature.
    pub(crate) fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        self.keys.iter().any(|key| {
            let key = UnparsedPublicKey::new(&ED25519, key);
            key.verify(message, signature).is_ok()
        })
    }
}

fn public_key(pem: &str) -> Option<[u8; 32]> {
    let body = pem
        .trim()
        .strip_prefix("-----BEGIN PUBLIC KEY-----")?
        .strip_suffix("-----END PUBLIC KEY-----")?;
    let body: String = body.split_whitespace().collect();
    let der = STANDARD.decode(body).ok()?;
    der.strip_prefix(&PUBLIC_KEY_PREFIX)?.try_into().ok()
}
