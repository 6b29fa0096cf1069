//! Comparison of two policy sets: which access callers gain and lose, per tool, row type and column class.
//!
//! The comparison is a bounded search; [`prove_no_gain`] proves with a solver that nobody gains access. Both sets are asked
//! the same questions, which are built from the roles, constants and names in their policies; each number, time and network
//! is tried with its neighbours. A difference that needs more than two roles at once, or two attributes with unusual values at
//! once, is not found.
//!
//! A question whose answer follows from another one is not evaluated again: a role matters only to the questions whose
//! policies name it, and equal row rules admit the same rows.

mod constants;
mod proof;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value};
use wardgate_domain::{Caller, ColumnTier, OfferKind, OperatorAction, ToolFacts};

use crate::engine::ResultView;
use crate::policy_test::{CallerSample, sample_caller, tier_word};
use crate::simulator::{SimulatedAccess, SimulatedCall, Simulation, Simulator};

use self::constants::{PolicyConstants, SAME, declared_attributes};
pub use self::proof::{NoGainProof, ProofObstacle, UnprovedQuestion, prove_no_gain};
use self::rows::RowAnswers;

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
    /// The number of questions on which both sets were compared.
    pub questions: usize,
    /// Whether the search ended before every question was asked.
    pub is_cut_short: bool,
}

/// Compares `after` with `before` over `tools`. If `tools` is empty, tools are made up from the names in the policies.
pub fn compare(before: &Simulator, after: &Simulator, tools: &[ToolFacts]) -> Comparison {
    let constants = PolicyConstants::from_simulators([before, after]);
    let made_up;
    let tools = if tools.is_empty() {
        made_up = constants.tools(&[before, after]);
        made_up.as_slice()
    } else {
        tools
    };
    let simulators = [before, after];
    let tools = tools.iter();
    let tools = tools.map(|facts| ComparedTool::new(facts, simulators, &constants));
    let tools: Vec<_> = tools.collect();
    let operator_roles = OperatorAction::ALL.map(|action| {
        let sets = simulators.map(Simulator::set).into_iter();
        let roles: BTreeSet<_> = sets.flat_map(|set| set.roles_of_operator(action)).collect();
        (action, roles)
    });
    let mut search = Search {
        simulators,
        constants: &constants,
        operator_roles: operator_roles.into(),
        rows: simulators.map(RowAnswers::new),
        found: BTreeMap::new(),
        questions: 0,
    };
    let role_sets = constants.role_sets();
    let attributes = declared_attributes(simulators, |it| &it.caller_attributes);
    let variants = constants.variants("principal", &attributes);
    'search: for roles in &role_sets {
        for attributes in &variants {
            let Ok(caller) = sample_caller(&caller_sample(roles, attributes)) else {
                continue;
            };
            let caller = ComparedCaller {
                caller,
                roles,
                attributes,
            };
            search.compare_operator_actions(&caller);
            for tool in &tools {
                if search.questions > MAX_QUESTIONS {
                    break 'search;
                }
                search.compare_tool(&caller, tool);
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

/// A caller about whom both sets are asked.
struct ComparedCaller<'a> {
    caller: Caller,
    roles: &'a [String],
    attributes: &'a Map<String, Value>,
}

impl ComparedCaller<'_> {
    /// Returns whether the caller has no other roles than `named`. A caller with another role gets the same answers as
    /// one without it, who is a caller of the search too: its sets of roles include the subsets of each of them.
    fn has_only(&self, named: &BTreeSet<String>) -> bool {
        self.roles.iter().all(|role| named.contains(role))
    }
}

/// A tool about which both sets are asked.
struct ComparedTool<'a> {
    facts: &'a ToolFacts,
    /// The roles that policies about the tool, its rows or its columns name.
    roles: BTreeSet<String>,
    /// The rows to try; empty if neither set declares the row type.
    rows: Vec<Map<String, Value>>,
}

impl<'a> ComparedTool<'a> {
    fn new(facts: &'a ToolFacts, simulators: [&Simulator; 2], constants: &PolicyConstants) -> Self {
        let sets = simulators.map(Simulator::set);
        let roles = sets
            .into_iter()
            .flat_map(|set| set.roles_of_tool(facts))
            .collect();
        let declared = facts.entity.as_ref().and_then(|entity| {
            let mut rows = sets.into_iter().map(|set| &set.vocabulary.rows);
            rows.find_map(|rows| rows.get(entity))
        });
        let rows = declared.map(|row| constants.variants("resource", &row.attributes));
        Self {
            facts,
            roles,
            rows: rows.unwrap_or_default(),
        }
    }
}

/// The decision of one set about a call.
struct DecidedCall {
    simulation: Simulation,
    /// The caller's view of the result, or `None` if the call is not allowed.
    view: Option<Arc<ResultView>>,
}

impl DecidedCall {
    fn simulate(simulator: &Simulator, call: &SimulatedCall) -> Option<Self> {
        let simulation = simulator.call(call).ok()?;
        let is_possible = simulation.access.is_possible();
        let view = is_possible.then(|| simulator.view(&simulation).ok());
        Some(Self {
            view: view.flatten(),
            simulation,
        })
    }
}

struct Search<'a> {
    simulators: [&'a Simulator; 2],
    constants: &'a PolicyConstants,
    /// The roles that policies about each operator action name.
    operator_roles: BTreeMap<OperatorAction, BTreeSet<String>>,
    rows: [RowAnswers<'a>; 2],
    found: BTreeMap<ChangeKey, String>,
    questions: usize,
}

impl Search<'_> {
    fn note(&mut self, roles: &[String], what: String, gains: bool, example: &dyn Fn() -> String) {
        let roles = roles.to_vec();
        let key = ChangeKey { roles, what, gains };
        self.found.entry(key).or_insert_with(example);
    }

    fn compare_operator_actions(&mut self, caller: &ComparedCaller<'_>) {
        for action in OperatorAction::ALL {
            let named = self.operator_roles.get(&action);
            if !named.is_some_and(|named| caller.has_only(named)) {
                continue;
            }
            self.questions += 1;
            let question = |it: &Simulator| it.operator(&caller.caller, action).decision;
            let [had, has] = self.simulators.map(question);
            let what = match action {
                OperatorAction::ReadRecord => "reads the audit records of all callers",
                OperatorAction::ReadOwnRecord => "reads their own audit records",
                OperatorAction::ManageRecord => "manages the audit log",
                OperatorAction::RevokeAccess => "revokes access",
                OperatorAction::ManageTools => "manages tools",
            };
            if had != has {
                let example = || example_of(caller.attributes, &[]);
                self.note(caller.roles, what.to_owned(), has, &example);
            }
        }
    }

    fn compare_tool(&mut self, caller: &ComparedCaller<'_>, tool: &ComparedTool<'_>) {
        if !caller.has_only(&tool.roles) {
            return;
        }
        let constants = self.constants;
        for arguments in &constants.arguments {
            for context in &constants.contexts {
                let call = SimulatedCall {
                    caller: caller.caller.clone(),
                    tool: tool.facts.clone(),
                    arguments: Value::from(arguments.clone()).to_string().into_bytes(),
                    context: context.clone(),
                };
                let decided = self.simulators.map(|it| DecidedCall::simulate(it, &call));
                let [Some(before), Some(after)] = decided else {
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
                    example_of(caller.attributes, &more)
                };
                let (had, has) = (&before.simulation, &after.simulation);
                self.compare_access(caller.roles, tool.facts, had, has, &example);
                let depends_on_context = had.depends_on_context || has.depends_on_context;
                if [had, has].iter().any(|it| it.access.is_possible()) {
                    let calls = [before, after];
                    self.compare_rows(caller.roles, tool, &calls, &example);
                    self.compare_columns(caller.roles, tool.facts, &calls, &example);
                }
                if !depends_on_context {
                    return;
                }
            }
        }
    }

    fn compare_access(
        &mut self,
        roles: &[String],
        tool: &ToolFacts,
        had: &Simulation,
        has: &Simulation,
        example: &dyn Fn() -> String,
    ) {
        if had.access == has.access {
            self.compare_approvers(roles, tool, had, has, example);
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
        had: &Simulation,
        has: &Simulation,
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
        tool: &ComparedTool<'_>,
        [before, after]: &[DecidedCall; 2],
        example: &dyn Fn() -> String,
    ) {
        let Some(entity) = &tool.facts.entity else {
            return;
        };
        let [of_before, of_after] = &mut self.rows;
        let admitted = |answers: &mut RowAnswers<'_>, call: &DecidedCall| {
            answers.evaluate_rows(&call.simulation, call.view.as_deref(), &tool.rows)
        };
        let (before, after) = (admitted(of_before, before), admitted(of_after, after));
        self.questions += tool.rows.len();
        let answers = before.iter().zip(after.iter());
        for (row, (before, after)) in tool.rows.iter().zip(answers) {
            if before != after {
                let example = || format!("{}, row {}", example(), Value::from(row.clone()));
                let what = format!("reads rows of {entity} by {}", tool.facts.name);
                self.note(roles, what, *after, &example);
            }
        }
    }

    fn compare_columns(
        &mut self,
        roles: &[String],
        tool: &ToolFacts,
        calls: &[DecidedCall; 2],
        example: &dyn Fn() -> String,
    ) {
        for class in &tool.classes {
            self.questions += 1;
            let tier = |call: &DecidedCall| {
                let view = call.view.as_ref();
                let tier = view.and_then(|view| view.column_tiers.get(class).copied());
                tier.unwrap_or(ColumnTier::Dropped)
            };
            let [before, after] = calls.each_ref().map(tier);
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
