//! Applies the row rule of a permit, which decides which rows of a result may be released.
//!
//! Cedar's stable authorizer decides on every row, even if the database has already filtered the rows.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::str::FromStr;

use cedar_policy::{
    Authorizer, Context, Decision, Entities, Entity, EntityId, EntityTypeName, EntityUid, Policy,
    PolicyId, PolicySet, Request, RestrictedExpression,
};
use serde_json::Value;
use wardgate_domain::{AttributeType, Caller, RowRule};
use wardgate_redact::Row;

use wardgate_catalogue::RowEntity;

/// The reason why a permit's row rule cannot be applied. The call is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RowRuleError {
    /// The tool's rows are governed, and the permit has no rule for them.
    #[error("the permit has no row rule, which is required for the rows of this tool")]
    Missing,
    /// The permit has a rule for a tool whose rows are not governed.
    #[error("the permit has a row rule, but the rows of this tool are not governed")]
    Unexpected,
    /// The rule is for another type of entity.
    #[error("the permit's row rule is for another entity type")]
    Entity,
    /// The rule does not have the form that a policy service writes.
    #[error("the permit's row rule cannot be read")]
    Unreadable,
}

/// The decision of the rule on one row.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RowVerdict {
    Admitted,
    Withheld,
    /// The row is withheld because the rule cannot decide on it: the statement or the tool's `result` does not fit the
    /// policies, or a policy fails. The caller must not see the difference from [`Self::Withheld`].
    Undecided(RowRuleUndecided),
}

/// The reason why the rule cannot decide. The messages name columns, never values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RowRuleUndecided {
    #[error("column `{0}`, the key of a row, is missing or is neither a string nor a number")]
    NoKey(String),
    #[error("the policies use `{0}`, which the statement does not select")]
    NoColumn(String),
    #[error("column `{0}` contains a value of another type than in the schema of the policies")]
    WrongType(String),
    #[error("a policy failed to evaluate")]
    Evaluation,
}

/// A row rule that is ready to be applied.
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
    attributes: BTreeMap<String, AttributeType>,
    authorizer: Authorizer,
}

impl RowGate {
    /// Creates the gate of one permit for one tool. Returns `None` if the tool's rows are not governed.
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
            attributes: rule.attributes.clone(),
            authorizer: Authorizer::new(),
        };
        Ok(Some(Self {
            rule: Rule::Policies(Box::new(residual)),
        }))
    }

    /// Returns the policies to push down to the source, or `None` if every row is admitted.
    pub(crate) fn policies(&self) -> Option<&PolicySet> {
        match &self.rule {
            Rule::All => None,
            Rule::Policies(residual) => Some(&residual.policies),
        }
    }

    /// Decides whether `row`, with all its columns, may be released. A row that cannot be decided is withheld.
    pub(crate) fn verdict(&self, row: &Row) -> RowVerdict {
        match &self.rule {
            Rule::All => RowVerdict::Admitted,
            Rule::Policies(residual) => match residual.admits(row) {
                Ok(true) => RowVerdict::Admitted,
                Ok(false) => RowVerdict::Withheld,
                Err(why) => RowVerdict::Undecided(why),
            },
        }
    }
}

impl Residual {
    fn admits(&self, row: &Row) -> Result<bool, RowRuleUndecided> {
        let id = match row.get(&self.key) {
            Some(Value::String(text)) => EntityId::new(text),
            Some(Value::Number(number)) => EntityId::new(number.to_string()),
            _ => return Err(RowRuleUndecided::NoKey(self.key.clone())),
        };
        let resource = EntityUid::from_type_name_and_id(self.type_name.clone(), id);
        let mut attributes = HashMap::with_capacity(self.attributes.len());
        for (name, kind) in &self.attributes {
            let value = row
                .get(name)
                .ok_or_else(|| RowRuleUndecided::NoColumn(name.clone()))?;
            if let Some(value) = attribute(value, *kind, name)? {
                attributes.insert(name.clone(), value);
            }
        }
        let failed = |_| RowRuleUndecided::Evaluation;
        let entity = Entity::new(resource.clone(), attributes, HashSet::new())
            .map_err(|_| RowRuleUndecided::Evaluation)?;
        let entities =
            Entities::from_entities([entity], None).map_err(|_| RowRuleUndecided::Evaluation)?;
        let request = Request::new(
            self.principal.clone(),
            self.action.clone(),
            resource,
            Context::empty(),
            None,
        )
        .map_err(failed)?;
        let response = self
            .authorizer
            .is_authorized(&request, &self.policies, &entities);
        // Without this check, a forbid that fails to evaluate would not forbid.
        if response.diagnostics().errors().next().is_some() {
            return Err(RowRuleUndecided::Evaluation);
        }
        Ok(response.decision() == Decision::Allow)
    }
}

/// Converts a column to an attribute of the type that the policies were checked with. NULL is an absent attribute. A
/// value of another type is an error, because `==` would silently be false and a forbid would not forbid.
fn attribute(
    value: &Value,
    kind: AttributeType,
    name: &str,
) -> Result<Option<RestrictedExpression>, RowRuleUndecided> {
    let fits = match (value, kind) {
        (Value::Null, _) => return Ok(None),
        (Value::String(text), AttributeType::Text) => {
            Some(RestrictedExpression::new_string(text.clone()))
        }
        (Value::Number(number), AttributeType::Integer) => {
            number.as_i64().map(RestrictedExpression::new_long)
        }
        (Value::Bool(truth), AttributeType::Boolean) => {
            Some(RestrictedExpression::new_bool(*truth))
        }
        _ => None,
    };
    fits.map(Some)
        .ok_or_else(|| RowRuleUndecided::WrongType(name.to_owned()))
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
