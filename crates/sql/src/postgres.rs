//! The backend for PostgreSQL 14 and later.

mod text;
mod value;

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bigdecimal::BigDecimal;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use serde_json::Value;
use sqlx::error::{BoxDynError, DatabaseError};
use sqlx::postgres::{PgArguments, PgConnectOptions, PgConnection, PgRow, PgTypeInfo};
use sqlx::{
    Arguments, AssertSqlSafe, Column, ConnectOptions, Connection, Row as _, Type, TypeInfo,
    ValueRef,
};
use tracing::warn;
use wardgate_store::verify_server;

use super::backend::{Backend, ReadRow, read_row};
use super::{Refusal, SourceError};
use text::with_texts;
use value::ValueReader;
use wardgate_catalogue::{BoundList, BoundValue};

/// Interval at which the server checks whether its client is still connected, in case the server is not told to stop.
const CLIENT_CHECK_INTERVAL: &str = "500ms";

/// Time that the server lets a statement run beyond the longest time limit, as a last resort.
const STATEMENT_GRACE: Duration = Duration::from_secs(1);

/// Identifies the server process of a session. The PID alone could later belong to another process, or to one on
/// another server.
const OWN_PROCESS: &str =
    "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()";

const CANCEL: &str = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity \
                      WHERE pid = $1 AND backend_start::text = $2";

/// `query_canceled`: the statement exceeded its time limit.
const QUERY_CANCELED: &str = "57014";

/// SQLSTATEs, or classes of SQLSTATEs, whose messages name objects but never values: connection, transaction state,
/// authorisation, unknown database, resources, operator intervention; a missing table, column or right.
const VALUE_FREE_CODES: [&str; 9] = [
    "08", "25", "28", "3D", "53", "57", "42P01", "42703", "42501",
];

pub(super) struct Postgres {
    options: PgConnectOptions,
}

impl Postgres {
    /// Creates a backend for sessions in which every transaction is read-only.
    pub(super) fn reader(url: &str, statement_limit: Duration) -> Result<Self, sqlx::Error> {
        let mut postgres = Self::writer(url, statement_limit)?;
        postgres.options = postgres
            .options
            .options([("default_transaction_read_only", "on")]);
        Ok(postgres)
    }

    pub(super) fn writer(url: &str, statement_limit: Duration) -> Result<Self, sqlx::Error> {
        let limit = (statement_limit + STATEMENT_GRACE).as_millis().to_string();
        let options = verify_server(PgConnectOptions::from_str(url)?)
            .application_name("wardgate")
            .disable_statement_logging()
            .options([
                ("statement_timeout", limit.as_str()),
                ("client_connection_check_interval", CLIENT_CHECK_INTERVAL),
            ]);
        Ok(Self { options })
    }

    /// Opens one connection.
    pub(super) async fn open(&self) -> Result<PgConnection, sqlx::Error> {
        PgConnection::connect_with(&self.options).await
    }
}

pub(super) struct PostgresSession {
    connection: PgConnection,
    process: Arc<PostgresProcess>,
}

/// The server process of a session.
pub(super) struct PostgresProcess {
    options: PgConnectOptions,
    id: i32,
    started: String,
}

impl Backend for Postgres {
    type Session = PostgresSession;
    type Handle = Arc<PostgresProcess>;
    type Row = PgRow;
    type Layout = Vec<PgColumn>;

    async fn connect(&self) -> Result<PostgresSession, sqlx::Error> {
        let mut connection = self.open().await?;
        let (id, started) = sqlx::query_as(OWN_PROCESS)
            .persistent(false)
            .fetch_one(&mut connection)
            .await?;
        Ok(PostgresSession {
            connection,
            process: Arc::new(PostgresProcess {
                options: self.options.clone(),
                id,
                started,
            }),
        })
    }

    async fn is_alive(session: &mut PostgresSession) -> bool {
        session.connection.ping().await.is_ok()
    }

    fn handle(session: &PostgresSession) -> Arc<PostgresProcess> {
        Arc::clone(&session.process)
    }

    async fn stop(process: Arc<PostgresProcess>) {
        if let Err(error) = process.cancel().await {
            warn!(%error, "a statement could not be cancelled; PostgreSQL stops it when it detects that its client has disconnected");
        }
    }

    fn fetch<'s>(
        session: &'s mut PostgresSession,
        sql: Arc<str>,
        values: &[BoundValue],
    ) -> BoxStream<'s, Result<PgRow, sqlx::Error>> {
        let types: Vec<_> = values.iter().map(type_of).collect();
        let arguments = arguments(values);
        let connection = &mut session.connection;
        let rows = async move {
            let arguments = arguments.map_err(sqlx::Error::Encode)?;
            let sql = with_texts(connection, sql, &types).await?;
            let rows = sqlx::query_with(AssertSqlSafe(sql), arguments).fetch(connection);
            Ok::<_, sqlx::Error>(rows)
        };
        stream::once(rows).try_flatten().boxed()
    }

    fn layout(row: &PgRow) -> Self::Layout {
        let columns = row.columns().iter();
        let columns = columns.map(|column| PgColumn {
            name: Arc::from(column.name()),
            reader: ValueReader::for_type(column.type_info()),
        });
        columns.collect()
    }

    fn decode_row(layout: &Self::Layout, row: &PgRow) -> ReadRow {
        let columns = layout.iter().enumerate();
        read_row(columns.map(|(position, column)| {
            let value = column.value(row, position);
            (Arc::clone(&column.name), value)
        }))
    }

    fn refusal(error: &dyn DatabaseError) -> SourceError {
        let code = error.code().unwrap_or_default();
        if code == QUERY_CANCELED {
            return SourceError::Timeout;
        }
        let is_safe = VALUE_FREE_CODES.iter().any(|class| code.starts_with(class));
        SourceError::Refused(Refusal {
            code: format!("SQLSTATE {code}"),
            message: is_safe.then(|| error.message().to_owned()),
        })
    }
}

/// Returns the type with which the placeholder of a value is declared.
fn type_of(value: &BoundValue) -> PgTypeInfo {
    fn type_info<T: Type<sqlx::Postgres>>() -> PgTypeInfo {
        T::type_info()
    }
    match value {
        BoundValue::Text(_) => type_info::<String>(),
        BoundValue::Integer(_) => type_info::<i64>(),
        BoundValue::BigInteger(_) | BoundValue::Decimal(_) => type_info::<BigDecimal>(),
        BoundValue::Boolean(_) => type_info::<bool>(),
        BoundValue::List(BoundList::Texts(_)) => type_info::<Vec<String>>(),
        BoundValue::List(BoundList::Integers(_)) => type_info::<Vec<i64>>(),
        BoundValue::List(BoundList::BigIntegers(_) | BoundList::Decimals(_)) => {
            type_info::<Vec<BigDecimal>>()
        }
        BoundValue::List(BoundList::Booleans(_)) => type_info::<Vec<bool>>(),
    }
}

fn arguments(values: &[BoundValue]) -> Result<PgArguments, BoxDynError> {
    let mut arguments = PgArguments::default();
    for value in values {
        match value {
            BoundValue::Text(text) => arguments.add(text.as_deref()),
            BoundValue::Integer(number) => arguments.add(*number),
            BoundValue::BigInteger(number) => arguments.add(number),
            BoundValue::Decimal(number) => arguments.add(number.as_ref()),
            BoundValue::Boolean(truth) => arguments.add(*truth),
            BoundValue::List(BoundList::Texts(texts)) => arguments.add(texts),
            BoundValue::List(BoundList::Integers(numbers)) => arguments.add(numbers),
            BoundValue::List(BoundList::BigIntegers(numbers) | BoundList::Decimals(numbers)) => {
                arguments.add(numbers)
            }
            BoundValue::List(BoundList::Booleans(truths)) => arguments.add(truths),
        }?;
    }
    Ok(arguments)
}

impl PostgresProcess {
    /// Cancels the work of the process, from a separate connection.
    async fn cancel(&self) -> Result<(), sqlx::Error> {
        let mut connection = PgConnection::connect_with(&self.options).await?;
        sqlx::query(CANCEL)
            .bind(self.id)
            .bind(&self.started)
            .persistent(false)
            .execute(&mut connection)
            .await?;
        connection.close().await
    }
}

pub(super) struct PgColumn {
    name: Arc<str>,
    /// The reader of the column, or `None` for a type without a JSON form whose text could not be requested either.
    reader: Option<ValueReader>,
}

impl PgColumn {
    fn value(&self, row: &PgRow, position: usize) -> Result<Value, SourceError> {
        let raw = row.try_get_raw(position).map_err(SourceError::Broken)?;
        if raw.is_null() {
            return Ok(Value::Null);
        }
        let type_name = || row.column(position).type_info().name().to_owned();
        let Some(reader) = self.reader else {
            return Err(SourceError::ColumnType {
                column: Arc::clone(&self.name),
                type_name: type_name(),
            });
        };
        let value = raw.as_bytes().and_then(|bytes| reader.read_value(bytes));
        value.map_err(|_| SourceError::Value {
            column: Arc::clone(&self.name),
            type_name: type_name(),
        })
    }
}
