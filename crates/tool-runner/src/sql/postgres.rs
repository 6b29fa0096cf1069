//! PostgreSQL 14 and later.

use std::fmt::Write;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use serde_json::Value;
use sqlx::error::{BoxDynError, DatabaseError};
use sqlx::postgres::{
    PgArguments, PgConnectOptions, PgConnection, PgRow, PgSslMode, PgTypeInfo, PgTypeKind,
    PgValueRef,
};
use sqlx::{
    Arguments, AssertSqlSafe, Column, ConnectOptions, Connection, Decode, Row as _, TypeInfo,
    ValueRef,
};
use time::macros::format_description;
use time::{Date, OffsetDateTime, Time};
use tracing::warn;
use uuid::Uuid;
use wardgate_redact::Row;

use super::backend::{Backend, base64, date, distinct, float, is_here, single, timestamp};
use super::{Bound, Refusal, SourceError};

/// How often a server looks whether its client is still there, should it not be told to stop.
const CLIENT_CHECK_INTERVAL: &str = "500ms";

/// How much longer than every tool the server lets a statement run: the last resort.
const STATEMENT_GRACE: Duration = Duration::from_secs(1);

/// Names the process of a session: its number alone may be that of another one later, and on another server.
const OWN_PROCESS: &str =
    "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()";

const CANCEL: &str = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity \
                      WHERE pid = $1 AND backend_start::text = $2";

/// `query_canceled`: the statement time limit.
const QUERY_CANCELED: &str = "57014";

/// SQLSTATEs, or classes of them, whose messages name objects and never values: connection, transaction state,
/// authorisation, unknown database, resources, operator intervention; a table, column or right that is missing.
const VALUE_FREE_CODES: [&str; 9] = [
    "08", "25", "28", "3D", "53", "57", "42P01", "42703", "42501",
];

/// 2000-01-01T00:00:00Z, from where PostgreSQL counts, in microseconds since 1970.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// Julian day of 2000-01-01.
const EPOCH_JULIAN_DAY: i32 = 2_451_545;

pub(super) struct Postgres {
    options: PgConnectOptions,
}

impl Postgres {
    /// Sessions whose every transaction is read-only.
    pub(super) fn reader(url: &str, statement_limit: Duration) -> Result<Self, sqlx::Error> {
        let mut postgres = Self::writer(url, statement_limit)?;
        postgres.options = postgres
            .options
            .options([("default_transaction_read_only", "on")]);
        Ok(postgres)
    }

    pub(super) fn writer(url: &str, statement_limit: Duration) -> Result<Self, sqlx::Error> {
        let limit = (statement_limit + STATEMENT_GRACE).as_millis().to_string();
        let options = strict_tls(PgConnectOptions::from_str(url)?)
            .application_name("wardgate")
            .disable_statement_logging()
            .options([
                ("statement_timeout", limit.as_str()),
                ("client_connection_check_interval", CLIENT_CHECK_INTERVAL),
            ]);
        Ok(Self { options })
    }

    /// One connection.
    pub(super) async fn open(&self) -> Result<PgConnection, sqlx::Error> {
        PgConnection::connect_with(&self.options).await
    }
}

/// Without `sslmode` in its URL the driver would fall back to plain text when TLS is refused, and check no
/// certificate. That is good enough within one machine only.
fn strict_tls(options: PgConnectOptions) -> PgConnectOptions {
    let is_here = options.get_socket().is_some() || is_here(options.get_host());
    match options.get_ssl_mode() {
        PgSslMode::Prefer if !is_here => options.ssl_mode(PgSslMode::VerifyFull),
        _ => options,
    }
}

pub(super) struct Session {
    connection: PgConnection,
    process: Arc<Process>,
}

/// The process of the server that works for a session.
pub(super) struct Process {
    options: PgConnectOptions,
    id: i32,
    started: String,
}

impl Backend for Postgres {
    type Session = Session;
    type Handle = Arc<Process>;
    type Row = PgRow;
    type Layout = Vec<PgColumn>;

    async fn connect(&self) -> Result<Session, sqlx::Error> {
        let mut connection = self.open().await?;
        let (id, started) = sqlx::query_as(OWN_PROCESS)
            .persistent(false)
            .fetch_one(&mut connection)
            .await?;
        Ok(Session {
            connection,
            process: Arc::new(Process {
                options: self.options.clone(),
                id,
                started,
            }),
        })
    }

    async fn is_alive(session: &mut Session) -> bool {
        session.connection.ping().await.is_ok()
    }

    fn handle(session: &Session) -> Arc<Process> {
        Arc::clone(&session.process)
    }

    async fn stop(process: Arc<Process>) {
        if let Err(error) = process.cancel().await {
            warn!(%error, "a statement was not cancelled; PostgreSQL stops it when it looks for its client");
        }
    }

    fn fetch<'s>(
        session: &'s mut Session,
        sql: Arc<str>,
        values: &[Bound],
    ) -> BoxStream<'s, Result<PgRow, sqlx::Error>> {
        let mut arguments = PgArguments::default();
        let bound = values.iter().try_for_each(|value| match value {
            Bound::Text(text) => arguments.add(text.as_deref()),
            Bound::Integer(number) => arguments.add(*number),
            Bound::Number(number) => arguments.add(*number),
            Bound::Boolean(truth) => arguments.add(*truth),
        });
        match bound {
            Ok(()) => {
                sqlx::query_with(AssertSqlSafe(sql), arguments).fetch(&mut session.connection)
            }
            Err(error) => stream::once(async { Err(sqlx::Error::Encode(error)) }).boxed(),
        }
    }

    fn layout(row: &PgRow) -> Result<Self::Layout, SourceError> {
        let names = distinct(row.columns().iter().map(Column::name))?;
        names
            .into_iter()
            .zip(row.columns())
            .map(|(name, column)| match reader(column.type_info()) {
                Some(read) => Ok(PgColumn { name, read }),
                None => Err(SourceError::ColumnType {
                    column: name,
                    type_name: column.type_info().name().to_owned(),
                }),
            })
            .collect()
    }

    fn read(layout: &Self::Layout, row: &PgRow) -> Result<Row, SourceError> {
        layout
            .iter()
            .enumerate()
            .map(|(position, column)| Ok((Arc::clone(&column.name), column.value(row, position)?)))
            .collect()
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

impl Process {
    /// Cancels what it does, from a connection of its own.
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

/// Turns a value that is not NULL into JSON.
type Read = fn(PgValueRef<'_>) -> Result<Value, BoxDynError>;

pub(super) struct PgColumn {
    name: Arc<str>,
    read: Read,
}

impl PgColumn {
    fn value(&self, row: &PgRow, position: usize) -> Result<Value, SourceError> {
        let raw = row.try_get_raw(position).map_err(SourceError::Broken)?;
        if raw.is_null() {
            return Ok(Value::Null);
        }
        (self.read)(raw).map_err(|_| SourceError::Value {
            column: Arc::clone(&self.name),
            type_name: row.column(position).type_info().name().to_owned(),
        })
    }
}

fn decode<'r, T: Decode<'r, sqlx::Postgres>>(raw: PgValueRef<'r>) -> Result<T, BoxDynError> {
    T::decode(raw)
}

/// How values of a type become JSON; none for types without a form that keeps everything.
fn reader(kind: &PgTypeInfo) -> Option<Read> {
    Some(match kind.name() {
        "BOOL" => |raw| Ok(Value::Bool(decode::<bool>(raw)?)),
        "INT2" => |raw| Ok(Value::from(decode::<i16>(raw)?)),
        "INT4" => |raw| Ok(Value::from(decode::<i32>(raw)?)),
        "INT8" => |raw| Ok(Value::from(decode::<i64>(raw)?)),
        "FLOAT4" => |raw| Ok(single(decode::<f32>(raw)?)),
        "FLOAT8" => |raw| Ok(float(decode::<f64>(raw)?)),
        "NUMERIC" => |raw| {
            numeric(raw.as_bytes()?)
                .map(Value::from)
                .ok_or_else(unreadable)
        },
        "TEXT" | "VARCHAR" | "CHAR" | "NAME" | "UNKNOWN" | "citext" => {
            |raw| Ok(Value::from(raw.as_str()?))
        }
        "BYTEA" => |raw| Ok(base64(raw.as_bytes()?)),
        "JSON" | "JSONB" => |raw| decode::<Value>(raw),
        "UUID" => |raw| Ok(Value::from(Uuid::from_slice(raw.as_bytes()?)?.to_string())),
        "DATE" => |raw| day(i32::from_be_bytes(raw.as_bytes()?.try_into()?)),
        "TIME" => |raw| time_of_day(i64::from_be_bytes(raw.as_bytes()?.try_into()?)),
        "TIMESTAMP" => |raw| instant(i64::from_be_bytes(raw.as_bytes()?.try_into()?), false),
        "TIMESTAMPTZ" => |raw| instant(i64::from_be_bytes(raw.as_bytes()?.try_into()?), true),
        "BOOL[]" => |raw| Ok(list(decode::<Vec<Option<bool>>>(raw)?)),
        "INT2[]" => |raw| Ok(list(decode::<Vec<Option<i16>>>(raw)?)),
        "INT4[]" => |raw| Ok(list(decode::<Vec<Option<i32>>>(raw)?)),
        "INT8[]" => |raw| Ok(list(decode::<Vec<Option<i64>>>(raw)?)),
        "TEXT[]" | "VARCHAR[]" => |raw| Ok(list(decode::<Vec<Option<String>>>(raw)?)),
        _ if matches!(kind.kind(), PgTypeKind::Enum(_)) => |raw| Ok(Value::from(raw.as_str()?)),
        _ => return None,
    })
}

fn unreadable() -> BoxDynError {
    "the value is not in the form of its type".into()
}

fn list<T: Into<Value>>(items: Vec<Option<T>>) -> Value {
    items
        .into_iter()
        .map(|item| item.map_or(Value::Null, Into::into))
        .collect()
}

/// Microseconds since 2000.
fn instant(micros: i64, has_zone: bool) -> Result<Value, BoxDynError> {
    let micros = match micros {
        i64::MAX => return Ok(Value::from("infinity")),
        i64::MIN => return Ok(Value::from("-infinity")),
        _ => i128::from(micros) + i128::from(EPOCH_MICROS),
    };
    let instant = OffsetDateTime::from_unix_timestamp_nanos(micros * 1_000)?;
    timestamp(instant, has_zone)
}

/// Days since 2000.
fn day(days: i32) -> Result<Value, BoxDynError> {
    match days {
        i32::MAX => return Ok(Value::from("infinity")),
        i32::MIN => return Ok(Value::from("-infinity")),
        _ => {}
    }
    let day = days.checked_add(EPOCH_JULIAN_DAY).ok_or_else(unreadable)?;
    date(Date::from_julian_day(day)?)
}

fn time_of_day(micros: i64) -> Result<Value, BoxDynError> {
    let seconds = micros.div_euclid(1_000_000);
    if seconds == 86_400 {
        return Ok(Value::from("24:00:00"));
    }
    let time = Time::from_hms_micro(
        u8::try_from(seconds / 3_600)?,
        u8::try_from(seconds / 60 % 60)?,
        u8::try_from(seconds % 60)?,
        u32::try_from(micros.rem_euclid(1_000_000))?,
    )?;
    let shape = if time.microsecond() == 0 {
        time.format(format_description!("[hour]:[minute]:[second]"))?
    } else {
        time.format(format_description!("[hour]:[minute]:[second].[subsecond]"))?
    };
    Ok(Value::from(shape))
}

/// The digits of a NUMERIC from its binary form: groups of four decimal digits, the weight of the first
/// group, the sign, and how many digits follow the point (PostgreSQL, `numeric_send`).
fn numeric(bytes: &[u8]) -> Option<String> {
    let word = |at: usize| {
        Some(u16::from_be_bytes(
            bytes.get(at * 2..at * 2 + 2)?.try_into().ok()?,
        ))
    };
    let groups = i32::from(word(0)?);
    let weight = i32::from(word(1)?.cast_signed());
    let sign = match word(2)? {
        0x0000 => "",
        0x4000 => "-",
        0xC000 => return Some("NaN".to_owned()),
        0xD000 => return Some("Infinity".to_owned()),
        0xF000 => return Some("-Infinity".to_owned()),
        _ => return None,
    };
    let scale = usize::from(word(3)?);
    let group = |position: i32| {
        if (0..groups).contains(&position) {
            word(4 + usize::try_from(position).ok()?)
        } else {
            Some(0)
        }
    };
    let mut whole = String::new();
    for position in 0..=weight {
        write!(whole, "{:04}", group(position)?).ok()?;
    }
    let whole = whole.trim_start_matches('0');
    let mut fraction = String::new();
    let mut position = weight + 1;
    while fraction.len() < scale {
        write!(fraction, "{:04}", group(position)?).ok()?;
        position += 1;
    }
    fraction.truncate(scale);
    let point = if scale > 0 { "." } else { "" };
    let whole = if whole.is_empty() { "0" } else { whole };
    Some(format!("{sign}{whole}{point}{fraction}"))
}
