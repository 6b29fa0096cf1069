//! What every store of a service shares: which one is configured, how it comes to its schema, and how the same
//! statements run on either backend.
//!
//! ```text
//!   `sqlite:PATH` │ `postgres://…` ──▶ Address        versions 1 … n ──▶ sqlite::migrate │ postgres::migrate
//!                                         └──▶ Database ──▶ Transaction ──▶ statements, values bound
//! ```
//!
//! One job: that services read the same setting alike, migrate alike and speak to either backend alike. Tables,
//! statements and limits are each service's own; audit, whose one table is written in batches, has its own connections.

mod address;
mod database;
mod migration;
pub mod postgres;
pub mod sqlite;

pub use address::{Address, NotAStore};
pub use database::{Database, Layout, Row, Statement, Transaction, Value};
pub use migration::MigrationError;
