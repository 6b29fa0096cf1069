//! The same statements on either backend.
//!
//! A statement is written once, as PostgreSQL reads it: with `$1` and with the schema before each table.
//! For SQLite, which has no schemas, the schema is left out. Values are always bound.

use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, FromRow, PgPool, Postgres, Sqlite, SqlitePool, Transaction as Begun};

use wardgate_store::Address;

use super::{StoreError, postgres, sqlite};

const SCHEMA: &str = "gateway.";

/// A value to bind.
pub(super) enum Value {
    Text(String),
    Integer(i64),
    Bytes(Option<Vec<u8>>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
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

impl From<Option<&[u8]>> for Value {
    fn from(bytes: Option<&[u8]>) -> Self {
        Self::Bytes(bytes.map(<[u8]>::to_vec))
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

/// Connections to the store; cheap to clone.
#[derive(Clone)]
pub(super) enum Database {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

impl Database {
    /// Connects on first use.
    pub(super) fn new(address: &Address) -> Self {
        match address {
            Address::Sqlite(path) => Self::Sqlite(sqlite::pool(path)),
            Address::Postgres(options) => Self::Postgres(postgres::pool(options)),
        }
    }

    pub(super) async fn migrate(&self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(pool) => {
                let mut connection = pool.acquire().await?;
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
    pub(super) async fn begin(&self) -> Result<Transaction, StoreError> {
        Ok(match self {
            // A reader that turns writer would fail when another writes in between.
            Self::Sqlite(pool) => Transaction::Sqlite(pool.begin_with("BEGIN IMMEDIATE").await?),
            Self::Postgres(pool) => Transaction::Postgres(pool.begin().await?),
        })
    }

    /// Rows changed by one statement, which is its own transaction.
    pub(super) async fn execute<const N: usize>(
        &self,
        statement: &'static str,
        values: [Value; N],
    ) -> Result<u64, StoreError> {
        Ok(match self {
            Self::Sqlite(pool) => {
                let query = sqlx::query(without_schema(statement));
                bound!(query, values).execute(pool).await?.rows_affected()
            }
            Self::Postgres(pool) => {
                let query = sqlx::query(statement);
                bound!(query, values).execute(pool).await?.rows_affected()
            }
        })
    }

    pub(super) async fn rows<T: Row, const N: usize>(
        &self,
        statement: &'static str,
        values: [Value; N],
    ) -> Result<Vec<T>, StoreError> {
        Ok(match self {
            Self::Sqlite(pool) => {
                let query = sqlx::query_as(without_schema(statement));
                bound!(query, values).fetch_all(pool).await?
            }
            Self::Postgres(pool) => {
                let query = sqlx::query_as(statement);
                bound!(query, values).fetch_all(pool).await?
            }
        })
    }
}

/// Statements that happen together.
pub(super) enum Transaction {
    Sqlite(Begun<'static, Sqlite>),
    Postgres(Begun<'static, Postgres>),
}

impl Transaction {
    pub(super) async fn execute<const N: usize>(
        &mut self,
        statement: &'static str,
        values: [Value; N],
    ) -> Result<u64, StoreError> {
        Ok(match self {
            Self::Sqlite(begun) => {
                let query = sqlx::query(without_schema(statement));
                bound!(query, values)
                    .execute(&mut **begun)
                    .await?
                    .rows_affected()
            }
            Self::Postgres(begun) => {
                let query = sqlx::query(statement);
                bound!(query, values)
                    .execute(&mut **begun)
                    .await?
                    .rows_affected()
            }
        })
    }

    pub(super) async fn commit(self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(begun) => begun.commit().await?,
            Self::Postgres(begun) => begun.commit().await?,
        }
        Ok(())
    }
}

/// The same text for the same statement, so each is prepared once.
fn without_schema(statement: &'static str) -> AssertSqlSafe<String> {
    AssertSqlSafe(statement.replace(SCHEMA, ""))
}
