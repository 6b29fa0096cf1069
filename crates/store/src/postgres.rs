//! PostgreSQL: each service has a schema of its own in any database, with its version in it.

mod server;

use std::time::Duration;

use sqlx::postgres::{PgConnection, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection};
use tokio::time::timeout;

use crate::migration::{MigratedVersions, MigrationError, check, missing, version};
use crate::{DatabaseSettings, Role};

pub use server::{PostgresPool, PostgresServer};

/// The schema of one service.
#[derive(Debug, Clone, Copy)]
pub struct Schema {
    /// Its name in the database.
    pub name: &'static str,
    /// One start at a time; any number that no other program is likely to lock.
    pub lock: i64,
    /// Version n is what the first n of these make; they never change once released.
    pub migrations: &'static [&'static str],
    /// What the service does with its tables.
    pub rights: Rights,
}

/// What a service does with its tables: all that its role may, where another role owns them.
#[derive(Debug, Clone, Copy)]
pub enum Rights {
    /// It reads, adds, changes and removes rows of all of them.
    Rows,
    /// Of each table by itself, like `("record", "SELECT, INSERT")`.
    Tables(&'static [(&'static str, &'static str)]),
}

/// Connections of one pool.
const CONNECTIONS: u32 = 8;

/// A server that does not answer so long is not there, or the way to it is not.
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);
/// A connection that lay unused for less is not asked: it answered when it was given back.
const FRESH: Duration = Duration::from_millis(100);

/// A pool that lets go of connections whose server fell silent, with its machine or with the network. The library asks
/// them too, but waits for the answer as long as TCP does, which is a quarter of an hour, and as long they hold places.
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
    /// Connects on first use, known to the server as `wardgate` and the service. No statement takes longer than `limit`.
    pub fn pool(
        &self,
        server: &PostgresServer,
        limit: Duration,
        settings: &DatabaseSettings,
    ) -> PostgresPool {
        // The server gives a statement up no later than whoever waits for it.
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

    /// Brings the schema to its newest version, or where that is not this program's to do, sees that somebody did.
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

    /// Brings the schema to its newest version, all or nothing, making it when it is absent.
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
            missing(self.migrations, from)?,
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

    /// Which version it has; 0: it is not there.
    pub async fn version(&self, connection: &mut PgConnection) -> Result<i64, sqlx::Error> {
        let Self { name, .. } = self;
        // Looked up first: to create what may be there already asks for the right to create it.
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

    /// Lets `role` do what the service does, and nothing else, whatever it could before.
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
        // Together: at no time can a service that runs do less than it needs.
        let mut transaction = connection.begin().await?;
        sqlx::raw_sql(AssertSqlSafe(statements))
            .execute(&mut *transaction)
            .await?;
        Ok(transaction.commit().await?)
    }
}

#[cfg(test)]
mod tests;
