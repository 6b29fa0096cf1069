//! `wardgate policy replay`: recorded calls, decided anew by other policies.

use std::collections::{BTreeMap, HashMap};

use futures::{StreamExt, pin_mut};
use serde::Deserialize;
use serde_json::{Value, json};
use wardgate_domain::{Caller, OfferKind, ToolFacts, mark_invisible};
use wardgate_policy::{CallerSample, RecordedCall, ReplayedCall, Simulator, sample_caller};
use wardgate_rpc::client::{AuditFilter, QueriedRecord};

use crate::Failure;
use crate::cli::PolicyReplay;
use crate::commands::audit;
use crate::commands::terminal::cell;

pub(super) async fn run(arguments: &PolicyReplay) -> Result<(), Failure> {
    let simulator = super::simulator(&arguments.with)?;
    let offers = super::offers(arguments.tools.as_deref(), &arguments.with)?;
    let mut replay = Replay::new(&simulator, &offers);
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
    if arguments.json {
        println!("{}", replay.as_json());
    } else {
        print!("{}", mark_invisible(&replay.as_text()));
    }
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
    pub(super) decision: Option<RecordedDecision>,
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
    /// Whether the policies allowed the call; none where something else than they refused it.
    pub(super) fn was_allowed(&self) -> Option<bool> {
        let of_policies = ["not_permitted", "forbidden", "policy_error"];
        match self.status.as_str() {
            _ if self.decision.is_none() || self.event != "outcome" => None,
            "denied" => of_policies.contains(&self.reason.as_str()).then_some(false),
            "unknown_tool" => None,
            _ => Some(true),
        }
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
    is_allowed: bool,
    policies: Vec<String>,
}

/// The calls replayed so far.
struct Replay<'a> {
    simulator: &'a Simulator,
    offers: HashMap<(OfferKind, &'a str), &'a ToolFacts>,
    /// What was worked out for a caller and a tool.
    decided: HashMap<(RecordedCaller, OfferKind, String), ReplayedCall>,
    calls: usize,
    same: usize,
    flips: Vec<Flip>,
    /// Why calls could not be decided anew, and how many.
    undetermined: BTreeMap<&'static str, usize>,
}

const DEPENDS: &str = "the answer depends on arguments or attributes, which are not on record";
const NO_TOOL: &str = "the catalogue has no such tool";
const CHANGED: &str = "the tool's definition has changed since";

impl<'a> Replay<'a> {
    fn new(simulator: &'a Simulator, offers: &'a [ToolFacts]) -> Self {
        let by_name = offers.iter().map(|it| ((it.kind, it.name.as_str()), it));
        Self {
            simulator,
            offers: by_name.collect(),
            decided: HashMap::new(),
            calls: 0,
            same: 0,
            flips: Vec::new(),
            undetermined: BTreeMap::new(),
        }
    }

    fn decide(&mut self, outcome: RecordedOutcome) {
        let (Some(was_allowed), Some(kind)) = (outcome.was_allowed(), kind_of(&outcome.method))
        else {
            return;
        };
        self.calls += 1;
        let decided = self.decide_anew(&outcome, kind);
        let (is_allowed, policies) = match decided {
            Err(why) => {
                *self.undetermined.entry(why).or_default() += 1;
                return;
            }
            Ok(ReplayedCall::Undetermined) => {
                *self.undetermined.entry(DEPENDS).or_default() += 1;
                return;
            }
            Ok(ReplayedCall::Allowed(policies)) => (true, policies),
            Ok(ReplayedCall::Denied(policies)) => (false, policies),
        };
        if is_allowed == was_allowed {
            self.same += 1;
        } else {
            self.flips.push(Flip {
                outcome,
                is_allowed,
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
        let key = (outcome.caller.clone(), kind, outcome.tool.clone());
        if let Some(decided) = self.decided.get(&key) {
            return Ok(decided.clone());
        }
        let caller = outcome.caller().map_err(|_| DEPENDS)?;
        let decided = self.simulator.replay(&RecordedCall {
            caller: &caller,
            tool,
        });
        self.decided.insert(key, decided.clone());
        Ok(decided)
    }

    fn as_text(&self) -> String {
        let mut text = String::new();
        let word = |allowed: bool| if allowed { "allowed" } else { "denied" };
        for flip in &self.flips {
            let outcome = &flip.outcome;
            text += &format!(
                "{}  {}  {:<16}  {:<28}  {} -> {}  {}\n",
                cell(&outcome.time),
                cell(&outcome.call_id),
                cell(&outcome.caller.subject),
                cell(&outcome.tool),
                word(!flip.is_allowed),
                word(flip.is_allowed),
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
                "was_allowed": !flip.is_allowed,
                "is_allowed": flip.is_allowed,
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
