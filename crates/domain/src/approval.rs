//! Approvals: statements, signed by the policy service, that an approver lets one call be made.
//!
//! ```text
//!   decision: needs approval ─▶ CallToApprove ─▶ an approver decides ─▶ SignedApproval ─▶ decision: allow, one permit
//! ```
//!
//! An approval is valid for one caller with the rights at that time, one tool in one definition, one exact text of
//! arguments and one version of the policies. Its holder can only have that same call decided again.

use std::collections::BTreeSet;
use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    ApprovalId, BundleReference, Caller, DecisionId, Digest, Timestamp, ToolFacts, ToolName,
};

/// The people who may approve a call. The approval of any of them is enough.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Approvers {
    /// Roles that permit a person other than the caller to approve the call. One of them is enough.
    pub roles: BTreeSet<String>,
    /// Whether the caller may approve the call, by confirming it.
    pub caller: bool,
}

impl fmt::Display for Approvers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roles: Vec<_> = self.roles.iter().map(String::as_str).collect();
        match (roles.is_empty(), self.caller) {
            (true, _) => f.write_str("the caller"),
            (false, false) => write!(f, "another user with the role {}", roles.join(" or ")),
            (false, true) => write!(
                f,
                "another user with the role {}, or the caller",
                roles.join(" or ")
            ),
        }
    }
}

impl Approvers {
    /// Returns in which capacity `approver` may approve a call of `caller`: with which of the roles, or as the caller.
    pub fn admit(&self, approver: &Caller, caller: &Caller) -> Result<Self, ApproverRefusal> {
        // A role counts only in the tenant in which the approver has it.
        if approver.tenant() != caller.tenant() {
            return Err(ApproverRefusal::NoApprover);
        }
        let roles = approver.roles().iter().cloned().collect();
        let roles: BTreeSet<_> = self.roles.intersection(&roles).cloned().collect();
        // The same subject under another issuer, for example that of API keys, may be the same human.
        let may_be_caller = approver.subject() == caller.subject();
        let is_caller = may_be_caller && approver.issuer() == caller.issuer();
        if is_caller && self.caller {
            return Ok(Self {
                roles: BTreeSet::new(),
                caller: true,
            });
        }
        match (roles.is_empty(), may_be_caller) {
            (true, _) => Err(ApproverRefusal::NoApprover),
            (false, true) => Err(ApproverRefusal::OwnCall),
            (false, false) => Ok(Self {
                roles,
                caller: false,
            }),
        }
    }

    /// Returns whether `self` and `others` have an approver in common.
    fn meet(&self, others: &Self) -> bool {
        (self.caller && others.caller) || !self.roles.is_disjoint(&others.roles)
    }
}

/// The reason why a person may not approve a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ApproverRefusal {
    /// The person has none of the roles, and may not approve the call as its caller either.
    #[error("you are not an approver of this call")]
    NoApprover,
    /// The call is the person's own, and somebody else has to approve it.
    #[error("this is your own call, which another user must approve")]
    OwnCall,
    /// The policies have changed since the call was made, an approval would not allow the call, or the call needs none.
    #[error("the policies have changed since, or permit nobody to approve this call")]
    NotApprovable,
}

/// A call that waits for an approval, with everything that the decision about it depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallToApprove {
    /// The id of the approval, under which both the call and the approval are recorded.
    pub id: ApprovalId,
    /// The caller.
    pub caller: Caller,
    /// The tool as it was at the time of the call.
    pub tool: ToolFacts,
    /// The arguments, byte for byte.
    pub arguments: Bytes,
    /// The address of the client as text; empty if unknown.
    pub client_ip: String,
}

/// The contents of an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalTerms {
    /// The id of the approval.
    pub id: ApprovalId,
    /// [`Caller::digest`] of the caller who makes the call.
    pub caller_digest: Digest,
    /// The canonical name of the tool.
    pub tool: ToolName,
    /// The digest of the tool's definition.
    pub definition_digest: Digest,
    /// The SHA-256 digest of the arguments.
    pub arguments_digest: Digest,
    /// The digest of the schema and policies in force when the approval was given.
    pub policy_hash: Digest,
    /// The token issuer of the approver.
    pub approver_issuer: String,
    /// The token subject of the approver.
    pub approver_subject: String,
    /// The capacity in which the approver approved the call.
    pub approved_as: Approvers,
    /// The instant from which on the approval is no longer valid.
    pub expires_at: Timestamp,
}

/// The reason why an approval does not cover a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalMismatch {
    /// The signature is not one of the policy service.
    #[error("the approval's signature is not valid")]
    Signature,
    /// The signed bytes are not an approval.
    #[error("the approval cannot be read")]
    Unreadable,
    /// The approval has expired.
    #[error("the approval has expired")]
    Expired,
    /// The approval was given for another caller, or for the same caller with other rights.
    #[error("the approval is for another caller")]
    Caller,
    /// The approval was given for another tool.
    #[error("the approval is for another tool")]
    Tool,
    /// The definition of the tool has changed since.
    #[error("the approval is for a different definition of this tool")]
    Definition,
    /// The approval was given for other arguments.
    #[error("the approval is for different arguments")]
    Arguments,
    /// The policies have changed since.
    #[error("the approval was given under different policies")]
    Policies,
    /// The approval was given by a person who may not approve the call as it is made now.
    #[error("the approval is not by an approver of this call")]
    Approver,
}

/// A call that is compared with an approval.
#[derive(Debug, Clone, Copy)]
pub struct CallUnderApproval<'a> {
    /// The caller.
    pub caller: &'a Caller,
    /// The tool as it is now.
    pub tool: &'a ToolFacts,
    /// The arguments, byte for byte.
    pub arguments: &'a [u8],
    /// The digest of the schema and policies in force now.
    pub policy_hash: Digest,
    /// The people who may approve the call.
    pub approvers: &'a Approvers,
}

impl ApprovalTerms {
    /// Creates the terms by which `approver`, in the capacity `approved_as`, approves `call` under the policies of
    /// `policy_hash` until `expires_at`.
    pub fn of_call(
        call: &CallToApprove,
        policy_hash: Digest,
        approver: &Caller,
        approved_as: Approvers,
        expires_at: Timestamp,
    ) -> Self {
        Self {
            id: call.id,
            caller_digest: call.caller.digest(),
            tool: call.tool.name.clone(),
            definition_digest: call.tool.definition_digest,
            arguments_digest: Digest::compute(&call.arguments),
            policy_hash,
            approver_issuer: approver.issuer().to_owned(),
            approver_subject: approver.subject().to_owned(),
            approved_as,
            expires_at,
        }
    }

    /// Checks that the terms cover `call` at the time `now`.
    pub fn check(
        &self,
        call: CallUnderApproval<'_>,
        now: Timestamp,
    ) -> Result<(), ApprovalMismatch> {
        if now >= self.expires_at {
            return Err(ApprovalMismatch::Expired);
        }
        if self.caller_digest != call.caller.digest() {
            return Err(ApprovalMismatch::Caller);
        }
        if self.tool != call.tool.name {
            return Err(ApprovalMismatch::Tool);
        }
        if self.definition_digest != call.tool.definition_digest {
            return Err(ApprovalMismatch::Definition);
        }
        if self.arguments_digest != Digest::compute(call.arguments) {
            return Err(ApprovalMismatch::Arguments);
        }
        if self.policy_hash != call.policy_hash {
            return Err(ApprovalMismatch::Policies);
        }
        // The approvers that the policies name can depend on the address of the client.
        if !self.approved_as.meet(call.approvers) {
            return Err(ApprovalMismatch::Approver);
        }
        Ok(())
    }
}

/// An approval with the Ed25519 signature of the policy service. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedApproval {
    pub(crate) approval: Bytes,
    pub(crate) signature: Bytes,
}

/// The answer of the policy service to a person who approves or refuses a call.
#[derive(Debug, Clone)]
pub struct ApprovalDecision {
    /// The id of this decision.
    pub id: DecisionId,
    /// The ids of the policies that allow the call once it is approved.
    pub policies: Vec<String>,
    /// The digest of the schema and policies in force.
    pub policy_hash: Digest,
    /// The bundle that the policies in force come from, or `None` if they come from a directory.
    pub bundle: Option<BundleReference>,
    /// The signed approval, or `None` if the approver refuses the call; an error if the person may neither approve nor
    /// refuse it.
    pub outcome: Result<Option<SignedApproval>, ApproverRefusal>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ambient, CallerClaims, OfferKind, PermitSigner};
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn caller(issuer: &str, subject: &str, tenant: &str, roles: &[&str]) -> Caller {
        Caller::from_verified(CallerClaims {
            issuer: issuer.to_owned(),
            subject: subject.to_owned(),
            tenant: tenant.to_owned(),
            roles: roles.iter().map(|&role| role.to_owned()).collect(),
            attributes: BTreeMap::new(),
            token_id: "t".to_owned(),
            expires_at: Timestamp::from_seconds(2_000),
        })
    }

    fn teller() -> Caller {
        caller("https://a", "tom", "", &["Teller"])
    }

    fn tool() -> ToolFacts {
        ToolFacts {
            kind: OfferKind::Tool,
            name: "pay".parse().unwrap(),
            definition_digest: Digest::compute(b"definition"),
            read_only: false,
            tags: ["money".to_owned()].into(),
            entity: None,
            classes: Vec::new(),
            argument_defaults: BTreeMap::from([("a".to_owned(), "1".to_owned())]),
        }
    }

    fn managers() -> Approvers {
        Approvers {
            roles: BTreeSet::from(["Manager".to_owned()]),
            caller: false,
        }
    }

    fn terms() -> ApprovalTerms {
        ApprovalTerms {
            id: ApprovalId::new(&Ambient::system()),
            caller_digest: teller().digest(),
            tool: "pay".parse().unwrap(),
            definition_digest: Digest::compute(b"definition"),
            arguments_digest: Digest::compute(b"{}"),
            policy_hash: Digest::compute(b"policies"),
            approver_issuer: "https://a".to_owned(),
            approver_subject: "mia".to_owned(),
            approved_as: managers(),
            expires_at: Timestamp::from_seconds(1_000),
        }
    }

    fn signer() -> PermitSigner {
        use aws_lc_rs::{rand::SystemRandom, signature::Ed25519KeyPair};
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        PermitSigner::from_pkcs8(key.as_ref()).unwrap()
    }

    #[test]
    fn an_approval_covers_its_call_and_no_other() {
        let (terms, tool, teller, managers) = (terms(), tool(), teller(), managers());
        let call = CallUnderApproval {
            caller: &teller,
            tool: &tool,
            arguments: b"{}",
            policy_hash: Digest::compute(b"policies"),
            approvers: &managers,
        };
        let now = Timestamp::from_seconds(999);
        let refused = |call: CallUnderApproval<'_>, at| terms.check(call, at).unwrap_err();
        assert_eq!(terms.check(call, now), Ok(()));
        assert_eq!(
            refused(call, now.plus(Duration::from_secs(1))),
            ApprovalMismatch::Expired
        );
        for other in [
            caller("https://b", "tom", "", &["Teller"]),
            caller("https://a", "tim", "", &["Teller"]),
            caller("https://a", "tom", "x", &["Teller"]),
            caller("https://a", "tom", "", &["Teller", "Manager"]),
        ] {
            let call = CallUnderApproval {
                caller: &other,
                ..call
            };
            assert_eq!(refused(call, now), ApprovalMismatch::Caller);
        }
        let mut other = tool.clone();
        other.name = "gift".parse().unwrap();
        let of_other = CallUnderApproval {
            tool: &other,
            ..call
        };
        assert_eq!(refused(of_other, now), ApprovalMismatch::Tool);
        let mut changed = tool.clone();
        changed.definition_digest = Digest::compute(b"changed");
        let of_changed = CallUnderApproval {
            tool: &changed,
            ..call
        };
        assert_eq!(refused(of_changed, now), ApprovalMismatch::Definition);
        let with_others = CallUnderApproval {
            arguments: b"{} ",
            ..call
        };
        assert_eq!(refused(with_others, now), ApprovalMismatch::Arguments);
        let by_others = CallUnderApproval {
            policy_hash: Digest::compute(b"others"),
            ..call
        };
        assert_eq!(refused(by_others, now), ApprovalMismatch::Policies);
        let themselves = Approvers {
            roles: BTreeSet::from(["Auditor".to_owned()]),
            caller: true,
        };
        let by_themselves = CallUnderApproval {
            approvers: &themselves,
            ..call
        };
        assert_eq!(refused(by_themselves, now), ApprovalMismatch::Approver);
    }

    #[test]
    fn an_approval_is_decoded_from_its_own_text_only() {
        let signer = signer();
        let text = signer.sign_approval(&terms()).to_base64();
        let decoded = SignedApproval::from_base64(&text).unwrap();
        let verified = signer.verify_approval(&decoded).unwrap();
        assert_eq!(verified.tool, terms().tool);
        for other in ["?", "AAAA"] {
            assert!(SignedApproval::from_base64(other).is_none(), "{other}");
        }
    }

    #[test]
    fn a_forged_or_altered_approval_is_refused_and_a_permit_is_none() {
        let (signer, stranger) = (signer(), signer());
        let genuine = signer.sign_approval(&terms());
        let read = SignedApproval::from_bytes(genuine.to_bytes()).unwrap();
        assert_eq!(signer.verify_approval(&read).unwrap().tool, terms().tool);
        assert_eq!(
            signer.verify_approval(&stranger.sign_approval(&terms())),
            Err(ApprovalMismatch::Signature)
        );
        for at in 0..genuine.approval.len() {
            let mut bytes = genuine.approval.to_vec();
            bytes[at] ^= 1;
            let altered = SignedApproval {
                approval: bytes.into(),
                ..genuine.clone()
            };
            assert_eq!(
                signer.verify_approval(&altered),
                Err(ApprovalMismatch::Signature)
            );
        }
        // A signature of a permit must not verify as one of an approval, nor the other way round.
        let as_permit = crate::SignedPermit {
            permit: genuine.approval.clone(),
            signature: genuine.signature,
        };
        let verifier = crate::PermitVerifier::new([signer.public_key().try_into().unwrap()]);
        assert!(verifier.verify(&as_permit).is_err());
    }

    #[test]
    fn a_call_to_approve_reads_back() {
        let call = CallToApprove {
            id: ApprovalId::new(&Ambient::system()),
            caller: teller(),
            tool: tool(),
            arguments: Bytes::from_static(b"{\"a\":1}"),
            client_ip: "192.0.2.7".to_owned(),
        };
        assert_eq!(CallToApprove::from_bytes(call.to_bytes()).unwrap(), call);
    }

    #[test]
    fn a_role_approves_calls_of_others_and_a_caller_their_own() {
        use ApproverRefusal::{NoApprover, OwnCall};

        let by_role = managers();
        let by_caller = Approvers {
            roles: BTreeSet::new(),
            caller: true,
        };
        let by_either = Approvers {
            caller: true,
            ..by_role.clone()
        };
        let tom = caller("https://a", "tom", "", &["Teller", "Manager"]);
        let mia = caller("https://a", "mia", "", &["Manager"]);
        // The same subject under another issuer, or with an API key, may be the same human.
        let other_tom = caller("https://b", "tom", "", &["Manager"]);
        let stranger = caller("https://a", "uwe", "", &["Teller"]);
        let elsewhere = caller("https://a", "mia", "x", &["Manager"]);
        for (approvers, approver, expected) in [
            (&by_role, &mia, None),
            (&by_role, &other_tom, Some(OwnCall)),
            (&by_role, &tom, Some(OwnCall)),
            (&by_role, &stranger, Some(NoApprover)),
            (&by_role, &elsewhere, Some(NoApprover)),
            (&by_caller, &tom, None),
            (&by_caller, &mia, Some(NoApprover)),
            (&by_caller, &other_tom, Some(NoApprover)),
            (&by_either, &tom, None),
            (&by_either, &mia, None),
            (&by_either, &stranger, Some(NoApprover)),
        ] {
            assert_eq!(
                approvers.admit(approver, &tom).err(),
                expected,
                "{approvers:?} {approver:?}"
            );
        }
    }
}
