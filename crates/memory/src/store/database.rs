//! Connections to the store. SQLite has one writer and separate readers, so that reads do not wait for writes.

use sqlx::SqlitePool;
use wardgate_store::postgres::PostgresPool;
use wardgate_store::{Address, DatabaseSettings, Transaction};

use super::{LIMIT, postgres, sqlite};
use crate::Error;

/// Connections to the store. Clones share the pools.
#[derive(Clone)]
pub(super) struct Database {
    settings: DatabaseSettings,
    pools: Pools,
}

#[derive(Clone)]
enum Pools {
    Sqlite {
        writer: SqlitePool,
        readers: SqlitePool,
    },
    Postgres(PostgresPool),
}

impl Database {
    /// Creates the pools. They connect on first use.
    pub(super) fn new(address: &Address, settings: &DatabaseSettings) -> Self {
        let pools = match address {
            Address::Sqlite(path) => Pools::Sqlite {
                writer: sqlite::writer(path),
                readers: sqlite::readers(path),
            },
            Address::Postgres(server) => {
                Pools::Postgres(postgres::SCHEMA.pool(server, LIMIT, settings))
            }
        };
        Self {
            settings: settings.clone(),
            pools,
        }
    }

    pub(super) async fn prepare(&self) -> Result<(), Error> {
        match &self.pools {
            Pools::Sqlite { writer, .. } => {
                let mut connection = wardgate_store::sqlite::first(writer).await?;
                let (migrations, settings) = (sqlite::MIGRATIONS, &self.settings);
                wardgate_store::sqlite::prepare(&mut connection, migrations, settings).await?;
            }
            Pools::Postgres(pool) => {
                let mut connection = pool.acquire().await?;
                postgres::SCHEMA
                    .prepare(&mut connection, &self.settings)
                    .await?;
            }
        }
        Ok(())
    }

    /// Begins a write transaction. It takes effect when it is committed and is rolled back if it is dropped.
    pub(super) async fn write(&self) -> Result<Transaction, Error> {
        Ok(match &self.pools {
            Pools::Sqlite { writer, .. } => {
                Transaction::write_sqlite(writer, postgres::SCHEMA.name).await?
            }
            Pools::Postgres(pool) => Transaction::Postgres(pool.begin().await?),
        })
    }

    /// Begins a read-only transaction on a consistent snapshot of the store.
    pub(super) async fn begin_read(&self) -> Result<Transaction, Error> {
        Ok(match &self.pools {
            Pools::Sqlite { readers, .. } => Transaction::Sqlite {
                begun: readers.begin().await?,
                schema: postgres::SCHEMA.name,
            },
            Pools::Postgres(pool) => Transaction::Postgres(
                pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                    .await?,
            ),
        })
    }

    /// Overwrites removed data as far as the backend supports it. Returns `false` if this has to be retried later.
    pub(super) async fn scrub(&self) -> Result<bool, Error> {
        match &self.pools {
            Pools::Sqlite { writer, .. } => sqlite::checkpoint(writer).await,
            // PostgreSQL removes old row versions with its own vacuum.
            Pools::Postgres(_) => Ok(true),
        }
    }
}
