//! Prompts and resources: which there are, and the story of getting one.
//!
//! ```text
//!   tools.yaml ─▶ own ─▶ contents: the lists, and who has what
//!                           │
//!   GetContent ─▶ story: source ─▶ permit ─▶ get ─▶ redact ─▶ result
//!                           └ refused: nothing was got
//! ```

mod contents;
mod own;
mod released;
mod story;

pub(crate) use contents::Contents;
pub(crate) use own::{CONTENT, Own};
pub(crate) use story::{Asked, admit};
