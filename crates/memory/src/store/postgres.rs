//! PostgreSQL: the schema `memory` of any database.

use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{LIMIT, to_migrate};
use crate::Error;

/// Version n of the schema is what the first n of these make; they never change once released.
const MIGRATIONS: &[&str] = &[include_str!("postgres/0001_conversations.sql")];

/// One start at a time; any number that no other program is likely to lock.
const MIGRATION_LOCK: i64 = 0x5741_5244_4d45_4d4f;

const CONNECTIONS: u32 = 8;

/// Connects on first use.
pub(super) fn pool(options: &PgConnectOptions) -> PgPool {
    // The server gives a statement up no later than whoever waits for it.
    let limit = format!("{}ms", LIMIT.as_millis());
    let options = options
        .clone()
        .application_name("wardgate memory")
        .options([
            ("synchronous_commit", "on"),
            ("statement_timeout", limit.as_str()),
        ]);
    PgPoolOptions::new()
        .max_connections(CONNECTIONS)
        .acquire_timeout(LIMIT)
        .connect_lazy_with(options)
}

pub(super) async fn migrate(pool: &PgPool) -> Result<(), Error> {
    let mut transaction = pool.begin().await?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(MIGRATION_LOCK)
        .execute(&mut *transaction)
        .await?;
    // Looked up first: `IF NOT EXISTS` still asks for the right to create what is there already.
    let exists: bool =
        sqlx::query_scalar("SELECT to_regclass('memory.schema_version') IS NOT NULL")
            .fetch_one(&mut *transaction)
            .await?;
    if !exists {
        sqlx::raw_sql(
            "CREATE SCHEMA IF NOT EXISTS memory;
             CREATE TABLE memory.schema_version (version bigint NOT NULL);
             INSERT INTO memory.schema_version VALUES (0)",
        )
        .execute(&mut *transaction)
        .await?;
    }
    let found: i64 = sqlx::query_scalar("SELECT version FROM memory.schema_version")
        .fetch_one(&mut *transaction)
        .await?;
    let missing = to_migrate(MIGRATIONS, found)?;
    for migration in missing {
        sqlx::raw_sql(*migration).execute(&mut *transaction).await?;
    }
    if !missing.is_empty() {
        sqlx::query("UPDATE memory.schema_version SET version = $1")
            .bind(i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX))
            .execute(&mut *transaction)
            .await?;
    }
    Ok(transaction.commit().await?)
}
