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

#[cfg(test)]
mod tests;

pub(crate) use extractor::Extractor;
pub use lines::{FailedLines, extract_calls};
pub(crate) use mention::mentioned;
pub use registry::{Family, UnknownFamily};
pub use syntax::CallSyntax;
pub use template::TemplateError;
pub(crate) use unreadable::UnreadableCall;

/// JSON that a model wrote by its own rules, as JSON; none where it can have no one meaning.
pub(crate) fn mended(text: &str) -> Option<String> {
    json::whole(text).map(|value| value.to_json())
}

/// What a model's text is made of, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Byte for byte as the model wrote it.
    Text(String),
    /// A whole call; its arguments are JSON text of an object.
    Call { name: String, arguments: String },
    /// Takes up none of the text: here begins what surely was meant as a call, and is none.
    Unreadable(UnreadableCall),
}
