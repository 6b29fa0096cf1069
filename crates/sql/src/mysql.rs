//! The backend for MySQL 8.0.17 and later and MariaDB 10.6 and later.
//!
//! Statements are prepared, and the server prepares only one statement at a time: a second statement after a `;` is an
//! error, regardless of the capabilities of the connection.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use serde_json::Value;
use sqlx::error::{BoxDynError, DatabaseError};
use sqlx::mysql::types::MySqlTime;
use sqlx::mysql::{
    MySqlArguments, MySqlConnectOptions, MySqlConnection, MySqlDatabaseError, MySqlRow,
    MySqlSslMode, MySqlTypeInfo, MySqlValueRef,
};
use sqlx::{
    Arguments, AssertSqlSafe, Column, ConnectOptions, Connection, Decode, Row as _, Type, TypeInfo,
    ValueRef,
};
use time::{Date, OffsetDateTime};
use tracing::warn;
use wardgate_store::{is_this_machine, without_brackets};

use super::backend::{
    Backend, NO_LISTS, ReadRow, base64, date, float, read_row, single, timestamp,
};
use super::{Refusal, SourceError};
use wardgate_catalogue::BoundValue;

/// SQL mode that `catalogue::statement` assumes when it parses statements. It is strict, so a value that does not fit
/// its column is an error.
const SQL_MODE: &str = "STRICT_ALL_TABLES,ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,\
                        NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION";

/// Identifies a session on its server. The connection id alone could belong to another session on another server.
const OWN_SESSION: &str =
    "SELECT VERSION(), CAST(CONNECTION_ID() AS UNSIGNED), CONCAT(@@hostname, ':', @@port)";

const SERVER: &str = "SELECT CONCAT(@@hostname, ':', @@port)";

/// Time that the server lets a statement run beyond the longest time limit, as a last resort.
const STATEMENT_GRACE: Duration = Duration::from_secs(1);

/// Errors of a statement that was stopped: `ER_STATEMENT_TIMEOUT` of MariaDB, `ER_QUERY_TIMEOUT` of MySQL.
const TIMEOUTS: [u16; 2] = [1969, 3024];

/// `ER_NO_SUCH_THREAD`: the session to be stopped has already ended.
const NO_SUCH_SESSION: u16 = 1094;

/// Errors whose messages name objects but never values: too many connections, access, unknown database, table or
/// column, rights, lock timeout, deadlock, a read-only server or transaction.
const VALUE_FREE_ERRORS: [u16; 15] = [
    1040, 1044, 1045, 1049, 1053, 1054, 1142, 1143, 1146, 1205, 1213, 1290, 1317, 1792, 1836,
];

pub(super) struct Mysql {
    options: MySqlConnectOptions,
    statement_limit: Duration,
    is_reader: bool,
}

impl Mysql {
    /// Creates a backend for sessions in which every transaction is read-only.
    pub(super) fn reader(url: &str, statement_limit: Duration) -> Result<Self, sqlx::Error> {
        let mut mysql = Self::writer(url, statement_limit)?;
        mysql.is_reader = true;
        Ok(mysql)
    }

    pub(super) fn writer(url: &str, statement_limit: Duration) -> Result<Self, sqlx::Error> {
        // Texts are read as UTF-8 and TIMESTAMPs as UTC, regardless of the URL.
        let options = strict_tls(MySqlConnectOptions::from_str(url)?)
            .charset("utf8mb4")
            .timezone("+00:00".to_owned())
            .pipes_as_concat(false)
            .no_engine_substitution(false)
            .disable_statement_logging();
        Ok(Self {
            options,
            statement_limit: statement_limit + STATEMENT_GRACE,
            is_reader: false,
        })
    }

    /// Opens one connection whose session is configured.
    pub(super) async fn open(&self) -> Result<MySqlConnection, sqlx::Error> {
        Ok(self.connect().await?.connection)
    }

    /// Returns the statement that configures a session identically on every server.
    fn settings(&self, is_mariadb: bool) -> String {
        let limit = self.statement_limit.as_millis();
        // Binary collations, so that strings that do not come from a column are compared exactly, as on other
        // databases.
        let (limit, collation) = if is_mariadb {
            let (seconds, millis) = (limit / 1_000, limit % 1_000);
            (
                format!("max_statement_time = {seconds}.{millis:03}"),
                "utf8mb4_nopad_bin",
            )
        } else {
            (format!("max_execution_time = {limit}"), "utf8mb4_0900_bin")
        };
        format!("SET SESSION sql_mode = '{SQL_MODE}', {limit}, NAMES utf8mb4 COLLATE {collation}")
    }
}

/// Sets a host that the driver can connect to, and requires a verified TLS connection for a remote server. Without
/// `ssl-mode` in its URL, the driver would not check certificates and would fall back to plain text if the server
/// refuses TLS, which is acceptable only within one machine.
fn strict_tls(options: MySqlConnectOptions) -> MySqlConnectOptions {
    let host = without_brackets(options.get_host()).to_owned();
    let options = options.host(&host);
    let is_here = options.get_socket().is_some() || is_this_machine(&host);
    match options.get_ssl_mode() {
        MySqlSslMode::Preferred if !is_here => options.ssl_mode(MySqlSslMode::VerifyIdentity),
        _ => options,
    }
}

pub(super) struct MysqlSession {
    connection: MySqlConnection,
    process: Arc<MysqlProcess>,
}

/// The server process of a session.
pub(super) struct MysqlProcess {
    options: MySqlConnectOptions,
    server: String,
    id: u64,
}

impl Backend for Mysql {
    type Session = MysqlSession;
    type Handle = Arc<MysqlProcess>;
    type Row = MySqlRow;
    type Layout = Vec<MysqlColumn>;

    async fn connect(&self) -> Result<MysqlSession, sqlx::Error> {
        let mut connection = MySqlConnection::connect_with(&self.options).await?;
        let (version, id, server): (String, u64, String) = sqlx::query_as(OWN_SESSION)
            .persistent(false)
            .fetch_one(&mut connection)
            .await?;
        let settings = self.settings(version.contains("MariaDB"));
        run(&mut connection, settings).await?;
        if self.is_reader {
            run(
                &mut connection,
                "SET SESSION TRANSACTION READ ONLY".to_owned(),
            )
            .await?;
        }
        Ok(MysqlSession {
            connection,
            process: Arc::new(MysqlProcess {
                options: self.options.clone(),
                server,
                id,
            }),
        })
    }

    async fn is_alive(session: &mut MysqlSession) -> bool {
        session.connection.ping().await.is_ok()
    }

    fn handle(session: &MysqlSession) -> Arc<MysqlProcess> {
        Arc::clone(&session.process)
    }

    async fn stop(process: Arc<MysqlProcess>) {
        if let Err(error) = process.kill().await {
            warn!(%error, "a statement could not be cancelled; it runs until the time limit of the server");
        }
    }

    fn fetch<'s>(
        session: &'s mut MysqlSession,
        sql: Arc<str>,
        values: &[BoundValue],
    ) -> BoxStream<'s, Result<MySqlRow, sqlx::Error>> {
        let mut arguments = MySqlArguments::default();
        let bound = values.iter().try_for_each(|value| match value {
            BoundValue::Text(text) => arguments.add(text.as_deref()),
            BoundValue::Integer(number) => arguments.add(*number),
            BoundValue::BigInteger(number) => arguments.add(number),
            BoundValue::Decimal(number) => arguments.add(number.as_ref()),
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

    fn layout(row: &MySqlRow) -> Self::Layout {
        let columns = row.columns().iter();
        let columns = columns.map(|column| MysqlColumn {
            name: Arc::from(column.name()),
            read: reader(column.type_info()),
        });
        columns.collect()
    }

    fn decode_row(layout: &Self::Layout, row: &MySqlRow) -> ReadRow {
        let columns = layout.iter().enumerate();
        read_row(columns.map(|(position, column)| {
            let value = column.value(row, position);
            (Arc::clone(&column.name), value)
        }))
    }

    fn refusal(error: &dyn DatabaseError) -> SourceError {
        let number = number(error);
        if TIMEOUTS.contains(&number) {
            return SourceError::Timeout;
        }
        let is_safe = VALUE_FREE_ERRORS.contains(&number);
        SourceError::Refused(Refusal {
            code: format!("MySQL error {number}"),
            message: is_safe.then(|| error.message().to_owned()),
        })
    }
}

async fn run(connection: &mut MySqlConnection, sql: String) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(connection)
        .await
        .map(drop)
}

fn number(error: &dyn DatabaseError) -> u16 {
    error
        .try_downcast_ref::<MySqlDatabaseError>()
        .map_or(0, MySqlDatabaseError::number)
}

impl MysqlProcess {
    /// Ends the session and its work, from a separate connection. The server would notice a closed connection only when
    /// it has a row to send.
    async fn kill(&self) -> Result<(), sqlx::Error> {
        let mut connection = MySqlConnection::connect_with(&self.options).await?;
        let server: String = sqlx::query_scalar(SERVER)
            .persistent(false)
            .fetch_one(&mut connection)
            .await?;
        if server == self.server {
            match run(&mut connection, format!("KILL CONNECTION {}", self.id)).await {
                Err(sqlx::Error::Database(error)) if number(error.as_ref()) == NO_SUCH_SESSION => {}
                outcome => outcome?,
            }
        }
        connection.close().await
    }
}

/// A function that converts a value that is not NULL to JSON.
type ColumnReader = fn(MySqlValueRef<'_>) -> Result<Value, BoxDynError>;

pub(super) struct MysqlColumn {
    name: Arc<str>,
    /// The reader of the column, or `None` for a type without a JSON form.
    read: Option<ColumnReader>,
}

impl MysqlColumn {
    fn value(&self, row: &MySqlRow, position: usize) -> Result<Value, SourceError> {
        let raw = row.try_get_raw(position).map_err(SourceError::Broken)?;
        // A date of zeros counts as NULL.
        if raw.is_null() {
            return Ok(Value::Null);
        }
        let type_name = || row.column(position).type_info().name().to_owned();
        let Some(read) = self.read else {
            return Err(SourceError::ColumnType {
                column: Arc::clone(&self.name),
                type_name: type_name(),
            });
        };
        read(raw).map_err(|_| SourceError::Value {
            column: Arc::clone(&self.name),
            type_name: type_name(),
        })
    }
}

fn decode<'r, T: Decode<'r, sqlx::MySql>>(raw: MySqlValueRef<'r>) -> Result<T, BoxDynError> {
    T::decode(raw)
}

/// Returns the conversion to JSON for a type, or `None` for a type without a lossless JSON form.
fn reader(kind: &MySqlTypeInfo) -> Option<ColumnReader> {
    let is_signed = <i64 as Type<sqlx::MySql>>::compatible(kind);
    // The names of text types do not tell whether the values are characters or bytes, so their compatibility is checked
    // instead.
    let is_text = <str as Type<sqlx::MySql>>::compatible(kind);
    Some(match kind.name() {
        // TINYINT(1), which is the type of BOOLEAN.
        "BOOLEAN" if is_signed => |raw| {
            Ok(match decode::<i64>(raw)? {
                0 => Value::Bool(false),
                1 => Value::Bool(true),
                other => Value::from(other),
            })
        },
        "TINYINT" | "SMALLINT" | "MEDIUMINT" | "INT" | "BIGINT" => {
            |raw| Ok(Value::from(decode::<i64>(raw)?))
        }
        "BOOLEAN" | "TINYINT UNSIGNED" | "SMALLINT UNSIGNED" | "MEDIUMINT UNSIGNED"
        | "INT UNSIGNED" | "BIGINT UNSIGNED" | "YEAR" | "BIT" => {
            |raw| Ok(Value::from(decode::<u64>(raw)?))
        }
        "FLOAT" => |raw| Ok(single(decode::<f32>(raw)?)),
        "DOUBLE" => |raw| Ok(float(decode::<f64>(raw)?)),
        "DATE" => |raw| date(decode::<Date>(raw)?),
        "DATETIME" => |raw| timestamp(decode::<OffsetDateTime>(raw)?, false),
        "TIMESTAMP" => |raw| timestamp(decode::<OffsetDateTime>(raw)?, true),
        "TIME" => |raw| Ok(Value::from(duration(&decode::<MySqlTime>(raw)?))),
        "JSON" => |raw| decode::<Value>(raw),
        "DECIMAL" | "ENUM" | "SET" | "NULL" => |raw| Ok(Value::from(decode::<&str>(raw)?)),
        _ if is_text => |raw| Ok(Value::from(decode::<&str>(raw)?)),
        "BINARY" | "VARBINARY" | "TINYBLOB" | "BLOB" | "MEDIUMBLOB" | "LONGBLOB" => {
            |raw| Ok(base64(decode::<&[u8]>(raw)?))
        }
        _ => return None,
    })
}

/// Formats a MySQL time as `[-]hhh:mm:ss[.ffffff]`. It is a time of day or a duration of up to 838 hours.
fn duration(time: &MySqlTime) -> String {
    let sign = if time.sign().is_negative() { "-" } else { "" };
    let (hours, minutes, seconds) = (time.hours(), time.minutes(), time.seconds());
    let text = format!("{sign}{hours:02}:{minutes:02}:{seconds:02}");
    match time.microseconds() {
        0 => text,
        micros => format!("{text}.{}", format!("{micros:06}").trim_end_matches('0')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_address_is_connected_to_without_its_brackets() {
        let options = strict_tls("mysql://u@[fd00::7]:3307/d".parse().unwrap());
        assert_eq!((options.get_host(), options.get_port()), ("fd00::7", 3307));
    }

    #[test]
    fn what_leaves_this_machine_is_encrypted_for_a_server_that_is_known() {
        for (url, verifies) in [
            ("mysql://u@localhost/d", false),
            ("mysql://u@127.0.0.1/d", false),
            ("mysql://u@db.example/d?socket=/run/mysqld.sock", false),
            ("mysql://u@db.example/d", true),
            ("mysql://u@[fd00::7]/d", true),
            ("mysql://u@10.0.0.7/d?ssl-mode=preferred", true),
            ("mysql://u@10.0.0.7/d?ssl-mode=disabled", false),
        ] {
            let options = strict_tls(url.parse().unwrap());
            let mode = options.get_ssl_mode();
            assert_eq!(
                matches!(mode, MySqlSslMode::VerifyIdentity),
                verifies,
                "{url}"
            );
        }
    }
}
