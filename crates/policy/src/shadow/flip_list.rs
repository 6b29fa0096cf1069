//! The list of differences between two policy sets: the latest example of each kind, and its count.

use std::collections::HashMap;

use cedar_policy::EntityUid;
use wardgate_domain::{ComparedDecision, DecisionChange, DecisionFlip};

use crate::simulator::{SimulatedCall, Simulation};

/// Maximum number of stored differences. When it is reached, a new one replaces the one that was seen least recently.
const MAX_FLIPS: usize = 1_000;

/// Maximum number of policy ids that are stored for a decision.
const MAX_POLICIES: usize = 16;

/// The differences by caller, tool and kind. They do not contain arguments.
#[derive(Debug, Default)]
pub(super) struct FlipList(HashMap<FlipKey, DecisionFlip>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct FlipKey {
    issuer: String,
    tenant: String,
    subject: String,
    action: String,
    tool: String,
    change: DecisionChange,
}

impl FlipList {
    /// Adds a difference between the two `decisions` about `call`, or increments its count.
    pub(super) fn add(
        &mut self,
        call: &SimulatedCall,
        action: &EntityUid,
        change: DecisionChange,
        decisions: &[Simulation; 2],
    ) {
        let (caller, time) = (&call.caller, call.context.time);
        let key = FlipKey {
            issuer: caller.issuer().to_owned(),
            tenant: caller.tenant().to_owned(),
            subject: caller.subject().to_owned(),
            action: action.id().unescaped().to_owned(),
            tool: call.tool.name.to_string(),
            change,
        };
        let before = self.0.get(&key).map(|flip| (flip.first_at, flip.count));
        if before.is_none() && self.0.len() == MAX_FLIPS {
            self.remove_oldest();
        }
        let (first_at, count) = before.unwrap_or((time, 0));
        let [decided, candidate] = decisions.each_ref().map(compared_decision);
        let flip = DecisionFlip {
            subject: key.subject.clone(),
            tenant: key.tenant.clone(),
            action: key.action.clone(),
            tool: key.tool.clone(),
            change,
            count: count + 1,
            first_at,
            last_at: time,
            decided,
            candidate,
        };
        self.0.insert(key, flip);
    }

    /// Returns the differences, newest first, limited to callers of `tenant` if one is given.
    pub(super) fn newest_first(&self, tenant: Option<&str>) -> Vec<DecisionFlip> {
        let flips = self.0.values();
        let flips = flips.filter(|flip| tenant.is_none_or(|it| it == flip.tenant));
        let mut flips: Vec<_> = flips.cloned().collect();
        flips.sort_by(|one, other| {
            let by_time = other.last_at.cmp(&one.last_at);
            by_time.then_with(|| (&one.subject, &one.tool).cmp(&(&other.subject, &other.tool)))
        });
        flips
    }

    fn remove_oldest(&mut self) {
        let oldest = self.0.iter().min_by_key(|(_, flip)| flip.last_at);
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            self.0.remove(&key);
        }
    }
}

fn compared_decision(simulation: &Simulation) -> ComparedDecision {
    ComparedDecision {
        access: simulation.access.as_str().to_owned(),
        reason: simulation
            .reason
            .map_or_else(String::new, |it| it.as_str().to_owned()),
        policies: simulation
            .policies
            .iter()
            .take(MAX_POLICIES)
            .cloned()
            .collect(),
    }
}
