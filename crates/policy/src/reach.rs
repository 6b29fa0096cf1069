//! Detection of tools, rows and columns that no caller can reach, by evaluating policies with an unknown caller.
//!
//! The results are for warnings only. If a policy cannot be evaluated without its caller, some caller is assumed to
//! have access.

use std::collections::BTreeSet;
use std::fmt;

use cedar_policy::{
    Decision, Effect, Entities, Entity, EntityUid, PartialEntities, PartialEntityUid,
    PartialRequest, Policy, PolicySet as Policies,
};
use wardgate_domain::{ColumnClass, OfferKind, ToolFacts};

use crate::fault::DecisionFault;
use crate::set::PolicySet;
use crate::vocabulary::uid;

/// A warning that something is out of reach of every caller, with its fix. Displayed as `problem; fix`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// The problem.
    pub problem: String,
    /// The fix.
    pub fix: String,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem, self.fix)
    }
}

impl PolicySet {
    /// Returns whether some caller may call `tool` in some context.
    pub fn lets_anyone_call(&self, tool: &ToolFacts) -> bool {
        let (action, entity) = self.vocabulary.question(tool.kind);
        let Some(policies) = self.uses.get(&tool.kind) else {
            return false;
        };
        let resource = PartialEntityUid::from_concrete(uid(entity, tool.name.as_str()));
        let entities = self.vocabulary.around(Some(tool), &tool.classes);
        entities
            .and_then(|entities| self.can_be_allowed(policies, action, resource, entities))
            .unwrap_or(true)
    }

    /// Returns whether columns of `class` are shown to some caller, in any tier.
    pub fn shows_anyone(&self, class: &ColumnClass) -> bool {
        let vocabulary = &self.vocabulary;
        let resource = PartialEntityUid::from_concrete(vocabulary.class(class.as_str()));
        let Ok(entities) = vocabulary.around(None, std::slice::from_ref(class)) else {
            return true;
        };
        vocabulary
            .show
            .iter()
            .zip(&self.show)
            .any(|((_, action), policies)| {
                self.can_be_allowed(policies, action, resource.clone(), entities.clone())
                    .unwrap_or(true)
            })
    }

    /// Returns whether some caller may read a row of the type `entity`, or `None` if the schema has no such row type.
    pub(crate) fn lets_anyone_read(&self, entity: &str) -> Option<bool> {
        let vocabulary = &self.vocabulary;
        let row = vocabulary.rows.get(entity)?;
        let policies = self.read.get(entity)?;
        let resource = PartialEntityUid::new(row.name.clone(), None);
        let allowed = self.can_be_allowed(policies, &vocabulary.read, resource, Vec::new());
        Some(allowed.unwrap_or(true))
    }

    /// Returns the warning that nobody may call `tool`, with the policy or tag that would change it.
    pub fn advice_on_tool(&self, tool: &ToolFacts) -> Advice {
        let name = &tool.name;
        let tags = self.tags_of_calls();
        let tags: Vec<_> = tags.iter().map(String::as_str).collect();
        let by_tag = if tags.is_empty() {
            String::new()
        } else {
            format!(
                "add a tag that a policy permits (`tags: [{}]`), or ",
                tags.join(" or ")
            )
        };
        Advice {
            problem: format!("no policy lets anyone call the tool `{name}`"),
            fix: format!(
                "{by_tag}add a policy such as `@id(\"calls-{name}\") permit (principal in Role::\"ROLE\", action == \
                 Action::\"call_tool\", resource == Tool::\"{name}\");`"
            ),
        }
    }

    /// Returns the warning that nobody may read rows of the type `entity`, or `None` if some caller may.
    pub fn advice_on_rows(&self, entity: &str) -> Option<Advice> {
        match self.lets_anyone_read(entity) {
            Some(true) => None,
            Some(false) => Some(Advice {
                problem: format!("no policy lets anyone read rows of `{entity}`"),
                fix: format!(
                    "add a policy such as `@id(\"reads-{entity}\") permit (principal in Role::\"ROLE\", action == \
                     Action::\"read\", resource is {entity});`"
                ),
            }),
            None => {
                let known: Vec<_> = self.row_types().collect();
                Some(Advice {
                    problem: format!(
                        "the policies have no row type `{entity}`, so every call is denied"
                    ),
                    fix: format!(
                        "declare `entity {entity} {{ … }};` in a `.cedarschema`, as `wardgate policy schema` prints it; known \
                         are {}",
                        if known.is_empty() {
                            "none".to_owned()
                        } else {
                            known.join(", ")
                        }
                    ),
                })
            }
        }
    }

    /// Returns the tags by which policies permit calls, in alphabetical order.
    fn tags_of_calls(&self) -> BTreeSet<String> {
        let policies = self.uses.get(&OfferKind::Tool);
        let policies = policies.into_iter().flat_map(Policies::policies);
        let policies = policies.filter(|policy| policy.effect() == Effect::Permit);
        let literals = policies.flat_map(Policy::entity_literals);
        let tags = literals.filter(|literal| *literal.type_name() == self.vocabulary.tag);
        tags.map(|tag| tag.id().unescaped().to_owned()).collect()
    }

    /// Returns the names of the row types that the schema declares.
    pub(crate) fn row_types(&self) -> impl Iterator<Item = &str> {
        self.vocabulary.rows.keys().map(String::as_str)
    }

    fn can_be_allowed(
        &self,
        policies: &Policies,
        action: &EntityUid,
        resource: PartialEntityUid,
        entities: Vec<Entity>,
    ) -> Result<bool, DecisionFault> {
        let schema = &self.vocabulary.schema;
        let request = PartialRequest::new(
            PartialEntityUid::new(self.vocabulary.user.clone(), None),
            action.clone(),
            resource,
            None,
            schema,
        )
        .map_err(|_| DecisionFault::Refused("an authorization request for all callers"))?;
        let refused =
            || DecisionFault::Refused("the entities of an authorization request for all callers");
        let entities = Entities::from_entities(entities, Some(schema)).map_err(|_| refused())?;
        let entities = PartialEntities::from_concrete(entities, schema).map_err(|_| refused())?;
        let response = policies
            .tpe(&request, &entities, schema)
            .map_err(|_| DecisionFault::Refused("the evaluation for all callers"))?;
        Ok(response.decision() != Some(Decision::Deny))
    }
}
