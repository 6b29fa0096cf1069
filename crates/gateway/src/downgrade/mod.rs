//! What each version knows of what is newer than it, in one place.
//!
//! | client | does not get |
//! |---|---|
//! | up to 2025-11-25 | structured content that is no object, or an output schema of any; such content always has a text that says the same |
//! | up to 2025-06-18 | icons |
//! | up to 2025-03-26 | structured content, output schemas, titles, `_meta` of definitions; a link to a resource is a text |
//! | 2024-11-05 | annotations of tools; a sound is a text |
//! | any | `execution` of tools, which is about tasks of 2025-11-25 |
//!
//! Requests for input are adapted in `client_interaction::input_requests`, progress in `client_interaction` itself. Everything that
//! a version knows stays byte for byte.

mod contents;
mod definition;

pub(crate) use self::contents::{given, tool_content, tool_structured};
pub(crate) use self::definition::{Definition, DefinitionKind};
