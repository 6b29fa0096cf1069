//! The interface between the runner and the kinds of databases.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;

use futures::stream::BoxStream;
use serde_json::{Number, Value};
use sqlx::Column;
use sqlx::error::{BoxDynError, DatabaseError};
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{Date, OffsetDateTime};
use wardgate_redact::Row;

use super::SourceError;
use wardgate_catalogue::BoundValue;

/// A kind of database.
pub(super) trait Backend: Send + Sync + 'static {
    /// A session. Dropping it closes its connection.
    type Session: Send + 'static;
    type Handle: Send + 'static;
    type Row: sqlx::Row;
    type Layout: Send;

    fn connect(&self) -> impl Future<Output = Result<Self::Session, sqlx::Error>> + Send;

    /// Returns whether a session that was idle for a while still works.
    fn is_alive(session: &mut Self::Session) -> impl Future<Output = bool> + Send;

    /// Returns the handle with which the work of a session can be stopped from outside.
    fn handle(session: &Self::Session) -> Self::Handle;

    /// Tells the server to stop the work of a session whose connection was closed before the work was done.
    fn stop(handle: Self::Handle) -> impl Future<Output = ()> + Send;

    /// Prepares the statement, once per session, and runs it in one round trip.
    fn fetch<'s>(
        session: &'s mut Self::Session,
        sql: Arc<str>,
        values: &[BoundValue],
    ) -> BoxStream<'s, Result<Self::Row, sqlx::Error>>;

    /// Returns the layout of all rows, which the columns of the first row determine.
    fn layout(row: &Self::Row) -> Self::Layout;

    fn decode_row(layout: &Self::Layout, row: &Self::Row) -> ReadRow;

    fn refusal(error: &dyn DatabaseError) -> SourceError;
}

/// A row of JSON values.
pub(super) struct ReadRow {
    /// The row, with an empty list in place of each value that cannot be read.
    pub(super) row: Row,
    /// The reason why the first such value cannot be read, or `None` if there is none.
    pub(super) unreadable: Option<SourceError>,
}

/// Collects the columns of a row.
pub(super) fn read_row(
    columns: impl Iterator<Item = (Arc<str>, Result<Value, SourceError>)>,
) -> ReadRow {
    let mut unreadable = None;
    let row = columns
        .map(|(name, value)| {
            let value = value.unwrap_or_else(|error| {
                if unreadable.is_none() {
                    unreadable = Some(error);
                }
                Value::Array(Vec::new())
            });
            (name, value)
        })
        .collect();
    ReadRow { row, unreadable }
}

/// Error message for a list that is bound on a database without lists. On such a database, elements are bound
/// individually.
pub(super) const NO_LISTS: &str = "this database does not support binding lists";

/// Returns the first name that two columns of a row have, or `None` if all names differ. They must differ because they
/// become the members of one object.
pub(super) fn duplicate_name<R: sqlx::Row>(row: &R) -> Option<Arc<str>> {
    let mut seen = HashSet::new();
    let mut names = row.columns().iter().map(Column::name);
    names.find(|name| !seen.insert(*name)).map(Arc::from)
}

/// Converts a floating-point number. Numbers that are not finite become strings, because JSON has no form for them.
pub(super) fn float(number: f64) -> Value {
    match Number::from_f64(number) {
        Some(number) => Value::Number(number),
        None if number.is_nan() => Value::from("NaN"),
        None if number > 0.0 => Value::from("Infinity"),
        None => Value::from("-Infinity"),
    }
}

/// Converts a single-precision number by its shortest decimal form, so that 0.1 stays 0.1.
pub(super) fn single(number: f32) -> Value {
    float(
        number
            .to_string()
            .parse()
            .unwrap_or_else(|_| f64::from(number)),
    )
}

/// Converts an instant to RFC 3339, without an offset if the database type has no time zone.
pub(super) fn timestamp(instant: OffsetDateTime, has_zone: bool) -> Result<Value, BoxDynError> {
    let mut text = instant.to_offset(time::UtcOffset::UTC).format(&Rfc3339)?;
    if !has_zone {
        text.pop();
    }
    Ok(Value::from(text))
}

pub(super) fn date(date: Date) -> Result<Value, BoxDynError> {
    let text = date.format(format_description!("[year]-[month]-[day]"))?;
    Ok(Value::from(text))
}

pub(super) fn base64(bytes: &[u8]) -> Value {
    use base64::Engine;
    Value::from(base64::engine::general_purpose::STANDARD.encode(bytes))
}
