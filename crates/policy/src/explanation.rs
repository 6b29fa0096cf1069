//! Explanation of one decision: the policies that can answer the question, whether each of their conditions holds, and
//! the facts that the conditions read. It is meant for authors of policies and is never shown to a refused caller.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use cedar_policy::{
    Authorizer, Decision, Effect, Entities, EntityUid, EvalResult, Policy, PolicyId,
    PolicySet as Policies, Request,
};
use serde_json::{Map, Value, json};

use crate::arguments::argument_name;
use crate::engine::with_defaults;
use crate::history::{HISTORY, is_history};
use crate::limits::COMPILER_STACK_BYTES;
use crate::set::PolicyLocation;
use crate::simulator::{SimulatedAccess, SimulatedCall, Simulation, Simulator};

/// The explanation of a decision.
#[derive(Debug)]
pub struct Explanation {
    /// The policies about the question: first those that determined the decision, then those with the fewest unmet
    /// conditions.
    pub policies: Vec<ExplainedPolicy>,
    /// The facts that the conditions read, by name; `None` for a fact that is absent.
    pub facts: BTreeMap<String, Option<String>>,
}

/// A policy, with the reasons why it did or did not apply.
#[derive(Debug)]
pub struct ExplainedPolicy {
    /// The id of the policy.
    pub id: String,
    /// The location of the policy, if known.
    pub location: Option<PolicyLocation>,
    /// Whether the policy is a forbid; otherwise it is a permit.
    pub forbids: bool,
    /// Whether the policy is one of those that determined the decision.
    pub decided: bool,
    /// The conditions that must hold for the policy to apply.
    pub conditions: Vec<ExplainedCondition>,
}

/// One condition of a policy.
#[derive(Debug)]
pub struct ExplainedCondition {
    /// The condition in Cedar syntax.
    pub text: String,
    /// Whether the condition holds. A condition that cannot be evaluated does not hold.
    pub holds: bool,
}

impl ExplainedPolicy {
    /// Returns the number of conditions that do not hold.
    pub fn unmet(&self) -> usize {
        let unmet = |condition: &&ExplainedCondition| !condition.holds;
        self.conditions.iter().filter(unmet).count()
    }

    /// Returns whether the policy is about the question. A policy whose scope names other roles or tools than those of
    /// the question is not.
    fn is_about(&self) -> bool {
        self.unmet() <= 1 || self.conditions.first().is_some_and(|first| first.holds)
    }
}

impl Explanation {
    /// Returns what would have to change for the opposite decision, one sentence each.
    pub fn changes(&self, access: SimulatedAccess) -> Vec<String> {
        let unmet = |policy: &ExplainedPolicy| {
            let unmet = policy.conditions.iter().filter(|it| !it.holds);
            unmet
                .map(|it| format!("`{}`", it.text))
                .collect::<Vec<_>>()
                .join(" and ")
        };
        let applies = |policy: &&ExplainedPolicy| policy.unmet() == 0;
        let (forbids, permits): (Vec<_>, Vec<_>) =
            self.policies.iter().partition(|policy| policy.forbids);
        let mut changes = Vec::new();
        if access.is_possible() {
            let ids: Vec<_> = permits.iter().copied().filter(applies).collect();
            let ids: Vec<_> = ids.iter().map(|policy| policy.id.as_str()).collect();
            changes.push(format!("denied, if none of {} applies", ids.join(", ")));
            changes.extend(
                forbids.iter().map(|policy| {
                    format!("denied, if {} is true, by {}", unmet(policy), policy.id)
                }),
            );
            return changes;
        }
        for policy in forbids.iter().copied().filter(applies) {
            changes.push(format!(
                "forbidden by {}: one of its conditions must be false",
                policy.id
            ));
        }
        if !permits.iter().any(applies) {
            let closest = permits.iter().map(|policy| policy.unmet()).min();
            for policy in permits.iter().filter(|it| Some(it.unmet()) == closest) {
                changes.push(format!(
                    "allowed by {}, if {} is true",
                    policy.id,
                    unmet(policy)
                ));
            }
        }
        changes
    }
}

impl Simulator {
    /// Explains the decision about `call`.
    pub fn explain(
        &self,
        call: &SimulatedCall,
        simulation: &Simulation,
    ) -> Result<Explanation, String> {
        let rights = &simulation.rights;
        let set = self.set();
        let declared = &set.vocabulary.argument_types;
        let arguments = with_defaults(&call.tool, &call.arguments, declared)
            .map_err(|error| error.to_string())?;
        let request = set.call_request(
            &rights.principal,
            &call.tool,
            &rights.entities,
            &arguments,
            &call.context,
        );
        let (request, entities) = request.map_err(|fault| fault.to_string())?;
        let policies = set
            .policies(call.tool.kind)
            .map_err(|fault| fault.to_string())?;
        let question = Question {
            request,
            entities,
            locations: set.locations(),
            decided: simulation.policies.iter().map(String::as_str).collect(),
        };
        let mut explained = question.explain_deeply(policies)?;
        explained.policies.retain(ExplainedPolicy::is_about);
        Ok(explained)
    }
}

/// A question, with the entities that it refers to.
struct Question<'a> {
    request: Request,
    entities: Entities,
    locations: &'a BTreeMap<String, PolicyLocation>,
    decided: BTreeSet<&'a str>,
}

impl Question<'_> {
    /// Explains the policies on a separate thread whose stack is large enough for everything that the policy limits
    /// allow.
    fn explain_deeply(&self, policies: &Policies) -> Result<Explanation, String> {
        let explained = thread::scope(|scope| {
            thread::Builder::new()
                .name("policy-explanation".to_owned())
                .stack_size(COMPILER_STACK_BYTES)
                .spawn_scoped(scope, || self.explain(policies))
                .map(thread::ScopedJoinHandle::join)
        });
        match explained {
            Ok(Ok(explained)) => explained,
            Ok(Err(_)) | Err(_) => Err("the policies could not be explained".to_owned()),
        }
    }

    fn explain(&self, policies: &Policies) -> Result<Explanation, String> {
        let mut explained = Vec::new();
        let mut facts = BTreeMap::new();
        for policy in policies.policies() {
            let json = policy.to_json().map_err(|error| error.to_string())?;
            let mut conditions = Vec::new();
            for part in parts(&json) {
                let holds = self.holds(&part.policy).unwrap_or(false);
                self.collect_facts(&part.policy, &mut facts);
                let text = part.text;
                conditions.push(ExplainedCondition { text, holds });
            }
            let id = policy.id().to_string();
            explained.push(ExplainedPolicy {
                location: self.locations.get(&id).cloned(),
                forbids: policy.effect() == Effect::Forbid,
                decided: self.decided.contains(id.as_str()),
                conditions,
                id,
            });
        }
        explained
            .sort_by(|a, b| (!a.decided, a.unmet(), &a.id).cmp(&(!b.decided, b.unmet(), &b.id)));
        Ok(Explanation {
            policies: explained,
            facts,
        })
    }

    /// Returns whether a permit policy that consists of a single condition applies, or `None` if it cannot be
    /// evaluated.
    fn holds(&self, policy: &Value) -> Option<bool> {
        let policy = Policy::from_json(Some(PolicyId::new("condition")), policy.clone()).ok()?;
        let alone = Policies::from_policies([policy]).ok()?;
        let response = Authorizer::new().is_authorized(&self.request, &alone, &self.entities);
        let failed = response.diagnostics().errors().next().is_some();
        (!failed).then(|| response.decision() == Decision::Allow)
    }

    /// Collects the attributes, tags and memberships that an expression reads, with their current values.
    fn collect_facts(&self, json: &Value, facts: &mut BTreeMap<String, Option<String>>) {
        match json {
            Value::Object(members) => {
                for (operator, operands) in members {
                    let attribute = operands["attr"].as_str();
                    if let Some(counter) = attribute.filter(|_| is_history(&operands["left"])) {
                        let value = self.counter(counter);
                        facts.insert(format!("context.{HISTORY}.{counter}"), value);
                        continue;
                    }
                    let variable = operands["left"]["Var"].as_str();
                    if let (Some(variable), Some(attribute)) = (variable, attribute) {
                        let name = format!("{variable}.{attribute}");
                        // The arguments in the context are listed under their own names.
                        if name != "context.arguments" {
                            let value = self.attribute(variable, attribute);
                            facts.insert(name, value);
                        }
                    }
                    if let Some(argument) = argument_name(operator, operands) {
                        let value = self.argument(argument);
                        facts.insert(format!("arguments.{argument}"), value);
                    }
                    self.collect_facts(operands, facts);
                }
            }
            Value::Array(items) => items
                .iter()
                .for_each(|item| self.collect_facts(item, facts)),
            _ => {}
        }
    }

    fn attribute(&self, variable: &str, name: &str) -> Option<String> {
        let uid = match variable {
            "principal" => self.request.principal()?,
            "resource" => self.request.resource()?,
            _ => {
                let context = self.request.context()?;
                return context.get(name).map(|value| value.to_string());
            }
        };
        let value = self.entities.get(uid)?.attr(name)?.ok()?;
        Some(value.to_string())
    }

    /// Returns the value of a counter of earlier calls.
    fn counter(&self, name: &str) -> Option<String> {
        match self.request.context()?.get(HISTORY)? {
            EvalResult::Record(counters) => counters.get(name).map(ToString::to_string),
            _ => None,
        }
    }

    /// Returns the value of an argument in its declared type, or as text.
    fn argument(&self, name: &str) -> Option<String> {
        let mut entities = self.entities.iter();
        let arguments = entities.find(|entity| entity.tag(name).is_some())?;
        let value = arguments.attr(name).or_else(|| arguments.tag(name))?;
        value.ok().map(|value| value.to_string())
    }
}

/// A part of a policy, in the form of a permit that applies exactly if the part holds.
pub(crate) struct PolicyPart {
    policy: Value,
    pub(crate) text: String,
}

/// Splits a policy into its scope and its conditions. The operands of `&&` become separate parts.
pub(crate) fn parts(policy: &Value) -> Vec<PolicyPart> {
    let all = || json!({ "op": "All" });
    let permit = |variable: &str, scope: &Value, conditions: Vec<Value>| {
        let mut permit = Map::new();
        permit.insert("effect".to_owned(), "permit".into());
        for name in ["principal", "action", "resource"] {
            let own = if name == variable {
                scope.clone()
            } else {
                all()
            };
            permit.insert(name.to_owned(), own);
        }
        permit.insert("conditions".to_owned(), conditions.into());
        Value::Object(permit)
    };
    let mut parts = Vec::new();
    for variable in ["principal", "resource"] {
        let scope = &policy[variable];
        if scope["op"] != "All" {
            parts.push(PolicyPart {
                policy: permit(variable, scope, Vec::new()),
                text: scope_text(variable, scope),
            });
        }
    }
    for condition in policy["conditions"].as_array().into_iter().flatten() {
        let kind = condition["kind"].as_str().unwrap_or_default();
        let mut operands = Vec::new();
        split(
            &condition["body"],
            if kind == "when" { "&&" } else { "||" },
            &mut operands,
        );
        for operand in operands {
            let condition = json!({ "kind": kind, "body": operand });
            let policy = permit("", &all(), vec![condition]);
            let text = condition_text(&policy).unwrap_or_else(|| operand.to_string());
            let text = if kind == "when" {
                text
            } else {
                format!("unless {text}")
            };
            parts.push(PolicyPart { policy, text });
        }
    }
    parts
}

/// Collects the operands of a chain of `operator`.
fn split<'a>(expression: &'a Value, operator: &str, operands: &mut Vec<&'a Value>) {
    match expression.get(operator) {
        Some(chain) => {
            split(&chain["left"], operator, operands);
            split(&chain["right"], operator, operands);
        }
        None => operands.push(expression),
    }
}

/// Returns a constraint of the scope in Cedar syntax.
fn scope_text(variable: &str, scope: &Value) -> String {
    let entity = |entity: &Value| {
        let entity = entity.get("__entity").unwrap_or(entity);
        let uid = EntityUid::from_json(entity.clone());
        uid.map_or_else(|_| entity.to_string(), |uid| uid.to_string())
    };
    match scope["op"].as_str() {
        Some("is") => {
            let name = scope["entity_type"].as_str().unwrap_or_default();
            match scope["in"].get("entity") {
                Some(parent) => format!("{variable} is {name} in {}", entity(parent)),
                None => format!("{variable} is {name}"),
            }
        }
        Some(operator) => format!("{variable} {operator} {}", entity(&scope["entity"])),
        None => variable.to_owned(),
    }
}

/// Returns the only condition of a permit in Cedar syntax, on one line.
fn condition_text(policy: &Value) -> Option<String> {
    let policy = Policy::from_json(None, policy.clone()).ok()?;
    let text = policy.to_cedar()?;
    let body = text.split_once('{')?.1.rsplit_once('}')?.0;
    Some(body.split_whitespace().collect::<Vec<_>>().join(" "))
}
