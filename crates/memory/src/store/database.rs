//! Connections to the store: in SQLite readers beside the one writer, since nobody who reads should wait for it.

use sqlx::{PgPool, SqlitePool};
use wardgate_store::{Address, Transaction};

use super::{LIMIT, postgres, sqlite};
use crate::Error;

/// Connections to the store; cheap to clone.
#[derive(Clone)]
pub(super) enum Database {
    Sqlite {
        writer: SqlitePool,
        readers: SqlitePool,
    },
    Postgres(PgPool),
}

impl Database {
    /// Connects on first use.
    pub(super) fn new(address: &Address) -> Self {
        match address {
            Address::Sqlite(path) => Self::Sqlite {
                writer: sqlite::writer(path),
                readers: sqlite::readers(path),
            },
            Address::Postgres(options) => Self::Postgres(postgres::SCHEMA.pool(options, LIMIT)),
        }
    }

    pub(super) async fn migrate(&self) -> Result<(), Error> {
        match self {
            Self::Sqlite { writer, .. } => {
                let mut connection = wardgate_store::sqlite::first(writer).await?;
                wardgate_store::sqlite::migrate(&mut connection, sqlite::MIGRATIONS).await?;
            }
            Self::Postgres(pool) => {
                let mut connection = pool.acquire().await?;
                postgres::SCHEMA.migrate(&mut connection).await?;
            }
        }
        Ok(())
    }

    /// Until it is committed nothing of it has happened; dropped, nothing will have.
    pub(super) async fn write(&self) -> Result<Transaction, Error> {
        Ok(match self {
            Self::Sqlite { writer, .. } => {
                Transaction::write_sqlite(writer, postgres::SCHEMA.name).await?
            }
            Self::Postgres(pool) => Transaction::Postgres(pool.begin().await?),
        })
    }

    /// Reads the store as it is at one instant.
    pub(super) async fn read(&self) -> Result<Transaction, Error> {
        Ok(match self {
            Self::Sqlite { readers, .. } => Transaction::Sqlite {
                begun: readers.begin().await?,
                schema: postgres::SCHEMA.name,
            },
            Self::Postgres(pool) => Transaction::Postgres(
                pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                    .await?,
            ),
        })
    }

    /// Overwrites what was removed, as far as the backend can do that now; false: try again later.
    pub(super) async fn scrub(&self) -> Result<bool, Error> {
        match self {
            Self::Sqlite { writer, .. } => sqlite::checkpoint(writer).await,
            // Old versions of rows go with the server's own vacuum.
            Self::Postgres(_) => Ok(true),
        }
    }
}
