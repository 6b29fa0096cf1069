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

pub(crate) use contents::{Contents, Origin};
pub(crate) use error::GetError;
pub(crate) use subject::DecisionSubject;
pub(crate) use upstream::{FollowedContent, UpstreamContent};

/// Most values of one completion (MCP, "completion/complete").
pub(crate) const MAX_VALUES: usize = 100;
