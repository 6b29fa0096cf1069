//! Conversion of callers and tools to Cedar entities.

use std::collections::{BTreeMap, HashMap, HashSet};

use cedar_policy::{Entities, Entity, EntityUid, RestrictedExpression};
use wardgate_domain::{AttributeValue, Caller, ColumnClass, OfferKind, ToolFacts};

use crate::fault::DecisionFault;
use crate::schema_shape::Type;
use crate::vocabulary::{SUBJECT, TENANT, Vocabulary, uid};

impl Vocabulary {
    /// Returns the entities that a question about this caller and this tool can refer to, except the arguments and a
    /// row: the caller, the tool with its tags, and the tool's column classes.
    pub(crate) fn entities(
        &self,
        caller: Entity,
        tool: &ToolFacts,
    ) -> Result<Entities, DecisionFault> {
        let around = self.around(Some(tool), &tool.classes)?;
        Entities::from_entities([caller].into_iter().chain(around), Some(&self.schema))
            .map_err(|_| DecisionFault::Refused("the entities of a caller and a tool"))
    }

    /// Returns the entities other than the caller, without duplicates: the tool with its tags, and the column classes
    /// with their families.
    pub(crate) fn around(
        &self,
        tool: Option<&ToolFacts>,
        classes: &[ColumnClass],
    ) -> Result<Vec<Entity>, DecisionFault> {
        let mut entities = BTreeMap::new();
        let mut add = |entity: Entity| {
            entities.entry(entity.uid()).or_insert(entity);
        };
        if let Some(tool) = tool {
            add(self.offer(tool)?);
            for tag in &*tool.tags {
                add(Entity::with_uid(uid(&self.tag, tag)));
            }
        }
        for class in classes {
            for class in self.lineage(class) {
                add(class);
            }
        }
        Ok(entities.into_values().collect())
    }

    /// Returns the entity of a caller, with the attributes of the token that the schema declares and the roles as
    /// parents.
    pub(crate) fn caller(&self, caller: &Caller) -> Result<Entity, DecisionFault> {
        let mut attributes = HashMap::from([
            (SUBJECT.to_owned(), text(caller.subject())),
            (TENANT.to_owned(), text(caller.tenant())),
        ]);
        for (name, declared) in &self.caller_attributes {
            let value = caller
                .attributes()
                .get(name)
                .and_then(|value| fit(value, &declared.r#type));
            match value {
                Some(value) => {
                    attributes.insert(name.clone(), value);
                }
                None if declared.required => {
                    return Err(DecisionFault::MissingAttribute(name.clone()));
                }
                None => {}
            }
        }
        let roles = caller
            .roles()
            .iter()
            .map(|role| uid(&self.role, role))
            .collect();
        Entity::new(self.user(caller.subject()), attributes, roles)
            .map_err(|_| DecisionFault::Refused("the attributes of a caller"))
    }

    /// Returns the entity of a tool or source.
    fn offer(&self, offer: &ToolFacts) -> Result<Entity, DecisionFault> {
        let (_, kind) = self.question(offer.kind);
        let attributes = match offer.kind {
            OfferKind::Tool => HashMap::from([(
                "read_only".to_owned(),
                RestrictedExpression::new_bool(offer.read_only),
            )]),
            OfferKind::Connect | OfferKind::Resources | OfferKind::Prompts => HashMap::new(),
        };
        let tags = offer.tags.iter().map(|tag| uid(&self.tag, tag)).collect();
        Entity::new(uid(kind, offer.name.as_str()), attributes, tags)
            .map_err(|_| DecisionFault::Refused("the attributes of a tool"))
    }

    /// Returns the entities of a class and its families: `a.b.c` in `a.b` in `a`.
    fn lineage(&self, class: &ColumnClass) -> Vec<Entity> {
        let mut lineage = Vec::new();
        let mut name = Some(class.as_str());
        while let Some(this) = name {
            name = this.rsplit_once('.').map(|(family, _)| family);
            let family: HashSet<EntityUid> =
                name.map(|family| self.class(family)).into_iter().collect();
            lineage.push(Entity::new_no_attrs(self.class(this), family));
        }
        lineage
    }
}

pub(crate) fn text(value: &str) -> RestrictedExpression {
    RestrictedExpression::new_string(value.to_owned())
}

/// Converts a claim to the declared type. Returns `None` if it has another type.
fn fit(value: &AttributeValue, declared: &Type) -> Option<RestrictedExpression> {
    match (value, declared) {
        (AttributeValue::Text(value), Type::Text) => Some(text(value)),
        (AttributeValue::Integer(value), Type::Integer) => {
            Some(RestrictedExpression::new_long(*value))
        }
        (AttributeValue::Boolean(value), Type::Boolean) => {
            Some(RestrictedExpression::new_bool(*value))
        }
        (AttributeValue::List(items), Type::Set(element)) if **element == Type::Text => Some(
            RestrictedExpression::new_set(items.iter().map(|item| text(item))),
        ),
        _ => None,
    }
}
