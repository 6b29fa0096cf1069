//! Tests with the server's own log that each tool has one statement, regardless of the arguments.

use std::collections::BTreeSet;

use futures::StreamExt;
use futures::stream;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config as Cases, TestRng, TestRunner};
use serde_json::json;
use sqlx::{Connection, MySqlConnection, PgConnection};

use super::arguments::INJECTIONS;
use super::harness::Harness;
use crate::tests::database;
use wardgate_testkit::TestDatabase;

const CALLS: usize = 10_000;

/// Marker that is part of every argument, so that an argument in a statement is detected.
const CANARY: &str = "canary-4713";

/// Log prefix of a server that writes database and application before each entry (`tests/postgres`).
const PREFIX: &str = "%d|%a|";

/// Calls three tools with hostile texts, thousands of times each.
async fn call_with_hostile_arguments(database: &TestDatabase) {
    let harness = Harness::start(database).await;
    let mut terms = Vec::new();
    for tool in ["echo", "governed_rows", "append"] {
        terms.push(harness.terms(tool).await);
    }
    let mut runner = TestRunner::new_with_rng(
        Cases::default(),
        TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let strange = "[ -~é'\"\\\\;\n\t:$?#`%/*-]{0,60}";
    let calls = (0..CALLS).map(|number| {
        let injection = INJECTIONS[number % INJECTIONS.len()];
        let strange = strange.new_tree(&mut runner).unwrap().current();
        let text = format!("{injection}{strange}{CANARY} {number}{injection}");
        let terms = &terms[number % terms.len()];
        let harness = &harness;
        async move {
            let arguments = match terms.tool.as_str() {
                "echo" => json!({"text": text}),
                "append" => json!({"line": text}),
                _ => json!({"patient": text}),
            };
            let answer = harness.call_with(terms, &arguments.to_string()).await;
            let answer = answer.unwrap();
            match terms.tool.as_str() {
                "echo" => assert_eq!(answer.rows()[0]["text"], json!(text)),
                "append" => assert!(!answer.0.is_error, "{}", answer.text()),
                _ => assert_eq!(answer.facts().error_kind, "no_rows", "{text}"),
            }
        }
    });
    stream::iter(calls)
        .buffer_unordered(8)
        .collect::<()>()
        .await;
}

/// Asserts that only these statements were prepared: the statements of the tools, with `placeholder` for each argument,
/// and the statement by which a session learns its own number.
fn assert_one_text_a_tool(prepared: &BTreeSet<String>, placeholder: &str) {
    let (own, tools): (Vec<_>, Vec<_>) = prepared
        .iter()
        .partition(|text| text.contains("pg_backend_pid()") || text.contains("CONNECTION_ID()"));
    assert_eq!((own.len(), tools.len()), (1, 3), "{prepared:#?}");
    for text in tools {
        assert!(
            text.contains(placeholder) && !text.contains(CANARY),
            "{text}"
        );
    }
}

#[tokio::test]
async fn postgresql_is_told_one_statement_a_tool() {
    let Some(database) = database::postgres().await else {
        return;
    };
    let mut connection = PgConnection::connect(&database.url()).await.unwrap();
    let settings: (String, String) = sqlx::query_as(
        "SELECT current_setting('logging_collector'), current_setting('log_line_prefix')",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    if settings != ("on".to_owned(), PREFIX.to_owned()) {
        assert!(std::env::var("CI").is_err(), "log as tests/postgres does");
        eprintln!(
            "the statement log is not looked at: the server does not log as in tests/postgres"
        );
        return;
    }
    let name = database.name();
    let log_all = format!(
        "ALTER DATABASE {name} SET log_statement = 'all';
         ALTER DATABASE {name} SET log_parameter_max_length = 0;
         ALTER DATABASE {name} SET log_parameter_max_length_on_error = 0"
    );
    database.execute(&log_all).await;
    call_with_hostile_arguments(&database).await;

    let log: String = sqlx::query_scalar("SELECT pg_read_file(pg_current_logfile())")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    // Continuation lines of an entry begin with a tab.
    let log = log.replace("\n\t", " ");
    let ours = format!("{name}|wardgate|");
    let entries: Vec<_> = log
        .lines()
        .filter_map(|line| line.strip_prefix(&ours))
        .collect();
    // Before it first runs a statement, the driver looks up the origin of the columns.
    let (lookups, entries): (Vec<_>, Vec<_>) = entries
        .into_iter()
        .partition(|entry| entry.starts_with("LOG:  statement: ") && entry.contains("pg_catalog."));
    assert!(lookups.iter().all(|entry| !entry.contains(CANARY)));
    let executed: Vec<_> = entries
        .iter()
        .filter_map(|entry| entry.strip_prefix("LOG:  execute ")?.split_once(": "))
        .collect();
    assert_eq!(executed.len(), entries.len(), "only prepared statements");
    assert!(executed.len() > CALLS);
    let texts = executed.into_iter().map(|(_, text)| text.trim().to_owned());
    assert_one_text_a_tool(&texts.collect(), "$1");
}

#[tokio::test]
async fn mysql_is_told_one_statement_a_tool() {
    let Some(database) = database::mysql().await else {
        return;
    };
    database
        .execute("SET GLOBAL log_output = 'TABLE'; SET GLOBAL general_log = ON")
        .await;
    call_with_hostile_arguments(&database).await;
    database
        .execute("SET GLOBAL general_log = OFF; SET GLOBAL log_output = DEFAULT")
        .await;

    let mut connection = MySqlConnection::connect(&database.url()).await.unwrap();
    let log: Vec<(String, String, i64)> = sqlx::query_as(
        "SELECT CAST(command_type AS CHAR), CAST(argument AS CHAR), count(*) FROM mysql.general_log \
         WHERE command_type IN ('Prepare', 'Query') AND thread_id IN (SELECT thread_id \
            FROM mysql.general_log WHERE command_type = 'Connect' \
            AND argument LIKE concat('% on ', DATABASE(), ' %')) \
         GROUP BY 1, 2 \
         UNION ALL SELECT 'Execute', DATABASE(), count(*) FROM mysql.general_log \
         WHERE command_type = 'Execute' AND argument LIKE '%canary-4713%'",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    let of = |kind: &'static str| log.iter().filter(move |entry| entry.0 == kind);
    assert!(of("Query").all(|(_, text, _)| text.starts_with("SET ")));
    // The log contains the values in place of the placeholders.
    assert!(of("Execute").all(|(_, _, count)| *count >= i64::try_from(CALLS).unwrap()));
    let texts = of("Prepare").map(|(_, text, _)| text.trim().to_owned());
    assert_one_text_a_tool(&texts.collect(), "?");
}
