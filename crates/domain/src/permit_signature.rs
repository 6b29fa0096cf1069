//! Signatures of permits: the policy service signs them, and the tool-runner verifies them.
//!
//! A [`Permit`] cannot be constructed, copied or read from the wire. [`PermitVerifier::verify`] checks the signature.
//! [`VerifiedTerms::admit`] checks the times and that the permit is for this caller, this tool in this definition and
//! these arguments, and is the only function that returns a permit. Running a tool takes the permit by value.

use std::sync::Arc;

use aws_lc_rs::signature::{self, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use bytes::Bytes;

use crate::{
    ApprovalMismatch, ApprovalTerms, Caller, ColumnClass, ColumnTier, Digest, PermitTerms,
    SignedApproval, SignedPermit, Timestamp, ToolName, wire,
};

/// An error for a permit key that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the permit key is not an Ed25519 key in {expected}")]
pub struct PermitKeyError {
    expected: &'static str,
}

/// A signer of permits and approvals. Only the policy service has one.
pub struct PermitSigner {
    key: Ed25519KeyPair,
}

impl PermitSigner {
    /// Creates a signer from an Ed25519 private key in PKCS#8 DER (RFC 8410).
    pub fn from_pkcs8(der: &[u8]) -> Result<Self, PermitKeyError> {
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(der)
            .map(|key| Self { key })
            .map_err(|_| PermitKeyError {
                expected: "PKCS#8 DER",
            })
    }

    /// Returns the public key, 32 bytes.
    pub fn public_key(&self) -> &[u8] {
        self.key.public_key().as_ref()
    }

    /// Signs a permit with these terms.
    pub fn sign(&self, terms: &PermitTerms) -> SignedPermit {
        let permit = wire::encode_permit(terms);
        let signature = Bytes::copy_from_slice(self.key.sign(&permit).as_ref());
        SignedPermit { permit, signature }
    }

    /// Signs an approval with these terms. The signature does not verify for any other kind of message.
    pub fn sign_approval(&self, terms: &ApprovalTerms) -> SignedApproval {
        let approval = wire::encode_approval(terms);
        let signature = self.key.sign(&signed_as_approval(&approval));
        SignedApproval {
            approval,
            signature: Bytes::copy_from_slice(signature.as_ref()),
        }
    }

    /// Verifies an approval that was signed with this key, and returns its terms.
    pub fn verify_approval(
        &self,
        signed: &SignedApproval,
    ) -> Result<ApprovalTerms, ApprovalMismatch> {
        let key = UnparsedPublicKey::new(&signature::ED25519, self.public_key());
        key.verify(&signed_as_approval(&signed.approval), &signed.signature)
            .map_err(|_| ApprovalMismatch::Signature)?;
        let terms = signed.unverified_terms();
        terms.map_err(|_| ApprovalMismatch::Unreadable)
    }
}

/// Returns the bytes that are signed for an approval. The prefix separates approvals from permits, which are signed
/// with the same key and without a prefix. No permit begins with this prefix, since no Protobuf message does.
fn signed_as_approval(approval: &[u8]) -> Vec<u8> {
    [b"wardgate approval 1\n", approval].concat()
}

impl std::fmt::Debug for PermitSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PermitSigner")
    }
}

/// The reason why a permit does not cover a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PermitRefusal {
    /// The signature is not one of the policy service.
    #[error("the permit's signature is not valid")]
    Signature,
    /// The signed bytes are not a permit.
    #[error("the permit cannot be read")]
    Unreadable,
    /// The permit is not valid yet, or has expired.
    #[error("the permit is not valid at this time")]
    Time,
    /// The caller's token has expired since the permit was issued.
    #[error("the caller's token has expired")]
    TokenEnded,
    /// The permit was issued for another caller, or for the same caller with other rights.
    #[error("the permit is for another caller")]
    Caller,
    /// The permit was issued for another tool.
    #[error("the permit is for another tool")]
    Tool,
    /// The definition of the tool has changed since the decision.
    #[error("the permit is for a different definition of this tool")]
    Definition,
    /// The permit was issued for other arguments.
    #[error("the permit is for different arguments")]
    Arguments,
}

/// A call that is about to run, with the facts that the tool-runner itself knows about it.
#[derive(Debug, Clone, Copy)]
pub struct CallToRun<'a> {
    /// The caller.
    pub caller: &'a Caller,
    /// The tool as it is configured now.
    pub tool: &'a ToolName,
    /// The digest of the tool's definition as it is configured now.
    pub definition_digest: Digest,
    /// The arguments, byte for byte.
    pub arguments: &'a [u8],
}

/// A verifier of permits.
#[derive(Debug, Clone)]
pub struct PermitVerifier {
    keys: Vec<[u8; 32]>,
}

impl PermitVerifier {
    /// Creates a verifier that accepts permits signed with any of these Ed25519 public keys. There are several during a
    /// key rotation.
    pub fn new(keys: impl IntoIterator<Item = [u8; 32]>) -> Self {
        Self {
            keys: keys.into_iter().collect(),
        }
    }

    /// Checks the signature and reads the terms. This is the expensive half of the check; its result may be cached and
    /// used again for the same signed permit.
    pub fn verify(&self, signed: &SignedPermit) -> Result<VerifiedTerms, PermitRefusal> {
        let valid = self.keys.iter().any(|key| {
            UnparsedPublicKey::new(&signature::ED25519, key)
                .verify(&signed.permit, &signed.signature)
                .is_ok()
        });
        if !valid {
            return Err(PermitRefusal::Signature);
        }
        signed
            .unverified_terms()
            .map(|terms| VerifiedTerms(Arc::new(terms)))
            .map_err(|_| PermitRefusal::Unreadable)
    }
}

/// Permit terms whose signature was verified. Cheap to clone.
#[derive(Debug, Clone)]
pub struct VerifiedTerms(Arc<PermitTerms>);

impl VerifiedTerms {
    /// Checks that the terms and the caller's token are valid at the time `now` and that the terms cover `call`. This
    /// is the only way to obtain a [`Permit`].
    pub fn admit(&self, call: CallToRun<'_>, now: Timestamp) -> Result<Permit, PermitRefusal> {
        let terms = &self.0;
        if now < terms.not_before || now >= terms.expires_at {
            return Err(PermitRefusal::Time);
        }
        // The permit may have been issued for another token of the same caller that expires later.
        if now >= call.caller.expires_at() {
            return Err(PermitRefusal::TokenEnded);
        }
        if terms.caller_digest != call.caller.digest() {
            return Err(PermitRefusal::Caller);
        }
        if terms.tool != *call.tool {
            return Err(PermitRefusal::Tool);
        }
        if terms.definition_digest != call.definition_digest {
            return Err(PermitRefusal::Definition);
        }
        match terms.arguments_digest {
            Some(digest) if digest != Digest::compute(call.arguments) => {
                Err(PermitRefusal::Arguments)
            }
            _ => Ok(Permit {
                terms: Arc::clone(terms),
            }),
        }
    }
}

/// The right to run one call now. It cannot be cloned, and running the call consumes it.
#[derive(Debug)]
pub struct Permit {
    terms: Arc<PermitTerms>,
}

impl Permit {
    /// Returns the terms of the permit.
    pub fn terms(&self) -> &PermitTerms {
        &self.terms
    }

    /// Returns the treatment of the fields of `class`. The fields of a class that is not listed are dropped.
    pub fn tier(&self, class: &ColumnClass) -> ColumnTier {
        self.terms.tier(class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Ambient, AttributeType, BundleReference, CallerClaims, DecisionId, PermitId, RowRule,
    };
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn caller(subject: &str) -> Caller {
        Caller::from_verified(CallerClaims {
            issuer: "https://issuer.example".to_owned(),
            subject: subject.to_owned(),
            tenant: String::new(),
            roles: vec!["Doctor".to_owned()],
            attributes: BTreeMap::new(),
            token_id: "t".to_owned(),
            expires_at: Timestamp::from_seconds(1_020),
        })
    }

    fn signer() -> PermitSigner {
        let rng = aws_lc_rs::rand::SystemRandom::new();
        PermitSigner::from_pkcs8(Ed25519KeyPair::generate_pkcs8(&rng).unwrap().as_ref()).unwrap()
    }

    fn terms(now: Timestamp, arguments: Option<&[u8]>) -> PermitTerms {
        let ambient = Ambient::system();
        PermitTerms {
            id: PermitId::new(&ambient),
            decision_id: DecisionId::new(&ambient),
            caller_digest: caller("a").digest(),
            tool: "read_it".parse().unwrap(),
            definition_digest: Digest::compute(b"definition"),
            arguments_digest: arguments.map(Digest::compute),
            policy_hash: Digest::compute(b"policies"),
            bundle: Some(BundleReference {
                version: 7,
                digest: Digest::compute(b"bundle"),
            }),
            not_before: now,
            expires_at: now.plus(Duration::from_secs(30)),
            row_rule: Some(RowRule {
                entity: "Row".to_owned(),
                policies_json: vec!["{}".to_owned()],
                all: false,
                attributes: BTreeMap::from([("ward".to_owned(), AttributeType::Text)]),
            }),
            column_tiers: BTreeMap::from([("phi.date".parse().unwrap(), ColumnTier::Generalised)]),
        }
    }

    #[test]
    fn a_permit_covers_its_call_and_no_other() {
        let now = Timestamp::from_seconds(1_000);
        let signer = signer();
        let verifier = PermitVerifier::new([signer.public_key().try_into().unwrap()]);
        let (a, b) = (caller("a"), caller("b"));
        let (tool, other): (ToolName, ToolName) =
            ("read_it".parse().unwrap(), "x".parse().unwrap());
        let call = CallToRun {
            caller: &a,
            tool: &tool,
            definition_digest: Digest::compute(b"definition"),
            arguments: b"{}",
        };
        let signed = signer.sign(&terms(now, Some(b"{}")));

        let verified = verifier.verify(&signed).unwrap();

        let permit = verified.admit(call, now).unwrap();
        assert_eq!(
            permit.tier(&"phi.date".parse().unwrap()),
            ColumnTier::Generalised
        );
        assert_eq!(
            permit.tier(&"phi.name".parse().unwrap()),
            ColumnTier::Dropped
        );

        let refused = |call, at| verified.admit(call, at).unwrap_err();
        let late = now.plus(Duration::from_secs(30));
        assert_eq!(refused(call, late), PermitRefusal::Time);
        let token_end = now.plus(Duration::from_secs(20));
        assert_eq!(refused(call, token_end), PermitRefusal::TokenEnded);
        assert_eq!(
            refused(call, now.minus(Duration::from_secs(1))),
            PermitRefusal::Time
        );
        assert_eq!(
            refused(CallToRun { caller: &b, ..call }, now),
            PermitRefusal::Caller
        );
        assert_eq!(
            refused(
                CallToRun {
                    tool: &other,
                    ..call
                },
                now
            ),
            PermitRefusal::Tool
        );
        let drifted = CallToRun {
            definition_digest: Digest::compute(b"changed"),
            ..call
        };
        assert_eq!(refused(drifted, now), PermitRefusal::Definition);
        assert_eq!(
            refused(
                CallToRun {
                    arguments: b"{} ",
                    ..call
                },
                now
            ),
            PermitRefusal::Arguments
        );
    }

    #[test]
    fn an_argument_free_permit_covers_any_arguments() {
        let now = Timestamp::from_seconds(1_000);
        let signer = signer();
        let verifier = PermitVerifier::new([signer.public_key().try_into().unwrap()]);
        let a = caller("a");
        let tool: ToolName = "read_it".parse().unwrap();
        let call = CallToRun {
            caller: &a,
            tool: &tool,
            definition_digest: Digest::compute(b"definition"),
            arguments: b"{\"any\":1}",
        };
        let verified = verifier.verify(&signer.sign(&terms(now, None))).unwrap();
        assert!(verified.admit(call, now).is_ok());
    }

    #[test]
    fn a_forged_or_altered_permit_is_refused() {
        let now = Timestamp::from_seconds(1_000);
        let (signer, stranger) = (signer(), signer());
        let verifier = PermitVerifier::new([signer.public_key().try_into().unwrap()]);
        let forged = stranger.sign(&terms(now, None));
        assert_eq!(
            verifier.verify(&forged).unwrap_err(),
            PermitRefusal::Signature
        );

        let genuine = signer.sign(&terms(now, None));
        for at in 0..genuine.permit.len() {
            let mut bytes = genuine.permit.to_vec();
            bytes[at] ^= 1;
            let altered = SignedPermit {
                permit: bytes.into(),
                ..genuine.clone()
            };
            assert_eq!(
                verifier.verify(&altered).unwrap_err(),
                PermitRefusal::Signature
            );
        }
    }
}
