//! Tests of P2: without a durable audit record a call fails with a well-formed error within 1 s, and no tool that could
//! write is run. If the writes of the store were measured to take longer than 0.13 s, the timeout is proportional to
//! that time, up to 5 s.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::{Connection, SqliteConnection};
use wardgate_testkit::{Reply, SeparateProcesses, System, TestApp, WardgateProcess, until};

use super::super::extra_tools::{Counter, LOG_RUNS, LOOK_OFTEN};
use super::super::people::{doctor, of_patient};
use crate::{REPOSITORY, WARDGATE};

/// The timeout on any machine, and a second for the rest of the call. That an append fails within a second if the store is not
/// slow is tested with a paused clock where the limits are defined: by the tests of `LatencyLimit` in `rpc`, and by
/// `a5_an_append_that_cannot_be_made_durable_ends_within_a_second` in `gateway-record`.
const AT_MOST: Duration = Duration::from_secs(6);

struct Ward<S> {
    system: S,
    counter: Counter,
    token: String,
}

impl<S: System> Ward<S> {
    async fn open(system: S) -> Self {
        let counter = Counter::add_to(&system).await;
        let token = doctor(&system);
        Self {
            system,
            counter,
            token,
        }
    }

    async fn call(&self, tool: &str, arguments: Value) -> Reply {
        self.system
            .client()
            .call(&self.token, tool, arguments)
            .await
    }

    /// Makes one call, which is not repeated if the response asks to try again later.
    async fn call_once(&self, tool: &str, arguments: Value) -> Reply {
        let client = self.system.client();
        let called = client.try_call(&self.token, tool, arguments).await;
        called.expect("an answer")
    }

    /// Makes a reading and a writing call, which must both succeed, and returns the ID of the last one.
    async fn work(&self) -> String {
        self.system.until_ready(true).await;
        assert_eq!(
            self.call("get_medical_records", of_patient("NUGWI"))
                .await
                .rows()
                .len(),
            2
        );
        let reply = self.call("count_up", json!({ "note": "recorded" })).await;
        reply.rows();
        let call_id = &reply.call()["dev.wardgate/callId"];
        call_id.as_str().expect("a call id").to_owned()
    }

    /// Makes this many reading and writing calls, checks that they are refused in time and release nothing, and returns
    /// their IDs.
    async fn refuse(&mut self, times: usize) -> Vec<String> {
        let before = self.counter.notes().await;
        let mut refused = Vec::new();
        for _ in 0..times {
            for (tool, arguments) in [
                ("get_medical_records", of_patient("NUGWI")),
                ("count_up", json!({ "note": "not recorded" })),
            ] {
                let started = Instant::now();
                let reply = self.call_once(tool, arguments).await;
                assert!(
                    started.elapsed() <= AT_MOST,
                    "{tool} took {:?}",
                    started.elapsed()
                );
                let (code, message) = reply.error();
                assert_eq!(code, -32603);
                assert!(message.contains("recorded durably"), "{message}");
                let call_id = &reply.call()["dev.wardgate/callId"];
                refused.push(call_id.as_str().expect("a call id").to_owned());
                assert!(reply.call()["dev.wardgate/receipt"].is_null());
                assert!(!reply.body.contains("Hypertension"));
            }
        }
        assert_eq!(
            self.counter.notes().await,
            before,
            "nothing ran that could write"
        );
        refused
    }

    /// Makes successful calls, and then checks that no call in `refused` was run, according to the log of the process
    /// that runs tools.
    async fn work_and_see_that_none_ran(&self, refused: &[String], process: &WardgateProcess) {
        let ran = |call_id: &str| {
            let log = process.log();
            let mut lines = log.lines();
            lines.any(|line| line.contains("Executing MCP tool") && line.contains(call_id))
        };
        let last = self.work().await;
        // Everything that was logged earlier is in the log too.
        until("the last call is logged", async || ran(&last).then_some(())).await;
        for call_id in refused {
            assert!(!ran(call_id), "without a record no tool runs at all");
        }
    }
}

async fn apart() -> Ward<SeparateProcesses> {
    Ward::open(
        SeparateProcesses::start_with(WARDGATE, REPOSITORY.as_ref(), &[LOG_RUNS, LOOK_OFTEN]).await,
    )
    .await
}

#[tokio::test]
async fn p2_no_record_no_result() {
    let mut ward = apart().await;
    ward.work().await;

    ward.system.audit.kill();
    // The first calls are made before the gateway has noticed the failure, and later ones after it.
    ward.refuse(20).await;
    // Other parts of the platform may notice the failure earlier.
    ward.system.until_part_is_away("audit").await;
    let refused = ward.refuse(20).await;

    ward.system.restart("audit");
    ward.work_and_see_that_none_ran(&refused, &ward.system.tool_runner)
        .await;
    assert_eq!(ward.counter.notes().await, ["recorded"; 2]);
    let intents = ward
        .system
        .records()
        .iter()
        .filter(|record| record["event"] == "intent")
        .count();
    assert_eq!(intents, 2);
}

#[tokio::test]
async fn p2_a_record_that_hangs_is_none() {
    let mut ward = apart().await;
    ward.work().await;
    ward.system.audit.signal("STOP");
    ward.refuse(3).await;
    ward.system.audit.signal("CONT");
    ward.work().await;
    assert_eq!(ward.counter.notes().await, ["recorded"; 2]);
}

#[tokio::test]
async fn p2_a_record_that_cannot_be_written_is_none() {
    let mut ward = Ward::open(TestApp::start_with(WARDGATE, &[LOG_RUNS, LOOK_OFTEN])).await;
    ward.work().await;
    let store = ward.system.data_dir().join("audit.sqlite");
    let store = format!("sqlite:{}", store.display());
    let mut other = SqliteConnection::connect(&store).await.unwrap();
    // Another connection holds a write transaction.
    sqlx::query("BEGIN IMMEDIATE")
        .execute(&mut other)
        .await
        .unwrap();
    ward.refuse(1).await;
    // Other parts of the platform may notice the failure earlier.
    ward.system.until_part_is_away("audit").await;
    let refused = ward.refuse(20).await;
    sqlx::query("ROLLBACK").execute(&mut other).await.unwrap();
    ward.work_and_see_that_none_ran(&refused, &ward.system.process)
        .await;
    assert_eq!(ward.counter.notes().await, ["recorded"; 2]);
}

#[tokio::test]
async fn a5_without_its_second_copy_there_is_no_record_and_the_process_stays_alive() {
    let copy = tempfile::tempdir().unwrap();
    let (copy, elsewhere) = (copy.path().join("copy"), copy.path().join("elsewhere"));
    std::fs::create_dir(&copy).unwrap();
    std::fs::write(copy.join("wardgate-second-copy"), "").unwrap();
    let place = ("WARDGATE_AUDIT__SECOND_COPY_DIR", copy.to_str().unwrap());
    let mut ward = Ward::open(TestApp::start_with(
        WARDGATE,
        &[LOG_RUNS, LOOK_OFTEN, place],
    ))
    .await;
    ward.work().await;
    std::fs::rename(&copy, &elsewhere).unwrap();
    ward.refuse(1).await;
    ward.system.until_part_is_away("audit").await;
    let refused = ward.refuse(5).await;
    let client = ward.system.client();
    assert_eq!(client.get("/health").await.status, 200, "it is alive");
    assert_eq!(client.get("/ready").await.status, 503);
    std::fs::rename(&elsewhere, &copy).unwrap();
    ward.work_and_see_that_none_ran(&refused, &ward.system.process)
        .await;
    assert_eq!(ward.counter.notes().await, ["recorded"; 2]);
}
