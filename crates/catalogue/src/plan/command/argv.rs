//! The arguments of a program. Each configured word becomes exactly one argument, whatever the values are, except that a
//! list becomes one argument per element.
//!
//! ```text
//!   [log, "--max-count={limit}", "{order}", "--", "{path}", "{tags}"]
//!                  │                 │               │         └ a list: one argument per element
//!                  │                 │               └ after `--`: may begin with `-`
//!                  │                 └ begins with a placeholder: a value that begins with `-` is rejected
//!                  └ begins with text: the value is part of this option
//! ```

use serde_json::{Map, Value};

use crate::template::{Filter, Template, UnfitValue};

/// Maximum length of one argument in bytes, a limit of the kernel (`MAX_ARG_STRLEN`, which includes the terminating NUL).
const LONGEST: usize = 128 * 1_024 - 1;

/// The arguments of a program, with placeholders.
#[derive(Debug, Clone)]
pub struct Argv(Vec<ArgvWord>);

#[derive(Debug, Clone)]
struct ArgvWord {
    template: Template,
    /// Whether the argument must not begin with `-`, so that a value cannot turn it into an option.
    is_guarded: bool,
}

impl Argv {
    /// Creates the arguments from one template per word.
    pub fn new(templates: Vec<Template>) -> Self {
        let mut is_behind_dashes = false;
        let words = templates.into_iter().map(|template| {
            let is_placed_first =
                template.prefix().is_empty() && template.places().next().is_some();
            let word = ArgvWord {
                is_guarded: is_placed_first && !is_behind_dashes,
                template,
            };
            is_behind_dashes |=
                word.template.prefix() == "--" && word.template.places().next().is_none();
            word
        });
        Self(words.collect())
    }

    /// Returns the arguments for one call.
    pub fn fill(&self, values: &Map<String, Value>) -> Result<Vec<String>, UnfitValue> {
        let mut arguments = Vec::with_capacity(self.0.len());
        for word in &self.0 {
            match word.list(values) {
                Some(elements) => {
                    for element in elements {
                        arguments.push(word.check_argument(text_of(element))?);
                    }
                }
                None => arguments.push(word.check_argument(word.template.fill_plain(values)?)?),
            }
        }
        Ok(arguments)
    }
}

impl ArgvWord {
    /// Returns the elements of the list if the word is a single placeholder whose value is a list.
    fn list<'v>(&self, values: &'v Map<String, Value>) -> Option<&'v [Value]> {
        let place = self.template.only_place()?;
        match values.get(&place.name)? {
            Value::Array(elements) if place.filter == Filter::Plain => Some(elements),
            _ => None,
        }
    }

    fn check_argument(&self, argument: String) -> Result<String, UnfitValue> {
        if self.is_guarded && argument.starts_with('-') {
            return Err(self.unfit("must not begin with `-`"));
        }
        if argument.contains('\0') {
            return Err(self.unfit("must not contain a NUL character"));
        }
        if argument.len() > LONGEST {
            return Err(self.unfit("exceeds the maximum length of a command line"));
        }
        Ok(argument)
    }

    fn unfit(&self, problem: &'static str) -> UnfitValue {
        let place = self.template.places().next();
        UnfitValue {
            argument: place.map(|place| place.name.clone()).unwrap_or_default(),
            problem,
        }
    }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
