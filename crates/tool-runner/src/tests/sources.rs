//! Tests of sources: read-only where configured, stopped in time, unavailable without affecting others, and without
//! values in logs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::join_all;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use wardgate_proto::toolrunner::v1::OutcomeStatus;
use wardgate_testkit::{CapturedLog, TestDatabase, until_true};

use super::harness::{DOCTOR_ONE, Harness, one_statement, rule, tools};
use crate::tests::database;

const WRITTEN: &str = "SELECT count(*) FROM written";

/// Query for the number of the service's statements that are still running.
const RUNNING: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                       AND application_name = 'wardgate' AND state = 'active'";
const RUNNING_IN_MYSQL: &str = "SELECT count(*) FROM information_schema.processlist \
                                WHERE db = DATABASE() AND command <> 'Sleep' AND id <> CONNECTION_ID()";

/// Returns whether the service has no running statement in the database. SQLite allows only one write at a time, so
/// there a write that succeeds is the evidence.
async fn is_idle(database: &TestDatabase) -> bool {
    match database {
        TestDatabase::Postgres { .. } => database.number(RUNNING).await == 0,
        TestDatabase::Mysql { .. } => database.number(RUNNING_IN_MYSQL).await == 0,
        TestDatabase::Sqlite { .. } => {
            let write = database.execute("DELETE FROM written");
            tokio::time::timeout(Duration::from_secs(2), write)
                .await
                .is_ok()
        }
    }
}

#[tokio::test]
async fn a_read_only_tool_cannot_write() {
    for database in database::each().await {
        let harness = Harness::start(&database).await;
        let answer = harness.call("sneaky_append", "{}").await;
        assert!(answer.0.is_error);
        assert_eq!(answer.facts().error_kind, "sql_error");
        assert_eq!(
            answer.text(),
            "Tool execution failed: the data source refused the query"
        );
        assert_eq!(database.number(WRITTEN).await, 0);
        assert_eq!(
            harness.call("append", r#"{"line":"x"}"#).await.text(),
            r#"{"data":[]}"#
        );
        assert_eq!(database.number(WRITTEN).await, 1);
    }
}

#[tokio::test]
async fn at_the_time_limit_the_work_stops_in_the_database() {
    for database in database::each().await {
        let harness = Harness::start(&database).await;
        let began = Instant::now();
        let answer = harness.call("endless_append", "{}").await;
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{:?}",
            began.elapsed()
        );
        assert!(answer.0.is_error);
        assert_eq!(answer.text(), "Timeout after 300ms");
        assert_eq!(answer.facts().status, i32::from(OutcomeStatus::Timeout));
        assert_eq!(answer.facts().error_kind, "timeout");
        until_true("the statement stopped", || is_idle(&database)).await;
        assert_eq!(
            harness
                .call("series", r#"{"last":1}"#)
                .await
                .column("value"),
            [1]
        );
    }
}

#[tokio::test]
async fn when_the_client_leaves_the_work_stops_in_the_database() {
    for database in database::each().await {
        let tools = tools().replace("time_limit: 300ms", "time_limit: 5m");
        let harness = Harness::with(&database, &tools, |_| ()).await;
        let terms = harness.terms("endless_append").await;
        let mut call = Box::pin(harness.call_with(&terms, "{}"));
        let started = tokio::time::timeout(Duration::from_millis(300), call.as_mut());
        assert!(started.await.is_err(), "it does not end by itself");
        assert!(call.as_mut().now_or_never().is_none());
        drop(call);
        until_true("the statement stopped", || is_idle(&database)).await;
    }
}

/// Time within which an immediately cancelled statement has to end.
const AT_ONCE: Duration = Duration::from_millis(200);

/// Tests that a cancelled statement ends long before PostgreSQL would notice that its client is gone, which MySQL would
/// not notice at all.
#[tokio::test]
async fn a_statement_that_was_given_up_is_cancelled_at_once() {
    for database in [database::postgres().await, database::mysql().await] {
        let Some(database) = database else {
            continue;
        };
        let tools = tools().replace("time_limit: 300ms", "time_limit: 5m");
        let harness = Harness::with(&database, &tools, |_| ()).await;
        let terms = harness.terms("endless_append").await;
        let mut soonest = Duration::MAX;
        // The best of several attempts is used, because this machine may be busy.
        for _ in 0..20 {
            if soonest < AT_ONCE {
                break;
            }
            let mut call = Box::pin(harness.call_with(&terms, "{}"));
            tokio::select! {
                _ = call.as_mut() => panic!("it does not end by itself"),
                () = until_true("it runs", async || !is_idle(&database).await) => {}
            }
            drop(call);
            let given_up = Instant::now();
            until_true("the statement stopped", || is_idle(&database)).await;
            soonest = soonest.min(given_up.elapsed());
        }
        assert!(soonest < AT_ONCE, "{}: {soonest:?}", database.kind());
    }
}

#[tokio::test]
async fn a_dead_source_fails_its_own_tools_only() {
    let database = database::sqlite().await;
    let two_sources = |tools: &str, url: &str, kind: &str| {
        let dead = format!("  dead: {{ type: {kind}, url: \"{url}\" }}\ntools:\n");
        let tools = tools.replacen("tools:\n", &dead, 1);
        let (first, rest) = tools.split_once("  - name: echo").unwrap();
        let rest = rest.replacen("source: rows", "source: dead", 1);
        format!("{first}  - name: echo{rest}")
    };
    let missing = tempfile::tempdir().unwrap();
    let file = missing.path().join("later.db");
    let sqlite = format!("sqlite:{}", file.display());
    for (kind, url) in [
        ("postgres", "postgres://someone:canary@127.0.0.1:1/nowhere"),
        ("mysql", "mysql://someone:canary@127.0.0.1:1/nowhere"),
        ("sqlite", sqlite.as_str()),
    ] {
        let harness = Harness::with(&database, &two_sources(tools(), url, kind), |_| ()).await;
        let answer = harness.call("echo", "{}").await;
        assert!(answer.0.is_error, "{kind}");
        assert_eq!(answer.facts().status, i32::from(OutcomeStatus::ToolError));
        assert_eq!(answer.facts().error_kind, "source_unavailable");
        assert_eq!(
            answer.text(),
            "Tool execution failed: the data source cannot be reached"
        );
        assert_eq!(harness.call("plain_rows", "{}").await.column("id").len(), 7);
        if kind == "sqlite" {
            std::fs::write(&file, b"").unwrap();
            assert_eq!(
                harness.call("echo", r#"{"text":"back"}"#).await.rows()[0]["text"],
                "back"
            );
        }
    }
}

#[tokio::test]
async fn many_calls_at_once_get_each_their_own_answer() {
    for database in database::each().await {
        let harness = Harness::start(&database).await;
        let terms = harness.terms("echo").await;
        let calls = (0..300).map(|number| {
            let arguments = json!({"whole": number}).to_string();
            let (harness, terms) = (&harness, &terms);
            async move {
                harness
                    .call_with(terms, &arguments)
                    .await
                    .unwrap()
                    .column("whole")
            }
        });
        let answers = join_all(calls).await;
        assert!(
            (0..300)
                .zip(answers)
                .all(|(number, answer)| answer == [number])
        );
    }
}

#[tokio::test]
async fn a_result_with_little_left_keeps_its_session() {
    let Some(database) = database::postgres().await else {
        return;
    };
    let statement = "SELECT pg_backend_pid() AS process FROM generate_series(1, :last)";
    let tools = one_statement(statement).replace(
        "input_schema: { type: object }",
        "input_schema: { type: object, properties: { last: { type: integer } } }\n    result: { max_rows: 5 }",
    );
    let harness = Harness::with(&database, &tools, |_| ()).await;
    let mut processes = Vec::new();
    for last in [5, 50, 5, 1_000_000, 5] {
        let arguments = json!({ "last": last }).to_string();
        let answer = harness.call("one", &arguments).await;
        processes.push(answer.column("process")[0]);
    }
    assert!(processes[..4].iter().all(|it| *it == processes[0]));
    assert_ne!(processes[4], processes[3], "too much was left");
}

/// Forwards to PostgreSQL and counts how often the client sends data, which is once per round trip.
async fn counting_proxy(port: u16, count: Arc<AtomicUsize>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            let count = Arc::clone(&count);
            tokio::spawn(async move {
                let mut bytes = [0; 8_192];
                while let Ok(length @ 1..) = from_client.read(&mut bytes).await {
                    count.fetch_add(1, Ordering::Relaxed);
                    to_server.write_all(&bytes[..length]).await.unwrap();
                }
            });
            tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
        }
    });
    own
}

#[tokio::test]
async fn a_prepared_read_costs_one_round_trip() {
    let Some(database) = database::postgres().await else {
        return;
    };
    let url = database.url();
    let (head, tail) = url.rsplit_once(':').unwrap();
    let (port, name) = tail.split_once('/').unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let proxy = counting_proxy(port.parse().unwrap(), Arc::clone(&count)).await;
    let proxied = format!("{head}:{proxy}/{name}");
    let harness = Harness::with(&database, tools(), |config| {
        config.variables.insert("URL".to_owned(), proxied);
    })
    .await;
    let mut terms = harness.terms("governed_rows").await;
    terms.row_rule = Some(rule(&[DOCTOR_ONE]));
    harness.call_with(&terms, "{}").await.unwrap();
    for _ in 0..5 {
        let before = count.load(Ordering::Relaxed);
        assert_eq!(
            harness.call_with(&terms, "{}").await.unwrap().column("id"),
            [1, 4, 7]
        );
        assert_eq!(count.load(Ordering::Relaxed) - before, 1);
    }
}

#[tokio::test]
async fn p4_nothing_raw_in_the_log() {
    let log = CapturedLog::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(log.writer())
        .finish();
    // The subscriber is global, so the logs of the other tests are checked too.
    tracing::subscriber::set_global_default(subscriber).unwrap();
    for database in database::each().await {
        let harness = Harness::start(&database).await;
        let append = harness.terms("append").await;
        let canary = r#"{"line":"canary-4711"}"#;
        assert!(!harness.call_with(&append, canary).await.unwrap().0.is_error);
        let twice = harness.call_with(&append, canary).await.unwrap();
        assert_eq!(
            twice.facts().error_kind,
            "sql_error",
            "the line must be unique"
        );
        assert!(!twice.text().contains("canary"));
        harness.call("echo", r#"{"whole":"canary-4711"}"#).await;
        harness
            .call("echo", r#"{"text":"canary-4711"}"#)
            .await
            .rows();
        harness
            .call("governed_rows", r#"{"patient":"canary-4711"}"#)
            .await;
        // The value is assembled in the database, so that no statement contains it.
        database
            .execute("UPDATE records SET note = REPLACE('row-x-4712', 'x', 'canary') WHERE id = 1")
            .await;
        let read = harness
            .call("governed_rows", r#"{"patient":"NUGWI"}"#)
            .await;
        assert!(read.text().contains("row-canary-4712"));
    }
    let log = log.text();
    assert!(log.contains("Executing MCP tool"), "{log}");
    assert!(log.contains("a tool call failed in its source"), "{log}");
    for canary in ["canary-4711", "row-canary-4712"] {
        assert!(!log.contains(canary), "{canary}: {log}");
    }
}
