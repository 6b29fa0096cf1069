//! The shadow evaluation of a candidate policy set, whose decisions are compared with those of the set in force.
//!
//! ```text
//!   authorize ──answer──▶ client
//!      │ queue of 256 calls; calls that do not fit are counted as skipped
//!      ▼
//!   one task: evaluates both sets ──▶ metrics, and the list of differences
//! ```
//!
//! The comparison has no effect on answers: a call is queued without waiting, and no caller waits for the result.

mod flip_list;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::mpsc;
use tracing::subscriber::NoSubscriber;
use wardgate_domain::{CallReference, Caller, DecisionChange, RowRule, ShadowReport, ToolFacts};
use wardgate_telemetry::names;

use crate::context::CallContext;
use crate::engine::Engine;
use crate::history::{CallCounts, CallHistory, CountedUntil};
use crate::set::PolicySet;
use crate::simulator::{SimulatedAccess, SimulatedCall, Simulation, Simulator};

use self::flip_list::FlipList;

/// Maximum number of calls that wait to be compared.
const QUEUE: usize = 256;

/// Maximum size of the arguments of a call that is compared, in bytes. It bounds the queue to 16 MiB of arguments.
const MAX_ARGUMENTS: usize = 64 * 1024;

/// A candidate policy set, the queue of calls to compare, and the differences found so far.
#[derive(Debug)]
pub(crate) struct ShadowEvaluator {
    queue: mpsc::Sender<ComparedCall>,
    /// Whether there is a candidate. This is an atomic because every call reads it.
    is_in_force: AtomicBool,
    skipped: AtomicU64,
    state: Mutex<ShadowState>,
    history: CallHistory,
}

#[derive(Debug, Default)]
struct ShadowState {
    candidate: Option<Arc<Engine>>,
    fault: String,
    /// The engine with which the candidate was last compared.
    in_force: Option<Arc<Engine>>,
    equal: u64,
    flips: FlipList,
}

/// A call that `engine` decided, and that is to be compared.
#[derive(Debug)]
struct ComparedCall {
    engine: Arc<Engine>,
    call: SimulatedCall,
    /// The call that was about to be made, or `None` if no call was about to run.
    reference: Option<CallReference>,
}

impl ShadowEvaluator {
    /// Creates an evaluator without a candidate, which counts earlier calls with `history`. Must be called inside a
    /// Tokio runtime.
    pub(crate) fn new(history: CallHistory) -> Arc<Self> {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let shadow = Arc::new(Self {
            queue,
            is_in_force: AtomicBool::new(false),
            skipped: AtomicU64::new(0),
            state: Mutex::default(),
            history,
        });
        metrics::gauge!(names::POLICY_SHADOW).set(0.0);
        tokio::spawn(compare_waiting(Arc::downgrade(&shadow), waiting));
        shadow
    }

    /// Queues a call that `engine` decides for comparison, or counts it as skipped if the queue is full.
    pub(crate) fn submit(
        &self,
        engine: &Arc<Engine>,
        caller: &Caller,
        reference: Option<CallReference>,
        tool: &ToolFacts,
        arguments: &[u8],
        context: &CallContext,
    ) {
        if !self.is_in_force.load(Ordering::Relaxed) {
            return;
        }
        let fits = arguments.len() <= MAX_ARGUMENTS;
        let Some(room) = fits.then(|| self.queue.try_reserve().ok()).flatten() else {
            self.skip();
            return;
        };
        room.send(ComparedCall {
            engine: Arc::clone(engine),
            call: SimulatedCall {
                caller: caller.clone(),
                tool: tool.clone(),
                arguments: arguments.to_vec(),
                context: context.clone(),
            },
            reference,
        });
    }

    /// Replaces the candidate, or removes it, and starts a new comparison.
    pub(crate) fn replace(&self, candidate: Option<PolicySet>, fault: String) {
        let candidate = candidate.map(|set| Arc::new(Engine::new(set)));
        let is_in_force = candidate.is_some();
        *self.lock() = ShadowState {
            candidate,
            fault,
            ..ShadowState::default()
        };
        self.skipped.store(0, Ordering::Relaxed);
        self.is_in_force.store(is_in_force, Ordering::Relaxed);
        metrics::gauge!(names::POLICY_SHADOW).set(if is_in_force { 1.0 } else { 0.0 });
    }

    /// Returns the differences found so far, limited to callers of `tenant` if one is given.
    pub(crate) fn report(&self, tenant: Option<&str>) -> ShadowReport {
        let state = self.lock();
        ShadowReport {
            policy_hash: state.in_force.as_ref().map(|it| it.hash()),
            candidate_hash: state.candidate.as_ref().map(|it| it.hash()),
            fault: state.fault.clone(),
            equal: state.equal,
            skipped: self.skipped.load(Ordering::Relaxed),
            flips: state.flips.newest_first(tenant),
        }
    }

    fn skip(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
        count("skipped");
    }

    /// Returns the candidate with the values of its counters at the time of `call`. The result is `None` if there is no
    /// candidate, or if the calls cannot be counted.
    async fn prepare(
        &self,
        ComparedCall {
            call, reference, ..
        }: &ComparedCall,
    ) -> Option<(Arc<Engine>, CallCounts)> {
        let candidate = self.lock().candidate.clone()?;
        let rights = candidate.rights_by_history(&call.caller, &call.tool);
        let Some((rights, reference)) = rights.zip(*reference) else {
            return Some((candidate, CallCounts::new()));
        };
        let (counters, subject) = (&rights.counters, call.caller.subject());
        let moment = CountedUntil::Then(call.context.time);
        let zone = &call.context.time_zone;
        let counting = (self.history).count(counters, zone, subject, reference, moment);
        let Ok(counts) = counting.await else {
            self.skip();
            return None;
        };
        Some((candidate, counts))
    }

    /// Evaluates both sets for a call, and stores the differences between their decisions.
    fn compare(
        &self,
        ComparedCall { engine, call, .. }: &ComparedCall,
        candidate: &Arc<Engine>,
        counts: CallCounts,
    ) {
        let mut asked_of_candidate = call.clone();
        asked_of_candidate.context.counts = counts;
        let sets = [engine, candidate].map(|it| Simulator::over(Arc::clone(it)));
        // Logging is disabled, because a fault would be logged as the denial of a call.
        let compared = tracing::subscriber::with_default(NoSubscriber::default(), || {
            let decided = sets[0].call(call).ok()?;
            let would = sets[1].call(&asked_of_candidate).ok()?;
            let changes = changes([(&sets[0], &decided), (&sets[1], &would)]);
            Some((changes, [decided, would]))
        });
        // The arguments are valid, because they were parsed when the call was decided, so this does not happen.
        let Some((changes, decisions)) = compared else {
            return;
        };
        let mut state = self.lock();
        let is_current = state.candidate.as_ref();
        if !is_current.is_some_and(|it| Arc::ptr_eq(it, candidate)) {
            return;
        }
        let compared_with = state.in_force.as_ref();
        if !compared_with.is_some_and(|it| Arc::ptr_eq(it, engine)) {
            state.in_force = Some(Arc::clone(engine));
            state.equal = 0;
            state.flips = FlipList::default();
            self.skipped.store(0, Ordering::Relaxed);
        }
        if changes.is_empty() {
            state.equal += 1;
            count("equal");
        }
        for change in changes {
            let action = engine.set().vocabulary.question(call.tool.kind).0;
            state.flips.add(call, action, change, &decisions);
            count(change.as_str());
        }
    }

    fn lock(&self) -> MutexGuard<'_, ShadowState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn count(outcome: &'static str) {
    metrics::counter!(names::POLICY_SHADOW_DECISIONS, "outcome" => outcome).increment(1);
}

/// Compares the queued calls one by one on a blocking thread, as long as `shadow` is in use.
async fn compare_waiting(shadow: Weak<ShadowEvaluator>, mut waiting: mpsc::Receiver<ComparedCall>) {
    while let Some(call) = waiting.recv().await {
        let Some(shadow) = shadow.upgrade() else {
            return;
        };
        let Some((candidate, counts)) = shadow.prepare(&call).await else {
            continue;
        };
        let compared =
            tokio::task::spawn_blocking(move || shadow.compare(&call, &candidate, counts)).await;
        if let Err(error) = compared {
            tracing::error!(cause = %error, "a call could not be compared with the candidate's decision");
        }
    }
}

/// Returns the differences between the first and the second decision.
fn changes([(before, had), (after, has)]: [(&Simulator, &Simulation); 2]) -> Vec<DecisionChange> {
    use DecisionChange as Change;
    use SimulatedAccess::{Allowed, Hidden, NeedsApproval, Refused};
    let change = match (had.access, has.access) {
        (Allowed, Refused | Hidden) => Some(Change::AllowedToDenied),
        (Allowed, NeedsApproval) => Some(Change::AllowedToNeedsApproval),
        (Refused | Hidden, Allowed) => Some(Change::DeniedToAllowed),
        (Refused | Hidden, NeedsApproval) => Some(Change::DeniedToNeedsApproval),
        (NeedsApproval, Allowed) => Some(Change::NeedsApprovalToAllowed),
        (NeedsApproval, Refused | Hidden) => Some(Change::NeedsApprovalToDenied),
        (Refused, Hidden) | (Hidden, Refused) => Some(Change::Visibility),
        (NeedsApproval, NeedsApproval) => {
            (had.approvers != has.approvers).then_some(Change::Approvers)
        }
        (Allowed, Allowed) | (Refused, Refused) | (Hidden, Hidden) => None,
    };
    let mut changes = Vec::from_iter(change);
    if let (Ok(before), Ok(after)) = (before.view(had), after.view(has)) {
        let rules = [&before.row_rule, &after.row_rule].map(|it| it.as_ref().map(row_conditions));
        if rules[0] != rules[1] {
            changes.push(Change::RowRule);
        }
        if before.column_tiers != after.column_tiers {
            changes.push(Change::ColumnTiers);
        }
    }
    changes
}

/// Returns the contents of a row rule without the names of its policies, because the names do not affect the rows.
fn row_conditions(rule: &RowRule) -> (&str, bool, Vec<String>) {
    let without_names = |policy: &String| {
        let mut json: serde_json::Value = serde_json::from_str(policy).unwrap_or_default();
        if let Some(members) = json.as_object_mut() {
            members.remove("annotations");
        }
        json.to_string()
    };
    let mut policies: Vec<_> = if rule.all {
        Vec::new()
    } else {
        rule.policies_json.iter().map(without_names).collect()
    };
    policies.sort_unstable();
    (&rule.entity, rule.all, policies)
}
