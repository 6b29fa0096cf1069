//! A schema compiled once. Whatever it says, checking a value against it takes bounded time, memory and stack.

mod effort;
mod outline;

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

use crate::unusable_schema::UnusableSchema;
use effort::is_bearable;
use outline::SchemaOutline;

/// Nothing is fetched, and patterns run in linear time.
#[derive(Debug)]
pub(crate) struct CompiledSchema {
    validator: Validator,
    /// Of a schema that leads from one part of it to another, where a short text can ask for endless work.
    winding: Option<(Value, SchemaOutline)>,
}

/// Why a value does not satisfy the schema.
pub(crate) enum SchemaViolation<'i> {
    /// It breaks these rules; there is one at least.
    Rules(Vec<ValidationError<'i>>),
    /// To check it would take too long.
    TooMuch,
}

impl CompiledSchema {
    pub(crate) fn new(schema: Value) -> Result<Self, UnusableSchema> {
        let outline = SchemaOutline::of(&schema)?;
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

    /// Tells `most` faults of `value` at most.
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
