//! Row rules: the residual of `read` when only the row is unknown.

use std::collections::{BTreeMap, BTreeSet};

use cedar_policy::{
    Authorizer, Context, Decision, Entities, Entity, EntityUid, PartialEntities, PartialEntityUid,
    PartialRequest, Policy, PolicyId, Request,
};
use serde_json::Value;
use wardgate_domain::{AttributeType, RowRule};

use crate::call::{failed_policies, ids};
use crate::fault::DecisionFault;
use crate::residual::stand_alone;
use crate::schema_shape::{Record, Type};
use crate::set::PolicySet;
use crate::vocabulary::Vocabulary;

/// Returns the attributes of the row that `policies` mention, with their declared types.
fn mentioned_attributes(
    policies: &[String],
    declared: &Record,
) -> Result<BTreeMap<String, AttributeType>, DecisionFault> {
    let mut names = BTreeSet::new();
    for policy in policies {
        let json = serde_json::from_str(policy)
            .map_err(|_| DecisionFault::Refused("a residual policy"))?;
        collect(&json, &mut names);
    }
    let typed = names.into_iter().map(|name| {
        let declared = declared.get(&name).map(|attribute| &attribute.r#type);
        let kind = match declared {
            Some(Type::Text) => AttributeType::Text,
            Some(Type::Integer) => AttributeType::Integer,
            Some(Type::Boolean) => AttributeType::Boolean,
            _ => {
                return Err(DecisionFault::Refused(
                    "an attribute of a row that is not a string, number or Boolean",
                ));
            }
        };
        Ok((name, kind))
    });
    typed.collect()
}

/// Collects the names in `{"." | "has": {"left": {"Var": "resource"}, "attr": NAME}}` anywhere in the JSON value.
fn collect(json: &Value, names: &mut BTreeSet<String>) {
    match json {
        Value::Object(members) => {
            let of_row = members
                .get("left")
                .is_some_and(|left| left["Var"] == "resource");
            if let Some(name) = members
                .get("attr")
                .and_then(Value::as_str)
                .filter(|_| of_row)
            {
                names.insert(name.to_owned());
            }
            members.values().for_each(|member| collect(member, names));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, names)),
        _ => {}
    }
}

impl Vocabulary {
    /// Returns whether `rule` admits `row`, with the same evaluation as in the tool-runner: Cedar's standard authorizer
    /// with the row as the only entity. A fault names the policies by the ids that their authors gave them.
    pub(crate) fn admits(
        &self,
        principal: &EntityUid,
        rule: &RowRule,
        row: Entity,
    ) -> Result<bool, DecisionFault> {
        if rule.all {
            return Ok(true);
        }
        let refused = || DecisionFault::Refused("the evaluation of a row rule");
        let mut left = cedar_policy::PolicySet::new();
        for (index, json) in rule.policies_json.iter().enumerate() {
            let policy = serde_json::from_str(json)
                .ok()
                .and_then(|json| {
                    Policy::from_json(Some(PolicyId::new(index.to_string())), json).ok()
                })
                .ok_or_else(refused)?;
            left.add(policy).map_err(|_| refused())?;
        }
        let resource = row.uid();
        let entities = Entities::from_entities([row], None).map_err(|_| refused())?;
        let (principal, read) = (principal.clone(), self.read.clone());
        let request = Request::new(principal, read, resource, Context::empty(), None)
            .map_err(|_| refused())?;
        let response = Authorizer::new().is_authorized(&request, &left, &entities);
        let ids = failed_policies(response.diagnostics());
        if ids.is_empty() {
            return Ok(response.decision() == Decision::Allow);
        }
        let named = |id: &String| {
            let policy = left.policy(&PolicyId::new(id))?;
            policy.annotation("id").map(str::to_owned)
        };
        Err(DecisionFault::Policies(
            ids.iter().filter_map(named).collect(),
        ))
    }
}

impl PolicySet {
    /// Returns the rule for rows of the type `entity`. The rule is valid only for this caller and this context, and it
    /// can be evaluated by Cedar's standard authorizer with the row as the only entity.
    pub(crate) fn row_rule(
        &self,
        principal: &EntityUid,
        entity: &str,
        entities: &PartialEntities,
        context: &Context,
    ) -> Result<RowRule, DecisionFault> {
        let vocabulary = &self.vocabulary;
        let (row_type, policies) = vocabulary
            .rows
            .get(entity)
            .zip(self.read.get(entity))
            .ok_or_else(|| DecisionFault::UnknownEntity(entity.to_owned()))?;
        let request = PartialRequest::new(
            PartialEntityUid::from_concrete(principal.clone()),
            vocabulary.read.clone(),
            PartialEntityUid::new(row_type.name.clone(), None),
            Some(context.clone()),
            &vocabulary.schema,
        )
        .map_err(|_| DecisionFault::Refused("the authorization request for a row"))?;
        let response = policies
            .tpe(&request, entities, &vocabulary.schema)
            .map_err(|_| DecisionFault::Refused("the partial evaluation of `read`"))?;
        let failing = ids(response.error_forbids().chain(response.error_permits()));
        if !failing.is_empty() {
            return Err(DecisionFault::Policies(failing));
        }
        let mut rule = RowRule {
            entity: entity.to_owned(),
            policies_json: Vec::new(),
            all: false,
            attributes: BTreeMap::new(),
        };
        match response.decision() {
            Some(Decision::Allow) => rule.all = true,
            Some(Decision::Deny) => {}
            None => {
                // A permit that is already true is part of the rule as well. Without it, the remaining forbids would
                // have nothing to restrict.
                let already_true = response
                    .true_permits()
                    .filter_map(|id| response.get_policy(id));
                let mut left: Vec<_> = already_true.chain(response.residual_policies()).collect();
                left.sort_unstable_by(|a, b| a.id().cmp(b.id()));
                rule.policies_json = left.iter().map(stand_alone).collect::<Result<_, _>>()?;
                rule.attributes = mentioned_attributes(&rule.policies_json, &row_type.attributes)?;
            }
        }
        Ok(rule)
    }
}
