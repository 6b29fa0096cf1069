//! Reads the tool calls of models that write them as text.
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
mod lines;
mod mention;
mod reading;
mod registry;
mod shape;
mod state;
mod syntax;
mod template;
mod tokens;
mod tools;
mod unreadable;

use serde_json::Value;

pub use extractor::Extractor;
pub use lines::{FailedLines, extract_calls};
pub use mention::mentioned;
pub use registry::{Family, UnknownFamily};
pub use syntax::CallSyntax;
pub use template::TemplateError;
pub use unreadable::UnreadableCall;

/// JSON that a model wrote by its own rules, as JSON; none where it can have no one meaning.
pub fn mended(text: &str) -> Option<String> {
    json::whole(text).map(|value| value.to_json())
}

/// A tool as models know it. The name is one that every provider takes: 1 to 64 of `[A-Za-z0-9_-]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    /// What calls name it by.
    pub name: String,
    /// What it is for, in words for the model.
    pub description: String,
    /// JSON Schema of its arguments, an object at the root.
    pub parameters: Value,
}

/// What a model's text is made of, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Byte for byte as the model wrote it.
    Text(String),
    /// A whole call.
    Call {
        /// Of the function.
        name: String,
        /// JSON text of an object.
        arguments: String,
    },
    /// Takes up none of the text: here begins what surely was meant as a call, and is none.
    Unreadable(UnreadableCall),
}

#[cfg(test)]
mod tests;
