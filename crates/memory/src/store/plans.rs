//! Tests that the frequent statements use an index on each database.

use sqlx::{AssertSqlSafe, Connection, PgConnection, Row, SqliteConnection};
use wardgate_domain::Ambient;

use super::{
    MemoryStore, changes, conversations, erasing, reading, rekeying, searching, subscriptions,
};
use crate::MasterKey;
use wardgate_store::{DatabaseSettings, Statement};
use wardgate_testkit::TestDatabase;

/// Returns the statements whose time must not grow with the tables, and the indexes that each may use.
fn frequent_statements() -> Vec<(&'static str, Statement, &'static [&'static str])> {
    vec![
        (
            "find",
            conversations::OF_OWNER.into(),
            &["conversation_of_owner"],
        ),
        (
            "by key",
            conversations::BY_KEY.into(),
            &["conversation_key"],
        ),
        (
            "list",
            conversations::RECENT.into(),
            &["conversation_recent"],
        ),
        (
            "count",
            conversations::COUNT.into(),
            &["conversation_recent", "conversation_of_owner"],
        ),
        (
            "survey",
            conversations::SURVEY_OF_SUBJECT.into(),
            &["conversation_of_subject"],
        ),
        ("window", reading::LAST.into(), &["message_said"]),
        (
            "window texts",
            reading::SAID.into(),
            &["message_said", "message_position"],
        ),
        ("summary", reading::SUMMARY.into(), &["message_summary"]),
        ("uncovered", reading::UNCOVERED.into(), &["message_said"]),
        (
            "page",
            reading::NEXT.into(),
            &["message_position", "message_said"],
        ),
        (
            "page texts",
            reading::ALL_BETWEEN.into(),
            &["message_position", "message_said"],
        ),
        ("turn", reading::OF_TURN.into(), &["message_turn"]),
        (
            "grounds",
            reading::GROUNDS.into(),
            &["message_grounds", "message_position"],
        ),
        ("search", searching::HITS, &["message_words_words", ":M1"]),
        ("repeated?", super::adding::BY_ID.into(), &["message_id"]),
        ("turn so far", super::adding::TURN.into(), &["message_turn"]),
        (
            "to empty",
            erasing::TO_EMPTY.into(),
            &["conversation_to_empty"],
        ),
        (
            "next tenant",
            erasing::NEXT_TENANT.into(),
            &["conversation_expiry"],
        ),
        ("expired", erasing::EXPIRED.into(), &["conversation_expiry"]),
        (
            "next to move",
            rekeying::NEXT.into(),
            &["conversation_pkey", "SEARCH c USING INTEGER PRIMARY KEY"],
        ),
        (
            "messages to move",
            rekeying::MESSAGES.into(),
            &["message_position"],
        ),
        (
            "keys to check",
            rekeying::KEYS.into(),
            &["conversation_pkey", "SEARCH c USING INTEGER PRIMARY KEY"],
        ),
        (
            "stale turns",
            erasing::STALE_TURNS.into(),
            &["message_open", "message_turn"],
        ),
        (
            "changes",
            changes::AFTER.into(),
            &["change_pkey", "SEARCH n USING INTEGER PRIMARY KEY"],
        ),
        (
            "latest change",
            changes::LATEST.into(),
            &["change_pkey", "SEARCH change"],
        ),
        (
            "subscriptions",
            subscriptions::OF_SESSION.into(),
            &["subscription_of_session"],
        ),
    ]
}

const CONVERSATIONS: &str = "
    INSERT INTO memory.conversation
        (key, owner, tenant, issuer, subject, id, data_key, created_at, updated_at,
         positions, messages, cleared_to, emptied_to)
    SELECT 'key' || n, CAST('owner' || (n / 20) AS blob), 'tenant' || (n / 500), 'i', 'subject' || (n / 20),
        'id' || n, CAST('k' AS blob), n, n, 20, 20, 0, 0
    FROM (numbers 2000) AS numbers";

const MESSAGES: &str = "
    INSERT INTO memory.message
        (conversation, position, id, turn, state, role, source, covers_to, characters, size, at, grounds, body)
    SELECT 1 + n / 20, 1 + n % 20, 'id' || n, 'turn' || (n / 4), CASE WHEN n % 1000 = 0 THEN 0 ELSE 1 END,
        1 + n % 3, 1 + n % 3, CASE WHEN n % 20 = 19 THEN 9 ELSE 0 END, 10, 10, n,
        CASE WHEN n % 3 = 2 THEN CAST('g' AS blob) END, CAST('b' AS blob)
    FROM (numbers 40000) AS numbers";

const CHANGES: &str = "
    INSERT INTO memory.change (owner, kind, conversation)
    SELECT CAST('owner' || (n / 20) AS blob), 0, 1 + n / 20 FROM (numbers 40000) AS numbers";

const SUBSCRIPTIONS: &str = "
    INSERT INTO memory.subscription (owner, id, session, expires_at)
    SELECT CAST('owner' || (n / 20) AS blob), 'id' || n, CAST('s' || (n % 2) AS blob), n
    FROM (numbers 40000) AS numbers";

/// Replaces `(numbers N)` with a subquery that returns the numbers from 0 to N - 1.
fn fill(sql: &str, sqlite: bool) -> String {
    let (before, rest) = sql.split_once("(numbers ").unwrap();
    let (count, after) = rest.split_once(')').unwrap();
    if sqlite {
        let numbers = format!(
            "(WITH RECURSIVE series (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM series WHERE n < {count} - 1)
              SELECT n FROM series)"
        );
        format!("{before}{numbers}{after}").replace("memory.", "")
    } else {
        let numbers = format!("(SELECT n FROM generate_series(0, {count} - 1) AS n)");
        format!("{before}{numbers}{after}").replace("AS blob", "AS bytea")
    }
}

async fn store(database: &TestDatabase) -> MemoryStore {
    let key = MasterKey::from_bytes(&[7; 32]);
    let store = MemoryStore::open(
        &database.url(),
        &DatabaseSettings::default(),
        key,
        Ambient::system(),
    )
    .unwrap();
    store.prepare().await.unwrap();
    store
}

#[tokio::test]
async fn on_sqlite_every_hot_statement_goes_by_its_index() {
    let database = TestDatabase::sqlite("memory");
    store(&database).await;
    for sql in [CONVERSATIONS, MESSAGES, CHANGES, SUBSCRIPTIONS, "ANALYZE"] {
        let sql = if sql == "ANALYZE" {
            sql.to_owned()
        } else {
            fill(sql, true)
        };
        database.execute(&sql).await;
    }
    let mut connection = SqliteConnection::connect(&database.url()).await.unwrap();
    for (name, statement, indexes) in frequent_statements() {
        let sql = format!("EXPLAIN QUERY PLAN {}", statement.for_sqlite("memory").0);
        let rows = sqlx::query(AssertSqlSafe(sql))
            .fetch_all(&mut connection)
            .await
            .unwrap();
        let plan: Vec<String> = rows.iter().map(|row| row.get("detail")).collect();
        let plan = plan.join("\n");
        // SQLite chooses the name of the index of a UNIQUE column.
        let plan = plan.replace("sqlite_autoindex_conversation_1", "conversation_key");
        assert!(
            indexes.iter().any(|index| plan.contains(index)),
            "{name}:\n{plan}"
        );
        let reads_all = |line: &&str| {
            (line.starts_with("SCAN c") || line.starts_with("SCAN m") || line.starts_with("SCAN t"))
                && !line.contains("INDEX")
        };
        assert_eq!(plan.lines().find(reads_all), None, "{name}:\n{plan}");
    }
}

#[tokio::test]
async fn on_postgresql_every_hot_statement_goes_by_its_index() {
    let databases = TestDatabase::each_store("memory").await;
    let Some(database) = databases.iter().find(|one| !one.is_sqlite()) else {
        return;
    };
    store(database).await;
    for sql in [CONVERSATIONS, MESSAGES, CHANGES, SUBSCRIPTIONS] {
        database.execute(&fill(sql, false)).await;
    }
    database
        .execute(
            "INSERT INTO memory.message_words SELECT number,
                array_to_tsvector(ARRAY[to_hex(number % 500), 'common']) FROM memory.message;
             ANALYZE",
        )
        .await;
    let mut connection = PgConnection::connect(&database.url()).await.unwrap();
    for (name, statement, indexes) in frequent_statements() {
        // The plan for these values is the one that the first executions get.
        let values = [("$1", 1), ("$2", 2), ("$3", 3), ("$4", 4)];
        let mut sql = statement.for_postgres().to_owned();
        for (parameter, number) in values {
            sql = sql.replace(parameter, &value(name, parameter, number));
        }
        let sql = AssertSqlSafe(format!("EXPLAIN {sql}"));
        let rows = sqlx::query(sql).fetch_all(&mut connection).await;
        let rows = rows.unwrap_or_else(|error| panic!("{name}: {error}"));
        let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let plan = plan.join("\n");
        assert!(
            indexes.iter().any(|index| plan.contains(index)),
            "{name}:\n{plan}"
        );
        let tables = [
            "conversation",
            "message",
            "message_words",
            "change",
            "subscription",
        ];
        for table in tables {
            let all_of_it = format!("Seq Scan on {table} ");
            assert!(!plan.contains(&all_of_it), "{name}:\n{plan}");
        }
    }
}

/// Returns a value of the type that the parameter of the named statement has.
fn value(name: &str, parameter: &str, number: i64) -> String {
    let text = |text: &str| format!("'{text}'");
    match (name, parameter) {
        ("find" | "list" | "count" | "subscriptions", "$1")
        | ("search" | "subscriptions", "$2") => r"'\x6f776e657231'::bytea".to_owned(),
        ("find", "$2") | ("by key" | "next tenant" | "expired", "$1") | ("list", "$3") => {
            text("key7")
        }
        ("search", "$1") => text("7"),
        ("search", "$3") | ("survey", "$2") => text(""),
        ("survey", "$1") => text("z"),
        ("survey", "$4") => text("subject7"),
        ("turn" | "repeated?" | "turn so far", "$2") => text("id7"),
        ("changes", "$1") => "39990".to_owned(),
        ("stale turns", "$1") => "100".to_owned(),
        _ => number.to_string(),
    }
}
