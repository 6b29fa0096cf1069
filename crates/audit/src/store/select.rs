//! The selections of records, in SQL for both stores.
//!
//! Only the conditions that are set are part of the statement, so that the planner can choose the index. Values are always
//! bound, and never part of the statement.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::{AssertSqlSafe, SqlitePool};
use wardgate_domain::{Status, Timestamp};

use wardgate_store::Row;
use wardgate_store::postgres::PostgresPool;

use super::to_i64;
use crate::canonical::column;
use crate::filter::RecordFilter;

/// The position of a record in the order of time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordPosition {
    pub(crate) time: Timestamp,
    pub(crate) sequence: u64,
}

/// The part of a selection that is read as one page.
#[derive(Debug, Clone)]
pub(crate) struct PageBounds {
    /// The range of sequence numbers to read.
    pub(crate) range: Range<u64>,
    /// The position after which the page begins, in the order of the page. Only used for a selection by time.
    pub(crate) after: Option<RecordPosition>,
    /// Maximum number of records.
    pub(crate) limit: u64,
    pub(crate) newest_first: bool,
}

/// Number of SQLite instructions between two checks whether the reader is still waiting. A check takes less than a microsecond.
const STOP_CHECK_INTERVAL: i32 = 1_000;

/// The condition on the id of a call, for which the index of calls can be used.
const OF_CALL: &str = "call_id = ";

/// The same condition as an expression, for which the planner cannot use the index.
const OF_CALL_WITHOUT_INDEX: &str = "call_id || '' = ";

/// Stops a statement when the guard is dropped.
#[derive(Default)]
struct StatementGuard(Arc<AtomicBool>);

impl Drop for StatementGuard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

enum Value {
    Text(String),
    Integer(i64),
    Bytes(Vec<u8>),
}

/// A statement with its values.
pub(super) struct Selection {
    sql: String,
    values: Vec<Value>,
}

impl Selection {
    fn from(table: &'static str, with_details: bool) -> Self {
        Self::records(&format!("{table} AS record"), with_details)
    }

    /// Selects whole records from `source`, a table that is called `record`.
    fn records(source: &str, with_details: bool) -> Self {
        let details = if with_details {
            "details"
        } else {
            "NULL AS details"
        };
        Self::columns(
            &format!(
                "sequence, leaf_hash, canonical, {details}, event, time, call_id, subject, tool, status"
            ),
            source,
        )
    }

    fn columns(columns: &str, source: &str) -> Self {
        Self {
            sql: format!("SELECT {columns} FROM {source} WHERE TRUE"),
            values: Vec::new(),
        }
    }

    fn value(&mut self, value: Value) {
        self.values.push(value);
        self.sql.push('$');
        self.sql.push_str(&self.values.len().to_string());
    }

    fn and(&mut self, condition: &'static str, value: Value) {
        self.sql.push_str(" AND ");
        self.sql.push_str(condition);
        self.value(value);
    }

    fn and_text(&mut self, condition: &'static str, text: Option<&str>) {
        if let Some(text) = text {
            self.and(condition, Value::Text(column(text)));
        }
    }

    /// Adds the condition that the call released rows of the data subject of the filter, if the filter has one. `sequence` is the
    /// expression of the record's sequence number.
    fn and_about(&mut self, sequence: &'static str, table: &'static str, filter: &RecordFilter) {
        let Some(tag) = filter.data_subject else {
            return;
        };
        let schema = table.strip_suffix("record").unwrap_or_default();
        self.sql.push_str(&format!(
            " AND {sequence} IN (SELECT sequence FROM {schema}data_subject WHERE tag = "
        ));
        self.value(Value::Bytes(tag.as_bytes().to_vec()));
        self.and_within_time(filter);
        self.sql.push(')');
    }

    fn and_within_time(&mut self, filter: &RecordFilter) {
        if let Some(since) = filter.since {
            self.and("time >= ", Value::Integer(since.as_micros()));
        }
        if let Some(until) = filter.until {
            self.and("time < ", Value::Integer(until.as_micros()));
        }
    }

    fn and_status(&mut self, status: Option<Status>) {
        self.and_text("status = ", status.map(Status::as_str));
        if status.is_some_and(|status| status != Status::Ok) {
            // Repeats the condition of the partial index, so that the planner can use that index.
            self.sql.push_str(" AND status <> 'ok'");
        }
    }

    /// Adds the conditions of `filter`. `of_call` is the condition on the id of a call, up to the value.
    fn and_matching(&mut self, table: &'static str, of_call: &'static str, filter: &RecordFilter) {
        self.and_text("subject = ", filter.subject.as_deref());
        self.and_text("tool = ", filter.tool.as_deref());
        self.and_text(of_call, filter.call_id.map(|id| id.to_string()).as_deref());
        self.and_status(filter.status);
        self.and_about("sequence", table, filter);
        self.and_within_time(filter);
    }

    /// Adds the conditions of `filter`, as [`Self::and_matching`] does, and the bounds of `page`.
    fn page_matching(
        mut self,
        table: &'static str,
        of_call: &'static str,
        filter: &RecordFilter,
        page: &PageBounds,
    ) -> Self {
        self.and_matching(table, of_call, filter);
        if filter.is_by_time() {
            self.page_by_time(page)
        } else {
            self.page(page)
        }
    }

    fn page(mut self, page: &PageBounds) -> Self {
        self.and("sequence >= ", Value::Integer(to_i64(page.range.start)));
        self.and("sequence < ", Value::Integer(to_i64(page.range.end)));
        self.sql.push_str(" ORDER BY sequence ");
        self.sql.push_str(if page.newest_first {
            "DESC LIMIT "
        } else {
            "ASC LIMIT "
        });
        self.value(Value::Integer(to_i64(page.limit)));
        self
    }

    /// Orders the page by time. The expressions `sequence + 0` prevent the planner from using the primary key, which has
    /// another order.
    fn page_by_time(mut self, page: &PageBounds) -> Self {
        self.and("sequence + 0 >= ", Value::Integer(to_i64(page.range.start)));
        self.and("sequence + 0 < ", Value::Integer(to_i64(page.range.end)));
        let (beyond, order) = if page.newest_first {
            ("(time, sequence) < (", "DESC")
        } else {
            ("(time, sequence) > (", "ASC")
        };
        if let Some(after) = page.after {
            self.and(beyond, Value::Integer(after.time.as_micros()));
            self.sql.push_str(", ");
            self.value(Value::Integer(to_i64(after.sequence)));
            self.sql.push(')');
        }
        self.sql
            .push_str(&format!(" ORDER BY time {order}, sequence {order} LIMIT "));
        self.value(Value::Integer(to_i64(page.limit)));
        self
    }

    /// Runs the statement on SQLite. The statement stops when the future is dropped, because it would otherwise occupy its
    /// connection until it has read every record.
    pub(super) async fn sqlite<R: Row>(self, pool: &SqlitePool) -> Result<Vec<R>, sqlx::Error> {
        let query = sqlx::query_as(AssertSqlSafe(self.sql)).persistent(false);
        let query = self
            .values
            .into_iter()
            .fold(query, |query, value| match value {
                Value::Text(text) => query.bind(text),
                Value::Integer(number) => query.bind(number),
                Value::Bytes(bytes) => query.bind(bytes),
            });
        let mut connection = pool.acquire().await?;
        // The guard is dropped before the connection returns to the pool.
        let reading = StatementGuard::default();
        let is_over = Arc::clone(&reading.0);
        connection
            .lock_handle()
            .await?
            .set_progress_handler(STOP_CHECK_INTERVAL, move || {
                !is_over.load(Ordering::Relaxed)
            });
        let rows = query.fetch_all(&mut *connection).await;
        connection.lock_handle().await?.remove_progress_handler();
        rows
    }

    pub(super) async fn postgres<R: Row>(self, pool: &PostgresPool) -> Result<Vec<R>, sqlx::Error> {
        // The statement is prepared under a name, because a pooler does not keep unnamed statements between transactions. There
        // are only a few different statements.
        let query = sqlx::query_as(AssertSqlSafe(self.sql));
        self.values
            .into_iter()
            .fold(query, |query, value| match value {
                Value::Text(text) => query.bind(text),
                Value::Integer(number) => query.bind(number),
                Value::Bytes(bytes) => query.bind(bytes),
            })
            .fetch_all(&mut *pool.acquire().await?)
            .await
    }
}

/// Selects the records that match `filter`.
pub(super) fn matching_records(
    table: &'static str,
    filter: &RecordFilter,
    page: &PageBounds,
) -> Selection {
    Selection::from(table, filter.with_details).page_matching(table, OF_CALL, filter, page)
}

/// Selects the same records as [`matching_records`] without the index of calls, and without the indexes that `hint`, the end of the
/// `FROM` clause, excludes. A page by time reads the whole table if `hint` excludes all indexes.
pub(super) fn without_index(
    table: &'static str,
    hint: &str,
    filter: &RecordFilter,
    page: &PageBounds,
) -> Selection {
    let source = format!("{table} AS record{hint}");
    Selection::records(&source, filter.with_details).page_matching(
        table,
        OF_CALL_WITHOUT_INDEX,
        filter,
        page,
    )
}

/// Selects the record at `sequence` if it matches `filter`. The index of calls, which may be corrupt, is not used.
pub(super) fn single(table: &'static str, filter: &RecordFilter, sequence: u64) -> Selection {
    let mut selection = Selection::from(table, filter.with_details);
    selection.and_matching(table, OF_CALL_WITHOUT_INDEX, filter);
    selection.and("sequence = ", Value::Integer(to_i64(sequence)));
    selection
}

/// Selects the positions of a page by time. It contains every record that matches `filter`, and others, because only conditions
/// on columns of one index, and on the data subject, are part of the statement: SQLite reads the positions from that index, and
/// not the table. The expression `+sequence` prevents the planner from looking up the records of the data subject in the table.
pub(super) fn positions(
    table: &'static str,
    filter: &RecordFilter,
    page: &PageBounds,
) -> Selection {
    let mut selection = Selection::columns("time, sequence", &format!("{table} AS record"));
    if filter.subject.is_some() || filter.tool.is_some() {
        selection.and_text("subject = ", filter.subject.as_deref());
        selection.and_text("tool = ", filter.tool.as_deref());
    } else {
        selection.and_status(filter.status.filter(|status| *status != Status::Ok));
    }
    selection.and_about("+sequence", table, filter);
    selection.and_within_time(filter);
    selection.page_by_time(page)
}

/// Selects the intents without an outcome.
pub(super) fn open_intents(table: &'static str, page: &PageBounds) -> Selection {
    let mut selection = Selection::from(table, false);
    selection
        .sql
        .push_str(" AND event = 'intent' AND NOT EXISTS (SELECT 1 FROM ");
    selection.sql.push_str(table);
    selection.sql.push_str(
        " AS outcome WHERE outcome.call_id = record.call_id AND outcome.event = 'outcome')",
    );
    selection.page(page)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wardgate_domain::Digest;
    use wardgate_store::DatabaseSettings;

    use super::*;
    use crate::store::{RecordRow, sqlite};

    async fn pool(dir: &tempfile::TempDir) -> SqlitePool {
        let path = dir.path().join("audit.sqlite");
        sqlite::prepare(&path, &DatabaseSettings::default())
            .await
            .unwrap();
        sqlite::read_pool(&path)
    }

    /// Returns the steps of the plan by which SQLite runs a selection.
    async fn plan(pool: &SqlitePool, selection: &Selection) -> String {
        let explain = format!("EXPLAIN QUERY PLAN {}", selection.sql);
        let query = sqlx::query_as::<_, (i64, i64, i64, String)>(AssertSqlSafe(explain));
        let steps = query.fetch_all(pool).await.unwrap();
        let steps: Vec<_> = steps.into_iter().map(|(.., step)| step).collect();
        steps.join("; ")
    }

    #[tokio::test]
    async fn no_page_of_records_by_time_is_sorted_and_its_positions_are_read_from_an_index() {
        let dir = tempfile::tempdir().unwrap();
        let pool = pool(&dir).await;
        let time = |seconds| Some(Timestamp::from_seconds(seconds));
        let text = || Some("x".to_owned());
        let filters = [
            RecordFilter::default(),
            RecordFilter {
                subject: text(),
                ..RecordFilter::default()
            },
            RecordFilter {
                tool: text(),
                ..RecordFilter::default()
            },
            RecordFilter {
                status: Some(Status::Ok),
                ..RecordFilter::default()
            },
            RecordFilter {
                subject: text(),
                tool: text(),
                status: Some(Status::Denied),
                ..RecordFilter::default()
            },
        ];
        for filter in filters {
            for (since, until, newest_first) in [
                (time(1), time(2), true),
                (time(1), None, false),
                (None, time(2), true),
                (None, None, true),
            ] {
                let filter = RecordFilter {
                    since,
                    until,
                    newest_first,
                    ..filter.clone()
                };
                for after in [
                    None,
                    Some(RecordPosition {
                        time: Timestamp::from_seconds(1),
                        sequence: 7,
                    }),
                ] {
                    let page = PageBounds {
                        range: 0..1_000_000,
                        after,
                        limit: 256,
                        newest_first,
                    };
                    if !filter.is_by_time() {
                        continue;
                    }
                    let matching = matching_records(sqlite::RECORD, &filter, &page);
                    let records = plan(&pool, &matching).await;
                    let by_time = records.contains("USING INDEX") && records.contains("time");
                    assert!(
                        by_time && !records.contains("B-TREE"),
                        "{records}: {filter:?}"
                    );
                    let positions = positions(sqlite::RECORD, &filter, &page);
                    let positions = plan(&pool, &positions).await;
                    assert!(
                        positions.contains("COVERING INDEX") && !positions.contains("B-TREE"),
                        "{positions}: {filter:?}"
                    );
                }
            }
        }
    }

    #[tokio::test]
    async fn the_records_of_a_call_are_found_by_its_id_in_whatever_period() {
        let dir = tempfile::tempdir().unwrap();
        let pool = pool(&dir).await;
        let filter = RecordFilter {
            call_id: Some("01a21d31-c794-7d35-94c7-e8dc9983a5d7".parse().unwrap()),
            since: Some(Timestamp::from_seconds(1)),
            ..RecordFilter::default()
        };
        let page = PageBounds {
            range: 0..1_000_000,
            after: None,
            limit: 256,
            newest_first: true,
        };
        let steps = plan(&pool, &matching_records(sqlite::RECORD, &filter, &page)).await;
        assert!(steps.contains("INDEX record_call (call_id=?)"), "{steps}");
        assert!(
            !filter.is_by_time(),
            "a corrupt place of another call is not read"
        );
    }

    #[tokio::test]
    async fn the_positions_of_records_about_a_data_subject_are_read_from_indexes() {
        let dir = tempfile::tempdir().unwrap();
        let pool = pool(&dir).await;
        for subject in [None, Some("x".to_owned())] {
            let filter = RecordFilter {
                subject,
                since: Some(Timestamp::from_seconds(1)),
                data_subject: Some(Digest::compute(b"subject")),
                ..RecordFilter::default()
            };
            let page = PageBounds {
                range: 0..1_000_000,
                after: None,
                limit: 256,
                newest_first: true,
            };
            let positions = positions(sqlite::RECORD, &filter, &page);
            let steps = plan(&pool, &positions).await;
            let is_selected = steps.contains("SEARCH data_subject USING PRIMARY KEY (tag=?");
            assert!(
                is_selected && steps.contains("COVERING INDEX") && !steps.contains("B-TREE"),
                "{steps}"
            );
        }
    }

    #[tokio::test]
    async fn a_reading_that_nobody_waits_for_any_more_stops_and_frees_its_connection() {
        let dir = tempfile::tempdir().unwrap();
        let pool = pool(&dir).await;
        let endless = || {
            Selection {
            sql: "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                SELECT i AS sequence, x'' AS leaf_hash, x'' AS canonical, NULL AS details, '' AS event, 0 AS time,
                       NULL AS call_id, NULL AS subject, NULL AS tool, NULL AS status
                FROM n WHERE i < 0"
                .to_owned(),
            values: Vec::new(),
        }
        };
        // There are fewer connections than this.
        for _ in 0..8 {
            let abandoned = tokio::time::timeout(
                Duration::from_millis(50),
                endless().sqlite::<RecordRow>(&pool),
            );
            assert!(abandoned.await.is_err());
        }
        let page = PageBounds {
            range: 0..1,
            after: None,
            limit: 1,
            newest_first: false,
        };
        let other = matching_records(sqlite::RECORD, &RecordFilter::default(), &page);
        let found = other.sqlite::<RecordRow>(&pool).await.unwrap();
        assert!(found.is_empty());
    }
}
