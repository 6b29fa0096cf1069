//! The database schema of a service, and its migration.

use std::time::Duration;

use sqlx::{ConnectOptions, Connection};

use crate::migration::{MigratedVersions, MigrationError, check};
use crate::postgres::Schema;
use crate::{Address, Role, sqlite};

/// The database schema of a service.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// The schema for PostgreSQL.
    pub schema: Schema,
    /// The migrations for SQLite. The first n of them make version n. Released migrations never change.
    pub sqlite: &'static [&'static str],
    /// Maximum time that one statement may take.
    pub limit: Duration,
}

/// Maximum time for which a migration waits for the lock of a table, because later statements on the table wait behind it.
const LOCK_TIMEOUT: &str = "5s";

impl Layout {
    /// Checks that this program can work with a store of version `found`.
    pub fn check(&self, found: i64) -> Result<(), MigrationError> {
        check(self.sqlite, found)
    }

    /// Brings the store at `address` to its newest version, and grants `role` the rights that the service needs. There
    /// is no time limit.
    pub async fn migrate(
        &self,
        address: &Address,
        role: Option<&Role>,
    ) -> Result<MigratedVersions, MigrationError> {
        match address {
            Address::Sqlite(path) => {
                let options = sqlite::options(path, self.limit).create_if_missing(true);
                let mut connection = options.connect().await?;
                sqlite::restrict_access(path);
                let migrated = sqlite::migrate(&mut connection, self.sqlite).await?;
                connection.close().await?;
                Ok(migrated)
            }
            Address::Postgres(server) => {
                let connection = server.connect(|options| {
                    let options = options.application_name("wardgate migrate");
                    options.options([("lock_timeout", LOCK_TIMEOUT)])
                });
                let mut connection = connection.await?;
                let migrated = self.schema.migrate(&mut connection).await?;
                if let Some(role) = role {
                    self.schema.grant(&mut connection, role).await?;
                }
                connection.close().await?;
                Ok(migrated)
            }
        }
    }
}
