//! Prompts and resources: the lists of those in force, and access to their contents.
//!
//! ```text
//!   tools.yaml ──▶ catalogue ─┐
//!   MCP servers ─▶ upstream ──┴▶ contents: the lists and the source of each item
//! ```

mod contents;
mod error;
mod lists;
mod subject;
mod upstream;

use bytes::Bytes;

pub(crate) use contents::{Contents, Origin};
pub(crate) use error::GetError;
pub(crate) use lists::{ContentLists, ListedContent};
pub(crate) use subject::DecisionSubject;
pub(crate) use upstream::{FollowedContent, UpstreamContent};

/// Maximum number of values in one completion (MCP, "completion/complete").
pub(crate) const MAX_VALUES: usize = 100;

/// The part of an argument that a client has written and wants completed.
pub(crate) struct CompletionRequest {
    /// The name of the argument.
    pub(crate) argument: String,
    /// The text written so far.
    pub(crate) value: String,
    /// The arguments that are already known, as one JSON object of strings. Empty if there are none.
    pub(crate) known: Bytes,
}
