//! Calls of models that write them as text.
//!
//! ```text
//!  text of the model, piece by piece ─▶ Extractor ─▶ Text, Call, Text …
//!                                          │ forms of the model's family
//!                                          ▼
//!                                  families/*: one file for each way to write a call
//!                                          │
//!                            cursor · json · shape: what they are built of
//! ```
//!
//! Only what a model says is ever given to it; never what a tool gave or a person wrote.

mod cursor;
mod extractor;
mod families;
mod json;
mod reading;
mod shape;
mod tools;

#[cfg(test)]
mod tests;

use families::{bare_json, fenced, hermes, tool_parameters};
use reading::Form;

pub(crate) use extractor::Extractor;

/// What a model's text is made of, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Byte for byte as the model wrote it.
    Text(String),
    /// A whole call; its arguments are JSON text of an object.
    Call { name: String, arguments: String },
}

/// Models that write calls alike.
#[derive(Debug, Clone, Copy, Default)]
pub struct Family(Option<&'static Known>);

#[derive(Debug)]
struct Known {
    /// The first one is its name; the others are what models and servers call it.
    names: &'static [&'static str],
    forms: &'static [&'static Form],
}

/// The registry. A name that another one starts with stands after it.
static FAMILIES: [Known; 1] = [Known {
    names: &["hermes", "qwen", "qwq", "nous"],
    forms: &[&hermes::FORM, &hermes::COMMON_TAGS],
}];

/// What any model may write, whatever its family: what the prompt asks for, and plain JSON.
static COMMON: [&Form; 3] = [&tool_parameters::FORM, &fenced::FORM, &bare_json::FORM];

impl Family {
    /// Any of them, told by their openings.
    pub const UNKNOWN: Self = Self(None);

    fn forms(self) -> Vec<&'static Form> {
        let mut forms: Vec<&'static Form> = Vec::new();
        let own: Vec<&Known> = match self.0 {
            Some(known) => vec![known],
            None => FAMILIES.iter().collect(),
        };
        let own = own.into_iter().flat_map(|it| it.forms);
        for form in own.chain(&COMMON).copied() {
            if !forms.iter().any(|it| std::ptr::eq(*it, form)) {
                forms.push(form);
            }
        }
        forms
    }
}
