//! Evaluation of a policy set outside the service. It uses the same engine, and also returns the policies that
//! determined the decision about each row and column.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cedar_policy::{Entity, Request, RestrictedExpression};
use serde_json::{Map, Value};
use wardgate_domain::{
    Approvers, Caller, ColumnClass, ColumnTier, ConversationFacts, DenialReason, InvalidMessage,
    OfferKind, OperatorAction, RowRule, ToolFacts,
};

use crate::call::{CallAnswer, decide};
use crate::context::CallContext;
use crate::engine::{Engine, ResultView, Ruling, ToolRights};
use crate::entities::text;
use crate::fault::DecisionFault;
use crate::history::CallCounts;
use crate::schema_shape::Type;
use crate::set::PolicySet;
use crate::vocabulary::uid;

/// The id of the row in a simulation.
const ROW: &str = "row";

/// A simulator of the decisions of a policy set.
#[derive(Debug)]
pub struct Simulator {
    engine: Arc<Engine>,
}

/// The use of a tool, or of another offer of a source.
#[derive(Debug, Clone)]
pub struct SimulatedCall {
    /// The caller.
    pub caller: Caller,
    /// The tool or other offer.
    pub tool: ToolFacts,
    /// The arguments, one JSON object.
    pub arguments: Vec<u8>,
    /// The context of the call.
    pub context: CallContext,
}

/// The access to a tool, as the caller perceives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SimulatedAccess {
    /// The call may be made.
    Allowed,
    /// The call may be made once it is approved.
    NeedsApproval,
    /// The call may not be made. Other arguments, another time or another address could be allowed, so the caller sees
    /// the tool.
    Refused,
    /// No call would be allowed, so the caller does not see the tool.
    Hidden,
}

impl SimulatedAccess {
    /// Returns whether the call may be made, immediately or after an approval.
    pub fn is_possible(self) -> bool {
        matches!(self, Self::Allowed | Self::NeedsApproval)
    }

    /// Returns the name of the access.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::NeedsApproval => "needs approval",
            Self::Refused => "refused",
            Self::Hidden => "hidden",
        }
    }
}

/// The decision about one simulated call.
#[derive(Debug, Clone)]
pub struct Simulation {
    /// The access that the caller has.
    pub access: SimulatedAccess,
    /// The people who may approve the call, or `None` if it needs no approval.
    pub approvers: Option<Approvers>,
    /// The reason for the denial, or `None` if the call is not denied.
    pub reason: Option<DenialReason>,
    /// The ids of the policies that determined the decision, or that failed.
    pub policies: Vec<String>,
    /// Whether the answer, or the view of the result, is valid only for these arguments, this time and this address.
    pub depends_on_context: bool,
    context: CallContext,
    pub(crate) rights: Arc<ToolRights>,
}

/// The decision about one row or one column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartDecision<T> {
    /// The decision.
    pub decision: T,
    /// The ids of the policies that determined the decision.
    pub policies: Vec<String>,
}

impl Simulator {
    /// Creates a simulator for `set`.
    pub fn new(set: PolicySet) -> Self {
        Self::over(Arc::new(Engine::new(set)))
    }

    /// Creates a simulator for the set of an existing engine.
    pub(crate) fn over(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Returns the policy set, unless another simulator or a service uses the same engine.
    pub(crate) fn into_set(self) -> Option<PolicySet> {
        Arc::into_inner(self.engine).map(Engine::into_set)
    }

    /// Returns the policy set.
    pub fn set(&self) -> &PolicySet {
        self.engine.set()
    }

    /// Returns the counts unchanged if the policies declare a counter for each of them, and an error otherwise.
    pub fn check_counts(&self, counts: &CallCounts) -> Result<CallCounts, String> {
        let declared = self.set().vocabulary.counters(OfferKind::Tool);
        let mut names = counts.keys();
        match names.find(|name| !declared.contains_key(*name)) {
            Some(name) => Err(format!("`entity History` does not declare `{name}`")),
            None => Ok(counts.clone()),
        }
    }

    /// Returns the policies that can apply to a caller with these roles.
    pub(crate) fn slice(&self, roles: &[String]) -> Arc<PolicySet> {
        self.engine.slice(roles)
    }

    /// Returns the decision about `call`. Fails if the arguments are not one JSON object.
    pub fn call(&self, call: &SimulatedCall) -> Result<Simulation, InvalidMessage> {
        let Ruling {
            answer,
            approvers,
            depends_on_context,
            rights,
        } = self
            .engine
            .rule(&call.caller, &call.tool, &call.arguments, &call.context)?;
        let granted = self.engine.grant(answer, &rights, &call.context);
        let granted = granted.map(|(ids, _)| ids);
        let (access, reason, policies) = match granted {
            Ok(policies) if approvers.is_some() => (SimulatedAccess::NeedsApproval, None, policies),
            Ok(policies) => (SimulatedAccess::Allowed, None, policies),
            Err(denial) => {
                let access = if rights.possible() {
                    SimulatedAccess::Refused
                } else {
                    SimulatedAccess::Hidden
                };
                (access, Some(denial.reason), denial.policies)
            }
        };
        Ok(Simulation {
            approvers: approvers.filter(|_| access == SimulatedAccess::NeedsApproval),
            access,
            reason,
            policies,
            depends_on_context,
            context: call.context.clone(),
            rights,
        })
    }

    /// Returns the decision about an operator action.
    pub fn operator(&self, caller: &Caller, action: OperatorAction) -> PartDecision<bool> {
        part_decision(self.engine.operator(caller, action))
    }

    /// Returns the decision about reading a conversation of somebody else.
    pub fn recall(&self, caller: &Caller, conversation: &ConversationFacts) -> PartDecision<bool> {
        part_decision(self.engine.recall(caller, conversation))
    }

    /// Returns the tier of each column class of the tool, if the call is allowed. The policies are those that allow the
    /// tier, and those that forbid milder tiers.
    pub fn columns(
        &self,
        simulation: &Simulation,
    ) -> Result<BTreeMap<ColumnClass, PartDecision<ColumnTier>>, String> {
        let view = self.view(simulation)?;
        let mut columns = BTreeMap::new();
        for class in &simulation.rights.tool.classes {
            let tier = view
                .column_tiers
                .get(class)
                .copied()
                .unwrap_or(ColumnTier::Dropped);
            let policies = self
                .policies_of_tier(simulation, class, tier)
                .map_err(|fault| fault.to_string())?;
            let decision = PartDecision {
                decision: tier,
                policies,
            };
            columns.insert(class.clone(), decision);
        }
        Ok(columns)
    }

    /// Returns whether `row` would be released, if the call is allowed. The row rule of the permit is evaluated as in
    /// the tool-runner. An attribute that is missing in the row is NULL.
    pub fn row(
        &self,
        simulation: &Simulation,
        row: &Map<String, Value>,
    ) -> Result<PartDecision<bool>, String> {
        let rights = &simulation.rights;
        let view = self.view(simulation)?;
        let rule = view
            .row_rule
            .as_ref()
            .ok_or("the tool has no row type, so all of its rows are released")?;
        let entity = self.row_entity(&rule.entity, row)?;
        let vocabulary = &self.set().vocabulary;
        let admitted = vocabulary
            .admits(&rights.principal, rule, entity.clone())
            .map_err(|fault| fault.to_string())?;
        // The rule in the permit is a residual. The full policies are evaluated as well, to find out which of them
        // decided.
        let answer = self
            .ask_about_row(simulation, &rule.entity, entity)
            .map_err(|fault| fault.to_string())?;
        if answer.is_ok() != admitted {
            return Err("the row rule and its policies return different decisions".to_owned());
        }
        Ok(part_decision(answer))
    }

    /// Returns whether `rule`, the row rule of an allowed call, admits `row`, with the same evaluation as in the
    /// tool-runner. The policies that decided are not determined.
    pub(crate) fn admits(
        &self,
        simulation: &Simulation,
        rule: &RowRule,
        row: &Map<String, Value>,
    ) -> Result<bool, String> {
        let entity = self.row_entity(&rule.entity, row)?;
        let principal = &simulation.rights.principal;
        let admitted = self.set().vocabulary.admits(principal, rule, entity);
        admitted.map_err(|fault| fault.to_string())
    }

    pub(crate) fn view(&self, simulation: &Simulation) -> Result<Arc<ResultView>, String> {
        let (rights, context) = (&simulation.rights, &simulation.context);
        match self.engine.grant(Ok(Vec::new()), rights, context) {
            Ok((_, view)) if simulation.access.is_possible() => Ok(view),
            _ => Err(format!("the call is {}", simulation.access.as_str())),
        }
    }

    fn policies_of_tier(
        &self,
        simulation: &Simulation,
        class: &ColumnClass,
        given: ColumnTier,
    ) -> Result<Vec<String>, DecisionFault> {
        let vocabulary = &self.set().vocabulary;
        let rights = &simulation.rights;
        let context = simulation.context.to_cedar(None)?;
        let mut found = Vec::new();
        for ((tier, action), policies) in vocabulary.show.iter().zip(&self.set().show) {
            let request = Request::new(
                rights.principal.clone(),
                action.clone(),
                vocabulary.class(class.as_str()),
                context.clone(),
                Some(&vocabulary.schema),
            )
            .map_err(|_| DecisionFault::Refused("the authorization request for a column"))?;
            match decide(&request, policies, &rights.entities)? {
                Ok(ids) => found.extend(ids),
                Err(denial) => found.extend(denial.policies),
            }
            if *tier == given {
                break;
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Converts a row to an entity. Columns that the schema does not declare are left out.
    pub(crate) fn row_entity(
        &self,
        entity: &str,
        row: &Map<String, Value>,
    ) -> Result<Entity, String> {
        let declared = self.set().vocabulary.rows.get(entity);
        let declared = declared.ok_or_else(|| format!("the schema has no row type `{entity}`"))?;
        let mut attributes = HashMap::new();
        for (name, attribute) in &declared.attributes {
            let Some(value) = row.get(name).filter(|value| !value.is_null()) else {
                continue;
            };
            let value = match (value, &attribute.r#type) {
                (Value::String(value), Type::Text) => Some(text(value)),
                (Value::Number(value), Type::Integer) => {
                    value.as_i64().map(RestrictedExpression::new_long)
                }
                (Value::Bool(value), Type::Boolean) => Some(RestrictedExpression::new_bool(*value)),
                _ => None,
            };
            let value = value
                .ok_or_else(|| format!("`{name}` of the row has another type than `{entity}`"))?;
            attributes.insert(name.clone(), value);
        }
        Entity::new(uid(&declared.name, ROW), attributes, [].into())
            .map_err(|error| error.to_string())
    }

    fn ask_about_row(
        &self,
        simulation: &Simulation,
        entity: &str,
        row: Entity,
    ) -> Result<CallAnswer, DecisionFault> {
        let set = self.set();
        let refused = || DecisionFault::Refused("the authorization request for a row");
        let request = Request::new(
            simulation.rights.principal.clone(),
            set.vocabulary.read.clone(),
            row.uid(),
            simulation.context.to_cedar(None)?,
            Some(&set.vocabulary.schema),
        )
        .map_err(|_| refused())?;
        let policies = set.read.get(entity);
        let entities = simulation.rights.entities.clone();
        let entities = entities.add_entities([row], Some(&set.vocabulary.schema));
        decide(
            &request,
            policies.ok_or_else(|| DecisionFault::UnknownEntity(entity.to_owned()))?,
            &entities.map_err(|_| refused())?,
        )
    }
}

fn part_decision(answer: CallAnswer) -> PartDecision<bool> {
    match answer {
        Ok(policies) => PartDecision {
            decision: true,
            policies,
        },
        Err(denial) => PartDecision {
            decision: false,
            policies: denial.policies,
        },
    }
}
