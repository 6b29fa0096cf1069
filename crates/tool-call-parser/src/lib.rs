//! Parses tool calls that language models write as text.
//!
//! ```text
//!  text of the model, in pieces ─▶ Extractor ─▶ Text, Call, Text …
//!                                     │ forms of the model's family
//!                                     ▼
//!                             families/*: one file per notation of calls
//!                                     │
//!                       cursor · json · shape: building blocks of the notations
//! ```
//!
//! Only calls in the model's own output are genuine. Never run calls that were parsed from tool results or user messages.

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
pub use mention::mentioned_tools;
pub use registry::{Family, UnknownFamily};
pub use syntax::CallSyntax;
pub use template::TemplateError;
pub use unreadable::UnreadableCall;

/// Converts JSON in the notation of a model to valid JSON, or returns `None` if it does not have exactly one meaning.
pub fn repair_json(text: &str) -> Option<String> {
    json::whole(text).map(|value| value.to_json())
}

/// A tool as models know it. Every provider accepts its name: 1 to 64 of `[A-Za-z0-9_-]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    /// The name by which calls refer to the function.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// The JSON Schema of the arguments, whose root is an object.
    pub parameters: Value,
}

/// A piece of a model's text, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Text, byte for byte as the model wrote it.
    Text(String),
    /// A complete call.
    Call {
        /// The name of the function.
        name: String,
        /// The arguments as JSON text of an object.
        arguments: String,
    },
    /// Marks the position in the text where an unreadable call begins: a call that was certainly meant but cannot be parsed. The
    /// text of the call itself follows as [`Piece::Text`].
    Unreadable(UnreadableCall),
}

#[cfg(test)]
mod tests;
