//! What a service has in a database, and how it gets there.

use std::time::Duration;

use sqlx::{ConnectOptions, Connection};

use crate::migration::{MigratedVersions, MigrationError, check};
use crate::postgres::Schema;
use crate::{Address, Role, sqlite};

/// What a service has in a database.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// In PostgreSQL.
    pub schema: Schema,
    /// In SQLite: version n of the schema is what the first n of these make; they never change once released.
    pub sqlite: &'static [&'static str],
    /// How long one statement may take.
    pub limit: Duration,
}

/// How long a migration waits for a table that somebody else uses: whoever comes after it waits as well.
const LOCK_TIMEOUT: &str = "5s";

impl Layout {
    /// Whether this program can work with a store of version `found` as it is.
    pub fn check(&self, found: i64) -> Result<(), MigrationError> {
        check(self.sqlite, found)
    }

    /// Brings the store at `address` to its newest version, and lets `role` do with it what the service does. Takes as
    /// long as it takes.
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
