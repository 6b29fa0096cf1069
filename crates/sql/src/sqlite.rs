//! The backend for SQLite, with one thread per session. A session is stopped by a flag that its progress handler
//! checks.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bigdecimal::BigDecimal;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use serde_json::Value;
use sqlx::error::{BoxDynError, DatabaseError};
use sqlx::sqlite::{
    SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteRow, SqliteValueRef,
};
use sqlx::{
    Arguments, AssertSqlSafe, Column, ConnectOptions, Connection, Decode, Row as _, TypeInfo,
    ValueRef,
};
use wardgate_json::exact_double;

use super::backend::{Backend, NO_LISTS, ReadRow, base64, float, read_row};
use super::{Refusal, SourceError};
use wardgate_catalogue::BoundValue;

/// Number of virtual machine instructions between two checks of the flag, which take some tens of microseconds.
const STOP_CHECK_INTERVAL: i32 = 1_000;

/// Primary error codes whose messages never contain a value: busy, read-only, input and output, corrupt, full, cannot
/// open, not a database. With other codes, a function or a trigger can quote its arguments.
const VALUE_FREE_CODES: [i32; 7] = [5, 8, 10, 11, 13, 14, 26];

/// Prefixes of messages of the general error code that name only an object.
const VALUE_FREE_MESSAGES: [&str; 2] = ["no such table: ", "no such column: "];

pub(super) struct Sqlite {
    options: SqliteConnectOptions,
}

impl Sqlite {
    /// Creates a backend for sessions whose statements cannot write. The file itself is not opened read-only: after a
    /// writer was killed, SQLite would then refuse every read, because it could not roll back the journal. A file that is
    /// missing is not created, even if the URL says `mode=rwc`.
    pub(super) fn reader(url: &str) -> Result<Self, sqlx::Error> {
        let mut sqlite = Self::writer(url)?;
        sqlite.options = sqlite
            .options
            .create_if_missing(false)
            .pragma("query_only", "ON");
        Ok(sqlite)
    }

    pub(super) fn writer(url: &str) -> Result<Self, sqlx::Error> {
        let options = SqliteConnectOptions::from_str(url)?.disable_statement_logging();
        Ok(Self { options })
    }

    /// Opens one connection.
    pub(super) async fn open(&self) -> Result<SqliteConnection, sqlx::Error> {
        SqliteConnection::connect_with(&self.options).await
    }
}

/// A connection whose work stops when it is dropped.
pub(super) struct SqliteSession {
    connection: SqliteConnection,
    stop: Arc<AtomicBool>,
}

impl Drop for SqliteSession {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Backend for Sqlite {
    type Session = SqliteSession;
    type Handle = ();
    type Row = SqliteRow;
    type Layout = Vec<SqliteColumn>;

    async fn connect(&self) -> Result<SqliteSession, sqlx::Error> {
        let mut connection = self.open().await?;
        let stop = Arc::new(AtomicBool::new(false));
        let watched = Arc::clone(&stop);
        connection
            .lock_handle()
            .await?
            .set_progress_handler(STOP_CHECK_INTERVAL, move || {
                !watched.load(Ordering::Relaxed)
            });
        Ok(SqliteSession { connection, stop })
    }

    async fn is_alive(_: &mut SqliteSession) -> bool {
        true
    }

    fn handle(_: &SqliteSession) {}

    /// Does nothing, because dropping the session has already stopped its work.
    async fn stop((): ()) {}

    fn fetch<'s>(
        session: &'s mut SqliteSession,
        sql: Arc<str>,
        values: &[BoundValue],
    ) -> BoxStream<'s, Result<SqliteRow, sqlx::Error>> {
        let mut arguments = SqliteArguments::default();
        let bound = values.iter().try_for_each(|value| match value {
            BoundValue::Text(text) => arguments.add(text.clone()),
            BoundValue::Integer(number) => arguments.add(*number),
            BoundValue::BigInteger(number) => arguments.add(number.to_plain_string()),
            BoundValue::Decimal(None) => arguments.add(None::<f64>),
            BoundValue::Decimal(Some(number)) => add_decimal(&mut arguments, number),
            BoundValue::Boolean(truth) => arguments.add(*truth),
            BoundValue::List(_) => Err(NO_LISTS.into()),
        });
        match bound {
            Ok(()) => {
                sqlx::query_with(AssertSqlSafe(sql), arguments).fetch(&mut session.connection)
            }
            Err(error) => stream::once(async { Err(sqlx::Error::Encode(error)) }).boxed(),
        }
    }

    fn layout(row: &SqliteRow) -> Self::Layout {
        let columns = row.columns().iter();
        let columns = columns.map(|column| SqliteColumn {
            name: Arc::from(column.name()),
            is_boolean: column.type_info().name() == "BOOLEAN",
        });
        columns.collect()
    }

    fn decode_row(layout: &Self::Layout, row: &SqliteRow) -> ReadRow {
        let columns = layout.iter().enumerate();
        read_row(columns.map(|(position, column)| {
            let value = column.value(row, position);
            (Arc::clone(&column.name), value)
        }))
    }

    fn refusal(error: &dyn DatabaseError) -> SourceError {
        let code = error.code().unwrap_or_default();
        let primary = code.parse::<i32>().map_or(0, |code| code & 0xff);
        let is_safe = VALUE_FREE_CODES.contains(&primary)
            || VALUE_FREE_MESSAGES
                .iter()
                .any(|start| error.message().starts_with(start));
        SourceError::Refused(Refusal {
            code: format!("SQLite error {code}"),
            message: is_safe.then(|| error.message().to_owned()),
        })
    }
}

/// Binds a number without losing a digit. SQLite has no decimal type, so the number is bound as a REAL if the shortest
/// decimal form of the double is exactly the number, otherwise as an INTEGER if it fits in 64 bits, otherwise as a
/// TEXT.
fn add_decimal(arguments: &mut SqliteArguments, number: &BigDecimal) -> Result<(), BoxDynError> {
    if let Some(double) = exact_double(number) {
        return arguments.add(double);
    }
    let text = number.to_plain_string();
    match text.parse::<i64>() {
        Ok(whole) => arguments.add(whole),
        Err(_) => arguments.add(text),
    }
}

pub(super) struct SqliteColumn {
    name: Arc<str>,
    /// Whether the column is declared BOOLEAN, which SQLite stores as 0 and 1.
    is_boolean: bool,
}

fn decode<'r, T: Decode<'r, sqlx::Sqlite>>(raw: SqliteValueRef<'r>) -> Result<T, BoxDynError> {
    T::decode(raw)
}

impl SqliteColumn {
    /// Converts the value by its storage class (<https://sqlite.org/datatype3.html>). Text is returned as it is stored.
    fn value(&self, row: &SqliteRow, position: usize) -> Result<Value, SourceError> {
        let raw = row.try_get_raw(position).map_err(SourceError::Broken)?;
        if raw.is_null() {
            return Ok(Value::Null);
        }
        let type_name = raw.type_info().name().to_owned();
        let value = match type_name.as_str() {
            "INTEGER" => decode::<i64>(raw).map(|number| match number {
                0 | 1 if self.is_boolean => Value::Bool(number == 1),
                _ => Value::from(number),
            }),
            "REAL" => decode::<f64>(raw).map(float),
            "TEXT" => decode::<&str>(raw).map(Value::from),
            "BLOB" => decode::<&[u8]>(raw).map(base64),
            _ => {
                return Err(SourceError::ColumnType {
                    column: Arc::clone(&self.name),
                    type_name,
                });
            }
        };
        value.map_err(|_| SourceError::Value {
            column: Arc::clone(&self.name),
            type_name,
        })
    }
}
