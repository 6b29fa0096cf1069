//! What the runner needs of a database.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;

use futures::stream::BoxStream;
use serde_json::{Number, Value};
use sqlx::error::DatabaseError;
use wardgate_redact::Row;

use super::{Bound, SourceError};

/// One kind of database. Dropping a session stops whatever it is doing.
pub(super) trait Backend: Send + Sync + 'static {
    type Session: Send + 'static;
    type Row: Send;
    type Layout: Send;

    fn connect(&self) -> impl Future<Output = Result<Self::Session, sqlx::Error>> + Send;

    /// True when a session that was idle for a while still works.
    fn is_alive(session: &mut Self::Session) -> impl Future<Output = bool> + Send;

    /// Prepares the statement, once per session, and runs it: one round trip.
    fn fetch<'s>(
        session: &'s mut Self::Session,
        sql: Arc<str>,
        values: &[Bound],
    ) -> BoxStream<'s, Result<Self::Row, sqlx::Error>>;

    /// What the columns of the first row tell about all rows.
    fn layout(row: &Self::Row) -> Result<Self::Layout, SourceError>;

    fn read(layout: &Self::Layout, row: &Self::Row) -> Result<Row, SourceError>;

    fn refusal(error: &dyn DatabaseError) -> SourceError;
}

/// The names of the columns, which must differ: they become the members of one object.
pub(super) fn distinct<'n>(
    names: impl Iterator<Item = &'n str>,
) -> Result<Vec<Arc<str>>, SourceError> {
    let mut seen = HashSet::new();
    names
        .map(|name| {
            if seen.insert(name) {
                Ok(Arc::from(name))
            } else {
                Err(SourceError::DuplicateColumn(Arc::from(name)))
            }
        })
        .collect()
}

/// A floating-point number; JSON has no form for the ones that are not finite, so those become texts.
pub(super) fn float(number: f64) -> Value {
    match Number::from_f64(number) {
        Some(number) => Value::Number(number),
        None if number.is_nan() => Value::from("NaN"),
        None if number > 0.0 => Value::from("Infinity"),
        None => Value::from("-Infinity"),
    }
}

pub(super) fn base64(bytes: &[u8]) -> Value {
    use base64::Engine;
    Value::from(base64::engine::general_purpose::STANDARD.encode(bytes))
}
