//! The row rule of a permit: which rows of a result may leave.
//!
//! Every row is put before Cedar's stable authorizer, whatever the database was asked to leave out.

use std::collections::{HashMap, HashSet};
use std::str::FromStr;

use cedar_policy::{
    Authorizer, Context, Decision, Entities, Entity, EntityId, EntityTypeName, EntityUid, Policy,
    PolicyId, PolicySet, Request, RestrictedExpression,
};
use serde_json::Value;
use wardgate_domain::{Caller, RowRule};
use wardgate_redact::Row;

use crate::catalogue::RowEntity;

/// Why a permit's row rule cannot be applied; the call is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RowRuleError {
    /// The tool's rows are governed, and the permit brings no rule for them.
    #[error("the permit has no row rule, and the tool's rows are governed")]
    Missing,
    /// The permit brings a rule for a tool whose rows are not governed.
    #[error("the permit has a row rule, and the tool's rows are not governed")]
    Unexpected,
    /// The rule is for another type of row.
    #[error("the permit's row rule is for another entity type")]
    Entity,
    /// The rule is not what a policy service writes.
    #[error("the permit's row rule cannot be read")]
    Unreadable,
}

/// A row rule, ready to be applied.
pub(crate) struct RowGate {
    rule: Rule,
}

enum Rule {
    All,
    Policies(Box<Residual>),
}

struct Residual {
    policies: PolicySet,
    principal: EntityUid,
    action: EntityUid,
    type_name: EntityTypeName,
    key: String,
    authorizer: Authorizer,
}

impl RowGate {
    /// The gate of one permit for one tool; `None` where rows are not governed.
    pub(crate) fn new(
        rule: Option<&RowRule>,
        entity: Option<&RowEntity>,
        caller: &Caller,
    ) -> Result<Option<Self>, RowRuleError> {
        let (rule, entity) = match (rule, entity) {
            (None, None) => return Ok(None),
            (None, Some(_)) => return Err(RowRuleError::Missing),
            (Some(_), None) => return Err(RowRuleError::Unexpected),
            (Some(rule), Some(entity)) => (rule, entity),
        };
        if rule.entity != entity.type_name.to_string() {
            return Err(RowRuleError::Entity);
        }
        if rule.all {
            return Ok(Some(Self { rule: Rule::All }));
        }
        let uid = |type_name: &str, id: &str| {
            EntityTypeName::from_str(type_name)
                .map(|name| EntityUid::from_type_name_and_id(name, EntityId::new(id)))
                .map_err(|_| RowRuleError::Unreadable)
        };
        let residual = Residual {
            policies: policies(&rule.policies_json)?,
            principal: uid("User", caller.subject())?,
            action: uid("Action", "read")?,
            type_name: entity.type_name.clone(),
            key: entity.key.clone(),
            authorizer: Authorizer::new(),
        };
        Ok(Some(Self {
            rule: Rule::Policies(Box::new(residual)),
        }))
    }

    /// The policies to push down; none when every row is admitted.
    pub(crate) fn policies(&self) -> Option<&PolicySet> {
        match &self.rule {
            Rule::All => None,
            Rule::Policies(residual) => Some(&residual.policies),
        }
    }

    /// Whether `row`, with all its columns, may leave. Any doubt withholds it: a row without a key, or a
    /// policy that fails to evaluate.
    pub(crate) fn admits(&self, row: &Row) -> bool {
        match &self.rule {
            Rule::All => true,
            Rule::Policies(residual) => residual.admits(row).unwrap_or(false),
        }
    }
}

impl Residual {
    fn admits(&self, row: &Row) -> Option<bool> {
        let id = match row.get(&self.key)? {
            Value::String(text) => EntityId::new(text),
            Value::Number(number) => EntityId::new(number.to_string()),
            _ => return None,
        };
        let resource = EntityUid::from_type_name_and_id(self.type_name.clone(), id);
        let attributes: HashMap<_, _> = row
            .fields()
            .iter()
            .filter_map(|(name, value)| Some((name.to_string(), attribute(value)?)))
            .collect();
        let entity = Entity::new(resource.clone(), attributes, HashSet::new()).ok()?;
        let entities = Entities::from_entities([entity], None).ok()?;
        let request = Request::new(
            self.principal.clone(),
            self.action.clone(),
            resource,
            Context::empty(),
            None,
        )
        .ok()?;
        let response = self
            .authorizer
            .is_authorized(&request, &self.policies, &entities);
        // A forbid that fails to evaluate would otherwise not forbid.
        let is_certain = response.diagnostics().errors().next().is_none();
        Some(is_certain && response.decision() == Decision::Allow)
    }
}

/// A column as an attribute of the row; NULL is an absent one.
fn attribute(value: &Value) -> Option<RestrictedExpression> {
    match value {
        Value::String(text) => Some(RestrictedExpression::new_string(text.clone())),
        Value::Bool(truth) => Some(RestrictedExpression::new_bool(*truth)),
        Value::Number(number) if number.is_i64() => {
            number.as_i64().map(RestrictedExpression::new_long)
        }
        Value::Null => None,
        // Cedar has no such value. As text it is still there, so that no rule takes it for absent, and
        // comparing it as a number fails, which withholds the row.
        Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Some(RestrictedExpression::new_string(value.to_string()))
        }
    }
}

fn policies(texts: &[String]) -> Result<PolicySet, RowRuleError> {
    let mut policies = PolicySet::new();
    for (number, text) in texts.iter().enumerate() {
        let json = serde_json::from_str(text).map_err(|_| RowRuleError::Unreadable)?;
        let policy = Policy::from_json(Some(PolicyId::new(number.to_string())), json)
            .map_err(|_| RowRuleError::Unreadable)?;
        policies.add(policy).map_err(|_| RowRuleError::Unreadable)?;
    }
    Ok(policies)
}
