//! The same statements on either backend.
//!
//! A statement is written once, as PostgreSQL reads it: with `$1` and with the schema before each table. For SQLite,
//! which has neither schemas nor row locks, both are left out. Values are always bound.

use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, FromRow, PgPool, Postgres, Sqlite, SqlitePool, Transaction as Begun};

use wardgate_store::Address;

use super::{postgres, sqlite};
use crate::Error;

const SCHEMA: &str = "memory.";
const LOCK: &str = " FOR UPDATE";

/// A value to bind.
pub(super) enum Value {
    Text(Option<String>),
    Integer(i64),
    Bytes(Option<Vec<u8>>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(Some(text.to_owned()))
    }
}

impl From<Option<&str>> for Value {
    fn from(text: Option<&str>) -> Self {
        Self::Text(text.map(str::to_owned))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Some(text))
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(Some(bytes.to_vec()))
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(Some(bytes))
    }
}

impl From<Option<Vec<u8>>> for Value {
    fn from(bytes: Option<Vec<u8>>) -> Self {
        Self::Bytes(bytes)
    }
}

/// A row of either backend can become this.
pub(super) trait Row:
    for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin
{
}

impl<T> Row for T where T: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin
{}

macro_rules! bound {
    ($query:expr, $values:expr) => {
        $values
            .into_iter()
            .fold($query, |query, value| match value {
                Value::Text(text) => query.bind(text),
                Value::Integer(number) => query.bind(number),
                Value::Bytes(bytes) => query.bind(bytes),
            })
    };
}

/// A statement; where the backends differ in more than names and locks, two.
#[derive(Clone, Copy)]
pub(super) enum Statement {
    Same(&'static str),
    Each {
        sqlite: &'static str,
        postgres: &'static str,
    },
}

impl From<&'static str> for Statement {
    fn from(text: &'static str) -> Self {
        Self::Same(text)
    }
}

impl Statement {
    /// The same text for the same statement, so each is prepared once.
    pub(super) fn for_sqlite(self) -> AssertSqlSafe<String> {
        AssertSqlSafe(match self {
            Self::Same(text) => text.replace(SCHEMA, "").replace(LOCK, ""),
            Self::Each { sqlite, .. } => sqlite.to_owned(),
        })
    }

    pub(super) fn for_postgres(self) -> &'static str {
        match self {
            Self::Same(text) => text,
            Self::Each { postgres, .. } => postgres,
        }
    }
}

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
            Address::Postgres(options) => Self::Postgres(postgres::pool(options)),
        }
    }

    pub(super) async fn migrate(&self) -> Result<(), Error> {
        match self {
            Self::Sqlite { writer, .. } => {
                let mut connection = writer.acquire().await?;
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
            // A reader that turns writer would fail when another writes in between.
            Self::Sqlite { writer, .. } => {
                Transaction::Sqlite(writer.begin_with("BEGIN IMMEDIATE").await?)
            }
            Self::Postgres(pool) => Transaction::Postgres(pool.begin().await?),
        })
    }

    /// Reads the store as it is at one instant.
    pub(super) async fn read(&self) -> Result<Transaction, Error> {
        Ok(match self {
            Self::Sqlite { readers, .. } => Transaction::Sqlite(readers.begin().await?),
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

/// Statements that happen together.
pub(super) enum Transaction {
    Sqlite(Begun<'static, Sqlite>),
    Postgres(Begun<'static, Postgres>),
}

impl Transaction {
    /// Rows changed.
    pub(super) async fn execute<const N: usize>(
        &mut self,
        statement: impl Into<Statement>,
        values: [Value; N],
    ) -> Result<u64, Error> {
        let statement = statement.into();
        Ok(match self {
            Self::Sqlite(begun) => {
                let query = sqlx::query(statement.for_sqlite());
                bound!(query, values)
                    .execute(&mut **begun)
                    .await?
                    .rows_affected()
            }
            Self::Postgres(begun) => {
                let query = sqlx::query(statement.for_postgres());
                bound!(query, values)
                    .execute(&mut **begun)
                    .await?
                    .rows_affected()
            }
        })
    }

    pub(super) async fn rows<T: Row, const N: usize>(
        &mut self,
        statement: impl Into<Statement>,
        values: [Value; N],
    ) -> Result<Vec<T>, Error> {
        let statement = statement.into();
        Ok(match self {
            Self::Sqlite(begun) => {
                let query = sqlx::query_as(statement.for_sqlite());
                bound!(query, values).fetch_all(&mut **begun).await?
            }
            Self::Postgres(begun) => {
                let query = sqlx::query_as(statement.for_postgres());
                bound!(query, values).fetch_all(&mut **begun).await?
            }
        })
    }

    /// The first row, if there is one.
    pub(super) async fn row<T: Row, const N: usize>(
        &mut self,
        statement: impl Into<Statement>,
        values: [Value; N],
    ) -> Result<Option<T>, Error> {
        Ok(self.rows(statement, values).await?.into_iter().next())
    }

    pub(super) async fn commit(self) -> Result<(), Error> {
        match self {
            Self::Sqlite(begun) => begun.commit().await?,
            Self::Postgres(begun) => begun.commit().await?,
        }
        Ok(())
    }
}
