//! Prompts and resources: which there are, and how one is got.
//!
//! ```text
//!   tools.yaml ──▶ own ───────┐
//!   MCP servers ─▶ upstream ──┴▶ contents: the lists, and who has what
//!                                   │
//!   GetContent ─▶ request: source ─▶ permit ─▶ get ─▶ redact ─▶ result
//!                           └ refused: nothing was got
//!   WatchResources ─▶ watch: source ─▶ permits ─▶ which are watched ─▶ changed ─▶ changed ─▶ …
//! ```

mod contents;
mod error;
mod released;
mod request;
mod upstream;
mod watch;

pub(crate) use contents::Contents;
pub(crate) use error::GetError;
pub(crate) use request::{ContentQuery, admit};
pub(crate) use upstream::{Following, in_content, in_content_text};
pub(crate) use watch::{InForce, WatchAsked, admit as admit_watch};
