//! A compiled schema. Checking a value against it takes bounded time, memory and stack, whatever the schema contains.

mod effort;
mod outline;

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

use crate::unusable_schema::UnusableSchema;
use effort::is_bearable;
use outline::SchemaOutline;

/// A compiled schema that fetches nothing and whose patterns run in linear time.
#[derive(Debug)]
pub(crate) struct CompiledSchema {
    validator: Validator,
    /// The source of the schema if it has references or unevaluated keywords, with which a short value can cause unbounded
    /// work.
    winding: Option<(Value, SchemaOutline)>,
}

/// The reason why a value does not satisfy the schema.
pub(crate) enum SchemaViolation<'i> {
    /// The value violates these rules, at least one.
    Rules(Vec<ValidationError<'i>>),
    /// Checking the value would take too many steps.
    TooMuch,
}

impl CompiledSchema {
    pub(crate) fn new(schema: Value) -> Result<Self, UnusableSchema> {
        let outline = SchemaOutline::from_schema(&schema)?;
        let validator = jsonschema::options()
            .offline()
            .should_validate_formats(true)
            .should_ignore_unknown_formats(true)
            .with_pattern_options(PatternOptions::regex())
            .build(&schema)
            .map_err(|error| UnusableSchema::Invalid {
                path: error.instance_path().as_str().to_owned(),
                problem: error.to_string(),
            })?;
        let winding = outline.is_winding().then_some((schema, outline));
        Ok(Self { validator, winding })
    }

    /// Checks `value` and returns at most `most` faults.
    pub(crate) fn check<'i>(
        &'i self,
        value: &'i Value,
        most: usize,
    ) -> Result<(), SchemaViolation<'i>> {
        if let Some((schema, outline)) = &self.winding
            && !is_bearable(schema, outline, value)
        {
            return Err(SchemaViolation::TooMuch);
        }
        if self.validator.is_valid(value) {
            return Ok(());
        }
        let errors = self.validator.iter_errors(value);
        Err(SchemaViolation::Rules(errors.take(most).collect()))
    }
}
