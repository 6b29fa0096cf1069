//! Test callers and rows, and the evaluation of row rules. It uses only public crates, so that integration tests can
//! use it too.

use std::collections::BTreeMap;

use cedar_policy::{
    Authorizer, Context, Decision, Entities, Entity, EntityId, EntityUid, Policy, PolicyId,
    PolicySet, Request, RestrictedExpression,
};
use wardgate_domain::{AttributeValue, Caller, CallerClaims, RowRule, Timestamp};

/// Returns the expiry of every test token: 2100-01-01.
pub(crate) fn token_end() -> Timestamp {
    Timestamp::from_seconds(4_102_444_800)
}

pub(crate) fn caller(subject: &str, roles: &[&str]) -> Caller {
    caller_with(subject, roles, [])
}

pub(crate) fn caller_with<const N: usize>(
    subject: &str,
    roles: &[&str],
    attributes: [(&str, AttributeValue); N],
) -> Caller {
    Caller::from_verified(CallerClaims {
        attributes: attributes
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        expires_at: token_end(),
        ..wardgate_testkit::claims(subject, roles)
    })
}

pub(crate) fn text(value: &str) -> AttributeValue {
    AttributeValue::Text(value.to_owned())
}

/// A row as the tool-runner builds it from a query result.
pub(crate) type Row = BTreeMap<String, RestrictedExpression>;

pub(crate) fn row<const N: usize>(fields: [(&str, &str); N]) -> Row {
    let field = |(name, value): (&str, &str)| {
        let value = match value {
            "true" => RestrictedExpression::new_bool(true),
            "false" => RestrictedExpression::new_bool(false),
            value => RestrictedExpression::new_string(value.to_owned()),
        };
        (name.to_owned(), value)
    };
    fields.into_iter().map(field).collect()
}

/// Converts the row to a Cedar entity.
pub(crate) fn row_entity(entity: &str, row: &Row) -> Entity {
    let uid: EntityUid = format!("{entity}::\"1\"").parse().unwrap();
    let attributes = row
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    Entity::new(uid, attributes, [].into()).unwrap()
}

/// Returns whether `rule` admits `row`, with the same evaluation as in the tool-runner: Cedar's standard authorizer
/// with the row as the only entity. An error counts as a refusal.
pub(crate) fn admits(rule: &RowRule, subject: &str, row: &Row) -> bool {
    if rule.all {
        return true;
    }
    let policies =
        PolicySet::from_policies(rule.policies_json.iter().enumerate().map(|(index, json)| {
            let json = serde_json::from_str(json).unwrap();
            Policy::from_json(Some(PolicyId::new(index.to_string())), json).unwrap()
        }))
        .unwrap();
    let entity = row_entity(&rule.entity, row);
    let user = EntityUid::from_type_name_and_id("User".parse().unwrap(), EntityId::new(subject));
    let request = Request::new(
        user,
        "Action::\"read\"".parse().unwrap(),
        entity.uid(),
        Context::empty(),
        None,
    )
    .unwrap();
    let entities = Entities::from_entities([entity], None).unwrap();
    let response = Authorizer::new().is_authorized(&request, &policies, &entities);
    response.diagnostics().errors().next().is_none() && response.decision() == Decision::Allow
}
