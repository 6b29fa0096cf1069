//! The same statements on either backend.
//!
//! A statement is written once, as PostgreSQL reads it: with `$1` and with the schema before each table. For SQLite,
//! which has neither schemas nor row locks, both are left out. Values are always bound.

use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, FromRow, Postgres, Sqlite, SqlitePool, Transaction as Begun};

use crate::postgres::PostgresPool;
use crate::{Address, DatabaseSettings, Layout, MigrationError, sqlite};

const LOCK: &str = " FOR UPDATE";

/// A value to bind.
#[derive(Debug)]
pub enum Value {
    /// A text, or NULL.
    Text(Option<String>),
    /// An integer.
    Integer(i64),
    /// Bytes, or NULL.
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

impl From<Option<&[u8]>> for Value {
    fn from(bytes: Option<&[u8]>) -> Self {
        Self::Bytes(bytes.map(<[u8]>::to_vec))
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
pub trait Row: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin {}

impl<T> Row for T where T: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin
{}

/// Makes a row of either backend readable as a struct, each of whose fields is the column of that name. Fields after `;` are
/// structs that are read from the same row. It stands in for `derive(sqlx::FromRow)`, whose crate would build every driver
/// a second time.
#[macro_export]
macro_rules! from_row {
    ($type:ident { $($column:ident),+ $(,)? $(; $($part:ident),+)? }) => {
        $crate::from_row!(@ ::sqlx::sqlite::SqliteRow, $type { $($column),+; $($($part),+)? });
        $crate::from_row!(@ ::sqlx::postgres::PgRow, $type { $($column),+; $($($part),+)? });
    };
    (@ $row:ty, $type:ident { $($column:ident),+; $($part:ident),* }) => {
        impl<'r> ::sqlx::FromRow<'r, $row> for $type {
            fn from_row(row: &'r $row) -> Result<Self, ::sqlx::Error> {
                Ok(Self {
                    $($column: ::sqlx::Row::try_get(row, stringify!($column))?,)+
                    $($part: ::sqlx::FromRow::from_row(row)?,)*
                })
            }
        }
    };
}

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
#[derive(Debug, Clone, Copy)]
pub enum Statement {
    /// As PostgreSQL reads it.
    Same(&'static str),
    /// One for each.
    Each {
        /// As SQLite reads it.
        sqlite: &'static str,
        /// As PostgreSQL reads it.
        postgres: &'static str,
    },
}

impl From<&'static str> for Statement {
    fn from(text: &'static str) -> Self {
        Self::Same(text)
    }
}

impl Statement {
    /// For a file that holds what is in `schema` elsewhere. The same text for the same statement, so each is prepared
    /// once.
    pub fn for_sqlite(self, schema: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(match self {
            Self::Same(text) => text.replace(&format!("{schema}."), "").replace(LOCK, ""),
            Self::Each { sqlite, .. } => sqlite.to_owned(),
        })
    }

    /// For a server.
    pub fn for_postgres(self) -> &'static str {
        match self {
            Self::Same(text) => text,
            Self::Each { postgres, .. } => postgres,
        }
    }
}

/// How long a store may take to be prepared.
const PREPARATION_LIMIT: Duration = Duration::from_mins(1);

/// Connections to a store of one writer; cheap to clone.
#[derive(Debug, Clone)]
pub struct Database {
    layout: Layout,
    settings: DatabaseSettings,
    pool: Pool,
}

#[derive(Debug, Clone)]
enum Pool {
    Sqlite(SqlitePool),
    Postgres(PostgresPool),
}

impl Database {
    /// Connects on first use.
    pub fn new(address: &Address, layout: Layout, settings: &DatabaseSettings) -> Self {
        let Layout { schema, limit, .. } = layout;
        let pool = match address {
            Address::Sqlite(path) => {
                Pool::Sqlite(sqlite::writer(sqlite::options(path, limit), limit))
            }
            Address::Postgres(server) => Pool::Postgres(schema.pool(server, limit, settings)),
        };
        Self {
            layout,
            settings: settings.clone(),
            pool,
        }
    }

    /// Brings it to its newest version, or where that is not this program's to do, sees that somebody did. Nothing else
    /// works before. Takes up to a minute: under the limit of one statement, a migration on a slow disk would
    /// begin anew each time.
    pub async fn prepare(&self) -> Result<(), MigrationError> {
        let prepared = tokio::time::timeout(PREPARATION_LIMIT, self.prepare_schema()).await;
        prepared.unwrap_or_else(|_| Err(sqlx::Error::PoolTimedOut.into()))
    }

    async fn prepare_schema(&self) -> Result<(), MigrationError> {
        match &self.pool {
            Pool::Sqlite(pool) => {
                let mut connection = sqlite::first(pool).await?;
                sqlite::prepare(&mut connection, self.layout.sqlite, &self.settings).await
            }
            Pool::Postgres(pool) => {
                let mut connection = pool.acquire().await?;
                let schema = self.layout.schema;
                schema.prepare(&mut connection, &self.settings).await
            }
        }
    }

    /// Until it is committed nothing of it has happened; dropped, nothing will have.
    pub async fn begin(&self) -> Result<Transaction, sqlx::Error> {
        match &self.pool {
            Pool::Sqlite(pool) => Transaction::write_sqlite(pool, self.layout.schema.name).await,
            Pool::Postgres(pool) => Ok(Transaction::Postgres(pool.begin().await?)),
        }
    }

    /// Rows changed by one statement, which is its own transaction.
    pub async fn execute<const N: usize>(
        &self,
        statement: impl Into<Statement>,
        values: [Value; N],
    ) -> Result<u64, sqlx::Error> {
        let statement = statement.into();
        Ok(match &self.pool {
            Pool::Sqlite(pool) => {
                let query = sqlx::query(statement.for_sqlite(self.layout.schema.name));
                bound!(query, values).execute(pool).await?.rows_affected()
            }
            Pool::Postgres(pool) => {
                let query = bound!(sqlx::query(statement.for_postgres()), values);
                let mut connection = pool.acquire().await?;
                query.execute(&mut *connection).await?.rows_affected()
            }
        })
    }

    /// What one statement gives, which is its own transaction.
    pub async fn rows<T: Row, const N: usize>(
        &self,
        statement: impl Into<Statement>,
        values: [Value; N],
    ) -> Result<Vec<T>, sqlx::Error> {
        let statement = statement.into();
        match &self.pool {
            Pool::Sqlite(pool) => {
                let query = sqlx::query_as(statement.for_sqlite(self.layout.schema.name));
                bound!(query, values).fetch_all(pool).await
            }
            Pool::Postgres(pool) => {
                let query = bound!(sqlx::query_as(statement.for_postgres()), values);
                query.fetch_all(&mut *pool.acquire().await?).await
            }
        }
    }
}

/// Statements that happen together.
#[derive(Debug)]
pub enum Transaction {
    /// In a file that holds what is in `schema` elsewhere.
    Sqlite {
        /// The transaction.
        begun: Begun<'static, Sqlite>,
        /// Left out of statements.
        schema: &'static str,
    },
    /// At a server.
    Postgres(Begun<'static, Postgres>),
}

impl Transaction {
    /// Begins one that writes.
    pub async fn write_sqlite(
        pool: &SqlitePool,
        schema: &'static str,
    ) -> Result<Self, sqlx::Error> {
        // A reader that turns writer would fail when another writes in between.
        let begun = pool.begin_with("BEGIN IMMEDIATE").await?;
        Ok(Self::Sqlite { begun, schema })
    }

    /// Rows changed.
    pub async fn execute<const N: usize>(
        &mut self,
        statement: impl Into<Statement>,
        values: [Value; N],
    ) -> Result<u64, sqlx::Error> {
        let statement = statement.into();
        Ok(match self {
            Self::Sqlite { begun, schema } => {
                let query = sqlx::query(statement.for_sqlite(schema));
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

    /// What it gives.
    pub async fn rows<T: Row, const N: usize>(
        &mut self,
        statement: impl Into<Statement>,
        values: [Value; N],
    ) -> Result<Vec<T>, sqlx::Error> {
        let statement = statement.into();
        match self {
            Self::Sqlite { begun, schema } => {
                let query = sqlx::query_as(statement.for_sqlite(schema));
                bound!(query, values).fetch_all(&mut **begun).await
            }
            Self::Postgres(begun) => {
                let query = sqlx::query_as(statement.for_postgres());
                bound!(query, values).fetch_all(&mut **begun).await
            }
        }
    }

    /// The first row, if there is one.
    pub async fn row<T: Row, const N: usize>(
        &mut self,
        statement: impl Into<Statement>,
        values: [Value; N],
    ) -> Result<Option<T>, sqlx::Error> {
        Ok(self.rows(statement, values).await?.into_iter().next())
    }

    /// Makes it happen.
    pub async fn commit(self) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite { begun, .. } => begun.commit().await,
            Self::Postgres(begun) => begun.commit().await,
        }
    }
}
