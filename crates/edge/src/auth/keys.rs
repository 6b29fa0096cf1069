//! Parsing of a JSON Web Key Set (RFC 7517) into public keys, each for a single algorithm.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ParsedPublicKey, VerificationAlgorithm,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::{Map, Value};
use wardgate_json::parse_strict;

use crate::error::KeySetError;

/// Maximum number of keys in a set. It bounds the search and is more than any issuer publishes.
const MAX_KEYS: usize = 256;

/// An algorithm that may sign a token. Only asymmetric algorithms are supported, never a shared secret.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SigningAlgorithm {
    /// The `alg` of a key and of the tokens that it signs.
    name: &'static str,
    key_type: &'static str,
    curve: Option<&'static str>,
    verification: Algorithm,
}

/// The supported algorithms. The first entry with the type and curve of a key is used for a key without `alg`.
const ALGORITHMS: [SigningAlgorithm; 10] = [
    SigningAlgorithm::on_curve("EdDSA", "OKP", "Ed25519", Algorithm::EdDSA),
    // The name of the same algorithm in RFC 9864.
    SigningAlgorithm::on_curve("Ed25519", "OKP", "Ed25519", Algorithm::EdDSA),
    SigningAlgorithm::on_curve("ES256", "EC", "P-256", Algorithm::ES256),
    SigningAlgorithm::on_curve("ES384", "EC", "P-384", Algorithm::ES384),
    SigningAlgorithm::rsa("RS256", Algorithm::RS256),
    SigningAlgorithm::rsa("RS384", Algorithm::RS384),
    SigningAlgorithm::rsa("RS512", Algorithm::RS512),
    SigningAlgorithm::rsa("PS256", Algorithm::PS256),
    SigningAlgorithm::rsa("PS384", Algorithm::PS384),
    SigningAlgorithm::rsa("PS512", Algorithm::PS512),
];

impl SigningAlgorithm {
    const fn on_curve(
        name: &'static str,
        key_type: &'static str,
        curve: &'static str,
        verification: Algorithm,
    ) -> Self {
        Self {
            name,
            key_type,
            curve: Some(curve),
            verification,
        }
    }

    const fn rsa(name: &'static str, verification: Algorithm) -> Self {
        Self {
            name,
            key_type: "RSA",
            curve: None,
            verification,
        }
    }

    /// Returns the algorithm with exactly this name, as in the header of a token.
    pub(super) fn from_name(name: &str) -> Option<&'static Self> {
        ALGORITHMS.iter().find(|algorithm| algorithm.name == name)
    }

    fn for_jwk(jwk: &Jwk) -> Option<&'static Self> {
        ALGORITHMS.iter().find(|algorithm| {
            algorithm.key_type == jwk.kty
                && algorithm.curve == jwk.crv.as_deref()
                && jwk.alg.as_deref().is_none_or(|name| name == algorithm.name)
        })
    }
}

/// A public key, with the only algorithm for which it may be used.
pub(super) struct Key {
    id: Option<String>,
    algorithm: &'static SigningAlgorithm,
    decoding: DecodingKey,
}

impl Key {
    /// Returns the algorithm of this key.
    pub(super) fn algorithm(&self) -> &'static SigningAlgorithm {
        self.algorithm
    }

    /// Returns whether `signature`, in base64url, is a signature of this key over `message`.
    pub(super) fn verifies(&self, message: &[u8], signature: &str) -> bool {
        jsonwebtoken::crypto::verify(
            signature,
            message,
            &self.decoding,
            self.algorithm.verification,
        )
        .unwrap_or(false)
    }
}

/// The keys of an issuer that can verify tokens.
pub(super) struct KeySet(Vec<Key>);

impl KeySet {
    /// Parses a JSON Web Key Set. Keys for other uses and of other types are ignored, as RFC 7517 §5 requires. A
    /// symmetric or private key is an error, because the set is meant to be public.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, KeySetError> {
        let members: Map<String, Value> = serde_json::from_value(parse_strict(bytes)?)?;
        let document: JwkSet = serde_json::from_value(Value::Object(members))?;
        if document.keys.len() > MAX_KEYS {
            return Err(KeySetError::TooManyKeys);
        }
        let mut keys: Vec<Key> = Vec::with_capacity(document.keys.len());
        for jwk in document.keys {
            if jwk.kty == "oct" {
                return Err(KeySetError::SymmetricKey);
            }
            if jwk.d.is_some() {
                return Err(KeySetError::PrivateKey);
            }
            let Some(key) = jwk.into_key() else { continue };
            if key.id.is_some() && keys.iter().any(|other| other.id == key.id) {
                return Err(KeySetError::DuplicateKeyId(key.id.unwrap_or_default()));
            }
            keys.push(key);
        }
        if keys.is_empty() {
            return Err(KeySetError::NoUsableKey);
        }
        Ok(Self(keys))
    }

    /// Returns the key with this id. Without an id, returns the key if there is only one.
    pub(super) fn find(&self, id: Option<&str>) -> Option<&Key> {
        match (id, self.0.as_slice()) {
            (None, [only]) => Some(only),
            (None, _) => None,
            (Some(_), keys) => keys.iter().find(|key| key.id.as_deref() == id),
        }
    }
}

#[derive(Deserialize)]
struct JwkSet {
    keys: Vec<Jwk>,
}

/// The supported members of a JSON Web Key. Unknown members are ignored (RFC 7517 §4).
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    r#use: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
    n: Option<String>,
    e: Option<String>,
    d: Option<Value>,
}

impl Jwk {
    /// Converts the JSON Web Key to a key if it is for signatures of tokens. A malformed signature key is logged.
    fn into_key(self) -> Option<Key> {
        let signs = self.r#use.as_deref().is_none_or(|usage| usage == "sig")
            && self
                .key_ops
                .as_ref()
                .is_none_or(|operations| operations.iter().any(|name| name == "verify"));
        let algorithm = SigningAlgorithm::for_jwk(&self).filter(|_| signs)?;
        let Some(decoding) = self.decoding_key(algorithm) else {
            tracing::warn!(kid = ?self.kid, alg = algorithm.name, "a key of the set is malformed and is ignored");
            return None;
        };
        Some(Key {
            id: self.kid,
            algorithm,
            decoding,
        })
    }

    fn decoding_key(&self, algorithm: &SigningAlgorithm) -> Option<DecodingKey> {
        match algorithm.verification {
            Algorithm::EdDSA => {
                let x = decode(self.x.as_deref()?)?;
                (x.len() == 32).then(|| DecodingKey::from_ed_der(&x))
            }
            Algorithm::ES256 => self.point(32, &ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => self.point(48, &ECDSA_P384_SHA384_FIXED),
            _ => {
                let (n, e) = (decode(self.n.as_deref()?)?, decode(self.e.as_deref()?)?);
                let bits = n.len() * 8 - n.first()?.leading_zeros() as usize;
                let odd = e.last()? % 2 == 1 && e != [1];
                // These are the key sizes that aws-lc supports. An exponent longer than 33 bits only costs time.
                let sound =
                    (2048..=8192).contains(&bits) && n.first() != Some(&0) && odd && e.len() <= 5;
                sound.then(|| DecodingKey::from_rsa_raw_components(&n, &e))
            }
        }
    }

    /// Returns the point on the curve, if both coordinates have `size` bytes and the point lies on the curve.
    fn point(&self, size: usize, curve: &'static dyn VerificationAlgorithm) -> Option<DecodingKey> {
        let (x, y) = (decode(self.x.as_deref()?)?, decode(self.y.as_deref()?)?);
        if x.len() != size || y.len() != size {
            return None;
        }
        let point = [&[0x04], x.as_slice(), y.as_slice()].concat();
        ParsedPublicKey::new(curve, &point).ok()?;
        Some(DecodingKey::from_ec_der(&point))
    }
}

fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use wardgate_testkit::TestKey;

    use super::*;

    fn set(keys: &[Value]) -> Result<KeySet, KeySetError> {
        KeySet::parse(json!({ "keys": keys }).to_string().as_bytes())
    }

    fn with(mut jwk: Value, member: &str, value: impl Into<Value>) -> Value {
        jwk[member] = value.into();
        jwk
    }

    fn without(mut jwk: Value, member: &str) -> Value {
        jwk.as_object_mut().unwrap().remove(member);
        jwk
    }

    fn algorithm_of(jwk: Value) -> &'static str {
        set(&[jwk]).unwrap().find(None).unwrap().algorithm.name
    }

    #[test]
    fn a_key_is_for_the_one_algorithm_it_states_or_the_first_of_its_kind() {
        let (ed, ec, rsa) = (TestKey::ed25519(), TestKey::p256(), TestKey::rsa());
        assert_eq!(algorithm_of(ed.jwk("a")), "EdDSA");
        assert_eq!(algorithm_of(with(ed.jwk("a"), "alg", "Ed25519")), "Ed25519");
        assert_eq!(algorithm_of(ec.jwk("a")), "ES256");
        assert_eq!(algorithm_of(rsa.jwk("a")), "RS256");
        assert_eq!(algorithm_of(with(rsa.jwk("a"), "alg", "PS384")), "PS384");
    }

    #[test]
    fn a_secret_in_a_public_key_set_refuses_the_whole_set() {
        let good = TestKey::ed25519().jwk("a");
        let symmetric = json!({ "kty": "oct", "kid": "b", "k": "c2VjcmV0" });
        assert!(matches!(
            set(&[good.clone(), symmetric]),
            Err(KeySetError::SymmetricKey)
        ));
        let private = with(good.clone(), "d", "c2VjcmV0");
        assert!(matches!(
            set(&[good, private]),
            Err(KeySetError::PrivateKey)
        ));
    }

    #[test]
    fn keys_that_cannot_sign_tokens_are_passed_over() {
        let (ed, ec, rsa) = (TestKey::ed25519(), TestKey::p256(), TestKey::rsa());
        let short_modulus = URL_SAFE_NO_PAD.encode([0xff; 128]);
        let off_curve = URL_SAFE_NO_PAD.encode([0x01; 32]);
        let unusable = [
            with(ed.jwk("b"), "use", "enc"),
            with(ed.jwk("b"), "key_ops", json!(["sign"])),
            with(ed.jwk("b"), "crv", "X25519"),
            with(ed.jwk("b"), "x", "c2hvcnQ"),
            with(ed.jwk("b"), "x", "not base64!"),
            with(ed.jwk("b"), "alg", "ES256"),
            with(ed.jwk("b"), "alg", "HS256"),
            with(ed.jwk("b"), "kty", "AKP"),
            without(ed.jwk("b"), "x"),
            with(ec.jwk("b"), "crv", "secp256k1"),
            with(ec.jwk("b"), "crv", "P-384"),
            with(ec.jwk("b"), "alg", "ES384"),
            with(ec.jwk("b"), "y", off_curve),
            with(rsa.jwk("b"), "alg", "RSA-OAEP"),
            with(rsa.jwk("b"), "n", short_modulus),
            with(rsa.jwk("b"), "n", ""),
            with(rsa.jwk("b"), "e", "AQ"),
            with(rsa.jwk("b"), "e", "AQAA"),
        ];
        for jwk in unusable {
            assert!(
                matches!(
                    set(std::slice::from_ref(&jwk)),
                    Err(KeySetError::NoUsableKey)
                ),
                "{jwk}"
            );
            let keys = set(&[TestKey::ed25519().jwk("a"), jwk.clone()]).unwrap();
            assert!(
                keys.find(Some("a")).is_some() && keys.find(Some("b")).is_none(),
                "{jwk}"
            );
        }
    }

    #[test]
    fn a_key_is_found_by_its_id_or_by_being_the_only_one() {
        let one = set(&[TestKey::ed25519().jwk("a")]).unwrap();
        assert!(one.find(None).is_some());
        assert!(one.find(Some("")).is_none());
        let two = set(&[TestKey::ed25519().jwk("a"), TestKey::p256().jwk("b")]).unwrap();
        assert!(two.find(None).is_none());
        assert_eq!(two.find(Some("b")).unwrap().algorithm.name, "ES256");
    }

    #[test]
    fn a_set_that_reads_two_ways_is_refused() {
        let twice = [TestKey::ed25519().jwk("a"), TestKey::p256().jwk("a")];
        assert!(matches!(set(&twice), Err(KeySetError::DuplicateKeyId(id)) if id == "a"));
        assert!(matches!(
            KeySet::parse(br#"{"keys": [], "keys": []}"#),
            Err(KeySetError::NotStrict(_))
        ));
        for text in [r#"{"keys": {}}"#, "{}", "[]", "<html>", ""] {
            assert!(
                matches!(
                    KeySet::parse(text.as_bytes()),
                    Err(KeySetError::NotAKeySet(_) | KeySetError::NotStrict(_))
                ),
                "{text}"
            );
        }
        assert!(matches!(set(&[]), Err(KeySetError::NoUsableKey)));
        let many: Vec<_> = (0..257).map(|_| json!({ "kty": "AKP" })).collect();
        assert!(matches!(set(&many), Err(KeySetError::TooManyKeys)));
    }
}
