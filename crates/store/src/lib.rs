//! What every store of a service shares: which one is configured, and how it comes to its schema.
//!
//! ```text
//!   `sqlite:PATH` │ `postgres://…` ──▶ Address        versions 1 … n ──▶ sqlite::migrate │ postgres::migrate
//! ```
//!
//! One job: that audit, memory and tool-runner read the same setting alike and migrate alike. Tables, statements and
//! pools are each service's own.

mod address;
mod migration;
pub mod postgres;
pub mod sqlite;

pub use address::{Address, NotAStore};
pub use migration::MigrationError;
