//! `wardgate policy replay`: recorded calls, decided anew by other policies.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures::{StreamExt, pin_mut};
use serde::Deserialize;
use serde_json::{Value, json};
use wardgate_domain::{Caller, OfferKind, Timestamp, ToolFacts, mark_invisible};
use wardgate_policy::{
    CallContext, CallCounts, CallerSample, RecordedCall, ReplayedCall, Simulator, TimeZone,
    parse_client_ip, sample_caller,
};
use wardgate_rpc::client::{AuditFilter, QueriedRecord};

use crate::Failure;
use crate::cli::PolicyReplay;
use crate::commands::audit;
use crate::commands::output::print_document;
use crate::commands::terminal::cell;

pub(super) async fn run(arguments: &PolicyReplay) -> Result<(), Failure> {
    let simulator = super::simulator(&arguments.with)?;
    let offers = super::offers(arguments.tools.as_deref(), &arguments.with)?;
    let mut replay = Replay::new(&simulator, &offers, &arguments.time_zone);
    let reader = audit::open(&arguments.record).await?;
    let records = reader.query(AuditFilter {
        since: arguments.since,
        until: arguments.until,
        ..AuditFilter::default()
    })?;
    pin_mut!(records);
    while let Some(found) = records.next().await {
        match found? {
            QueriedRecord::Intact(stored) => {
                // Every kind of record passes here; one that is no outcome of a call lacks its members.
                if let Ok(outcome) = serde_json::from_slice(&stored.record) {
                    replay.decide(outcome);
                }
            }
            QueriedRecord::Damaged(damage) => eprintln!("{damage}"),
        }
    }
    print_document(
        arguments.output.format(),
        &replay.as_json().to_string(),
        || mark_invisible(&replay.as_text()).into_owned(),
    )?;
    Ok(())
}

/// What the record has of how a call ended, as far as a decision is concerned.
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

/// What policies say of a recorded call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordedAccess {
    Allowed,
    /// Whether or not somebody approved it then.
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

/// Who called.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
pub(super) struct RecordedCaller {
    pub(super) subject: String,
    #[serde(default)]
    pub(super) tenant: String,
    #[serde(default)]
    pub(super) roles: Vec<String>,
}

/// What was decided.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct RecordedDecision {
    #[serde(default)]
    pub(super) policies: Vec<String>,
    pub(super) policy_hash: String,
}

impl RecordedOutcome {
    /// What the policies said of the call; none where something else than they refused it.
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

    /// When the call arrived, and from where.
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

/// The kind of offer that a recorded method uses.
pub(super) fn kind_of(method: &str) -> Option<OfferKind> {
    match method {
        "" | "tools/call" => Some(OfferKind::Tool),
        "resources/read" => Some(OfferKind::Resources),
        "prompts/get" => Some(OfferKind::Prompts),
        _ => None,
    }
}

/// A call whose decision would be another.
struct Flip {
    outcome: RecordedOutcome,
    was: RecordedAccess,
    is: RecordedAccess,
    policies: Vec<String>,
}

/// The calls replayed so far.
struct Replay<'a> {
    simulator: &'a Simulator,
    time_zone: &'a TimeZone,
    offers: HashMap<(OfferKind, &'a str), &'a ToolFacts>,
    /// What was worked out for a caller and a tool, whenever and from wherever the call was made.
    decided: HashMap<(RecordedCaller, OfferKind, String), ReplayedCall>,
    calls: usize,
    same: usize,
    flips: Vec<Flip>,
    /// Why calls could not be decided anew, and how many.
    undetermined: BTreeMap<&'static str, usize>,
}

const DEPENDS: &str = "the answer depends on arguments, attributes or earlier calls, which the record of a call does not have";
const NO_TOOL: &str = "the catalogue has no such tool";
const CHANGED: &str = "the tool's definition has changed since";

impl<'a> Replay<'a> {
    fn new(simulator: &'a Simulator, offers: &'a [ToolFacts], time_zone: &'a TimeZone) -> Self {
        let by_name = offers.iter().map(|it| ((it.kind, it.name.as_str()), it));
        Self {
            simulator,
            time_zone,
            offers: by_name.collect(),
            decided: HashMap::new(),
            calls: 0,
            same: 0,
            flips: Vec::new(),
            undetermined: BTreeMap::new(),
        }
    }

    fn decide(&mut self, outcome: RecordedOutcome) {
        let (Some(was), Some(kind)) = (outcome.access(), kind_of(&outcome.method)) else {
            return;
        };
        self.calls += 1;
        let decided = self.decide_anew(&outcome, kind);
        let (is, policies) = match decided {
            Err(why) => {
                *self.undetermined.entry(why).or_default() += 1;
                return;
            }
            Ok(ReplayedCall::Undetermined) => {
                *self.undetermined.entry(DEPENDS).or_default() += 1;
                return;
            }
            Ok(ReplayedCall::Allowed(policies)) => (RecordedAccess::Allowed, policies),
            Ok(ReplayedCall::NeedsApproval(policies)) => (RecordedAccess::NeedsApproval, policies),
            Ok(ReplayedCall::Denied(policies)) => (RecordedAccess::Denied, policies),
        };
        if is == was {
            self.same += 1;
        } else {
            self.flips.push(Flip {
                outcome,
                was,
                is,
                policies,
            });
        }
    }

    fn decide_anew(
        &mut self,
        outcome: &RecordedOutcome,
        kind: OfferKind,
    ) -> Result<ReplayedCall, &'static str> {
        let tool = self.offers.get(&(kind, outcome.tool.as_str()));
        let tool = *tool.ok_or(NO_TOOL)?;
        let definition = tool.definition_digest.to_string();
        if outcome
            .definition_digest
            .as_ref()
            .is_some_and(|it| *it != definition)
        {
            return Err(CHANGED);
        }
        if self.simulator.reads_context(tool) {
            let caller = outcome.caller().map_err(|_| DEPENDS)?;
            let context = outcome.context(self.time_zone).map_err(|_| DEPENDS)?;
            return Ok(self.simulator.replay(&RecordedCall {
                caller: &caller,
                tool,
                context: Some(&context),
            }));
        }
        let key = (outcome.caller.clone(), kind, outcome.tool.clone());
        if let Some(decided) = self.decided.get(&key) {
            return Ok(decided.clone());
        }
        let caller = outcome.caller().map_err(|_| DEPENDS)?;
        let decided = self.simulator.replay(&RecordedCall {
            caller: &caller,
            tool,
            context: None,
        });
        self.decided.insert(key, decided.clone());
        Ok(decided)
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
            "{} of {} calls would flip, {} stay as they were\n",
            self.flips.len(),
            self.calls,
            self.same
        );
        for (why, count) in &self.undetermined {
            text += &format!("{count} cannot be decided anew: {why}\n");
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
