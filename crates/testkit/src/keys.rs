//! Keys, tokens and certificates of issuers, clients, permit signers and servers.

use std::path::Path;
use std::sync::OnceLock;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair,
};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use wardgate_domain::{PermitSigner, PermitVerifier};

/// A key pair. It signs with aws-lc directly, not with the libraries that verify.
#[derive(Debug)]
pub enum TestKey {
    /// A key for `EdDSA`.
    Ed25519(Ed25519KeyPair),
    /// A key for `ES256`.
    P256(EcdsaKeyPair),
    /// A key for `ES384`.
    P384(EcdsaKeyPair),
    /// A key for `RS256` or `PS256`.
    Rsa(&'static RsaKeyPair, &'static dyn RsaEncoding),
}

impl TestKey {
    /// Creates a new key for `EdDSA`.
    pub fn ed25519() -> Self {
        Self::Ed25519(Ed25519KeyPair::generate().expect("a key"))
    }

    /// Creates a new key for `ES256`.
    pub fn p256() -> Self {
        Self::P256(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key"))
    }

    /// Creates a new key for `ES384`.
    pub fn p384() -> Self {
        Self::P384(EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).expect("a key"))
    }

    /// Returns the RSA key for `RS256`, which is always the same, because it takes long to create one.
    pub fn rsa() -> Self {
        Self::Rsa(Self::the_rsa_key(), &RSA_PKCS1_SHA256)
    }

    /// Returns the same RSA key for `PS256`.
    pub fn rsa_pss() -> Self {
        Self::Rsa(Self::the_rsa_key(), &RSA_PSS_SHA256)
    }

    fn the_rsa_key() -> &'static RsaKeyPair {
        static KEY: OnceLock<RsaKeyPair> = OnceLock::new();
        KEY.get_or_init(|| RsaKeyPair::generate(KeySize::Rsa2048).expect("a key"))
    }

    /// Returns the private key as PKCS #8, in DER.
    fn private_der(&self) -> Vec<u8> {
        match self {
            Self::Ed25519(pair) => pair.to_pkcs8v1().expect("PKCS #8").as_ref().to_vec(),
            Self::P256(pair) | Self::P384(pair) => {
                pair.to_pkcs8v1().expect("PKCS #8").as_ref().to_vec()
            }
            Self::Rsa(pair, _) => {
                let der: Pkcs8V1Der<'_> = pair.as_der().expect("PKCS #8");
                der.as_ref().to_vec()
            }
        }
    }

    /// Returns the private key as PKCS #8, in PEM.
    pub fn private_pem(&self) -> String {
        pem("PRIVATE KEY", &self.private_der())
    }

    /// Returns the public key as X.509 `SubjectPublicKeyInfo`, in DER, which an attacker would use as an HMAC secret.
    pub fn public_der(&self) -> Vec<u8> {
        match self {
            Self::Ed25519(pair) => pair.public_key().as_der().expect("DER").as_ref().to_vec(),
            Self::P256(pair) | Self::P384(pair) => {
                pair.public_key().as_der().expect("DER").as_ref().to_vec()
            }
            Self::Rsa(pair, _) => pair.public_key().as_der().expect("DER").as_ref().to_vec(),
        }
    }

    /// Returns the public key in PEM.
    pub fn public_pem(&self) -> String {
        pem("PUBLIC KEY", &self.public_der())
    }

    /// Returns the public key as an entry of a key set.
    pub fn jwk(&self, id: &str) -> Value {
        match self {
            Self::Ed25519(pair) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "kid": id, "x": base64url(pair.public_key().as_ref()) })
            }
            Self::P256(pair) | Self::P384(pair) => {
                // The first byte says that both coordinates follow.
                let (_, point) = pair.public_key().as_ref().split_at(1);
                let (x, y) = point.split_at(point.len() / 2);
                let curve = if x.len() == 32 { "P-256" } else { "P-384" };
                json!({ "kty": "EC", "crv": curve, "kid": id, "x": base64url(x), "y": base64url(y) })
            }
            Self::Rsa(pair, _) => {
                let key = pair.public_key();
                let n = key.modulus().big_endian_without_leading_zero();
                let e = key.exponent().big_endian_without_leading_zero();
                json!({ "kty": "RSA", "kid": id, "n": base64url(n), "e": base64url(e) })
            }
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
            Self::P256(pair) | Self::P384(pair) => {
                let signature = pair.sign(&random, message).expect("a signature");
                signature.as_ref().to_vec()
            }
            Self::Rsa(pair, encoding) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(*encoding, &random, message, &mut signature)
                    .expect("a signature");
                signature
            }
        }
    }

    /// Returns a signed token with exactly this header and payload, which need not be valid.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the tables of tests read better without ampersands"
    )]
    pub fn token(&self, header: impl ToString, payload: impl ToString) -> String {
        let message = token_message(&header, &payload);
        let signature = self.sign(message.as_bytes());
        format!("{message}.{}", base64url(&signature))
    }
}

/// Returns the two parts of a token that are signed.
pub fn token_message(header: &impl ToString, payload: &impl ToString) -> String {
    format!(
        "{}.{}",
        base64url(header.to_string().as_bytes()),
        base64url(payload.to_string().as_bytes())
    )
}

/// Encodes bytes as base64url without padding, as in tokens.
pub fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns the JSON text of a key set.
pub fn key_set(keys: &[Value]) -> String {
    json!({ "keys": keys }).to_string()
}

fn pem(label: &str, der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
}

/// A token issuer with one key, `k`, whose key set is a file.
#[derive(Debug)]
pub struct TestIssuer {
    url: String,
    key: TestKey,
    key_set: NamedTempFile,
}

impl TestIssuer {
    /// Creates an issuer at this URL.
    pub fn new(url: &str) -> Self {
        let key = TestKey::ed25519();
        let file = NamedTempFile::new().expect("a temporary file");
        std::fs::write(&file, key_set(&[key.jwk("k")])).expect("a file to write to");
        Self {
            url: url.to_owned(),
            key,
            key_set: file,
        }
    }

    /// Returns the path of the key set.
    pub fn key_set(&self) -> &Path {
        self.key_set.path()
    }

    /// Returns a token with these claims. Unless the claims name others, the audience is `wardgate` and the issuer is this one.
    pub fn token(&self, claims: &Value) -> String {
        let mut all = json!({ "iss": self.url, "aud": "wardgate" });
        for (name, value) in claims.as_object().expect("claims are an object") {
            all[name] = value.clone();
        }
        self.key
            .token(json!({ "alg": "EdDSA", "kid": "k", "typ": "JWT" }), all)
    }
}

/// Creates a permit signer with a new key.
pub fn permit_signer() -> PermitSigner {
    PermitSigner::from_pkcs8(&TestKey::ed25519().private_der()).expect("a key of this kind")
}

/// Returns a verifier that accepts the permits of `signer`.
pub fn permit_verifier(signer: &PermitSigner) -> PermitVerifier {
    PermitVerifier::new([signer.public_key().try_into().expect("32 bytes")])
}

/// A self-signed certificate of a server.
#[derive(Debug)]
pub struct TestCertificate {
    /// The certificate, in PEM.
    pub certificate: String,
    /// The private key, in PEM.
    pub key: String,
}

impl TestCertificate {
    /// Creates a new certificate for `localhost`.
    pub fn localhost() -> Self {
        let names = ["localhost".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        Self {
            certificate: made.cert.pem(),
            key: made.signing_key.serialize_pem(),
        }
    }
}
