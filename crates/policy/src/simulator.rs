//! Asks a policy set outside the service: the same engine, and besides its answers the policies that decided about each
//! row and column.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cedar_policy::{Entity, Request, RestrictedExpression};
use serde_json::{Map, Value};
use wardgate_domain::{
    Approvers, Caller, ColumnClass, ColumnTier, ConversationFacts, DenialReason, InvalidMessage,
    OfferKind, OperatorAction, ToolFacts,
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

/// The id of a row that is made up.
const ROW: &str = "row";

/// A policy set that is asked what it would decide.
#[derive(Debug)]
pub struct Simulator {
    engine: Arc<Engine>,
}

/// The use of a tool, or of what else a source offers.
#[derive(Debug, Clone)]
pub struct SimulatedCall {
    /// Who calls.
    pub caller: Caller,
    /// What.
    pub tool: ToolFacts,
    /// One JSON object.
    pub arguments: Vec<u8>,
    /// When and from where.
    pub context: CallContext,
}

/// The access to a tool, as a caller notices it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SimulatedAccess {
    /// The call may be made.
    Allowed,
    /// It may be made once somebody has approved it.
    NeedsApproval,
    /// It may not; other arguments, another time or another address could be allowed, so the caller sees the tool.
    Refused,
    /// No call would be allowed: to the caller the tool does not exist.
    Hidden,
}

impl SimulatedAccess {
    /// Whether the call may be made, at once or once it is approved.
    pub fn is_possible(self) -> bool {
        matches!(self, Self::Allowed | Self::NeedsApproval)
    }

    /// The access in words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::NeedsApproval => "needs approval",
            Self::Refused => "refused",
            Self::Hidden => "hidden",
        }
    }
}

/// What would be decided about one call.
#[derive(Debug, Clone)]
pub struct Simulation {
    /// Whether the call may be made.
    pub access: SimulatedAccess,
    /// Those of whom one has to approve it; none of a call that needs no approval.
    pub approvers: Option<Approvers>,
    /// Why not.
    pub reason: Option<DenialReason>,
    /// The ids of the policies that decided, or that failed.
    pub policies: Vec<String>,
    /// The answer, or the view of the result, holds for these arguments, this time and this address only.
    pub depends_on_context: bool,
    context: CallContext,
    pub(crate) rights: Arc<ToolRights>,
}

/// What would be decided about one row or one column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartDecision<T> {
    /// What.
    pub decision: T,
    /// The ids of the policies that decided.
    pub policies: Vec<String>,
}

impl Simulator {
    /// Asks `set`.
    pub fn new(set: PolicySet) -> Self {
        Self::over(Arc::new(Engine::new(set)))
    }

    /// Asks a set that is at work.
    pub(crate) fn over(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// The policies that are asked.
    pub fn set(&self) -> &PolicySet {
        self.engine.set()
    }

    /// The same counts of earlier calls, where the policies declare a counter for each.
    pub fn check_counts(&self, counts: &CallCounts) -> Result<CallCounts, String> {
        let declared = self.set().vocabulary.counters(OfferKind::Tool);
        let mut names = counts.keys();
        match names.find(|name| !declared.contains_key(*name)) {
            Some(name) => Err(format!("`entity History` declares no `{name}`")),
            None => Ok(counts.clone()),
        }
    }

    /// The policies for a caller with these roles.
    pub(crate) fn slice(&self, roles: &[String]) -> Arc<PolicySet> {
        self.engine.slice(roles)
    }

    /// What would be decided about `call`. Fails where the arguments are not one JSON object.
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

    /// What would be decided about what operators do.
    pub fn operator(&self, caller: &Caller, action: OperatorAction) -> PartDecision<bool> {
        reading(self.engine.operator(caller, action))
    }

    /// What would be decided about reading a conversation of somebody else.
    pub fn recall(&self, caller: &Caller, conversation: &ConversationFacts) -> PartDecision<bool> {
        reading(self.engine.recall(caller, conversation))
    }

    /// The tier of each column class of the tool, where the call is allowed. The policies are those that give the tier, and
    /// those that forbid the milder ones.
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

    /// Whether `row` would leave, where the call is allowed: decided by the row rule of the permit, as the tool-runner
    /// does. An attribute that the row lacks is NULL.
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
            .ok_or("the tool has no row type, so all of its rows leave")?;
        let entity = self.row_entity(&rule.entity, row)?;
        let vocabulary = &self.set().vocabulary;
        let admitted = vocabulary
            .admits(&rights.principal, rule, entity.clone())
            .map_err(|fault| fault.to_string())?;
        // The rule in the permit is what is left of the policies; these say which of them decided.
        let answer = self
            .ask_about_row(simulation, &rule.entity, entity)
            .map_err(|fault| fault.to_string())?;
        if answer.is_ok() != admitted {
            return Err("the row rule and its policies disagree".to_owned());
        }
        Ok(reading(answer))
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
            .map_err(|_| DecisionFault::Refused("the question how a column may be shown"))?;
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

    /// A row as an entity. Columns that the schema does not declare are nothing to the policies.
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
        let refused = || DecisionFault::Refused("the question whether a row may be read");
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

fn reading(answer: CallAnswer) -> PartDecision<bool> {
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
