//! The SQLite store: one file with a write-ahead log. Readers never wait for the writer.

use std::path::Path;
use std::sync::LazyLock;

use futures::TryStreamExt as _;
use sqlx::query::Query;
use sqlx::sqlite::{
    SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePoolOptions,
    SqliteQueryResult, SqliteSynchronous,
};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor as _, Sqlite, SqlitePool};
use wardgate_domain::Digest;
use wardgate_store::{DatabaseSettings, MigrationError, Row, is_corrupt};
use wardgate_transparency::TILE_WIDTH;

use super::{
    AppendError, AppendResult, LONGEST_WRITE, MAX_BATCH, MovedSubjectKey, NewSubjectKey, READ_WAIT,
    READERS, StoreUpkeep, StoredEntry, TreeGrowth, to_i64, to_u64,
};
use crate::canonical::RecordEntry;

pub(super) const RECORD: &str = "record";

/// Creates a statement that reads the sequence numbers of the table of records after `$before`, and the same statement that reads
/// them from an index, for a corrupt table. The second one takes longer, because the index has another order.
macro_rules! of_table_and_index {
    ($before:literal, $after:literal) => {
        [
            concat!($before, " FROM record", $after),
            concat!($before, " FROM record INDEXED BY record_time", $after),
        ]
    };
}

pub(super) const HEAD: [&str; 2] = of_table_and_index!(
    "SELECT (SELECT coalesce(max(sequence) + 1, 0)",
    "), closed_below, minimum_index, hold_generation FROM head, retention"
);

macro_rules! count {
    ($counted:literal, $last:literal) => {
        concat!(
            "SELECT (SELECT count(*) FROM record",
            $counted,
            ") + (SELECT minimum_index FROM retention), (SELECT coalesce(max(sequence) + 1, 0) FROM record",
            $last,
            ")"
        )
    };
}

/// Select the number of records and the number of assigned sequence numbers, in one snapshot. The first statement counts the
/// records in an index and reads the last sequence number from the table. The second one reads both from indexes, for a corrupt
/// table, and the third one reads both from the table, for a corrupt index.
pub(super) const COUNT: [&str; 3] = [
    count!("", ""),
    count!("", " INDEXED BY record_time"),
    count!(" NOT INDEXED", ""),
];

/// Selects the ranges of sequence numbers that have no record. Records that are missing at the end cannot be detected, because
/// the number of records is derived from the last one.
pub(super) const GAPS: [&str; 2] = of_table_and_index!(
    "SELECT lower, upper FROM
        (SELECT coalesce(lag(sequence) OVER (ORDER BY sequence) + 1, (SELECT minimum_index FROM retention)) AS lower,
                sequence AS upper",
    ") WHERE lower < upper ORDER BY lower LIMIT 100"
);

pub(super) const TREE: &str = "SELECT size, root, checkpoint, cosigned FROM tree";

/// Selects the number of records in a range, and the concatenation of their leaf hashes. The aggregate function accepts only
/// text, and joins the bytes unchanged. The order is that of the inner query, because SQLite would sort copies for an order of
/// the aggregate.
pub(super) const LEAF_HASHES: &str = "
    SELECT count(*), CAST(coalesce(group_concat(leaf_hash, ''), '') AS BLOB)
    FROM (SELECT leaf_hash FROM record WHERE sequence >= ? AND sequence < ? ORDER BY sequence)";

/// Selects the number of hashes in a range of a level above 0, and their concatenation.
pub(super) const TILE: &str = "
    SELECT count(*), CAST(coalesce(group_concat(root, ''), '') AS BLOB)
    FROM (SELECT root FROM tile_root WHERE level = ? AND position >= ? AND position < ? ORDER BY position)";

/// Lets the tree grow from one head to another, with the roots in a JSON list. The first statement changes a row if the stored
/// tree was the expected one.
const GROW: &str = "
    UPDATE tree SET size = ?, root = ?, checkpoint = coalesce(?, checkpoint) WHERE size = ? AND root = ?;
    INSERT INTO tile_root (level, position, root)
        SELECT value ->> 0, value ->> 1, unhex(value ->> 2) FROM json_each(?) WHERE changes() = 1";

/// Selects the keys of the data subjects whose tags are in a JSON list, in hexadecimal.
pub(super) const SUBJECT_KEYS: &str = "
    SELECT tag, wrapped FROM data_subject_key WHERE tag IN (SELECT unhex(value) FROM json_each(?))";

pub(super) const SUBJECT_KEYS_AFTER: &str =
    "SELECT tag, wrapped FROM data_subject_key WHERE tag > ? ORDER BY tag LIMIT ?";

pub(super) const COUNT_SUBJECT_KEYS_AFTER: &str =
    "SELECT count(*) FROM data_subject_key WHERE tag > ?";

/// Adds a key that is encrypted under the master key in force, and none that is encrypted under another one.
const ADD_SUBJECT_KEY: &str = "
    INSERT INTO data_subject_key (tag, wrapped) SELECT ?, ? FROM details_key WHERE known_by = ?
    ON CONFLICT DO NOTHING";

pub(super) const MASTER_KEY: &str = "SELECT known_by, former, position, tag_key FROM details_key";

const ADOPT_MASTER_KEY: &str = "
    INSERT INTO details_key (id, known_by, position, tag_key) VALUES (1, ?, x'00', ?)
    ON CONFLICT DO NOTHING";

const BEGIN_REKEY: &str = "
    UPDATE details_key SET former = known_by, known_by = ?, position = x'00', tag_key = ?
    WHERE known_by = ? AND former IS NULL";

/// Replaces an encrypted key, unless it was erased or replaced since it was read.
const MOVE_SUBJECT_KEY: &str =
    "UPDATE data_subject_key SET wrapped = ? WHERE tag = ? AND wrapped = ?";

const ADVANCE_REKEY: &str = "UPDATE details_key SET position = max(position, ?) WHERE known_by = ?";

const END_REKEY: &str = "
    UPDATE details_key SET former = NULL, position = x'00' WHERE known_by = ? AND former IS NOT NULL";

pub(super) const EXPORT_POSITION: &str = "SELECT position FROM export_cursor WHERE name = ?";

pub(super) const MAC_CHECK: &str = "SELECT mac_check FROM head";

const SET_MAC_CHECK: &str = "UPDATE head SET mac_check = ? WHERE mac_check IS ?";

const CLAIM_EXPORT: &str = "
    INSERT INTO export_cursor (name, position, holder, claimed_until)
    VALUES (?1, ?2, ?3, unixepoch('subsec') + ?4)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, claimed_until = excluded.claimed_until
    WHERE holder = excluded.holder OR claimed_until < unixepoch('subsec') OR ?5";

const ADVANCE_EXPORT: &str = "
    UPDATE export_cursor SET position = ?1, claimed_until = unixepoch('subsec') + ?2
    WHERE name = ?3 AND holder = ?4 AND position = ?5";

const RELEASE_EXPORT: &str =
    "UPDATE export_cursor SET claimed_until = 0 WHERE name = ? AND holder = ?";

/// Selects the number of records in a range, and the time of the newest.
pub(super) const BUNDLE_TIMES: &str = "
    SELECT count(*), coalesce(max(time), 0) FROM record WHERE sequence >= ? AND sequence < ?";

/// Selects the time of the newest record that is not of an action of an operator, and the time of the server, which SQLite does
/// not have.
pub(super) const CLOCKS: &str = "
    SELECT (SELECT time FROM record WHERE event <> 'admin_change' ORDER BY sequence DESC LIMIT 1),
           NULL";

pub(super) const PRUNED_HASHES: &str = "
    SELECT hashes FROM pruned_tile WHERE position >= ? AND position < ? ORDER BY position";

pub(super) const LEGAL_HOLDS: &str =
    "SELECT name, tenant, tag, set_by, set_in, set_at FROM legal_hold ORDER BY name";

/// Selects the first record of the calls that concern a data subject, including their intents.
pub(super) const FIRST_OF_SUBJECT: &str = "
    SELECT min(coalesce(of_call.sequence, named.sequence)) FROM data_subject AS named
    JOIN record AS tagged ON tagged.sequence = named.sequence
    LEFT JOIN record AS of_call ON of_call.call_id = tagged.call_id
    WHERE named.tag = ?";

const SET_HOLD: &str = "
    INSERT INTO legal_hold (name, tenant, tag, set_by, set_in, set_at)
    VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING";

const LIFT_HOLD: &str = "DELETE FROM legal_hold WHERE name = ?1 AND (?2 IS NULL OR set_in = ?2)";

/// Selects the first hold that protects the key of a data subject of a tenant: a hold on this data subject, on everything or on
/// the tenant, or a hold on another data subject that the same call concerned, because the details of that call can be opened
/// only with the keys of all its data subjects.
macro_rules! keeping_hold {
    () => {
        "SELECT held.name FROM legal_hold AS held
         WHERE held.tag = ?1 OR held.tag IS NULL AND (held.tenant IS NULL OR held.tenant = ?2)
            OR EXISTS (SELECT 1 FROM data_subject AS other
                       JOIN data_subject AS named ON named.time = other.time AND named.sequence = other.sequence
                       WHERE other.tag = held.tag AND named.tag = ?1)
         ORDER BY held.name LIMIT 1"
    };
}

pub(super) const KEEPING_HOLD: &str = keeping_hold!();

const ERASE_SUBJECT: &str = concat!(
    "DELETE FROM data_subject_key WHERE tag = ?1 AND NOT EXISTS (",
    keeping_hold!(),
    ")"
);

/// Removes a bundle, whose first sequence number is `?1`, after its leaf hashes were stored. The trigger that refuses deletions
/// is dropped and created again as in the first migration.
const PRUNE: [&str; 5] = [
    "DELETE FROM data_subject WHERE (tag, time, sequence) IN (
         SELECT unhex(subject.value ->> 'hmac'), record.time, record.sequence
         FROM record, json_each(CAST(record.canonical AS TEXT), '$.data_subjects') AS subject
         WHERE record.sequence >= ?1 AND record.sequence < ?1 + 256 AND record.data_subjects > 0)",
    "DROP TRIGGER record_is_not_removed",
    "DELETE FROM record WHERE sequence >= ?1 AND sequence < ?1 + 256",
    "CREATE TRIGGER record_is_not_removed BEFORE DELETE ON record
     BEGIN SELECT RAISE(ABORT, 'a record is never removed'); END",
    "UPDATE retention SET minimum_index = ?1 + 256",
];

const CHECKPOINT_PATIENCE: &str = "PRAGMA busy_timeout = 200";

/// Selects the used and the free bytes within the file, the number of records, the number of records since a time, and the time
/// of the oldest.
pub(super) const SIZE: &str = "
    SELECT (page_count - freelist_count) * page_size, freelist_count * page_size,
           (SELECT coalesce(max(sequence) + 1, 0) FROM record) - minimum_index,
           coalesce((SELECT max(sequence) + 1 FROM record)
                    - (SELECT sequence FROM record WHERE time >= ? ORDER BY time, sequence LIMIT 1), 0),
           (SELECT min(time) FROM record)
    FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size(), retention";

/// Selects the first record of a period of time below a sequence number. The expression `sequence + 0` prevents the planner
/// from using the primary key, with which it would read every record before the period.
pub(super) const FIRST_WITHIN: &str =
    "SELECT min(sequence + 0) FROM record WHERE time >= ? AND time < ? AND sequence < ?";

/// The migrations. The first n of them create version n of the schema, and they never change once released.
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("sqlite/0001_record.sql"),
    include_str!("sqlite/0002_time.sql"),
    include_str!("sqlite/0003_tree.sql"),
    include_str!("sqlite/0004_details.sql"),
    include_str!("sqlite/0005_cosigned.sql"),
    include_str!("sqlite/0006_upkeep.sql"),
    include_str!("sqlite/0007_history.sql"),
    include_str!("sqlite/0008_indexes.sql"),
    include_str!("sqlite/0009_mac_check.sql"),
    include_str!("sqlite/0010_details_key.sql"),
];

/// The statements that store a batch of up to 1, 2, 4, … 256 rows. A single statement is its own transaction and one message to
/// the thread of the connection; few sizes mean that each statement is prepared once. Rows without an entry are null and are
/// skipped. Retention never removes the last record, so the next sequence number follows from the highest one.
static APPENDS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let sizes = (0..)
        .map(|power| 1 << power)
        .take_while(|size| *size <= MAX_BATCH);
    sizes.map(append_of).collect()
});

/// The growth of the tree in a transaction of its own, and then with each of [`APPENDS`]. All statements of a transaction are
/// one message to the thread of the connection, whose answers are one message for each statement and row. A failure in between
/// leaves the transaction open.
static GROWTHS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let appends = APPENDS.iter().map(|append| format!("{append};"));
    std::iter::once(String::new())
        .chain(appends)
        .map(|append| format!("BEGIN IMMEDIATE; {GROW}; {append} COMMIT"))
        .collect()
});

/// Returns the index of the statement of [`APPENDS`] for so many entries, of which there is at least one.
fn statement_index(entries: usize) -> usize {
    entries.next_power_of_two().ilog2() as usize
}

fn append_of(rows: usize) -> String {
    let rows: Vec<_> = (0..rows)
        .map(|row| format!("({row}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"))
        .collect();
    format!(
        "INSERT INTO record
             (sequence, leaf_hash, canonical, event, time, call_id, subject, tool, status, details, data_subjects)
         SELECT (SELECT coalesce(max(sequence) + 1, 0) FROM record) + column1,
                column2, column3, column4, column5, column6, column7, column8, column9, column10, column11
         FROM (VALUES {}) WHERE column2 IS NOT NULL",
        rows.join(", ")
    )
}

pub(super) async fn version(pool: &SqlitePool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("PRAGMA user_version")
        .fetch_one(pool)
        .await
}

pub(super) async fn prepare(
    path: &Path,
    settings: &DatabaseSettings,
) -> Result<(), MigrationError> {
    let mut connection = options(path).create_if_missing(true).connect().await?;
    wardgate_store::sqlite::restrict_access(path);
    wardgate_store::sqlite::prepare(&mut connection, MIGRATIONS, settings).await?;
    Ok(connection.close().await?)
}

/// Returns the rows of the first statement that reads no corrupt place. Fails if each of them reads one.
pub(super) async fn read_any<R: Row, const N: usize>(
    pool: &SqlitePool,
    statements: [&'static str; N],
) -> Result<Vec<R>, sqlx::Error> {
    let mut rows = Ok(Vec::new());
    for statement in statements {
        rows = sqlx::query_as::<Sqlite, R>(statement).fetch_all(pool).await;
        if !rows.as_ref().is_err_and(is_corrupt) {
            break;
        }
    }
    rows
}

pub(super) fn read_pool(path: &Path) -> SqlitePool {
    SqlitePoolOptions::new()
        .max_connections(READERS)
        .acquire_timeout(READ_WAIT)
        // A file, unlike a server, does not need a test whether the connection is still alive.
        .test_before_acquire(false)
        .connect_lazy_with(options(path).read_only(true))
}

/// Returns the options of a connection. `FULL` makes the write-ahead log durable at each commit.
fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        // Deleted content is overwritten, not only marked as free.
        .pragma("secure_delete", "ON")
        .busy_timeout(LONGEST_WRITE)
}

pub(crate) struct SqliteWriter(SqliteConnection);

impl SqliteWriter {
    pub(super) async fn connect(path: &Path) -> Result<Self, sqlx::Error> {
        options(path).connect().await.map(Self)
    }

    pub(super) async fn append(
        &mut self,
        entries: &[&RecordEntry],
        growth: Option<&TreeGrowth>,
    ) -> Result<AppendResult, AppendError> {
        let Some(growth) = growth else {
            let append = sqlx::query(APPENDS[statement_index(entries.len())].as_str());
            let append = bind(append, entries);
            let appended = append.execute(&mut self.0).await?;
            // If the thread of the connection has ended, there is no error but a result without a row.
            if appended.rows_affected() != entries.len() as u64 {
                return Err(incomplete());
            }
            return AppendResult::up_to(appended.last_insert_rowid(), entries, false);
        };
        let results = self.append_and_grow(entries, growth).await;
        if let Err(sqlx::Error::Database(_)) = results {
            // After some errors, the store has rolled back already. If the rollback fails for another reason, so does the next
            // transaction.
            let _ = self.run("ROLLBACK").await;
        }
        let results = results?;
        // For the same reason, the last result may be missing, which is the one of `COMMIT`.
        let (update, commit) = match results.as_slice() {
            [_begin, update, _tiles, commit] if entries.is_empty() => (update, commit),
            [_begin, update, _tiles, _append, commit] => (update, commit),
            _ => return Err(incomplete()),
        };
        let has_grown = update.rows_affected() == 1;
        AppendResult::up_to(commit.last_insert_rowid(), entries, has_grown)
    }

    /// Returns the result of each statement.
    async fn append_and_grow(
        &mut self,
        entries: &[&RecordEntry],
        growth: &TreeGrowth,
    ) -> Result<Vec<SqliteQueryResult>, sqlx::Error> {
        let statement = match entries {
            [] => 0,
            entries => 1 + statement_index(entries.len()),
        };
        let tiles = growth.tile_roots.iter().map(|tile| {
            let root = Digest::from_bytes(tile.root).to_hex();
            (tile.level, tile.position, root)
        });
        let growing = sqlx::query(GROWTHS[statement].as_str())
            .bind(to_i64(growth.to.size))
            .bind(growth.to.root.to_vec())
            .bind(growth.checkpoint.clone())
            .bind(to_i64(growth.from.size))
            .bind(growth.from.root.to_vec())
            .bind(sqlx::types::Json(tiles.collect::<Vec<_>>()));
        let growing = bind(growing, entries);
        self.0.execute_many(growing).try_collect().await
    }

    pub(super) async fn find(
        &mut self,
        entries: &[&RecordEntry],
    ) -> Result<Vec<StoredEntry>, sqlx::Error> {
        let call_ids: Vec<_> = entries
            .iter()
            .filter_map(|entry| entry.call_id.as_ref())
            .collect();
        let times: Vec<_> = entries
            .iter()
            .filter(|entry| entry.call_id.is_none())
            .map(|entry| entry.time.as_micros())
            .collect();
        sqlx::query_as(
            "SELECT event, call_id, sequence, leaf_hash FROM record
             WHERE call_id IN (SELECT value FROM json_each(?))
             UNION ALL
             SELECT event, call_id, sequence, leaf_hash FROM record
             WHERE call_id IS NULL AND time IN (SELECT value FROM json_each(?))",
        )
        .bind(sqlx::types::Json(call_ids))
        .bind(sqlx::types::Json(times))
        .fetch_all(&mut self.0)
        .await
    }

    pub(super) async fn probe(&mut self) -> Result<(), sqlx::Error> {
        // The counter is necessary, because SQLite does not write a page whose contents are unchanged.
        self.run("UPDATE head SET probes = probes + 1").await
    }

    pub(super) async fn closed_below(&mut self, sequence: u64) -> Result<(), sqlx::Error> {
        sqlx::query("UPDATE head SET closed_below = max(closed_below, ?)")
            .bind(to_i64(sequence))
            .execute(&mut self.0)
            .await
            .map(drop)
    }

    pub(super) async fn add_subject_keys(
        &mut self,
        keys: &[NewSubjectKey],
    ) -> Result<(), sqlx::Error> {
        let mut transaction = self.0.begin().await?;
        for key in keys {
            sqlx::query(ADD_SUBJECT_KEY)
                .bind(key.tag.as_bytes().to_vec())
                .bind(key.wrapped.clone())
                .bind(key.known_by.as_bytes().to_vec())
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await
    }

    /// Replaces encrypted keys, and stores how far the rotation to the master key `to` is. Returns `false`, and changes nothing,
    /// if that key is not in force.
    async fn move_subject_keys(
        &mut self,
        moved: &[MovedSubjectKey],
        position: &[u8],
        to: Digest,
    ) -> Result<bool, sqlx::Error> {
        let mut transaction = self.0.begin_with("BEGIN IMMEDIATE").await?;
        let advanced = sqlx::query(ADVANCE_REKEY)
            .bind(position.to_vec())
            .bind(to.as_bytes().to_vec())
            .execute(&mut *transaction)
            .await?;
        if advanced.rows_affected() == 0 {
            return Ok(false);
        }
        for key in moved {
            sqlx::query(MOVE_SUBJECT_KEY)
                .bind(key.wrapped.clone())
                .bind(key.tag.as_bytes().to_vec())
                .bind(key.former.clone())
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await?;
        Ok(true)
    }

    pub(super) async fn publish_cosigned(
        &mut self,
        size: u64,
        checkpoint: &str,
    ) -> Result<(), sqlx::Error> {
        sqlx::query("UPDATE tree SET cosigned = ?1, cosigned_size = ?2 WHERE cosigned_size <= ?2")
            .bind(checkpoint.to_owned())
            .bind(to_i64(size))
            .execute(&mut self.0)
            .await
            .map(drop)
    }

    /// Removes the records of `bundle`, and keeps their leaf hashes. Returns `false` if the bundle is not the next one that can
    /// be removed, or the holds have changed.
    async fn prune(&mut self, bundle: u64, hold_generation: u64) -> Result<bool, sqlx::Error> {
        let first = to_i64(bundle * TILE_WIDTH);
        let mut transaction = self.0.begin_with("BEGIN IMMEDIATE").await?;
        let is_next: bool = sqlx::query_scalar(
            "SELECT minimum_index = ?1 AND ?1 + 256 <= size
                 AND hold_generation = ?2
             FROM retention, tree",
        )
        .bind(first)
        .bind(to_i64(hold_generation))
        .fetch_one(&mut *transaction)
        .await?;
        let hashes: Vec<Vec<u8>> = sqlx::query_scalar(
            "SELECT leaf_hash FROM record WHERE sequence >= ?1 AND sequence < ?1 + 256 ORDER BY sequence",
        )
        .bind(first)
        .fetch_all(&mut *transaction)
        .await?;
        if !is_next || hashes.len() as u64 != TILE_WIDTH {
            return Ok(false);
        }
        sqlx::query("INSERT INTO pruned_tile (position, hashes) VALUES (?, ?)")
            .bind(to_i64(bundle))
            .bind(hashes.concat())
            .execute(&mut *transaction)
            .await?;
        for statement in PRUNE {
            let statement = if statement.contains("?1") {
                sqlx::query(statement).bind(first)
            } else {
                sqlx::query(statement)
            };
            statement.execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(true)
    }

    pub(super) async fn keep_up(&mut self, upkeep: &StoreUpkeep) -> Result<bool, sqlx::Error> {
        let query = match upkeep {
            StoreUpkeep::PruneBundle {
                bundle,
                hold_generation,
            } => return self.prune(*bundle, *hold_generation).await,
            StoreUpkeep::SetHold(hold) => sqlx::query(SET_HOLD)
                .bind(hold.name.clone())
                .bind(hold.tenant.clone())
                .bind(hold.tag.map(|tag| tag.as_bytes().to_vec()))
                .bind(hold.set_by.clone())
                .bind(hold.set_in.clone())
                .bind(hold.set_at.as_micros()),
            StoreUpkeep::LiftHold { name, of } => {
                sqlx::query(LIFT_HOLD).bind(name.clone()).bind(of.clone())
            }
            StoreUpkeep::EraseSubject { tenant, tag } => sqlx::query(ERASE_SUBJECT)
                .bind(tag.as_bytes().to_vec())
                .bind(tenant.clone()),
            StoreUpkeep::ClaimExport(claim, first) => sqlx::query(CLAIM_EXPORT)
                .bind(claim.export.clone())
                .bind(to_i64(*first))
                .bind(claim.holder.clone())
                .bind(claim.lasting.as_secs_f64())
                .bind(claim.is_alone),
            StoreUpkeep::AdvanceExport { claim, from, to } => sqlx::query(ADVANCE_EXPORT)
                .bind(to_i64(*to))
                .bind(claim.lasting.as_secs_f64())
                .bind(claim.export.clone())
                .bind(claim.holder.clone())
                .bind(to_i64(*from)),
            StoreUpkeep::ReleaseExport(claim) => sqlx::query(RELEASE_EXPORT)
                .bind(claim.export.clone())
                .bind(claim.holder.clone()),
            StoreUpkeep::SetMacCheck { from, to } => sqlx::query(SET_MAC_CHECK)
                .bind(to.as_bytes().to_vec())
                .bind(from.map(|from| from.as_bytes().to_vec())),
            StoreUpkeep::AdoptMasterKey { known_by, tag_key } => sqlx::query(ADOPT_MASTER_KEY)
                .bind(known_by.as_bytes().to_vec())
                .bind(tag_key.clone()),
            StoreUpkeep::BeginRekey { from, to, tag_key } => sqlx::query(BEGIN_REKEY)
                .bind(to.as_bytes().to_vec())
                .bind(tag_key.clone())
                .bind(from.as_bytes().to_vec()),
            StoreUpkeep::MoveSubjectKeys {
                moved,
                position,
                to,
            } => return self.move_subject_keys(moved, position, *to).await,
            StoreUpkeep::EndRekey { to } => sqlx::query(END_REKEY).bind(to.as_bytes().to_vec()),
        };
        let done = query.execute(&mut self.0).await?.rows_affected() > 0;
        if done && matches!(upkeep, StoreUpkeep::EraseSubject { .. }) {
            self.empty_log().await?;
        }
        Ok(done)
    }

    /// Writes the write-ahead log back into the file and empties it, because it contains keys that were erased or replaced. Waits
    /// only briefly for readers, because no record can be appended in the meantime.
    pub(super) async fn empty_log(&mut self) -> Result<(), sqlx::Error> {
        self.run(CHECKPOINT_PATIENCE).await?;
        let checkpoint = sqlx::query_as("PRAGMA wal_checkpoint(TRUNCATE)");
        let answer: Result<(i64, i64, i64), _> = checkpoint.fetch_one(&mut self.0).await;
        let patience = format!("PRAGMA busy_timeout = {}", LONGEST_WRITE.as_millis());
        let patience = sqlx::raw_sql(AssertSqlSafe(patience));
        patience.execute(&mut self.0).await?;
        let (busy, _, _) = answer?;
        if busy != 0 {
            tracing::warn!(
                "a reader prevents the reset of the write-ahead log, which contains an erased or replaced key until it is overwritten"
            );
        }
        Ok(())
    }

    pub(super) async fn close(self) -> Result<(), sqlx::Error> {
        self.0.close().await
    }

    async fn run(&mut self, statement: &'static str) -> Result<(), sqlx::Error> {
        sqlx::query(statement).execute(&mut self.0).await.map(drop)
    }
}

impl AppendResult {
    /// Returns the result for `entries`, of which the last one has the sequence number `last`.
    fn up_to(last: i64, entries: &[&RecordEntry], has_grown: bool) -> Result<Self, AppendError> {
        let first = (to_u64(last) + 1).checked_sub(entries.len() as u64);
        Ok(Self {
            first: first.ok_or_else(incomplete)?,
            has_grown,
        })
    }
}

fn incomplete() -> AppendError {
    sqlx::Error::Protocol("the store did not report every record as stored".to_owned()).into()
}

type InsertQuery = Query<'static, Sqlite, SqliteArguments>;

/// Binds `entries` to the parameters of a statement that stores a batch.
fn bind(insert: InsertQuery, entries: &[&RecordEntry]) -> InsertQuery {
    entries.iter().copied().fold(insert, bind_entry)
}

fn bind_entry(insert: InsertQuery, entry: &RecordEntry) -> InsertQuery {
    insert
        .bind(entry.leaf_hash.as_bytes().to_vec())
        .bind(entry.canonical.clone())
        .bind(entry.event)
        .bind(entry.time.as_micros())
        .bind(entry.call_id.clone())
        .bind(entry.subject.clone())
        .bind(entry.tool.clone())
        .bind(entry.status)
        .bind(entry.details.clone())
        .bind(to_i64(entry.data_subjects.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_commit_is_flushed_before_it_is_answered() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.sqlite");
        let settings = DatabaseSettings::default();
        prepare(&path, &settings).await.unwrap();
        let mut writer = SqliteWriter::connect(&path).await.unwrap();
        let journal: String = sqlx::query_scalar("PRAGMA journal_mode")
            .fetch_one(&mut writer.0)
            .await
            .unwrap();
        let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous")
            .fetch_one(&mut writer.0)
            .await
            .unwrap();
        assert_eq!((journal.as_str(), synchronous), ("wal", 2), "2 is FULL");
    }

    #[test]
    fn every_batch_has_its_statement() {
        assert_eq!((APPENDS.len(), GROWTHS.len()), (9, 10));
        for (entries, rows) in [
            (1, 1),
            (2, 2),
            (3, 4),
            (64, 64),
            (65, 128),
            (MAX_BATCH, 256),
        ] {
            let index = statement_index(entries);
            let (append, growth) = (&APPENDS[index], &GROWTHS[1 + index]);
            assert_eq!(append.matches('?').count(), rows * 10, "{entries}");
            assert!(growth.contains(append), "{entries}");
        }
    }
}
