//! Statements that run on both SQLite and PostgreSQL.
//!
//! A statement is written once, in the syntax of PostgreSQL, with `$1` and with the schema before each table. For
//! SQLite, which has neither schemas nor row locks, both are removed from the text. Values are always bound.

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

/// A type that can be read from a row of either backend.
pub trait Row: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin {}

impl<T> Row for T where T: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin
{}

/// Implements `sqlx::FromRow` for the rows of both backends. Each field of the struct is read from the column of the
/// same name. Fields after `;` are structs that are read from the same row. The macro replaces `derive(sqlx::FromRow)`,
/// whose crate would build every driver a second time.
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

/// A SQL statement, or two if the backends differ in more than schema names and row locks.
#[derive(Debug, Clone, Copy)]
pub enum Statement {
    /// One statement for both backends, in the syntax of PostgreSQL.
    Same(&'static str),
    /// A statement for each backend.
    Each {
        /// The statement for SQLite.
        sqlite: &'static str,
        /// The statement for PostgreSQL.
        postgres: &'static str,
    },
}

impl From<&'static str> for Statement {
    fn from(text: &'static str) -> Self {
        Self::Same(text)
    }
}

impl Statement {
    /// Returns the statement for a SQLite file, without the name of `schema`. The text of a statement is always the
    /// same, so that it is prepared only once.
    pub fn for_sqlite(self, schema: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(match self {
            Self::Same(text) => text.replace(&format!("{schema}."), "").replace(LOCK, ""),
            Self::Each { sqlite, .. } => sqlite.to_owned(),
        })
    }

    /// Returns the statement for PostgreSQL.
    pub fn for_postgres(self) -> &'static str {
        match self {
            Self::Same(text) => text,
            Self::Each { postgres, .. } => postgres,
        }
    }
}

/// Maximum time to prepare a store.
const PREPARATION_LIMIT: Duration = Duration::from_mins(1);

/// Connections to a store that has one writing service. Cheap to clone.
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
    /// Creates the connections, which are opened on first use.
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

    /// Brings the store to its newest version or, if this service does not migrate, checks that this was done. It must
    /// complete before any other method is used. It may take up to a minute, because with the timeout of a single
    /// statement a migration on a slow disk would start anew each time.
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

    /// Begins a transaction, which takes effect when it is committed and is rolled back when it is dropped.
    pub async fn begin(&self) -> Result<Transaction, sqlx::Error> {
        match &self.pool {
            Pool::Sqlite(pool) => Transaction::write_sqlite(pool, self.layout.schema.name).await,
            Pool::Postgres(pool) => Ok(Transaction::Postgres(pool.begin().await?)),
        }
    }

    /// Executes a statement in a transaction of its own, and returns the number of affected rows.
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

    /// Runs a query in a transaction of its own, and returns its rows.
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

/// A transaction of either backend.
#[derive(Debug)]
pub enum Transaction {
    /// A transaction on a SQLite file.
    Sqlite {
        /// The transaction of the driver.
        begun: Begun<'static, Sqlite>,
        /// The schema, whose name is removed from statements.
        schema: &'static str,
    },
    /// A transaction on a PostgreSQL server.
    Postgres(Begun<'static, Postgres>),
}

impl Transaction {
    /// Begins a transaction that may write.
    pub async fn write_sqlite(
        pool: &SqlitePool,
        schema: &'static str,
    ) -> Result<Self, sqlx::Error> {
        // A read transaction that starts to write would fail if another connection wrote in between.
        let begun = pool.begin_with("BEGIN IMMEDIATE").await?;
        Ok(Self::Sqlite { begun, schema })
    }

    /// Executes a statement, and returns the number of affected rows.
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

    /// Runs a query, and returns its rows.
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

    /// Runs a query, and returns its first row, if any.
    pub async fn row<T: Row, const N: usize>(
        &mut self,
        statement: impl Into<Statement>,
        values: [Value; N],
    ) -> Result<Option<T>, sqlx::Error> {
        Ok(self.rows(statement, values).await?.into_iter().next())
    }

    /// Commits the transaction.
    pub async fn commit(self) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite { begun, .. } => begun.commit().await,
            Self::Postgres(begun) => begun.commit().await,
        }
    }
}
