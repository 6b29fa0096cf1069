//! Arguments of a call against the input schema of its tool.
//!
//! ```text
//!   JSON text ──▶ members, unread ──▶ each value, coerced without loss ──▶ defaults ──▶ JSON Schema ──▶ Arguments
//!                                                 │                                        │
//!                                                 └────────── InvalidArguments ◀───────────┘
//! ```
//!
//! One job: say whether arguments fit, and if not, what to mend. Complaints name the argument and the rule; no value
//! ever shows in one, so they may be logged and told to a model.
//!
//! - `"10"` is 10 and `10.0` is 10 where a whole number is wanted; `10.5` and `"1O"` are not. Numbers keep
//!   their digits, however many, also where a text is wanted. Whatever would lose something is refused.
//! - Schemas are JSON Schema 2020-12. A `$ref` points inside its schema only; nothing is ever fetched.
//!
//! ```
//! use serde_json::json;
//! use wardgate_arguments::{Arguments, InputSchema};
//!
//! let schema = InputSchema::closed(&json!({
//!     "type": "object",
//!     "properties": { "city": { "type": "string" }, "days": { "type": "integer", "default": 3 } },
//!     "required": ["city"],
//! }))?;
//!
//! let arguments = Arguments::read(&schema, br#"{"city": "Hue", "days": "5"}"#)?;
//! assert_eq!(arguments.values()["days"], json!(5));
//!
//! let invalid = Arguments::read(&schema, b"{}").unwrap_err();
//! assert_eq!(invalid.to_string(), "Invalid arguments: `city` is required");
//! assert_eq!(invalid.complaints()[0].path, "/city");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arguments;
mod coerce;
mod compiled;
mod schema;
mod unusable_schema;

pub use arguments::{ArgumentFault, Arguments, InvalidArguments, as_seen};
pub use schema::{InputSchema, JsonType, Property, default_fits};
pub use unusable_schema::UnusableSchema;
