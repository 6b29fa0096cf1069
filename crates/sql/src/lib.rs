//! Runs prepared statements on external databases: SQLite, PostgreSQL, MySQL and MariaDB.
//!
//! ```text
//!   Database ┬─ reader: Pool ── sessions that the database itself keeps from writing
//!           └─ writer: Pool ── sessions for tools that do not declare `readOnlyHint`
//! ```
//!
//! The crate takes a statement with bound values, returns rows of JSON values, and stops the statement in the database
//! when the caller no longer waits for it. The state that a service keeps for itself is not handled by this crate.

mod backend;
mod mysql;
mod pool;
mod postgres;
mod sqlite;

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use tokio::time::timeout;
use wardgate_redact::Row;

use backend::{Backend, duplicate_name};
use mysql::Mysql;
use pool::Pool;
use postgres::Postgres;
use sqlite::Sqlite;
use wardgate_catalogue::{BoundValue, SqlDialect, SqlSettings};

/// Limits for reading on after the last row that is wanted. Reading a result to its end is cheaper than opening a new
/// session.
const REST_ROWS: usize = 100;
const REST_LIMIT: Duration = Duration::from_millis(5);

/// Opens a separate session on a PostgreSQL database in which every transaction is read-only.
pub async fn postgres_reader(
    url: &str,
    statement_limit: Duration,
) -> Result<sqlx::PgConnection, sqlx::Error> {
    Postgres::reader(url, statement_limit)?.open().await
}

/// Opens a separate session on a MySQL or MariaDB database in which every transaction is read-only.
pub async fn mysql_reader(
    url: &str,
    statement_limit: Duration,
) -> Result<sqlx::MySqlConnection, sqlx::Error> {
    Mysql::reader(url, statement_limit)?.open().await
}

/// Opens a separate session on a SQLite database whose statements cannot write.
pub async fn sqlite_reader(url: &str) -> Result<sqlx::SqliteConnection, sqlx::Error> {
    Sqlite::reader(url)?.open().await
}

/// The reason why a source gave no result.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// No connection could be established.
    #[error("the source cannot be reached: {0}")]
    Unreachable(#[source] sqlx::Error),
    /// All connections were in use, or connecting took too long.
    #[error("no connection to the source was established or became free within {0:?}")]
    Busy(Duration),
    /// The statement exceeded its time limit.
    #[error("the database stopped the statement at its time limit")]
    Timeout,
    /// The database answered with an error.
    #[error("the database refused the statement: {0}")]
    Refused(Refusal),
    /// The connection broke. Whether the statement had an effect is not known.
    #[error("the connection failed: {0}")]
    Broken(#[source] sqlx::Error),
    /// The type of a column has no form in JSON.
    #[error(
        "column `{column}` has type {type_name}, which has no JSON form; cast it in the statement"
    )]
    ColumnType {
        /// The name of the column.
        column: Arc<str>,
        /// The name of the type in the database.
        type_name: String,
    },
    /// A value has no form in JSON.
    #[error("a value of column `{column}`, type {type_name}, cannot be read as JSON")]
    Value {
        /// The name of the column.
        column: Arc<str>,
        /// The name of the type in the database.
        type_name: String,
    },
    /// The driver does not know the type of a column.
    #[error(
        "a column has a type that the database driver does not support, such as a multirange; cast it to text in the statement"
    )]
    UnknownType,
    /// Two columns have the same name and would become the same member of an object.
    #[error("two columns are named `{0}`; rename one in the statement")]
    DuplicateColumn(Arc<str>),
}

/// A database error reduced to the parts that cannot contain a value. Messages of constraint and conversion errors
/// quote rows and arguments, so they are left out.
#[derive(Debug, thiserror::Error)]
#[error("{code}{}", .message.as_deref().map(|text| format!(": {text}")).unwrap_or_default())]
pub struct Refusal {
    code: String,
    message: Option<String>,
}

/// A receiver of the rows of a statement. `Break` ends the statement.
pub trait RowSink: Send {
    /// Takes a row.
    fn row(&mut self, row: Row) -> ControlFlow<()>;

    /// Takes a row that cannot be represented as JSON, because some values have no JSON form or two columns have the same
    /// name; `error` is the first reason. In place of each value without a JSON form, the row contains an empty list. An
    /// error ends the statement.
    fn unreadable_row(
        &mut self,
        row: Row,
        error: SourceError,
    ) -> Result<ControlFlow<()>, SourceError>;
}

/// A receiver that fails if a row cannot be represented as JSON.
impl<F: FnMut(Row) -> ControlFlow<()> + Send> RowSink for F {
    fn row(&mut self, row: Row) -> ControlFlow<()> {
        self(row)
    }

    fn unreadable_row(
        &mut self,
        _: Row,
        error: SourceError,
    ) -> Result<ControlFlow<()>, SourceError> {
        Err(error)
    }
}

/// A configured database.
pub struct Database(Lanes);

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Database").field(&self.dialect()).finish()
    }
}

enum Lanes {
    Sqlite {
        reader: Pool<Sqlite>,
        writer: Pool<Sqlite>,
    },
    Postgres {
        reader: Pool<Postgres>,
        writer: Pool<Postgres>,
    },
    Mysql {
        reader: Pool<Mysql>,
        writer: Pool<Mysql>,
    },
}

impl Database {
    /// Creates the database without connecting to it. `statement_limit` is the longest time limit of any tool. The
    /// database itself ends a statement after that time, even if it was not cancelled.
    pub fn new(settings: &SqlSettings, statement_limit: Duration) -> Result<Self, sqlx::Error> {
        let SqlSettings {
            dialect,
            url,
            max_connections,
        } = settings;
        Ok(Self(match dialect {
            SqlDialect::Sqlite => Lanes::Sqlite {
                reader: Pool::new(Sqlite::reader(url)?, *max_connections),
                writer: Pool::new(Sqlite::writer(url)?, *max_connections),
            },
            SqlDialect::Postgres => Lanes::Postgres {
                reader: Pool::new(Postgres::reader(url, statement_limit)?, *max_connections),
                writer: Pool::new(Postgres::writer(url, statement_limit)?, *max_connections),
            },
            SqlDialect::Mysql => Lanes::Mysql {
                reader: Pool::new(Mysql::reader(url, statement_limit)?, *max_connections),
                writer: Pool::new(Mysql::writer(url, statement_limit)?, *max_connections),
            },
        }))
    }

    /// Returns the SQL dialect of the database.
    pub fn dialect(&self) -> SqlDialect {
        match self.0 {
            Lanes::Sqlite { .. } => SqlDialect::Sqlite,
            Lanes::Postgres { .. } => SqlDialect::Postgres,
            Lanes::Mysql { .. } => SqlDialect::Mysql,
        }
    }

    /// Runs one statement and passes its rows to `sink` as they arrive, until `sink` ends the statement. Dropping the
    /// future stops the work in the database.
    pub async fn query(
        &self,
        read_only: bool,
        sql: Arc<str>,
        values: &[BoundValue],
        sink: &mut dyn RowSink,
    ) -> Result<(), SourceError> {
        match &self.0 {
            Lanes::Sqlite { reader, writer } => {
                let pool = if read_only { reader } else { writer };
                run(pool, sql, values, sink).await
            }
            Lanes::Postgres { reader, writer } => {
                let pool = if read_only { reader } else { writer };
                run(pool, sql, values, sink).await
            }
            Lanes::Mysql { reader, writer } => {
                let pool = if read_only { reader } else { writer };
                run(pool, sql, values, sink).await
            }
        }
    }
}

async fn run<B: Backend>(
    pool: &Pool<B>,
    sql: Arc<str>,
    values: &[BoundValue],
    sink: &mut dyn RowSink,
) -> Result<(), SourceError> {
    let mut lease = pool.lease().await?;
    let outcome = {
        let mut rows = B::fetch(lease.session(), sql, values);
        let mut layout = None;
        loop {
            match rows.try_next().await {
                Ok(None) => break Ok(()),
                Ok(Some(row)) => {
                    // Reading rows that are already available never yields to the runtime. Without this call, the time
                    // limit and a disconnect would not take effect until the last of these rows.
                    tokio::task::consume_budget().await;
                    let (layout, duplicate) =
                        layout.get_or_insert_with(|| (B::layout(&row), duplicate_name(&row)));
                    let read = B::decode_row(layout, &row);
                    // Whether a row with a duplicate column is an error depends on the receiver, because the error
                    // reveals that there is a row.
                    let duplicate = duplicate.clone().map(SourceError::DuplicateColumn);
                    let flow = match duplicate.or(read.unreadable) {
                        None => sink.row(read.row),
                        Some(error) => sink.unreadable_row(read.row, error)?,
                    };
                    if flow == ControlFlow::Break(()) {
                        if ends_soon(&mut rows).await {
                            break Ok(());
                        }
                        // The remaining rows are not read, so the session is dropped.
                        return Ok(());
                    }
                }
                Err(error) => break Err(error),
            }
        }
    };
    match outcome {
        Ok(()) => {
            lease.give_back();
            Ok(())
        }
        Err(sqlx::Error::Database(error)) => {
            lease.give_back();
            Err(B::refusal(error.as_ref()))
        }
        Err(sqlx::Error::TypeNotFound { .. }) => Err(SourceError::UnknownType),
        Err(error) => Err(SourceError::Broken(error)),
    }
}

/// Reads and discards the remaining rows up to [`REST_ROWS`] and [`REST_LIMIT`], and returns whether the result ended
/// within these limits.
async fn ends_soon<R>(rows: &mut BoxStream<'_, Result<R, sqlx::Error>>) -> bool {
    let rest = async {
        for _ in 0..REST_ROWS {
            match rows.next().await {
                None => return true,
                Some(Ok(_)) => {}
                Some(Err(_)) => return false,
            }
        }
        false
    };
    timeout(REST_LIMIT, rest).await.unwrap_or(false)
}
