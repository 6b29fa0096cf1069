//! Storage of conversations and their messages.
//!
//! ```text
//!   add ──▶ current rights ──▶ seal ──▶ SQLite │ PostgreSQL ──▶ open ──▶ current rights ──▶ read
//!              (policy)      key of the                                     (policy)
//!                           conversation ◀── destroyed, on record: erased
//! ```
//!
//! The service keeps each conversation private to its owner and in one order. A reader sees only what the reader's
//! rights allow today, and nothing once the conversation is erased.

mod callers;
mod change_feed;
mod config;
mod conversation_methods;
mod erasure;
mod error;
mod maintenance;
mod names;
mod owner;
mod rekey;
mod rights;
mod sealing;
mod service;
mod store;
mod tool_digest;
mod wire;
mod words;

pub use config::{Config, OwnerLimits, Retention};
pub use error::Error;
pub use rekey::{RekeyEvent, RekeyOutcome, rekey};
pub use sealing::{MasterKey, MasterKeys};
pub use service::service;
pub use store::LAYOUT;

#[cfg(test)]
mod tests;
