//! Comparison of two policy sets: which access callers gain and lose, per tool, row type and column class.
//!
//! The comparison is a bounded search, not a proof. Both sets are asked the same questions, which are built from the
//! roles, constants and names in their policies; each number, time and network is tried with its neighbours. A
//! difference that needs more than two roles at once, or two attributes with unusual values at once, is not found.

mod constants;

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use wardgate_domain::{ColumnClass, ColumnTier, OfferKind, OperatorAction, ToolFacts};

use crate::policy_test::{CallerSample, sample_caller, tier_word};
use crate::simulator::{SimulatedAccess, SimulatedCall, Simulation, Simulator};

use self::constants::{PolicyConstants, SAME, declared_attributes};

/// Maximum number of questions that each set is asked.
const MAX_QUESTIONS: usize = 200_000;

/// An access that one set gives and the other does not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccessChange {
    /// The roles of the caller; empty for a caller without roles.
    pub roles: Vec<String>,
    /// The access, for example `calls TOOL`.
    pub what: String,
    /// Whether the caller gains the access; otherwise the caller loses it.
    pub gains: bool,
    /// An example of a question that the two sets answer differently.
    pub example: String,
}

/// The result of a comparison.
#[derive(Debug, Default)]
pub struct Comparison {
    /// The differences, sorted by roles, each listed once.
    pub changes: Vec<AccessChange>,
    /// The number of questions that both sets were asked.
    pub questions: usize,
    /// Whether the search ended before every question was asked.
    pub is_cut_short: bool,
}

/// Compares `after` with `before` over `tools`. If `tools` is empty, tools are made up from the names in the policies.
pub fn compare(before: &Simulator, after: &Simulator, tools: &[ToolFacts]) -> Comparison {
    let constants = PolicyConstants::of([before, after]);
    let made_up;
    let tools = if tools.is_empty() {
        made_up = constants.tools(&[before, after]);
        made_up.as_slice()
    } else {
        tools
    };
    let mut search = Search {
        before,
        after,
        found: BTreeMap::new(),
        questions: 0,
    };
    let role_sets = constants.role_sets();
    let attributes = declared_attributes([before, after], |it| &it.caller_attributes);
    let callers = constants.variants("principal", &attributes);
    'search: for roles in &role_sets {
        for attributes in &callers {
            search.compare_readings(roles, attributes);
            for tool in tools {
                if search.questions > MAX_QUESTIONS {
                    break 'search;
                }
                search.compare_tool(roles, attributes, tool, &constants);
            }
        }
    }
    let changes = search.found.into_iter().map(|(key, example)| {
        let ChangeKey { roles, what, gains } = key;
        AccessChange {
            roles,
            what,
            gains,
            example,
        }
    });
    let changes: Vec<_> = changes.collect();
    Comparison {
        is_cut_short: search.questions > MAX_QUESTIONS,
        questions: search.questions,
        // A change that one role brings also appears for every set of roles that includes it, so only the smallest set
        // is kept.
        changes: changes
            .iter()
            .filter(|change| !changes.iter().any(|other| explains(other, change)))
            .cloned()
            .collect(),
    }
}

fn explains(part: &AccessChange, whole: &AccessChange) -> bool {
    part.roles.len() < whole.roles.len()
        && part.what == whole.what
        && part.gains == whole.gains
        && part.roles.iter().all(|role| whole.roles.contains(role))
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ChangeKey {
    roles: Vec<String>,
    what: String,
    gains: bool,
}

struct Search<'a> {
    before: &'a Simulator,
    after: &'a Simulator,
    found: BTreeMap<ChangeKey, String>,
    questions: usize,
}

impl Search<'_> {
    fn note(&mut self, roles: &[String], what: String, gains: bool, example: &dyn Fn() -> String) {
        let roles = roles.to_vec();
        let key = ChangeKey { roles, what, gains };
        self.found.entry(key).or_insert_with(example);
    }

    fn compare_readings(&mut self, roles: &[String], attributes: &Map<String, Value>) {
        let Ok(caller) = sample_caller(&caller_sample(roles, attributes)) else {
            return;
        };
        for action in OperatorAction::ALL {
            self.questions += 1;
            let question = |it: &Simulator| it.operator(&caller, action).decision;
            let what = match action {
                OperatorAction::ReadRecord => "reads the audit records of all callers",
                OperatorAction::ReadOwnRecord => "reads their own audit records",
                OperatorAction::ManageRecord => "manages the audit log",
                OperatorAction::RevokeAccess => "revokes access",
                OperatorAction::ManageTools => "manages tools",
            };
            let has = question(self.after);
            if question(self.before) != has {
                let example = || example_of(attributes, &[]);
                self.note(roles, what.to_owned(), has, &example);
            }
        }
    }

    fn compare_tool(
        &mut self,
        roles: &[String],
        attributes: &Map<String, Value>,
        tool: &ToolFacts,
        constants: &PolicyConstants,
    ) {
        let Ok(caller) = sample_caller(&caller_sample(roles, attributes)) else {
            return;
        };
        for arguments in &constants.arguments {
            for context in &constants.contexts {
                let call = SimulatedCall {
                    caller: caller.clone(),
                    tool: tool.clone(),
                    arguments: Value::from(arguments.clone()).to_string().into_bytes(),
                    context: context.clone(),
                };
                let (Ok(had), Ok(has)) = (self.before.call(&call), self.after.call(&call)) else {
                    continue;
                };
                self.questions += 1;
                let example = || {
                    let mut more = Vec::new();
                    if !arguments.is_empty() {
                        more.push(format!("arguments {}", Value::from(arguments.clone())));
                    }
                    if let Some(client_ip) = context.client_ip {
                        more.push(format!("client_ip {client_ip}"));
                    }
                    for (name, count) in &context.counts {
                        more.push(format!("history {name}={count}"));
                    }
                    if constants.looks_at_time {
                        more.push(format!("time {}", context.time));
                    }
                    example_of(attributes, &more)
                };
                self.compare_access(roles, tool, (&had, &has), &example);
                let allowed = [&had, &has].map(|it| it.access.is_possible());
                if allowed.contains(&true) {
                    self.compare_rows(roles, tool, (&had, &has), constants, &example);
                    self.compare_columns(roles, tool, (&had, &has), &example);
                }
                if !(had.depends_on_context || has.depends_on_context) {
                    return;
                }
            }
        }
    }

    fn compare_access(
        &mut self,
        roles: &[String],
        tool: &ToolFacts,
        (had, has): (&Simulation, &Simulation),
        example: &dyn Fn() -> String,
    ) {
        if had.access == has.access {
            self.compare_approvers(roles, tool, (had, has), example);
            return;
        }
        let verb = match tool.kind {
            OfferKind::Tool => "calls",
            OfferKind::Connect => "connects to",
            OfferKind::Resources => "reads resources of",
            OfferKind::Prompts => "gets prompts of",
        };
        let possible = [had, has].map(|it| it.access.is_possible());
        let allowed = [had, has].map(|it| it.access == SimulatedAccess::Allowed);
        let visible = [had, has].map(|it| it.access != SimulatedAccess::Hidden);
        if possible == [true; 2] {
            let what = format!("{verb} {} without an approval", tool.name);
            self.note(roles, what, allowed[1], example);
        } else if allowed == [false; 2] && possible[0] != possible[1] {
            let what = format!("{verb} {} with an approval", tool.name);
            self.note(roles, what, possible[1], example);
        } else if allowed[0] != allowed[1] {
            let what = format!("{verb} {}", tool.name);
            self.note(roles, what, allowed[1], example);
        } else if visible[0] != visible[1] {
            let what = format!("sees {}", tool.name);
            self.note(roles, what, visible[1], example);
        }
    }

    fn compare_approvers(
        &mut self,
        roles: &[String],
        tool: &ToolFacts,
        (had, has): (&Simulation, &Simulation),
        example: &dyn Fn() -> String,
    ) {
        let (Some(before), Some(after)) = (&had.approvers, &has.approvers) else {
            return;
        };
        for role in before.roles.symmetric_difference(&after.roles) {
            let what = format!("has calls of {} approved by {role}", tool.name);
            self.note(roles, what, after.roles.contains(role), example);
        }
        if before.caller != after.caller {
            let what = format!("approves their own calls of {}", tool.name);
            self.note(roles, what, after.caller, example);
        }
    }

    fn compare_rows(
        &mut self,
        roles: &[String],
        tool: &ToolFacts,
        (had, has): (&Simulation, &Simulation),
        constants: &PolicyConstants,
        example: &dyn Fn() -> String,
    ) {
        let Some(entity) = &tool.entity else {
            return;
        };
        let declared = [self.before, self.after]
            .into_iter()
            .find_map(|it| it.set().vocabulary.rows.get(entity));
        let Some(declared) = declared else {
            return;
        };
        for row in constants.variants("resource", &declared.attributes) {
            self.questions += 1;
            let admits = |simulator: &Simulator, simulation: &Simulation| {
                let decided = simulator.row(simulation, &row);
                decided.is_ok_and(|it| it.decision)
            };
            let (before, after) = (admits(self.before, had), admits(self.after, has));
            if before != after {
                let example = || format!("{}, row {}", example(), Value::from(row.clone()));
                let what = format!("reads rows of {entity} by {}", tool.name);
                self.note(roles, what, after, &example);
            }
        }
    }

    fn compare_columns(
        &mut self,
        roles: &[String],
        tool: &ToolFacts,
        (had, has): (&Simulation, &Simulation),
        example: &dyn Fn() -> String,
    ) {
        let tiers = |simulator: &Simulator, simulation: &Simulation| {
            simulator.columns(simulation).unwrap_or_default()
        };
        let (before, after) = (tiers(self.before, had), tiers(self.after, has));
        for class in &tool.classes {
            self.questions += 1;
            let tier = |tiers: &BTreeMap<ColumnClass, crate::PartDecision<ColumnTier>>| {
                tiers
                    .get(class)
                    .map_or(ColumnTier::Dropped, |it| it.decision)
            };
            let (before, after) = (tier(&before), tier(&after));
            if before != after {
                let (from, to) = (tier_word(before), tier_word(after));
                let what = format!("sees {class} of {} {to} instead of {from}", tool.name);
                self.note(roles, what, after < before, example);
            }
        }
    }
}

fn caller_sample(roles: &[String], attributes: &Map<String, Value>) -> CallerSample {
    CallerSample {
        subject: SAME.to_owned(),
        roles: roles.to_vec(),
        tenant: SAME.to_owned(),
        attributes: attributes.clone(),
    }
}

fn example_of(attributes: &Map<String, Value>, more: &[String]) -> String {
    let mut parts = Vec::new();
    if !attributes.is_empty() {
        parts.push(format!("attributes {}", Value::from(attributes.clone())));
    }
    parts.extend_from_slice(more);
    if parts.is_empty() {
        "always".to_owned()
    } else {
        parts.join(", ")
    }
}
