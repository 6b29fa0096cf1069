//! The authorizer, which decides calls by the policy set in force and signs permits for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::watch;
use wardgate_domain::{
    Ambient, ApprovalDecision, ApprovalTerms, ApproverRefusal, BundleReference, CallReference,
    CallToApprove, CallUnderApproval, Caller, ConversationFacts, Decision, DecisionId,
    DenialReason, Digest, InvalidMessage, OfferKind, OperatorAction, PermitId, PermitSigner,
    PermitTerms, ReadDecision, ShadowReport, SignedApproval, SignedPermit, TimeZone, Timestamp,
    ToolFacts, ToolName, Verdict,
};
use wardgate_telemetry::names;

use crate::call::CallAnswer;
use crate::context::{CallContext, parse_client_ip};
use crate::denial::Denial;
use crate::engine::{Engine, ResultView, Ruling};
use crate::history::{CallCounts, CallHistory, CountedUntil, EarlierCalls, HistoryFault};
use crate::set::PolicySet;
use crate::shadow::ShadowEvaluator;

/// How far the start of a permit lies in the past, to allow for clock skew of the service that verifies the permit.
const CLOCK_LEEWAY: Duration = Duration::from_secs(5);

/// The authorizer, which decides by the policy set in force and signs permits. A new set replaces the previous set as a
/// whole.
#[derive(Debug)]
pub(crate) struct PolicyAuthorizer {
    engine: ArcSwap<Engine>,
    version: watch::Sender<PolicyIdentity>,
    signer: PermitSigner,
    ambient: Ambient,
    permit_ttl: Duration,
    approval_ttl: Duration,
    time_zone: TimeZone,
    shadow: Option<Arc<ShadowEvaluator>>,
    history: CallHistory,
}

/// The identity of the policy set in force. The bundle is part of it, because two bundles can have the same policies and
/// decisions name the bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PolicyIdentity {
    /// The SHA-256 digest of the schema and policies.
    pub(crate) hash: Digest,
    /// The bundle that they come from, or `None` if they come from a directory.
    pub(crate) bundle: Option<BundleReference>,
}

/// What limits a permit besides the rights of the caller.
#[derive(Clone, Copy)]
struct PermitLimits {
    /// The digest of the only arguments that the permit is for, or `None` if it is for all.
    arguments_digest: Option<Digest>,
    /// The latest time at which the permit expires, or `None` if only its usual lifetime applies.
    until: Option<Timestamp>,
}

impl PolicyIdentity {
    fn from_set(set: &PolicySet) -> Self {
        Self {
            hash: set.hash(),
            bundle: set.bundle(),
        }
    }
}

impl PolicyAuthorizer {
    pub(crate) fn new(
        set: PolicySet,
        signer: PermitSigner,
        ambient: Ambient,
        permit_ttl: Duration,
        approval_ttl: Duration,
        time_zone: TimeZone,
    ) -> Self {
        Self {
            version: watch::Sender::new(PolicyIdentity::from_set(&set)),
            engine: ArcSwap::from_pointee(Engine::new(set)),
            signer,
            ambient,
            permit_ttl,
            approval_ttl,
            time_zone,
            shadow: None,
            history: CallHistory::default(),
        }
    }

    /// Returns the same authorizer, which counts earlier calls with `history`.
    pub(crate) fn with_history(self, history: CallHistory) -> Self {
        Self { history, ..self }
    }

    /// Returns the same authorizer with a candidate policy set, whose decisions are compared with its own.
    pub(crate) fn with_shadow(self, shadow: Option<Arc<ShadowEvaluator>>) -> Self {
        Self { shadow, ..self }
    }

    /// Returns the differences that the candidate would make, limited to callers of `tenant` if one is given.
    pub(crate) fn shadow_report(&self, tenant: Option<&str>) -> ShadowReport {
        let shadow = self.shadow.as_ref();
        shadow.map_or_else(ShadowReport::default, |it| it.report(tenant))
    }

    /// Returns a receiver of the version in force, which is notified of every change.
    pub(crate) fn version(&self) -> watch::Receiver<PolicyIdentity> {
        self.version.subscribe()
    }

    /// Puts `set` in force. Once the new version is published, no decision is made by the previous set, except
    /// decisions that are already in progress. These state the hash of the previous set.
    pub(crate) fn put_in_force(&self, set: PolicySet) {
        let identity = PolicyIdentity::from_set(&set);
        self.engine.store(Arc::new(Engine::new(set)));
        self.version.send_replace(identity);
    }

    /// Counts the earlier calls on which a decision about `caller` and `tool` depends; usually there are no such
    /// counters. `call` is the call that is about to be made.
    pub(crate) async fn count_calls(
        &self,
        caller: &Caller,
        tool: &ToolFacts,
        call: Option<CallReference>,
    ) -> EarlierCalls {
        let Some(made) = call else {
            return EarlierCalls::without_call();
        };
        let Some(rights) = self.engine.load().rights_by_history(caller, tool) else {
            return EarlierCalls::without_counters(call);
        };
        let moment = CountedUntil::Now(self.ambient.now());
        let (counters, zone) = (&rights.counters, &self.time_zone);
        let counting = (self.history).count(counters, zone, caller.subject(), made, moment);
        EarlierCalls {
            call,
            counts: counting.await,
            counters: Some(Arc::clone(counters)),
        }
    }

    /// Decides one call. `client_ip` is empty if unknown. An approval that does not cover the call is ignored.
    /// `earlier` is the result of [`Self::count_calls`]. If the decision depends on counts that are not known, the call
    /// is denied.
    pub(crate) fn authorize(
        &self,
        caller: &Caller,
        tool: &ToolFacts,
        arguments: &[u8],
        client_ip: &str,
        approval: Option<&SignedApproval>,
        earlier: EarlierCalls,
    ) -> Result<Decision, InvalidMessage> {
        let started = Instant::now();
        let engine = self.engine.load();
        let mut context = self.context(client_ip)?;
        let call = earlier.call;
        match known_counts(&engine, caller, tool, earlier) {
            Ok(counts) => context.counts = counts,
            Err(fault) => return Ok(self.decide_without(&fault, &engine, started)),
        }
        let ruling = engine.rule(caller, tool, arguments, &context)?;
        if let Some(shadow) = &self.shadow {
            shadow.submit(&engine, caller, call, tool, arguments, &context);
        }
        let id = DecisionId::new(&self.ambient);
        let Ruling {
            answer,
            approvers,
            depends_on_context,
            rights,
        } = ruling;
        let mut approved_by = None;
        let (verdict, policies) = match engine.grant(answer, &rights, &context) {
            Ok((policies, view)) => {
                let approval = approvers
                    .as_ref()
                    .zip(approval)
                    .and_then(|(approvers, it)| {
                        let call = CallUnderApproval {
                            caller,
                            tool,
                            arguments,
                            policy_hash: engine.hash(),
                            approvers,
                        };
                        self.verify_approval(it, call)
                    });
                approved_by = approval.as_ref().map(|terms| terms.id);
                let until = approval.as_ref().map(|terms| terms.expires_at);
                // Earlier calls were not counted, so the decision may be used to show the tool, but not to run it.
                let is_to_see = call.is_none() && !rights.counters.is_empty();
                let until = if is_to_see {
                    Some(context.time.minus(CLOCK_LEEWAY))
                } else {
                    until
                };
                let is_bound = depends_on_context || approvers.is_some();
                let limits = PermitLimits {
                    arguments_digest: is_bound.then(|| Digest::compute(arguments)),
                    until,
                };
                let verdict = match approvers.filter(|_| approval.is_none()) {
                    Some(approvers) => Verdict::NeedsApproval {
                        approvers,
                        lifetime: self.approval_ttl,
                    },
                    None => Verdict::Allow(self.sign(id, &engine, caller, tool, limits, &view)),
                };
                (verdict, policies)
            }
            Err(Denial { reason, policies }) => (
                Verdict::Deny {
                    reason,
                    visible: rights.possible(),
                },
                policies,
            ),
        };
        measure_verdict(&verdict, started);
        Ok(Decision {
            id,
            verdict,
            policies,
            policy_hash: engine.hash(),
            bundle: engine.bundle(),
            approval: approved_by,
        })
    }

    /// Returns the context of a decision that is made now.
    fn context(&self, client_ip: &str) -> Result<CallContext, InvalidMessage> {
        Ok(CallContext {
            time: self.ambient.now(),
            time_zone: self.time_zone.clone(),
            client_ip: parse_client_ip(client_ip)?,
            counts: CallCounts::new(),
        })
    }

    /// Returns the decision for a call that depends on earlier calls whose number is not known.
    fn decide_without(&self, fault: &HistoryFault, engine: &Engine, started: Instant) -> Decision {
        let verdict = match fault {
            HistoryFault::NoIntent => Verdict::NeedsIntent,
            HistoryFault::NoConversation
            | HistoryFault::NoDay
            | HistoryFault::NoLink
            | HistoryFault::NotCounted(_)
            | HistoryFault::OtherPolicies => Verdict::Deny {
                reason: DenialReason::HistoryUnavailable,
                visible: true,
            },
        };
        measure_verdict(&verdict, started);
        Decision {
            id: DecisionId::new(&self.ambient),
            verdict,
            policies: Vec::new(),
            policy_hash: engine.hash(),
            bundle: engine.bundle(),
            approval: None,
        }
    }

    /// Returns the terms of the approval if it is valid and covers `call`.
    fn verify_approval(
        &self,
        approval: &SignedApproval,
        call: CallUnderApproval<'_>,
    ) -> Option<ApprovalTerms> {
        let verified = self.signer.verify_approval(approval).and_then(|terms| {
            terms.check(call, self.ambient.now())?;
            Ok(terms)
        });
        let log = |cause: &_| tracing::info!(tool.name = %call.tool.name, %cause, "an approval does not cover a call");
        verified.inspect_err(log).ok()
    }

    /// Decides whether `approver` may approve `call`. If they may and `approves` is true, signs the approval.
    pub(crate) fn approve(
        &self,
        approver: &Caller,
        call: &CallToApprove,
        approves: bool,
    ) -> Result<ApprovalDecision, InvalidMessage> {
        let started = Instant::now();
        let engine = self.engine.load();
        let CallToApprove {
            caller,
            tool,
            arguments,
            client_ip,
            ..
        } = call;
        // The context has no counts here. Earlier calls are counted when the call is made.
        let context = self.context(client_ip)?;
        let Ruling {
            answer,
            approvers,
            rights,
            ..
        } = engine.rule(caller, tool, arguments, &context)?;
        let granted = engine.grant(answer, &rights, &context);
        let (policies, outcome) = match (granted, approvers) {
            (Ok((policies, _)), Some(approvers)) => (policies, approvers.admit(approver, caller)),
            (Ok((policies, _)), None) => (policies, Err(ApproverRefusal::NotApprovable)),
            (Err(denial), _) => (denial.policies, Err(ApproverRefusal::NotApprovable)),
        };
        let outcome = outcome.map(|approved_as| {
            approves.then(|| {
                let until = self.ambient.now().plus(self.approval_ttl);
                let terms =
                    ApprovalTerms::of_call(call, engine.hash(), approver, approved_as, until);
                self.signer.sign_approval(&terms)
            })
        });
        let effect = if outcome.is_ok() { "allow" } else { "deny" };
        measure_effect(effect, "", started);
        Ok(ApprovalDecision {
            id: DecisionId::new(&self.ambient),
            policies,
            policy_hash: engine.hash(),
            bundle: engine.bundle(),
            outcome,
        })
    }

    /// Denies a call of a tool that does not exist. It first evaluates the policies for a tool with this name and no
    /// other facts, so that the denial takes as long as that of a hidden tool.
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
            definition_digest: Digest::compute(name.as_str().as_bytes()),
            name,
            read_only: false,
            tags: Arc::default(),
            entity: None,
            classes: Vec::new(),
            argument_defaults: BTreeMap::new(),
        };
        engine.rule(caller, &tool, arguments, &self.context(client_ip)?)?;
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
            bundle: engine.bundle(),
            approval: None,
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
        self.read_decision(&answer, &engine, started)
    }

    /// Decides whether `caller` may perform `action`.
    pub(crate) fn authorize_operator(
        &self,
        caller: &Caller,
        action: OperatorAction,
    ) -> ReadDecision {
        let started = Instant::now();
        let engine = self.engine.load();
        let answer = engine.operator(caller, action);
        self.read_decision(&answer, &engine, started)
    }

    fn read_decision(
        &self,
        answer: &CallAnswer,
        engine: &Engine,
        started: Instant,
    ) -> ReadDecision {
        measure(answer.as_ref().err().map(|denial| denial.reason), started);
        ReadDecision {
            id: DecisionId::new(&self.ambient),
            allowed: answer.is_ok(),
            policy_hash: engine.hash(),
            bundle: engine.bundle(),
        }
    }

    /// Returns the tools that `caller` could call in some context, in the given order, and the version of the policies
    /// that was used.
    pub(crate) fn visible(&self, caller: &Caller, tools: &[ToolFacts]) -> (Vec<ToolName>, Digest) {
        let engine = self.engine.load();
        let visible = tools
            .iter()
            .filter(|tool| engine.rights(caller, tool).possible());
        (
            visible.map(|tool| tool.name.clone()).collect(),
            engine.hash(),
        )
    }

    fn sign(
        &self,
        decision_id: DecisionId,
        engine: &Engine,
        caller: &Caller,
        tool: &ToolFacts,
        limits: PermitLimits,
        view: &ResultView,
    ) -> SignedPermit {
        let now = self.ambient.now();
        let expires_at = now.plus(self.permit_ttl).min(caller.expires_at());
        // A permit must not outlive rights that were looked up.
        let until = [limits.until, caller.rights_expire_at()];
        let expires_at = until.into_iter().flatten().fold(expires_at, Timestamp::min);
        self.signer.sign(&PermitTerms {
            id: PermitId::new(&self.ambient),
            decision_id,
            caller_digest: caller.digest(),
            tool: tool.name.clone(),
            definition_digest: tool.definition_digest,
            arguments_digest: limits.arguments_digest,
            policy_hash: engine.hash(),
            bundle: engine.bundle(),
            not_before: now.minus(CLOCK_LEEWAY),
            expires_at,
            row_rule: view.row_rule.clone(),
            column_tiers: view.column_tiers.clone(),
        })
    }
}

/// Returns the counts on which a decision by `engine` depends. The result is empty if no call is about to run or no
/// counter is read. Fails if `earlier` does not contain the value of each counter as the policies of `engine` define it: policies
/// that were put in force after the calls were counted may give the same name to another counter.
fn known_counts(
    engine: &Engine,
    caller: &Caller,
    tool: &ToolFacts,
    earlier: EarlierCalls,
) -> Result<CallCounts, HistoryFault> {
    let EarlierCalls {
        call,
        counters,
        counts,
    } = earlier;
    let rights = call.and_then(|_| engine.rights_by_history(caller, tool));
    let Some(rights) = rights else {
        return Ok(CallCounts::new());
    };
    let known = counts.and_then(|counts| {
        let counted = counters.unwrap_or_default();
        let mut needed = rights.counters.iter();
        let has_all = needed.all(|(name, counter)| counted.get(name) == Some(counter));
        has_all.then_some(counts).ok_or(HistoryFault::OtherPolicies)
    });
    known.inspect_err(|fault| match fault {
        HistoryFault::NoIntent => {}
        fault => {
            tracing::warn!(tool.name = %tool.name, cause = %fault, "a call was denied because the counts of earlier calls are not known");
        }
    })
}

/// Records a decision and its duration in the metrics.
fn measure(denied: Option<DenialReason>, started: Instant) {
    let (effect, reason) = denied.map_or(("allow", ""), |reason| ("deny", reason.as_str()));
    measure_effect(effect, reason, started);
}

fn measure_verdict(verdict: &Verdict, started: Instant) {
    let (effect, reason) = match verdict {
        Verdict::Allow(_) => ("allow", ""),
        Verdict::NeedsApproval { .. } => ("needs_approval", ""),
        Verdict::NeedsIntent => ("needs_intent", ""),
        Verdict::Deny { reason, .. } => ("deny", reason.as_str()),
    };
    measure_effect(effect, reason, started);
}

fn measure_effect(effect: &'static str, reason: &'static str, started: Instant) {
    metrics::counter!(names::POLICY_DECISIONS, "effect" => effect, "reason" => reason).increment(1);
    metrics::histogram!(names::POLICY_DECISION_SECONDS, "effect" => effect)
        .record(started.elapsed());
}
