//! Validation of the arguments of a call against the input schema of its tool.
//!
//! ```text
//!   JSON text ──▶ members, unread ──▶ each value, coerced without loss ──▶ defaults ──▶ JSON Schema ──▶ Arguments
//!                                                 │                                        │
//!                                                 └────────── InvalidArguments ◀───────────┘
//! ```
//!
//! This crate decides whether arguments fit, and if not, how to correct them. Messages name the argument and the rule and
//! never contain a value, so they can be logged and returned to a model.
//!
//! - `"10"` and `10.0` are accepted as 10 where an integer is required; `10.5` and `"1O"` are not. Numbers keep all of their
//!   digits, also where a string is required. A number with more than 1,000 digits on either side of the decimal point is
//!   rejected where a number is required, and so is any coercion that would lose something.
//! - Schemas are JSON Schema 2020-12. A `$ref` can only refer to the same schema; nothing is ever fetched.
//!
//! ```
//! use serde_json::json;
//! use wardgate_arguments::{Arguments, InputSchema};
//!
//! let schema = InputSchema::compile_closed(&json!({
//!     "type": "object",
//!     "properties": { "city": { "type": "string" }, "days": { "type": "integer", "default": 3 } },
//!     "required": ["city"],
//! }))?;
//!
//! let arguments = Arguments::parse(&schema, br#"{"city": "Hue", "days": "5"}"#)?;
//! assert_eq!(arguments.values()["days"], json!(5));
//!
//! let invalid = Arguments::parse(&schema, b"{}").unwrap_err();
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
