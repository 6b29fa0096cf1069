//! The words behind a program's name. Each configured word stays exactly one argument, whatever the values.
//!
//! ```text
//!   [log, "--max-count={limit}", "{order}", "--", "{path}", "{tags}"]
//!                  │                 │               │         └ a list: one argument per element
//!                  │                 │               └ behind `--`: may begin with `-`
//!                  │                 └ begins with a placeholder: a value that begins with `-` is refused
//!                  └ begins with text: the value is part of this option
//! ```

use serde_json::{Map, Value};

use crate::template::{Filter, Template, UnfitValue};

/// The kernel takes no longer one (`MAX_ARG_STRLEN`, with the NUL behind it).
const LONGEST: usize = 128 * 1_024 - 1;

/// The words behind a program's name.
#[derive(Debug, Clone)]
pub struct Argv(Vec<ArgvWord>);

#[derive(Debug, Clone)]
struct ArgvWord {
    template: Template,
    /// Values must not make it an option.
    is_guarded: bool,
}

impl Argv {
    /// Of one template a word.
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

    /// The arguments for one call.
    pub fn fill(&self, values: &Map<String, Value>) -> Result<Vec<String>, UnfitValue> {
        let mut arguments = Vec::with_capacity(self.0.len());
        for word in &self.0 {
            match word.list(values) {
                Some(elements) => {
                    for element in elements {
                        arguments.push(word.checked(text_of(element))?);
                    }
                }
                None => arguments.push(word.checked(word.template.fill_plain(values)?)?),
            }
        }
        Ok(arguments)
    }
}

impl ArgvWord {
    /// The elements, where the word is one placeholder of a list.
    fn list<'v>(&self, values: &'v Map<String, Value>) -> Option<&'v [Value]> {
        let place = self.template.only_place()?;
        match values.get(&place.name)? {
            Value::Array(elements) if place.filter == Filter::Plain => Some(elements),
            _ => None,
        }
    }

    fn checked(&self, argument: String) -> Result<String, UnfitValue> {
        if self.is_guarded && argument.starts_with('-') {
            return Err(self.unfit("must not begin with `-`"));
        }
        if argument.contains('\0') {
            return Err(self.unfit("must not hold a NUL character"));
        }
        if argument.len() > LONGEST {
            return Err(self.unfit("is too long for a command line"));
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
