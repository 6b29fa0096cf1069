//! The words of the Model Context Protocol: versions, messages, headers, event streams, `_meta` keys,
//! error codes, extensions, arguments that are mirrored as headers.
//!
//! Each word is written here once, with the version that brought it. The crate does no input or output.

pub mod error_code;
pub mod event_stream;
pub mod extension;
pub mod header;
pub mod message;
pub mod meta;
pub mod mirrored_header;
mod version;

pub use version::{Era, ParseVersionError, Version};
