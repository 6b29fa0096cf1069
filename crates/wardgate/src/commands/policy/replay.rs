//! `wardgate policy replay`: decides recorded calls again with other policies.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use quick_cache::sync::Cache;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use wardgate_domain::{Caller, OfferKind, TimeZone, Timestamp, ToolFacts, mark_invisible};
use wardgate_policy::{
    CallContext, CallCounts, CallerSample, ReplayedCall, ReplayedRights, Simulator,
    parse_client_ip, sample_caller,
};
use wardgate_rpc::client::{AuditFilter, QueriedRecord};

use crate::Failure;
use crate::cli::{LogVerbosity, PolicyReplay};
use crate::commands::audit::OpenRecord;
use crate::commands::output::print_document;
use crate::commands::progress::Progress;
use crate::commands::terminal::cell;

/// Number of records in a batch, which is decided while the next batch is read.
const BATCH: usize = 4_096;

/// Maximum number of pairs of a caller and a tool whose rights are cached.
const REMEMBERED: usize = 16_384;

pub(super) async fn run(arguments: &PolicyReplay, verbosity: LogVerbosity) -> Result<(), Failure> {
    let simulator = super::simulator(&arguments.with)?;
    let offers = super::offers(arguments.tools.as_deref(), &arguments.with)?;
    let replayer = Replayer::new(simulator, offers, arguments.time_zone.clone());
    let replayer = Arc::new(replayer);
    let filter = AuditFilter {
        since: arguments.since,
        until: arguments.until,
        ..AuditFilter::default()
    };
    let opened = OpenRecord::open(&arguments.access).await?;
    let mut batches = opened.query(filter).await?.chunks(BATCH);
    let mut progress = Progress::new("decided", verbosity);
    let (mut report, mut read, mut damaged) = (ReplayReport::default(), 0, false);
    let mut under_way: Option<JoinHandle<Vec<ReplayedOutcome>>> = None;
    loop {
        let batch = batches.next().await;
        if let Some(deciding) = under_way.take() {
            report.extend(deciding.await?);
            progress.print_count(read, None);
        }
        let Some(batch) = batch else {
            break;
        };
        let mut records = Vec::with_capacity(batch.len());
        read += batch.len() as u64;
        for found in batch {
            match found? {
                QueriedRecord::Intact(stored) => records.push(stored.record),
                QueriedRecord::Damaged(damage) => {
                    eprintln!("{damage}");
                    damaged |= !damage.is_warning;
                }
            }
        }
        let replayer = Arc::clone(&replayer);
        under_way = Some(tokio::task::spawn_blocking(move || {
            replayer.decide_all(&records)
        }));
    }
    print_document(
        arguments.output.format(),
        &report.as_json().to_string(),
        || mark_invisible(&report.as_text()).into_owned(),
    )?;
    if damaged {
        return Err(DAMAGED.into());
    }
    Ok(())
}

/// Error message after a replay without the records that were changed, removed, or cannot be read.
const DAMAGED: &str = "records of the audit store were changed, removed, or cannot be read, or it is unknown whether they are \
                       missing; see the output above: they were not replayed";

/// The members of a recorded outcome that matter to a decision.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct RecordedOutcome {
    event: String,
    time: String,
    call_id: String,
    pub(super) caller: RecordedCaller,
    #[serde(default)]
    pub(super) client_ip: String,
    #[serde(default)]
    pub(super) tool: String,
    #[serde(default)]
    definition_digest: Option<String>,
    #[serde(default)]
    pub(super) method: String,
    pub(super) status: String,
    #[serde(default)]
    pub(super) reason: String,
    #[serde(default)]
    approval_id: Option<String>,
    #[serde(default)]
    duration_us: u64,
    pub(super) decision: Option<RecordedDecision>,
}

/// The decision of the policies about a recorded call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordedAccess {
    Allowed,
    /// The call needs an approval, whether or not a person approved it at the time.
    NeedsApproval,
    Denied,
}

impl RecordedAccess {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::NeedsApproval => "needs approval",
            Self::Denied => "denied",
        }
    }
}

/// The caller of a recorded call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
pub(super) struct RecordedCaller {
    pub(super) subject: String,
    #[serde(default)]
    pub(super) tenant: String,
    #[serde(default)]
    pub(super) roles: Vec<String>,
}

/// The decision about a recorded call.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct RecordedDecision {
    #[serde(default)]
    pub(super) policies: Vec<String>,
    pub(super) policy_hash: String,
    /// The bundle that the policies came from, or `None` if they came from a directory.
    #[serde(default)]
    pub(super) bundle: Option<RecordedBundle>,
}

/// The bundle of the policies of a recorded decision.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct RecordedBundle {
    pub(super) version: u64,
    pub(super) digest: String,
}

impl RecordedOutcome {
    /// Returns the decision of the policies about the call, or `None` if the call was refused for a reason other than the
    /// policies.
    pub(super) fn access(&self) -> Option<RecordedAccess> {
        let of_policies = [
            "not_permitted",
            "forbidden",
            "policy_error",
            "history_unavailable",
        ];
        match self.status.as_str() {
            _ if self.decision.is_none() || self.event != "outcome" => None,
            "unknown_tool" => None,
            _ if self.approval_id.is_some() => Some(RecordedAccess::NeedsApproval),
            "denied" => {
                let by_policies = of_policies.contains(&self.reason.as_str());
                by_policies.then_some(RecordedAccess::Denied)
            }
            _ => Some(RecordedAccess::Allowed),
        }
    }

    /// Returns the time at which the call arrived, and the IP address of the client.
    pub(super) fn context(&self, time_zone: &TimeZone) -> Result<CallContext, Failure> {
        let ended: Timestamp = self.time.parse()?;
        Ok(CallContext {
            time: ended.minus(Duration::from_micros(self.duration_us)),
            time_zone: time_zone.clone(),
            client_ip: parse_client_ip(&self.client_ip)?,
            counts: CallCounts::new(),
        })
    }

    pub(super) fn caller(&self) -> Result<Caller, Failure> {
        let sample = CallerSample {
            subject: self.caller.subject.clone(),
            roles: self.caller.roles.clone(),
            tenant: self.caller.tenant.clone(),
            attributes: serde_json::Map::new(),
        };
        Ok(sample_caller(&sample)?)
    }
}

/// Returns the kind of offer that a recorded method uses.
pub(super) fn kind_of(method: &str) -> Option<OfferKind> {
    match method {
        "" | "tools/call" => Some(OfferKind::Tool),
        "resources/read" => Some(OfferKind::Resources),
        "prompts/get" => Some(OfferKind::Prompts),
        _ => None,
    }
}

/// A call whose decision would change.
struct Flip {
    outcome: RecordedOutcome,
    was: RecordedAccess,
    is: RecordedAccess,
    policies: Vec<String>,
}

/// The result of deciding a recorded outcome again.
enum ReplayedOutcome {
    Same,
    Flip(Box<Flip>),
    Undetermined(&'static str),
}

/// A tool or source of the catalogue.
struct Offer {
    facts: ToolFacts,
    /// The digest of the definition, in the form in which it is recorded.
    definition: String,
}

const DEPENDS: &str = "the decision depends on arguments, attributes or earlier calls, which the record of a call does not contain";
const NO_TOOL: &str = "the catalogue does not contain the tool";
const CHANGED: &str = "the tool's definition has changed since";

/// A simulator that decides recorded calls again.
struct Replayer {
    simulator: Simulator,
    time_zone: TimeZone,
    offers: HashMap<OfferKind, HashMap<String, Offer>>,
    /// Cached rights by caller and tool.
    rights: Cache<(RecordedCaller, OfferKind, String), Arc<ReplayedRights>>,
}

impl Replayer {
    fn new(simulator: Simulator, facts: Vec<ToolFacts>, time_zone: TimeZone) -> Self {
        let mut offers: HashMap<_, HashMap<_, _>> = HashMap::new();
        for facts in facts {
            let of_kind = offers.entry(facts.kind).or_default();
            let definition = facts.definition_digest.to_string();
            of_kind.insert(facts.name.to_string(), Offer { facts, definition });
        }
        Self {
            simulator,
            time_zone,
            offers,
            rights: Cache::new(REMEMBERED),
        }
    }

    /// Decides the outcomes among `records` again, in their order, on all processors.
    fn decide_all(&self, records: &[Bytes]) -> Vec<ReplayedOutcome> {
        let workers = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let share = records.len().div_ceil(workers).max(1);
        let decide = |records: &[Bytes]| -> Vec<ReplayedOutcome> {
            records.iter().filter_map(|it| self.decide(it)).collect()
        };
        std::thread::scope(|scope| {
            let shares = records.chunks(share);
            let working: Vec<_> = shares
                .map(|share| scope.spawn(move || decide(share)))
                .collect();
            let decided = working.into_iter().flat_map(|worker| {
                let decided = worker.join();
                decided.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            decided.collect()
        })
    }

    /// Decides a record again. Returns `None` if it is not an outcome of a call that policies decided.
    fn decide(&self, record: &[u8]) -> Option<ReplayedOutcome> {
        // Records of all kinds are passed here; a record that is not the outcome of a call lacks the required members.
        let outcome: RecordedOutcome = serde_json::from_slice(record).ok()?;
        let (was, kind) = (outcome.access()?, kind_of(&outcome.method)?);
        let (is, policies) = match self.decide_anew(&outcome, kind) {
            Err(why) => return Some(ReplayedOutcome::Undetermined(why)),
            Ok(ReplayedCall::Undetermined) => return Some(ReplayedOutcome::Undetermined(DEPENDS)),
            Ok(ReplayedCall::Allowed(policies)) => (RecordedAccess::Allowed, policies),
            Ok(ReplayedCall::NeedsApproval(policies)) => (RecordedAccess::NeedsApproval, policies),
            Ok(ReplayedCall::Denied(policies)) => (RecordedAccess::Denied, policies),
        };
        Some(if is == was {
            ReplayedOutcome::Same
        } else {
            ReplayedOutcome::Flip(Box::new(Flip {
                outcome,
                was,
                is,
                policies,
            }))
        })
    }

    fn decide_anew(
        &self,
        outcome: &RecordedOutcome,
        kind: OfferKind,
    ) -> Result<ReplayedCall, &'static str> {
        let offer = self.offers.get(&kind).and_then(|it| it.get(&outcome.tool));
        let Offer { facts, definition } = offer.ok_or(NO_TOOL)?;
        let recorded = outcome.definition_digest.as_ref();
        if recorded.is_some_and(|it| it != definition) {
            return Err(CHANGED);
        }
        let caller = outcome.caller().map_err(|_| DEPENDS)?;
        let key = (outcome.caller.clone(), kind, outcome.tool.clone());
        let rights = self.rights.get_or_insert_with(&key, || {
            let rights = self.simulator.replay(&caller, facts);
            Ok::<_, Infallible>(Arc::new(rights))
        });
        let rights = match rights {
            Ok(rights) => rights,
            Err(never) => match never {},
        };
        if !rights.depends_on_context() {
            return Ok(rights.decide(None));
        }
        let context = outcome.context(&self.time_zone).map_err(|_| DEPENDS)?;
        Ok(rights.decide(Some(&context)))
    }
}

/// Totals of the calls replayed so far.
#[derive(Default)]
struct ReplayReport {
    calls: usize,
    same: usize,
    flips: Vec<Flip>,
    /// The number of calls that could not be decided again, by reason.
    undetermined: BTreeMap<&'static str, usize>,
}

impl ReplayReport {
    fn extend(&mut self, replayed: Vec<ReplayedOutcome>) {
        for outcome in replayed {
            self.calls += 1;
            match outcome {
                ReplayedOutcome::Same => self.same += 1,
                ReplayedOutcome::Flip(flip) => self.flips.push(*flip),
                ReplayedOutcome::Undetermined(why) => {
                    *self.undetermined.entry(why).or_default() += 1;
                }
            }
        }
    }

    fn as_text(&self) -> String {
        let mut text = String::new();
        for flip in &self.flips {
            let outcome = &flip.outcome;
            text += &format!(
                "{}  {}  {:<16}  {:<28}  {} -> {}  {}\n",
                cell(&outcome.time),
                cell(&outcome.call_id),
                cell(&outcome.caller.subject),
                cell(&outcome.tool),
                flip.was.as_str(),
                flip.is.as_str(),
                cell(&flip.policies.join(",")),
            );
        }
        text += &format!(
            "{} of {} calls would change, {} stay the same\n",
            self.flips.len(),
            self.calls,
            self.same
        );
        for (why, count) in &self.undetermined {
            text += &format!("{count} cannot be decided again: {why}\n");
        }
        text
    }

    fn as_json(&self) -> Value {
        let flips = self.flips.iter().map(|flip| {
            json!({
                "time": flip.outcome.time,
                "call_id": flip.outcome.call_id,
                "user": flip.outcome.caller.subject,
                "roles": flip.outcome.caller.roles,
                "tool": flip.outcome.tool,
                "was": flip.was.as_str(),
                "is": flip.is.as_str(),
                "was_allowed": flip.was == RecordedAccess::Allowed,
                "is_allowed": flip.is == RecordedAccess::Allowed,
                "policies": flip.policies,
            })
        });
        json!({
            "calls": self.calls,
            "same": self.same,
            "flips": flips.collect::<Vec<_>>(),
            "undetermined": self.undetermined,
        })
    }
}
