//! Counts of the recorded calls of a caller.

use wardgate_domain::{CallId, Timestamp, ToolName};

use super::{READ_LIMIT, ReadPool, StoreReader, to_i64, to_u64};
use crate::Error;
use crate::canonical::column;

/// Maximum number of records of one caller, and of one tool unless any tool is counted, that are read for a count. If there are
/// more, the calls are not counted.
pub(crate) const MAX_COUNTED: u64 = 10_000;

/// The selection of records that are counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CountedRecords<'a> {
    pub(crate) subject: &'a str,
    /// The tool, or `None` for any tool.
    pub(crate) tool: Option<&'a ToolName>,
    /// The tags of which the tool must have had one, as a JSON list; an empty list for any tool.
    pub(crate) tags: &'a str,
    pub(crate) since: Timestamp,
    pub(crate) until: Option<Timestamp>,
    /// The call that is being decided, and the sequence number of its intent.
    pub(crate) decided: Option<(CallId, u64)>,
    /// The keyed digest of a conversation, or `None` for any conversation.
    pub(crate) conversation: Option<&'a str>,
    /// Whether only calls that released health information count.
    pub(crate) phi: bool,
}

/// Selects the number of records that were read, the number of calls among them, and the number of calls that would count if
/// their tools had one of the tags, but whose records contain no tags. A call counts if it has no outcome and its intent precedes
/// the intent of the call that is being decided, or if it ended and may have had an effect. `$json` is the record as JSON, `$phi`
/// is the condition that the call released health information, and `$tagged` is 1 if the record has one of the tags, 0 if it
/// has none of them, and NULL if it contains no tags. A record that names no tool contains no tags, and its call is a call of no
/// tool with a tag. The column `tool` does not show this, because it then contains the requested name.
///
/// `$tagged` is expensive, so it is computed once for each call that counts, and not for the other records. The limit of the
/// subquery `call` excludes no record: it prevents the database from replacing each use of the column `tagged` with its
/// expression.
macro_rules! count {
    ($record:literal, $json:literal, $phi:literal, $tagged:literal, $tool:literal) => {
        concat!(
            "SELECT count(*), coalesce(sum(CASE WHEN tagged = 1 THEN counted ELSE 0 END), 0),
                    coalesce(sum(CASE WHEN tagged IS NULL THEN counted ELSE 0 END), 0) FROM (
                 SELECT counted, CASE WHEN counted = 0 THEN 0 WHEN $10 = '[]' THEN 1
                     WHEN coalesce(", $json, " ->> 'tool', '') = '' THEN 0 ELSE ", $tagged, " END AS tagged FROM (
                     SELECT canonical, CASE
                         WHEN $8 <> '' AND coalesce(", $json, " ->> 'conversation_hmac', '') <> $8 THEN 0
                         WHEN $9 = 1 THEN CASE WHEN event = 'outcome' AND call_id <> $4 AND ", $phi, " THEN 1 ELSE 0 END
                         WHEN coalesce(", $json, " ->> 'method', '') <> '' THEN 0
                         WHEN event = 'outcome' AND call_id <> $4
                              AND status NOT IN ('denied', 'unknown_tool', 'invalid_arguments') THEN 1
                         WHEN event = 'intent' AND sequence < $5 AND NOT EXISTS (
                              SELECT 1 FROM ", $record, " AS ended
                              WHERE ended.call_id = called.call_id AND ended.event = 'outcome') THEN 1
                         ELSE 0 END AS counted
                     FROM ", $record, " AS called
                     WHERE subject = $1 AND tool ", $tool, " $2 AND time >= $3 AND time < $6
                         AND event IN ('intent', 'outcome')
                     ORDER BY time DESC LIMIT $7
                 ) AS recent LIMIT $7
             ) AS call"
        )
    };
}

macro_rules! count_sqlite {
    ($tool:literal) => {
        count!(
            "record",
            "CAST(canonical AS TEXT)",
            "CAST(canonical AS TEXT) ->> 'phi' = 1",
            "CASE WHEN CAST(canonical AS TEXT) -> 'tags' IS NULL THEN NULL
                  ELSE EXISTS (SELECT 1 FROM json_each(CAST(recent.canonical AS TEXT), '$.tags') AS tag
                               WHERE tag.value IN (SELECT value FROM json_each($10))) END",
            $tool
        )
    };
}

macro_rules! count_postgres {
    ($tool:literal) => {
        count!(
            "audit.record",
            "convert_from(canonical, 'UTF8')::jsonb",
            "convert_from(canonical, 'UTF8')::jsonb ->> 'phi' = 'true'",
            "((convert_from(canonical, 'UTF8')::jsonb -> 'tags')
                  ?| ARRAY(SELECT jsonb_array_elements_text($10::jsonb)))::int",
            $tool
        )
    };
}

macro_rules! intent {
    ($record:literal) => {
        concat!(
            "SELECT sequence FROM ",
            $record,
            " WHERE call_id = $1 AND event = 'intent' AND subject = $2"
        )
    };
}

/// Selects the number of removed records, and the time of the first remaining record.
macro_rules! oldest {
    ($schema:literal) => {
        concat!(
            "SELECT minimum_index, (SELECT time FROM ",
            $schema,
            "record WHERE sequence >= minimum_index ORDER BY sequence LIMIT 1) FROM ",
            $schema,
            "retention"
        )
    };
}

impl StoreReader {
    /// Returns the number of calls among `counted`. Fails if there are too many records to read, or if a record that could
    /// count does not contain the tags of its tool.
    pub(crate) async fn count(&self, counted: CountedRecords<'_>) -> Result<u64, Error> {
        let (call_id, sequence) = match counted.decided {
            Some((call_id, sequence)) => (call_id.to_string(), to_i64(sequence)),
            None => (String::new(), i64::MAX),
        };
        let until = counted.until.map_or(i64::MAX, Timestamp::as_micros);
        macro_rules! run {
            ($statement:expr, $pool:expr) => {
                sqlx::query_as($statement)
                    .bind(column(counted.subject))
                    .bind(column(counted.tool.map_or("", ToolName::as_str)))
                    .bind(counted.since.as_micros())
                    .bind(call_id)
                    .bind(sequence)
                    .bind(until)
                    .bind(to_i64(MAX_COUNTED + 1))
                    .bind(counted.conversation.unwrap_or_default().to_owned())
                    .bind(i64::from(counted.phi))
                    .bind(counted.tags.to_owned())
                    .fetch_one($pool)
            };
        }
        // The name of every tool is greater than the empty text.
        let (looked_at, calls, untagged): (i64, i64, i64) = match (&self.pool, counted.tool) {
            (ReadPool::Sqlite(pool), Some(_)) => within(run!(count_sqlite!("="), pool)).await?,
            (ReadPool::Sqlite(pool), None) => within(run!(count_sqlite!(">"), pool)).await?,
            // The server has the same time limit.
            (ReadPool::Postgres(pool), Some(_)) => {
                run!(count_postgres!("="), &mut *pool.acquire().await?).await?
            }
            (ReadPool::Postgres(pool), None) => {
                run!(count_postgres!(">"), &mut *pool.acquire().await?).await?
            }
        };
        if to_u64(looked_at) > MAX_COUNTED {
            return Err(Error::TooManyCalls);
        }
        if untagged > 0 {
            return Err(Error::UntaggedCall);
        }
        Ok(to_u64(calls))
    }

    /// Returns the sequence number of the intent of the call `call_id` by `subject`, or `None` if there is no such intent.
    pub(crate) async fn intent_of(
        &self,
        call_id: CallId,
        subject: &str,
    ) -> Result<Option<u64>, Error> {
        macro_rules! run {
            ($statement:expr, $pool:expr) => {
                sqlx::query_scalar($statement)
                    .bind(call_id.to_string())
                    .bind(column(subject))
                    .fetch_optional($pool)
            };
        }
        let found: Option<i64> = match &self.pool {
            ReadPool::Sqlite(pool) => within(run!(intent!("record"), pool)).await?,
            ReadPool::Postgres(pool) => {
                run!(intent!("audit.record"), &mut *pool.acquire().await?).await?
            }
        };
        Ok(found.map(to_u64))
    }

    /// Returns the time from which on no record was removed, or `None` if no record was ever removed.
    pub(crate) async fn complete_since(&self) -> Result<Option<Timestamp>, Error> {
        let (minimum_index, oldest): (i64, Option<i64>) = match &self.pool {
            ReadPool::Sqlite(pool) => within(sqlx::query_as(oldest!("")).fetch_one(pool)).await?,
            ReadPool::Postgres(pool) => {
                let query = sqlx::query_as(oldest!("audit."));
                query.fetch_one(&mut *pool.acquire().await?).await?
            }
        };
        let oldest = oldest.filter(|_| minimum_index > 0);
        Ok(oldest.map(Timestamp::from_micros))
    }
}

/// Returns the result of a query. Fails if the query takes longer than [`READ_LIMIT`].
async fn within<T>(query: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    let late = |_| sqlx::Error::PoolTimedOut;
    tokio::time::timeout(READ_LIMIT, query)
        .await
        .map_err(late)?
}
