//! PostgreSQL: each service has a schema of its own in any database, with its version in it.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, PgPool};

use crate::migration::{MigrationError, missing};

/// The schema of one service.
#[derive(Debug, Clone, Copy)]
pub struct Schema {
    /// Its name in the database.
    pub name: &'static str,
    /// One start at a time; any number that no other program is likely to lock.
    pub lock: i64,
    /// Version n is what the first n of these make; they never change once released.
    pub migrations: &'static [&'static str],
}

/// Connections of one pool.
const CONNECTIONS: u32 = 8;

impl Schema {
    /// Connects on first use, known to the server as `wardgate` and the service. No statement takes longer than `limit`.
    pub fn pool(&self, options: &PgConnectOptions, limit: Duration) -> PgPool {
        // The server gives a statement up no later than whoever waits for it.
        let statements = format!("{}ms", limit.as_millis());
        let options = options
            .clone()
            .application_name(&format!("wardgate {}", self.name.replace('_', "-")))
            .options([
                ("synchronous_commit", "on"),
                ("statement_timeout", statements.as_str()),
            ]);
        PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(limit)
            .connect_lazy_with(options)
    }

    /// Brings the schema to its newest version, all or nothing, making it when it is absent.
    pub async fn migrate(&self, connection: &mut PgConnection) -> Result<(), MigrationError> {
        let Self { name, .. } = self;
        let mut transaction = connection.begin().await?;
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .bind(self.lock)
            .execute(&mut *transaction)
            .await?;
        // Looked up first: `IF NOT EXISTS` still asks for the right to create what is there already.
        let exists: bool = sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL")
            .bind(format!("{name}.schema_version"))
            .fetch_one(&mut *transaction)
            .await?;
        if !exists {
            let make = format!(
                "CREATE SCHEMA IF NOT EXISTS {name};
                 CREATE TABLE {name}.schema_version (version bigint NOT NULL);
                 INSERT INTO {name}.schema_version VALUES (0)"
            );
            sqlx::raw_sql(AssertSqlSafe(make))
                .execute(&mut *transaction)
                .await?;
        }
        let version = format!("SELECT version FROM {name}.schema_version");
        let found: i64 = sqlx::query_scalar(AssertSqlSafe(version))
            .fetch_one(&mut *transaction)
            .await?;
        let missing = missing(self.migrations, found)?;
        for migration in missing {
            sqlx::raw_sql(*migration).execute(&mut *transaction).await?;
        }
        if !missing.is_empty() {
            let update = format!("UPDATE {name}.schema_version SET version = $1");
            sqlx::query(AssertSqlSafe(update))
                .bind(i64::try_from(self.migrations.len()).unwrap_or(i64::MAX))
                .execute(&mut *transaction)
                .await?;
        }
        Ok(transaction.commit().await?)
    }
}
