//! Conversations, and what was said in them.
//!
//! ```text
//!   add ──▶ rights of now ──▶ seal ──▶ SQLite │ PostgreSQL ──▶ open ──▶ rights of now ──▶ read
//!            (policy)       key of the                                    (policy)
//!                          conversation ◀── destroyed, on record: erased
//! ```
//!
//! One job: keep each conversation for its owner alone, in one order, readable only as far as the reader's rights reach
//! today, and gone when it is erased.

mod callers;
mod change_feed;
mod config;
mod conversation_methods;
mod erasure;
mod error;
mod maintenance;
mod names;
mod owner;
mod rights;
mod sealing;
mod service;
mod store;
mod tool_digest;
mod wire;
mod words;

pub use config::{Config, OwnerLimits, Retention};
pub use error::Error;
pub use sealing::MasterKey;
pub use service::service;
pub use store::LAYOUT;

#[cfg(test)]
mod tests;
