//! Decisions by the policy set in force, and the permits that are signed for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::watch;
use wardgate_domain::{
    Ambient, Caller, ConversationFacts, Decision, DecisionId, DenialReason, Digest, InvalidMessage,
    OfferKind, PermitId, PermitSigner, PermitTerms, ReadDecision, RecordScope, SignedPermit,
    ToolFacts, ToolName, Verdict,
};
use wardgate_telemetry::names;

use crate::call::CallAnswer;
use crate::denial::Denial;
use crate::engine::{Engine, ResultView, Ruling};
use crate::set::PolicySet;

/// How much earlier than now a permit starts, since the clock that checks it may be behind.
const CLOCK_LEEWAY: Duration = Duration::from_secs(5);

/// Decides with the policy set in force and signs permits. A new set replaces the old one as a whole.
#[derive(Debug)]
pub(crate) struct PolicyAuthorizer {
    engine: ArcSwap<Engine>,
    version: watch::Sender<Digest>,
    signer: PermitSigner,
    ambient: Ambient,
    permit_ttl: Duration,
}

impl PolicyAuthorizer {
    pub(crate) fn new(
        set: PolicySet,
        signer: PermitSigner,
        ambient: Ambient,
        permit_ttl: Duration,
    ) -> Self {
        Self {
            version: watch::Sender::new(set.hash()),
            engine: ArcSwap::from_pointee(Engine::new(set)),
            signer,
            ambient,
            permit_ttl,
        }
    }

    /// The version in force, now and on every change.
    pub(crate) fn version(&self) -> watch::Receiver<Digest> {
        self.version.subscribe()
    }

    /// Puts `set` in force. From the moment the new version is told, no decision comes from the old set
    /// except those already under way, and these carry its hash.
    pub(crate) fn put_in_force(&self, set: PolicySet) {
        let hash = set.hash();
        self.engine.store(Arc::new(Engine::new(set)));
        self.version.send_replace(hash);
    }

    /// Decides one call. `client_ip` is empty when unknown.
    pub(crate) fn authorize(
        &self,
        caller: &Caller,
        tool: &ToolFacts,
        arguments: &[u8],
        client_ip: &str,
    ) -> Result<Decision, InvalidMessage> {
        let started = Instant::now();
        let engine = self.engine.load();
        let ruling = engine.rule(caller, tool, arguments, client_ip)?;
        let id = DecisionId::new(&self.ambient);
        let Ruling {
            answer,
            depends_on_arguments,
            rights,
        } = ruling;
        let (verdict, policies) = match engine.grant(answer, &rights) {
            Ok((policies, view)) => {
                let arguments = depends_on_arguments.then(|| Digest::of(arguments));
                (
                    Verdict::Allow(self.sign(id, engine.hash(), caller, tool, arguments, view)),
                    policies,
                )
            }
            Err(Denial { reason, policies }) => (
                Verdict::Deny {
                    reason,
                    visible: rights.access.possible(),
                },
                policies,
            ),
        };
        let denied = match &verdict {
            Verdict::Allow(_) => None,
            Verdict::Deny { reason, .. } => Some(*reason),
        };
        measure(denied, started);
        Ok(Decision {
            id,
            verdict,
            policies,
            policy_hash: engine.hash(),
        })
    }

    /// Denies the call of a tool that there is not, after the work that the denial of a hidden tool takes: Cedar is asked
    /// about a tool of that name that nothing else is known of.
    pub(crate) fn deny_unknown(
        &self,
        caller: &Caller,
        name: ToolName,
        arguments: &[u8],
        client_ip: &str,
    ) -> Result<Decision, InvalidMessage> {
        let started = Instant::now();
        let engine = self.engine.load();
        let tool = ToolFacts {
            kind: OfferKind::Tool,
            definition_digest: Digest::of(name.as_str().as_bytes()),
            name,
            read_only: false,
            tags: Vec::new(),
            entity: None,
            classes: Vec::new(),
            argument_defaults: BTreeMap::new(),
        };
        engine.rule(caller, &tool, arguments, client_ip)?;
        let reason = DenialReason::NotPermitted;
        measure(Some(reason), started);
        Ok(Decision {
            id: DecisionId::new(&self.ambient),
            verdict: Verdict::Deny {
                reason,
                visible: false,
            },
            policies: Vec::new(),
            policy_hash: engine.hash(),
        })
    }

    /// Decides whether `caller` may read a conversation of somebody else.
    pub(crate) fn authorize_recall(
        &self,
        caller: &Caller,
        conversation: &ConversationFacts,
    ) -> ReadDecision {
        let started = Instant::now();
        let engine = self.engine.load();
        let answer = engine.recall(caller, conversation);
        self.read_decision(&answer, engine.hash(), started)
    }

    /// Decides whether `caller` may read this part of the record.
    pub(crate) fn authorize_record(&self, caller: &Caller, scope: RecordScope) -> ReadDecision {
        let started = Instant::now();
        let engine = self.engine.load();
        let answer = engine.record(caller, scope);
        self.read_decision(&answer, engine.hash(), started)
    }

    fn read_decision(
        &self,
        answer: &CallAnswer,
        policy_hash: Digest,
        started: Instant,
    ) -> ReadDecision {
        measure(answer.as_ref().err().map(|denial| denial.reason), started);
        ReadDecision {
            id: DecisionId::new(&self.ambient),
            allowed: answer.is_ok(),
            policy_hash,
        }
    }

    /// The tools that `caller` could call with some arguments, in the order given, and the version that
    /// says so.
    pub(crate) fn visible(&self, caller: &Caller, tools: &[ToolFacts]) -> (Vec<ToolName>, Digest) {
        let engine = self.engine.load();
        let visible = tools
            .iter()
            .filter(|tool| engine.rights(caller, tool).access.possible());
        (
            visible.map(|tool| tool.name.clone()).collect(),
            engine.hash(),
        )
    }

    fn sign(
        &self,
        decision_id: DecisionId,
        policy_hash: Digest,
        caller: &Caller,
        tool: &ToolFacts,
        arguments_digest: Option<Digest>,
        view: &ResultView,
    ) -> SignedPermit {
        let now = self.ambient.now();
        self.signer.sign(&PermitTerms {
            id: PermitId::new(&self.ambient),
            decision_id,
            caller_digest: caller.digest(),
            tool: tool.name.clone(),
            definition_digest: tool.definition_digest,
            arguments_digest,
            policy_hash,
            not_before: now.minus(CLOCK_LEEWAY),
            expires_at: now.plus(self.permit_ttl).min(caller.expires_at()),
            row_rule: view.row_rule.clone(),
            column_tiers: view.column_tiers.clone(),
        })
    }
}

/// Counts a decision, and how long it took.
fn measure(denied: Option<DenialReason>, started: Instant) {
    let (effect, reason) = denied.map_or(("allow", ""), |reason| ("deny", reason.as_str()));
    metrics::counter!(names::POLICY_DECISIONS, "effect" => effect, "reason" => reason).increment(1);
    metrics::histogram!(names::POLICY_DECISION_SECONDS, "effect" => effect)
        .record(started.elapsed());
}
