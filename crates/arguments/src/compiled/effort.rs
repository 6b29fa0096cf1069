//! Estimation of the work of checking a value against a schema that refers to itself, before it is done.
//!
//! ```text
//!   { "allOf": [{ "$ref": "#/$defs/next" }, { "$ref": "#/$defs/next" }] }     twice the work at each step
//! ```

use std::collections::HashMap;

use serde_json::Value;

use super::outline::SchemaOutline;

/// Maximum number of steps, each of which checks one part of a value against one part of the schema.
const MAX_STEPS: u64 = 500_000;

/// Maximum depth of nested steps, each of which takes some of the stack.
const MAX_DEPTH: usize = 1_000;

/// Value that represents the names of members, which are strings and have no parts.
const NAME: Value = Value::Null;

/// A pair of one part of the schema and one part of the value.
type SchemaVisit = (*const Value, *const Value);

/// The check would take too many steps, or would not end.
struct EffortExceeded;

/// Returns whether checking `value` against `schema` takes few enough steps.
pub(super) fn is_bearable(schema: &Value, outline: &SchemaOutline, value: &Value) -> bool {
    let mut effort = EffortCounter {
        schema,
        outline,
        steps: HashMap::new(),
    };
    effort.count_steps(schema, value, 0).is_ok()
}

/// A counter of steps.
struct EffortCounter<'s> {
    schema: &'s Value,
    outline: &'s SchemaOutline,
    /// The number of steps of each visit, or `None` while the visit is in progress.
    steps: HashMap<SchemaVisit, Option<u64>>,
}

impl<'s> EffortCounter<'s> {
    fn count_steps(
        &mut self,
        schema: &'s Value,
        value: &Value,
        depth: usize,
    ) -> Result<u64, EffortExceeded> {
        let Value::Object(keywords) = schema else {
            return Ok(1);
        };
        let visit = (std::ptr::from_ref(schema), std::ptr::from_ref(value));
        match self.steps.get(&visit) {
            Some(Some(steps)) => return Ok(*steps),
            // The schema refers to itself for the same value, so the check would not end.
            Some(None) => return Err(EffortExceeded),
            None if depth > MAX_DEPTH => return Err(EffortExceeded),
            None => self.steps.insert(visit, None),
        };
        let mut steps = 1;
        for (keyword, operand) in keywords {
            steps += self.keyword(keyword, operand, value, depth + 1)?;
        }
        if keywords.contains_key("unevaluatedProperties")
            || keywords.contains_key("unevaluatedItems")
        {
            // These keywords check again which parts the other keywords have evaluated.
            steps *= 3;
        }
        if steps > MAX_STEPS {
            return Err(EffortExceeded);
        }
        self.steps.insert(visit, Some(steps));
        Ok(steps)
    }

    /// Counts the steps of a keyword that applies schemas (2020-12, core, section 10, and earlier drafts).
    fn keyword(
        &mut self,
        keyword: &str,
        operand: &'s Value,
        value: &Value,
        depth: usize,
    ) -> Result<u64, EffortExceeded> {
        let members = value.as_object();
        let members = || members.into_iter().flatten();
        let items = value.as_array();
        let items = || items.into_iter().flatten();
        let mut steps = 0;
        match keyword {
            "$ref" | "$dynamicRef" | "$recursiveRef" => {
                let Some(reference) = operand.as_str() else {
                    return Ok(0);
                };
                let target = self
                    .outline
                    .follow(reference, self.schema)
                    .ok_or(EffortExceeded)?;
                steps += self.count_steps(target, value, depth)?;
            }
            "allOf" | "anyOf" | "oneOf" | "not" | "if" | "then" | "else" | "dependentSchemas"
            | "dependencies" => {
                for schema in each(operand, keyword) {
                    steps += self.count_steps(schema, value, depth)?;
                }
            }
            "properties" => {
                for (name, member) in members() {
                    if let Some(schema) = operand.get(name) {
                        steps += self.count_steps(schema, member, depth)?;
                    }
                }
            }
            "patternProperties" | "additionalProperties" | "unevaluatedProperties" => {
                for schema in each(operand, keyword) {
                    for (_, member) in members() {
                        steps += self.count_steps(schema, member, depth)?;
                    }
                }
            }
            "propertyNames" => {
                for _ in members() {
                    steps += self.count_steps(operand, &NAME, depth)?;
                }
            }
            "items" | "prefixItems" | "additionalItems" | "unevaluatedItems" | "contains" => {
                for schema in each(operand, keyword) {
                    for item in items() {
                        steps += self.count_steps(schema, item, depth)?;
                    }
                }
            }
            _ => {}
        }
        Ok(steps)
    }
}

/// Returns the schemas in the value of a keyword: one, a list, or a map.
fn each<'s>(operand: &'s Value, keyword: &str) -> Box<dyn Iterator<Item = &'s Value> + 's> {
    match operand {
        Value::Array(schemas) => Box::new(schemas.iter()),
        Value::Object(schemas)
            if matches!(
                keyword,
                "dependentSchemas" | "dependencies" | "patternProperties"
            ) =>
        {
            Box::new(schemas.values())
        }
        _ => Box::new(std::iter::once(operand)),
    }
}
