//! The common parts of the stores of all services: their addresses, their migrations, and statements that run on both
//! SQLite and PostgreSQL.
//!
//! ```text
//!   `sqlite:PATH` │ `postgres://…` ──▶ Address ──▶ Layout::migrate: versions 1 … n, and the rights of the service's role
//!                                         └──▶ Database ──▶ Transaction ──▶ statements with bound values
//! ```
//!
//! All services parse the same settings, migrate and use both backends in the same way. Each service defines its
//! tables, statements and limits. The audit service, whose only table is written in batches, opens its own connections.

mod address;
mod busy;
mod database;
mod error_code;
mod layout;
mod migration;
pub mod postgres;
mod rates;
mod rekey;
mod settings;
pub mod sqlite;
mod tls;

pub use address::{Address, NotAStore};
pub use busy::{StartWait, prepare_when_free};
pub use database::{Database, Row, Statement, Transaction, Value};
pub use error_code::{is_busy, is_corrupt, is_corrupt_index, is_io_failure};
pub use layout::Layout;
pub use migration::{MigratedVersions, MigrationError};
pub use rates::RateStatements;
pub use rekey::{RekeyProgress, pause_after_batch, retry_step};
pub use settings::{DatabaseSettings, NotARole, Role};
pub use tls::{is_this_machine, verify_server, without_brackets};
