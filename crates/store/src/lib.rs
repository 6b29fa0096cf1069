//! What every store of a service shares: which one is configured, how it comes to its schema, and how the same
//! statements run on either backend.
//!
//! ```text
//!   `sqlite:PATH` │ `postgres://…` ──▶ Address ──▶ Layout::migrate: versions 1 … n, and what the service's role may
//!                                         └──▶ Database ──▶ Transaction ──▶ statements, values bound
//! ```
//!
//! One job: that services read the same setting alike, migrate alike and speak to either backend alike. Tables,
//! statements and limits are each service's own; audit, whose one table is written in batches, has its own connections.

mod address;
mod busy;
mod database;
mod layout;
mod migration;
pub mod postgres;
mod rates;
mod settings;
pub mod sqlite;
mod tls;

pub use address::{Address, NotAStore};
pub use busy::{StartWait, is_busy};
pub use database::{Database, Row, Statement, Transaction, Value};
pub use layout::Layout;
pub use migration::{MigratedVersions, MigrationError};
pub use rates::RateStatements;
pub use settings::{DatabaseSettings, NotARole, Role};
pub use tls::{is_this_machine, verify_server};
