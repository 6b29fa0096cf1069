//! `${NAME}` and `${NAME:-default}` in the texts of a provider or the name of a model.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use serde_json::Value;
use wardgate_domain::variable::{self, FillError};

/// Where values come from: the configured ones, then the environment.
pub(crate) struct Variables<'a> {
    configured: &'a BTreeMap<String, String>,
    /// Names that are set nowhere and have no default.
    missing: BTreeSet<String>,
}

/// A `${` that is never closed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnclosedVariable;

impl<'a> Variables<'a> {
    pub(crate) fn new(configured: &'a BTreeMap<String, String>) -> Self {
        Self {
            configured,
            missing: BTreeSet::new(),
        }
    }

    /// The names that were asked for in vain.
    pub(crate) fn missing(self) -> BTreeSet<String> {
        self.missing
    }

    /// Fills in every text of `value`.
    pub(crate) fn fill(&mut self, value: &mut Value) -> Result<(), UnclosedVariable> {
        match value {
            Value::String(text) => *text = self.text(text)?,
            Value::Array(items) => items.iter_mut().try_for_each(|item| self.fill(item))?,
            Value::Object(members) => {
                members
                    .iter_mut()
                    .try_for_each(|(_, item)| self.fill(item))?;
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        Ok(())
    }

    /// `text`, filled in.
    pub(crate) fn text(&mut self, text: &str) -> Result<String, UnclosedVariable> {
        let filled = variable::fill(text, |reference| {
            let value = variable::look_up(reference, self.configured);
            Ok::<_, Infallible>(value.unwrap_or_else(|name| {
                self.missing.insert(name.to_owned());
                String::new()
            }))
        });
        filled.map_err(|unfilled| match unfilled {
            FillError::Unclosed => UnclosedVariable,
            FillError::Reference(never) => match never {},
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_set_is_filled_in_and_what_is_not_is_named() {
        let configured = BTreeMap::from([("HOST".to_owned(), "h".to_owned())]);
        let mut variables = Variables::new(&configured);
        let mut value = json!({"a": ["http://${HOST}/v1"], "b": "${NOT_SET_A:-x}${NOT_SET_B:-}", "c": "${NOT_SET_C}"});
        variables.fill(&mut value).unwrap();
        assert_eq!(value, json!({"a": ["http://h/v1"], "b": "x", "c": ""}));
        assert_eq!(variables.text("${HOST"), Err(UnclosedVariable));
        assert_eq!(
            variables.missing(),
            BTreeSet::from(["NOT_SET_C".to_owned()])
        );
    }
}
