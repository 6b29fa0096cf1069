//! The vocabulary of the Model Context Protocol: versions, messages, headers, event streams, `_meta` keys, error codes,
//! extensions, and arguments that are mirrored as headers.
//!
//! Each term is defined only here, with the version that introduced it. The crate does no input or output.

pub mod error_code;
pub mod event_stream;
pub mod extension;
pub mod header;
pub mod message;
pub mod meta;
pub mod mirrored_header;
mod version;

pub use version::{Era, ParseVersionError, Version};
