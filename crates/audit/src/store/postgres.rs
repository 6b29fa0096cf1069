//! The PostgreSQL store, in the schema `audit` of any database.

use sqlx::postgres::{PgArguments, PgConnection, PgPoolOptions};
use sqlx::query::Query;
use sqlx::{Connection, FromRow, Postgres};
use wardgate_domain::Digest;
use wardgate_store::postgres::{PostgresPool, PostgresServer, Rights, Schema, only_living};
use wardgate_store::{DatabaseSettings, MigrationError};

use super::{
    AppendError, AppendResult, LONGEST_WRITE, MovedSubjectKey, NewSubjectKey, READ_LIMIT,
    READ_WAIT, READERS, StoreUpkeep, StoredEntry, TreeGrowth, to_i64, to_u64,
};
use crate::canonical::RecordEntry;

pub(super) const RECORD: &str = "audit.record";
pub(super) const HEAD: &str =
    "SELECT size, closed_below, minimum_index, hold_generation FROM audit.head, audit.retention";

/// Selects the number of records and the number of assigned sequence numbers, in one snapshot.
pub(super) const COUNT: &str = "
    SELECT (SELECT count(*) FROM audit.record) + minimum_index, size FROM audit.head, audit.retention";

/// Selects the ranges of sequence numbers that were assigned but have no record.
pub(super) const GAPS: &str = "
    SELECT lower, upper FROM (
        SELECT coalesce(lag(sequence) OVER (ORDER BY sequence) + 1, (SELECT minimum_index FROM audit.retention)) AS lower,
               sequence AS upper
        FROM audit.record
        UNION ALL
        SELECT coalesce((SELECT max(sequence) + 1 FROM audit.record), minimum_index), size FROM audit.head, audit.retention
    ) AS steps
    WHERE lower < upper ORDER BY lower LIMIT 100";

pub(super) const TREE: &str = "SELECT size, root, checkpoint, cosigned FROM audit.tree";

/// Selects the number of records in a range, and the concatenation of their leaf hashes.
pub(super) const LEAF_HASHES: &str = "
    SELECT count(*), coalesce(string_agg(leaf_hash, '' ORDER BY sequence), '')
    FROM audit.record WHERE sequence >= $1 AND sequence < $2";

/// Selects the number of hashes in a range of a level above 0, and their concatenation.
pub(super) const TILE: &str = "
    SELECT count(*), coalesce(string_agg(root, '' ORDER BY position), '')
    FROM audit.tile_root WHERE level = $1 AND position >= $2 AND position < $3";

/// Selects the keys of the data subjects with the given tags.
pub(super) const SUBJECT_KEYS: &str =
    "SELECT tag, wrapped FROM audit.data_subject_key WHERE tag = ANY($1)";

pub(super) const SUBJECT_KEYS_AFTER: &str =
    "SELECT tag, wrapped FROM audit.data_subject_key WHERE tag > $1 ORDER BY tag LIMIT $2";

pub(super) const COUNT_SUBJECT_KEYS_AFTER: &str =
    "SELECT count(*) FROM audit.data_subject_key WHERE tag > $1";

/// Adds the keys that are encrypted under the master key in force, and none that are encrypted under another one. The lock lets
/// the start of a rotation wait until the keys are committed.
const ADD_SUBJECT_KEYS: &str = "
    WITH in_force AS (SELECT known_by FROM audit.details_key FOR SHARE)
    INSERT INTO audit.data_subject_key (tag, wrapped)
    SELECT added.tag, added.wrapped
    FROM in_force, unnest($1::bytea[], $2::bytea[], $3::bytea[]) AS added (tag, wrapped, known_by)
    WHERE added.known_by = in_force.known_by
    ON CONFLICT DO NOTHING";

pub(super) const MASTER_KEY: &str =
    "SELECT known_by, former, position, tag_key FROM audit.details_key";

const ADOPT_MASTER_KEY: &str = "
    INSERT INTO audit.details_key (id, known_by, position, tag_key) VALUES (1, $1, '\\x00'::bytea, $2)
    ON CONFLICT DO NOTHING";

const BEGIN_REKEY: &str = "
    UPDATE audit.details_key SET former = known_by, known_by = $1, position = '\\x00'::bytea, tag_key = $2
    WHERE known_by = $3 AND former IS NULL";

/// Replaces encrypted keys, unless they were erased or replaced since they were read, and stores how far the rotation is.
const MOVE_SUBJECT_KEYS: &str = "
    WITH moved AS (
        UPDATE audit.data_subject_key AS stored SET wrapped = moving.wrapped
        FROM audit.details_key AS in_force,
             unnest($1::bytea[], $2::bytea[], $3::bytea[]) AS moving (tag, former, wrapped)
        WHERE stored.tag = moving.tag AND stored.wrapped = moving.former
          AND in_force.known_by = $5
    )
    UPDATE audit.details_key SET position = greatest(position, $4) WHERE known_by = $5";

const END_REKEY: &str = "
    UPDATE audit.details_key SET former = NULL, position = '\\x00'::bytea
    WHERE known_by = $1 AND former IS NOT NULL";

pub(super) const EXPORT_POSITION: &str = "SELECT position FROM audit.export_cursor WHERE name = $1";

pub(super) const MAC_CHECK: &str = "SELECT mac_check FROM audit.head";

const SET_MAC_CHECK: &str =
    "UPDATE audit.head SET mac_check = $1 WHERE mac_check IS NOT DISTINCT FROM $2";

/// Takes or renews a claim. Times are those of the server clock, which is the same for all replicas.
const CLAIM_EXPORT: &str = "
    INSERT INTO audit.export_cursor AS cursor (name, position, holder, claimed_until)
    VALUES ($1, $2, $3, extract(epoch FROM clock_timestamp()) + $4)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, claimed_until = excluded.claimed_until
    WHERE cursor.holder = excluded.holder OR $5
       OR cursor.claimed_until < extract(epoch FROM clock_timestamp())";

const ADVANCE_EXPORT: &str = "
    UPDATE audit.export_cursor SET position = $1, claimed_until = extract(epoch FROM clock_timestamp()) + $2
    WHERE name = $3 AND holder = $4 AND position = $5";

const RELEASE_EXPORT: &str =
    "UPDATE audit.export_cursor SET claimed_until = 0 WHERE name = $1 AND holder = $2";

/// Selects the number of records in a range, and the time of the newest.
pub(super) const BUNDLE_TIMES: &str = "
    SELECT count(*), coalesce(max(time), 0) FROM audit.record WHERE sequence >= $1 AND sequence < $2";

/// Selects the time of the newest record that is not of an action of an operator, and the time of the server.
pub(super) const CLOCKS: &str = "
    SELECT (SELECT time FROM audit.record WHERE event <> 'admin_change' ORDER BY sequence DESC LIMIT 1),
           (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

pub(super) const PRUNED_HASHES: &str = "
    SELECT hashes FROM audit.pruned_tile WHERE position >= $1 AND position < $2 ORDER BY position";

pub(super) const LEGAL_HOLDS: &str =
    "SELECT name, tenant, tag, set_by, set_in, set_at FROM audit.legal_hold ORDER BY name";

/// Selects the first record of the calls that concern a data subject, including their intents.
pub(super) const FIRST_OF_SUBJECT: &str = "
    SELECT min(coalesce(of_call.sequence, named.sequence)) FROM audit.data_subject AS named
    JOIN audit.record AS tagged ON tagged.sequence = named.sequence
    LEFT JOIN audit.record AS of_call ON of_call.call_id = tagged.call_id
    WHERE named.tag = $1";

const SET_HOLD: &str = "
    INSERT INTO audit.legal_hold (name, tenant, tag, set_by, set_in, set_at) VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT DO NOTHING";

const LIFT_HOLD: &str =
    "DELETE FROM audit.legal_hold WHERE name = $1 AND ($2::text IS NULL OR set_in = $2)";

/// Selects the first hold that protects the key of a data subject of a tenant: a hold on this data subject, on everything or on
/// the tenant, or a hold on another data subject that the same call concerned, because the details of that call can be opened
/// only with the keys of all its data subjects.
macro_rules! keeping_hold {
    () => {
        "SELECT held.name FROM audit.legal_hold AS held
         WHERE held.tag = $1 OR held.tag IS NULL AND (held.tenant IS NULL OR held.tenant = $2)
            OR EXISTS (SELECT 1 FROM audit.data_subject AS other
                       JOIN audit.data_subject AS named ON named.time = other.time AND named.sequence = other.sequence
                       WHERE other.tag = held.tag AND named.tag = $1)
         ORDER BY held.name LIMIT 1"
    };
}

pub(super) const KEEPING_HOLD: &str = keeping_hold!();

const ERASE_SUBJECT: &str = concat!(
    "DELETE FROM audit.data_subject_key WHERE tag = $1 AND NOT EXISTS (",
    keeping_hold!(),
    ")"
);

/// Selects the size of the schema in bytes, the free bytes (unknown, so zero), the number of records, the number of records
/// since a time, and the time of the oldest.
pub(super) const SIZE: &str = "
    SELECT (SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
            WHERE relnamespace = 'audit'::regnamespace AND relkind = 'r'),
           0::bigint, size - minimum_index,
           coalesce(size - (SELECT sequence FROM audit.record WHERE time >= $1 ORDER BY time, sequence LIMIT 1), 0),
           (SELECT min(time) FROM audit.record)
    FROM audit.head, audit.retention";

pub(super) const FIRST_WITHIN: &str = "
    SELECT min(sequence + 0) FROM audit.record WHERE time >= $1 AND time < $2 AND sequence < $3";

/// Interval at which the server checks whether the client of a running statement is still connected.
const CLIENT_CHECK_INTERVAL: &str = "500ms";

pub(super) const SCHEMA: Schema = Schema {
    name: "audit",
    lock: 0x5741_5244_4155_4454,
    migrations: &[
        include_str!("postgres/0001_record.sql"),
        include_str!("postgres/0002_time.sql"),
        include_str!("postgres/0003_tree.sql"),
        include_str!("postgres/0004_details.sql"),
        include_str!("postgres/0005_cosigned.sql"),
        include_str!("postgres/0006_upkeep.sql"),
        include_str!("postgres/0007_history.sql"),
        include_str!("postgres/0008_indexes.sql"),
        include_str!("postgres/0009_mac_check.sql"),
        include_str!("postgres/0010_details_key.sql"),
    ],
    // The service can append records but not change them, and can remove whole bundles only with `audit.prune_bundle`.
    rights: Rights::Tables(&[
        ("record", "SELECT, INSERT"),
        ("head", "SELECT, UPDATE"),
        ("tree", "SELECT, UPDATE"),
        ("tile_root", "SELECT, INSERT"),
        ("data_subject", "SELECT, INSERT"),
        ("data_subject_key", "SELECT, INSERT, UPDATE, DELETE"),
        ("details_key", "SELECT, INSERT, UPDATE"),
        ("export_cursor", "SELECT, INSERT, UPDATE"),
        ("retention", "SELECT"),
        ("pruned_tile", "SELECT"),
        ("legal_hold", "SELECT, INSERT, DELETE"),
    ]),
};

/// Creates a statement that stores a whole batch, with `$others` as its further parts. It is one round trip and one flush. The
/// update locks the head row until the commit, so the next append of any replica continues from this size.
macro_rules! append {
    ($others:literal, $result:literal) => {
        concat!(
            "
    WITH head AS (
        UPDATE audit.head SET size = size + cardinality($1) RETURNING size - cardinality($1) AS first
    ), stored AS (
        INSERT INTO audit.record
            (sequence, leaf_hash, canonical, event, time, call_id, subject, tool, status, details, data_subjects)
        SELECT head.first + entry.position - 1, entry.leaf_hash, entry.canonical, entry.event,
               entry.time, entry.call_id, entry.subject, entry.tool, entry.status, entry.details, entry.data_subjects
        FROM head, unnest($1::bytea[], $2::bytea[], $3::text[], $4::bigint[], $5::text[], $6::text[],
                          $7::text[], $8::text[], $9::bytea[], $10::bigint[]) WITH ORDINALITY
             AS entry (leaf_hash, canonical, event, time, call_id, subject, tool, status, details, data_subjects,
                       position)
    ), indexed AS (
        INSERT INTO audit.data_subject (tag, time, sequence)
        SELECT subject.tag, subject.time, head.first + subject.position
        FROM head, unnest($11::bytea[], $12::bigint[], $13::bigint[]) AS subject (tag, time, position)
    )",
            $others,
            "
    SELECT ",
            $result
        )
    };
}

const APPEND: &str = append!("", "first, FALSE FROM head");

/// Stores a batch, which may be empty, and lets the tree grow if the stored tree is the expected one. The head row is always locked
/// before the tree, so two replicas do not wait for each other.
const APPEND_AND_GROW: &str = append!(
    ", grown AS (
        UPDATE audit.tree SET size = $14, root = $15, checkpoint = coalesce($16, checkpoint)
        FROM head WHERE tree.size = $17 AND tree.root = $18 RETURNING tree.size
    ), full_tiles AS (
        INSERT INTO audit.tile_root (level, position, root)
        SELECT tile.level, tile.position, tile.root
        FROM grown, unnest($19::integer[], $20::bigint[], $21::bytea[]) AS tile (level, position, root)
    )",
    "first, EXISTS (SELECT FROM grown) FROM head"
);

pub(super) async fn version(pool: &PostgresPool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("SELECT version FROM audit.schema_version")
        .fetch_one(&mut *pool.acquire().await?)
        .await
}

pub(super) async fn prepare(
    server: &PostgresServer,
    settings: &DatabaseSettings,
) -> Result<(), MigrationError> {
    let mut connection = server.connect(|options| options).await?;
    SCHEMA.prepare(&mut connection, settings).await?;
    Ok(connection.close().await?)
}

pub(super) fn read_pool(server: &PostgresServer, settings: &DatabaseSettings) -> PostgresPool {
    let limit = format!("{}ms", settings.statement_timeout(READ_LIMIT).as_millis());
    let pool = only_living(PgPoolOptions::new())
        .max_connections(settings.connections(READERS))
        .acquire_timeout(READ_WAIT);
    server.pool(pool, |options| {
        options.application_name("wardgate audit reader").options([
            ("default_transaction_read_only", "on"),
            ("client_connection_check_interval", CLIENT_CHECK_INTERVAL),
            ("statement_timeout", limit.as_str()),
        ])
    })
}

pub(crate) struct PostgresWriter(PgConnection);

impl PostgresWriter {
    pub(super) async fn connect(server: &PostgresServer) -> Result<Self, sqlx::Error> {
        // The server cancels a statement no later than the writer abandons it, so that the head row does not remain locked for
        // an abandoned batch.
        let limit = format!("{}ms", LONGEST_WRITE.as_millis());
        let connection = server.connect(|options| {
            options.application_name("wardgate audit writer").options([
                ("synchronous_commit", "on"),
                ("statement_timeout", limit.as_str()),
            ])
        });
        connection.await.map(Self)
    }

    pub(super) async fn append(
        &mut self,
        entries: &[&RecordEntry],
        growth: Option<&TreeGrowth>,
    ) -> Result<AppendResult, AppendError> {
        let append = match growth {
            Some(growth) => bind_growth(bind(sqlx::query(APPEND_AND_GROW), entries), growth),
            None => bind(sqlx::query(APPEND), entries),
        };
        let (first, has_grown): (i64, bool) = append
            .try_map(|row| FromRow::from_row(&row))
            .fetch_one(&mut self.0)
            .await?;
        Ok(AppendResult {
            first: to_u64(first),
            has_grown,
        })
    }

    pub(super) async fn find(
        &mut self,
        entries: &[&RecordEntry],
    ) -> Result<Vec<StoredEntry>, sqlx::Error> {
        let call_ids: Vec<_> = entries
            .iter()
            .filter_map(|entry| entry.call_id.as_deref())
            .collect();
        let times: Vec<_> = entries
            .iter()
            .filter(|entry| entry.call_id.is_none())
            .map(|entry| entry.time.as_micros())
            .collect();
        sqlx::query_as(
            "SELECT event, call_id, sequence, leaf_hash FROM audit.record WHERE call_id = ANY($1)
             UNION ALL
             SELECT event, call_id, sequence, leaf_hash FROM audit.record
             WHERE call_id IS NULL AND time = ANY($2)",
        )
        .bind(call_ids)
        .bind(times)
        .fetch_all(&mut self.0)
        .await
    }

    pub(super) async fn probe(&mut self) -> Result<(), sqlx::Error> {
        sqlx::query("UPDATE audit.head SET probes = probes + 1")
            .execute(&mut self.0)
            .await
            .map(drop)
    }

    pub(super) async fn closed_below(&mut self, sequence: u64) -> Result<(), sqlx::Error> {
        sqlx::query("UPDATE audit.head SET closed_below = greatest(closed_below, $1)")
            .bind(to_i64(sequence))
            .execute(&mut self.0)
            .await
            .map(drop)
    }

    pub(super) async fn add_subject_keys(
        &mut self,
        keys: &[NewSubjectKey],
    ) -> Result<(), sqlx::Error> {
        let keys = keys.iter();
        let tags = keys.clone().map(|key| key.tag.as_bytes().as_slice());
        let wrapped = keys.clone().map(|key| key.wrapped.as_slice());
        let known_by = keys.map(|key| key.known_by.as_bytes().as_slice());
        sqlx::query(ADD_SUBJECT_KEYS)
            .bind(tags.collect::<Vec<_>>())
            .bind(wrapped.collect::<Vec<_>>())
            .bind(known_by.collect::<Vec<_>>())
            .execute(&mut self.0)
            .await
            .map(drop)
    }

    /// Replaces encrypted keys, and stores how far the rotation to the master key `to` is. Returns `false`, and changes nothing,
    /// if that key is not in force.
    async fn move_subject_keys(
        &mut self,
        moved: &[MovedSubjectKey],
        position: &[u8],
        to: Digest,
    ) -> Result<bool, sqlx::Error> {
        let moved = moved.iter();
        let tags = moved.clone().map(|key| key.tag.as_bytes().as_slice());
        let former = moved.clone().map(|key| key.former.as_slice());
        let wrapped = moved.map(|key| key.wrapped.as_slice());
        let advanced = sqlx::query(MOVE_SUBJECT_KEYS)
            .bind(tags.collect::<Vec<_>>())
            .bind(former.collect::<Vec<_>>())
            .bind(wrapped.collect::<Vec<_>>())
            .bind(position)
            .bind(to.as_bytes().as_slice())
            .execute(&mut self.0)
            .await?;
        Ok(advanced.rows_affected() > 0)
    }

    pub(super) async fn publish_cosigned(
        &mut self,
        size: u64,
        checkpoint: &str,
    ) -> Result<(), sqlx::Error> {
        sqlx::query(
            "UPDATE audit.tree SET cosigned = $1, cosigned_size = $2 WHERE cosigned_size <= $2",
        )
        .bind(checkpoint)
        .bind(to_i64(size))
        .execute(&mut self.0)
        .await
        .map(drop)
    }

    /// Destroys the key of a data subject. The lock prevents that a hold is set at the same time.
    async fn erase(&mut self, tenant: &str, tag: Digest) -> Result<bool, sqlx::Error> {
        let mut transaction = self.0.begin().await?;
        sqlx::query("LOCK TABLE audit.legal_hold IN SHARE MODE")
            .execute(&mut *transaction)
            .await?;
        let erased = sqlx::query(ERASE_SUBJECT)
            .bind(tag.as_bytes().as_slice())
            .bind(tenant)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(erased.rows_affected() > 0)
    }

    pub(super) async fn keep_up(&mut self, upkeep: &StoreUpkeep) -> Result<bool, sqlx::Error> {
        let query = match upkeep {
            StoreUpkeep::PruneBundle {
                bundle,
                hold_generation,
            } => {
                let pruned = sqlx::query_scalar("SELECT audit.prune_bundle($1, $2)")
                    .bind(to_i64(*bundle))
                    .bind(to_i64(*hold_generation));
                return pruned.fetch_one(&mut self.0).await;
            }
            StoreUpkeep::SetHold(hold) => sqlx::query(SET_HOLD)
                .bind(&hold.name)
                .bind(&hold.tenant)
                .bind(hold.tag.as_ref().map(|tag| tag.as_bytes().as_slice()))
                .bind(&hold.set_by)
                .bind(&hold.set_in)
                .bind(hold.set_at.as_micros()),
            StoreUpkeep::LiftHold { name, of } => sqlx::query(LIFT_HOLD).bind(name).bind(of),
            StoreUpkeep::EraseSubject { tenant, tag } => return self.erase(tenant, *tag).await,
            StoreUpkeep::ClaimExport(claim, first) => sqlx::query(CLAIM_EXPORT)
                .bind(&claim.export)
                .bind(to_i64(*first))
                .bind(&claim.holder)
                .bind(claim.lasting.as_secs_f64())
                .bind(claim.is_alone),
            StoreUpkeep::AdvanceExport { claim, from, to } => sqlx::query(ADVANCE_EXPORT)
                .bind(to_i64(*to))
                .bind(claim.lasting.as_secs_f64())
                .bind(&claim.export)
                .bind(&claim.holder)
                .bind(to_i64(*from)),
            StoreUpkeep::ReleaseExport(claim) => sqlx::query(RELEASE_EXPORT)
                .bind(&claim.export)
                .bind(&claim.holder),
            StoreUpkeep::SetMacCheck { from, to } => sqlx::query(SET_MAC_CHECK)
                .bind(to.as_bytes().as_slice())
                .bind(from.as_ref().map(|from| from.as_bytes().as_slice())),
            StoreUpkeep::AdoptMasterKey { known_by, tag_key } => sqlx::query(ADOPT_MASTER_KEY)
                .bind(known_by.as_bytes().as_slice())
                .bind(tag_key.as_slice()),
            StoreUpkeep::BeginRekey { from, to, tag_key } => sqlx::query(BEGIN_REKEY)
                .bind(to.as_bytes().as_slice())
                .bind(tag_key.as_slice())
                .bind(from.as_bytes().as_slice()),
            StoreUpkeep::MoveSubjectKeys {
                moved,
                position,
                to,
            } => return self.move_subject_keys(moved, position, *to).await,
            StoreUpkeep::EndRekey { to } => sqlx::query(END_REKEY).bind(to.as_bytes().as_slice()),
        };
        let done = query.execute(&mut self.0).await?;
        Ok(done.rows_affected() > 0)
    }

    pub(super) async fn close(self) -> Result<(), sqlx::Error> {
        self.0.close().await
    }
}

type InsertQuery<'a> = Query<'a, Postgres, PgArguments>;

/// Binds `growth` to the parameters after those of a batch.
fn bind_growth<'a>(insert: InsertQuery<'a>, growth: &'a TreeGrowth) -> InsertQuery<'a> {
    let tiles = growth.tile_roots.iter();
    let levels = tiles.clone().map(|tile| i32::from(tile.level));
    let positions = tiles.clone().map(|tile| to_i64(tile.position));
    insert
        .bind(to_i64(growth.to.size))
        .bind(growth.to.root.as_slice())
        .bind(growth.checkpoint.as_deref())
        .bind(to_i64(growth.from.size))
        .bind(growth.from.root.as_slice())
        .bind(levels.collect::<Vec<_>>())
        .bind(positions.collect::<Vec<_>>())
        .bind(tiles.map(|tile| tile.root.as_slice()).collect::<Vec<_>>())
}

/// Binds `entries` to the parameters of a statement that stores a batch.
fn bind<'a>(insert: InsertQuery<'a>, entries: &[&'a RecordEntry]) -> InsertQuery<'a> {
    fn column<'a, T>(entries: &[&'a RecordEntry], field: impl Fn(&'a RecordEntry) -> T) -> Vec<T> {
        entries.iter().map(|entry| field(entry)).collect()
    }
    let subjects: Vec<_> = (entries.iter().zip(0_i64..))
        .flat_map(|(entry, position)| {
            let time = entry.time.as_micros();
            (entry.data_subjects.iter()).map(move |tag| (tag, time, position))
        })
        .collect();
    let subjects = subjects.iter();
    let tags = subjects.clone().map(|(tag, ..)| tag.as_bytes().as_slice());
    let times = subjects.clone().map(|(_, time, _)| *time);
    let positions = subjects.map(|(.., position)| *position);
    insert
        .bind(column(entries, |entry| {
            entry.leaf_hash.as_bytes().as_slice()
        }))
        .bind(column(entries, |entry| entry.canonical.as_slice()))
        .bind(column(entries, |entry| entry.event))
        .bind(column(entries, |entry| entry.time.as_micros()))
        .bind(column(entries, |entry| entry.call_id.as_deref()))
        .bind(column(entries, |entry| entry.subject.as_deref()))
        .bind(column(entries, |entry| entry.tool.as_deref()))
        .bind(column(entries, |entry| entry.status))
        .bind(column(entries, |entry| entry.details.as_deref()))
        .bind(column(entries, |entry| {
            to_i64(entry.data_subjects.len() as u64)
        }))
        .bind(tags.collect::<Vec<_>>())
        .bind(times.collect::<Vec<_>>())
        .bind(positions.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use wardgate_store::Address;

    use super::*;

    #[tokio::test]
    async fn a_commit_is_flushed_before_it_is_answered() {
        let Some(server) = wardgate_testkit::test_dependency("WARDGATE_TEST_POSTGRES") else {
            return;
        };
        // The option of the connection takes precedence over the URL, the role and the database.
        let separator = if server.contains('?') { '&' } else { '?' };
        let lax = format!("{server}{separator}options[synchronous_commit]=off");
        let Address::Postgres(lax) = Address::new(&lax, &DatabaseSettings::default()).unwrap()
        else {
            panic!("{server}")
        };
        let mut writer = PostgresWriter::connect(&lax).await.unwrap();
        let synchronous: String = sqlx::query_scalar("SHOW synchronous_commit")
            .fetch_one(&mut writer.0)
            .await
            .unwrap();
        assert_eq!(synchronous, "on");
    }
}
