//! A small deployment with a controllable clock, and policy sets from test texts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use wardgate_domain::{
    Caller, Decision, DenialReason, PermitTerms, PermitVerifier, Timestamp, ToolFacts, Verdict,
};
use wardgate_testkit::{TestClock, permit_signer, permit_verifier, tool_facts};

use crate::PolicySet;
use crate::authorizer::PolicyAuthorizer;
use crate::history::EarlierCalls;

/// Two attributes of callers and two row types.
pub(crate) const SCHEMA: &str = include_str!("small.cedarschema");

/// 2027-01-15T08:00:00Z.
const NOW: i64 = 1_800_000_000;

/// Returns the time at which every test starts.
pub(crate) fn start() -> Timestamp {
    Timestamp::from_seconds(NOW)
}

/// Returns the directory of the policies of the hospital example.
pub(crate) fn hospital() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/examples/hospital/policies")
}

/// A policy directory that a test writes.
pub(crate) struct Dir(TempDir);

impl Dir {
    /// Creates a directory with [`SCHEMA`] and one policy file.
    pub(crate) fn with(policies: &str) -> Self {
        let dir = Self(tempfile::tempdir().unwrap());
        dir.write("s.cedarschema", SCHEMA);
        dir.write("p.cedar", policies);
        dir
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn load(&self) -> Result<PolicySet, crate::Error> {
        PolicySet::load(self.path())
    }
}

/// An authorizer with its clock, and the key that verifies its permits.
pub(crate) struct TestPolicy {
    pub(crate) authorizer: PolicyAuthorizer,
    pub(crate) clock: TestClock,
    pub(crate) verifier: PermitVerifier,
}

impl TestPolicy {
    pub(crate) fn over(set: PolicySet) -> Self {
        let clock = TestClock::at(NOW);
        let ambient = clock.ambient();
        let signer = permit_signer();
        let verifier = permit_verifier(&signer);
        let authorizer = PolicyAuthorizer::new(
            set,
            signer,
            ambient,
            Duration::from_secs(30),
            Duration::from_mins(15),
            "Europe/Berlin".parse().unwrap(),
        );
        Self {
            authorizer,
            clock,
            verifier,
        }
    }

    /// Creates an authorizer with [`SCHEMA`] and these policies.
    pub(crate) fn with(policies: &str) -> Self {
        Self::over(Dir::with(policies).load().unwrap())
    }

    pub(crate) fn authorize(&self, caller: &Caller, tool: &ToolFacts, arguments: &str) -> Decision {
        self.authorizer
            .authorize(
                caller,
                tool,
                arguments.as_bytes(),
                "",
                None,
                EarlierCalls::without_call(),
            )
            .unwrap()
    }

    /// Returns the terms of the permit. Panics with the reason if the call is denied.
    pub(crate) fn permit(&self, caller: &Caller, tool: &ToolFacts, arguments: &str) -> PermitTerms {
        match self.authorize(caller, tool, arguments).verdict {
            Verdict::Allow(signed) => {
                self.verifier.verify(&signed).unwrap();
                signed.unverified_terms().unwrap()
            }
            Verdict::NeedsApproval { approvers, .. } => panic!("needs approval: {approvers}"),
            Verdict::NeedsIntent => panic!("needs an intent"),
            Verdict::Deny { reason, .. } => panic!("denied: {reason:?}"),
        }
    }

    /// Returns the reason and the visibility of the denial.
    pub(crate) fn denial(
        &self,
        caller: &Caller,
        tool: &ToolFacts,
        arguments: &str,
    ) -> (DenialReason, bool) {
        match self.authorize(caller, tool, arguments).verdict {
            Verdict::Allow(_) | Verdict::NeedsApproval { .. } | Verdict::NeedsIntent => {
                panic!("allowed")
            }
            Verdict::Deny { reason, visible } => (reason, visible),
        }
    }
}

/// Returns a tool of [`SCHEMA`] with rows of the type `Row`.
pub(crate) fn tool(name: &str) -> ToolFacts {
    ToolFacts {
        entity: Some("Row".to_owned()),
        classes: vec!["none".parse().unwrap()],
        ..tool_facts(name)
    }
}
