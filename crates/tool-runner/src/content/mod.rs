//! Prompts and resources: which there are, and who has them.
//!
//! ```text
//!   tools.yaml ──▶ catalogue ─┐
//!   MCP servers ─▶ upstream ──┴▶ contents: the lists, and who has what
//! ```

mod contents;
mod error;
mod subject;
mod upstream;

use bytes::Bytes;

pub(crate) use contents::{ContentLists, Contents, ListedContent, Origin};
pub(crate) use error::GetError;
pub(crate) use subject::DecisionSubject;
pub(crate) use upstream::{FollowedContent, UpstreamContent};

/// Most values of one completion (MCP, "completion/complete").
pub(crate) const MAX_VALUES: usize = 100;

/// What a client has written of an argument that is to be completed.
pub(crate) struct CompletionRequest {
    /// Name of the argument.
    pub(crate) argument: String,
    /// What is written so far.
    pub(crate) value: String,
    /// Arguments that are known already: one JSON object of texts; empty: none.
    pub(crate) known: Bytes,
}
