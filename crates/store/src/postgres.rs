//! PostgreSQL stores: each service has its own schema in a database, which also records its version.

mod server;

use std::time::Duration;

use sqlx::postgres::{PgConnection, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection};
use tokio::time::timeout;

use crate::migration::{MigratedVersions, MigrationError, check, missing_migrations, version};
use crate::{DatabaseSettings, Role};

pub use server::{PostgresPool, PostgresServer};

/// The schema of one service.
#[derive(Debug, Clone, Copy)]
pub struct Schema {
    /// The name of the schema in the database.
    pub name: &'static str,
    /// The key of the advisory lock that serializes migrations: any number that other programs are unlikely to use.
    pub lock: i64,
    /// The migrations. The first n of them make version n. Released migrations never change.
    pub migrations: &'static [&'static str],
    /// The rights that the service needs on its tables.
    pub rights: Rights,
}

/// The rights of a service on its tables, granted to its role if another role owns the tables.
#[derive(Debug, Clone, Copy)]
pub enum Rights {
    /// Reads, inserts, updates and deletes rows of all tables.
    Rows,
    /// The rights on each table, like `("record", "SELECT, INSERT")`.
    Tables(&'static [(&'static str, &'static str)]),
}

/// Default maximum number of connections in one pool.
const CONNECTIONS: u32 = 8;

/// Timeout of a ping. A server that does not respond in this time is considered unreachable.
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);
/// Idle time up to which a connection is reused without a ping, because it was alive when it was released.
const FRESH: Duration = Duration::from_millis(100);

/// Configures a pool to close connections whose server no longer responds, for example after a failure of the host or
/// the network. sqlx pings connections too, but waits for the response as long as TCP does, which is a quarter of an
/// hour, and meanwhile these connections occupy the pool.
pub fn only_living(options: PgPoolOptions) -> PgPoolOptions {
    options
        .test_before_acquire(false)
        .before_acquire(|connection, known| {
            Box::pin(async move { Ok(known.idle_for < FRESH || answers(connection).await) })
        })
        .after_release(|connection, _| Box::pin(async move { Ok(answers(connection).await) }))
}

async fn answers(connection: &mut PgConnection) -> bool {
    let ping = timeout(ANSWERS_WITHIN, connection.ping());
    ping.await.is_ok_and(|answer| answer.is_ok())
}

impl Schema {
    /// Creates a pool that connects on first use. Its application name is `wardgate` and the name of the service. No
    /// statement takes longer than `limit`.
    pub fn pool(
        &self,
        server: &PostgresServer,
        limit: Duration,
        settings: &DatabaseSettings,
    ) -> PostgresPool {
        // The server cancels a statement no later than its caller stops waiting for it.
        let statements = format!("{}ms", settings.statement_timeout(limit).as_millis());
        let name = format!("wardgate {}", self.name.replace('_', "-"));
        let pool = only_living(PgPoolOptions::new())
            .max_connections(settings.connections(CONNECTIONS))
            .acquire_timeout(limit);
        server.pool(pool, |options| {
            options.application_name(&name).options([
                ("synchronous_commit", "on"),
                ("statement_timeout", statements.as_str()),
            ])
        })
    }

    /// Brings the schema to its newest version or, if this service does not migrate, checks that this was done.
    pub async fn prepare(
        &self,
        connection: &mut PgConnection,
        settings: &DatabaseSettings,
    ) -> Result<(), MigrationError> {
        if settings.migrate {
            self.migrate(connection).await.map(drop)
        } else {
            check(self.migrations, self.version(connection).await?)
        }
    }

    /// Brings the schema to its newest version in one transaction. Creates the schema if it does not exist.
    pub async fn migrate(
        &self,
        connection: &mut PgConnection,
    ) -> Result<MigratedVersions, MigrationError> {
        let Self { name, .. } = self;
        let mut transaction = connection.begin().await?;
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .bind(self.lock)
            .execute(&mut *transaction)
            .await?;
        let from = self.version(&mut transaction).await?;
        let (to, missing) = (
            version(self.migrations, from),
            missing_migrations(self.migrations, from)?,
        );
        if from == 0 {
            let make = format!(
                "CREATE SCHEMA IF NOT EXISTS {name};
                 CREATE TABLE {name}.schema_version (version bigint NOT NULL);
                 INSERT INTO {name}.schema_version VALUES (0)"
            );
            sqlx::raw_sql(AssertSqlSafe(make))
                .execute(&mut *transaction)
                .await?;
        }
        for migration in missing {
            sqlx::raw_sql(*migration).execute(&mut *transaction).await?;
        }
        if to != from {
            let update = format!("UPDATE {name}.schema_version SET version = $1");
            sqlx::query(AssertSqlSafe(update))
                .bind(to)
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await?;
        Ok(MigratedVersions { from, to })
    }

    /// Returns the version of the schema, or 0 if it does not exist.
    pub async fn version(&self, connection: &mut PgConnection) -> Result<i64, sqlx::Error> {
        let Self { name, .. } = self;
        // The table is looked up before it is created, because `CREATE … IF NOT EXISTS` requires the right to create
        // even if it exists.
        let exists: bool = sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL")
            .bind(format!("{name}.schema_version"))
            .fetch_one(&mut *connection)
            .await?;
        if !exists {
            return Ok(0);
        }
        let version = format!("SELECT version FROM {name}.schema_version");
        sqlx::query_scalar(AssertSqlSafe(version))
            .fetch_one(connection)
            .await
    }

    /// Grants `role` exactly the rights that the service needs, and revokes all others in the schema.
    pub async fn grant(
        &self,
        connection: &mut PgConnection,
        role: &Role,
    ) -> Result<(), MigrationError> {
        let Self { name, rights, .. } = self;
        let ours: String = sqlx::query_scalar("SELECT current_user::text")
            .fetch_one(&mut *connection)
            .await?;
        if ours == role.as_str() {
            return Err(MigrationError::OwnRole);
        }
        let mut statements = format!(
            "REVOKE ALL ON ALL TABLES IN SCHEMA {name} FROM {role};
             REVOKE ALL ON SCHEMA {name} FROM {role};
             GRANT USAGE ON SCHEMA {name} TO {role};"
        );
        match rights {
            Rights::Rows => statements.push_str(&format!(
                "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {name} TO {role};
                 REVOKE ALL ON {name}.schema_version FROM {role};"
            )),
            Rights::Tables(tables) => {
                for (table, rights) in *tables {
                    statements.push_str(&format!("GRANT {rights} ON {name}.{table} TO {role};"));
                }
            }
        }
        statements.push_str(&format!("GRANT SELECT ON {name}.schema_version TO {role};"));
        // The statements run in one transaction, so that a running service always has the rights that it needs.
        let mut transaction = connection.begin().await?;
        sqlx::raw_sql(AssertSqlSafe(statements))
            .execute(&mut *transaction)
            .await?;
        Ok(transaction.commit().await?)
    }
}

#[cfg(test)]
mod tests;
