//! P7: any process may be killed at any time; what was acknowledged survives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::{Connection, Row, SqliteConnection};
use tokio::task::JoinSet;
use wardgate_domain::Digest;
use wardgate_testkit::{Client, SeparateProcesses, System, TestApp, until};

use super::super::audit_log::every_record_is_proved;
use super::super::extra_tools::{Counter, LOOK_OFTEN};
use super::super::people::{doctor, of_patient};
use crate::{REPOSITORY, WARDGATE};

/// How often the audit service is killed.
const ROUNDS: u64 = 100;
/// How often each of the others is.
const ROUNDS_OF_OTHERS: u64 = 5;
/// Who calls meanwhile.
const CLIENTS: usize = 10;

/// A result that a client was given.
#[derive(Debug)]
struct Acknowledged {
    call_id: String,
    leaf_hash: String,
    /// What a writing call wrote.
    note: Option<String>,
}

/// Clients that call, half of them tools that write, and note what they were given.
struct Load {
    on: Arc<AtomicBool>,
    ledger: Arc<Mutex<Vec<Acknowledged>>>,
    clients: JoinSet<()>,
}

impl Load {
    /// Goes on until it is stopped, or until the connection is lost.
    fn start(system: &impl System, token: &str, prefix: &str) -> Self {
        let on = Arc::new(AtomicBool::new(true));
        let ledger = Arc::<Mutex<Vec<Acknowledged>>>::default();
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            let (client, token) = (system.client().clone(), token.to_owned());
            let (on, ledger) = (Arc::clone(&on), Arc::clone(&ledger));
            let prefix = format!("{prefix}-{number}");
            clients.spawn(async move {
                for call in 0.. {
                    let note = (number % 2 == 0).then(|| format!("{prefix}-{call}"));
                    if !on.load(Ordering::Relaxed) {
                        break;
                    }
                    match one_call(&client, &token, note).await {
                        Ok(Some(acknowledged)) => ledger.lock().unwrap().push(acknowledged),
                        // Whoever is told to try again later does so a little later.
                        Ok(None) => tokio::time::sleep(Duration::from_millis(5)).await,
                        Err(_lost) => break,
                    }
                }
            });
        }
        Self {
            on,
            ledger,
            clients,
        }
    }

    fn acknowledged(&self) -> usize {
        self.ledger.lock().unwrap().len()
    }

    /// Waits until more results came than `before`.
    async fn goes_on(&self, before: usize) {
        until("calls work", async || {
            (self.acknowledged() > before).then_some(())
        })
        .await;
    }

    async fn stop(mut self) -> Vec<Acknowledged> {
        self.on.store(false, Ordering::Relaxed);
        while let Some(client) = self.clients.join_next().await {
            client.expect("every answer was well-formed");
        }
        std::mem::take(&mut self.ledger.lock().unwrap())
    }
}

/// What the client was given; none when the call failed as it should.
async fn one_call(
    client: &Client,
    token: &str,
    note: Option<String>,
) -> reqwest::Result<Option<Acknowledged>> {
    let reply = match &note {
        Some(note) => {
            client
                .try_call(token, "count_up", json!({ "note": note }))
                .await?
        }
        None => {
            client
                .try_call(token, "get_medical_records", of_patient("NUGWI"))
                .await?
        }
    };
    // Turned away before it became a call.
    if reply.json()["error"]["data"]["retryAfterSeconds"].is_number() {
        return Ok(None);
    }
    let call = reply.call();
    let call_id = call["dev.wardgate/callId"]
        .as_str()
        .unwrap_or_else(|| panic!("an answer names no call: {}", reply.body))
        .to_owned();
    if reply.json()["error"].is_object() {
        assert_eq!(reply.error().0, -32603, "{}", reply.body);
        assert!(!reply.body.contains("Hypertension"));
        return Ok(None);
    }
    assert_eq!(reply.rows().len(), if note.is_some() { 1 } else { 2 });
    let receipt = &call["dev.wardgate/receipt"];
    Ok(Some(Acknowledged {
        call_id,
        leaf_hash: receipt["leafHash"].as_str().expect("a receipt").to_owned(),
        note,
    }))
}

/// Some milliseconds, other ones each round: 5 to 50.
fn moment(round: u64) -> Duration {
    Duration::from_millis(5 + round * 29 % 46)
}

fn text<'a>(record: &'a Value, name: &str) -> &'a str {
    record[name].as_str().unwrap_or_default()
}

/// Compares what clients were given, and what the tool did, with what is on record.
async fn reconcile(system: &impl System, ledger: &[Acknowledged], counter: &mut Counter) {
    let records = system.records();
    for (position, record) in (0_u64..).zip(&records) {
        assert_eq!(record["sequence"], position, "the sequence is dense");
    }
    let mut outcomes = BTreeMap::new();
    let mut intents = BTreeSet::new();
    for record in records
        .iter()
        .filter(|record| record["call_id"].is_string())
    {
        let call = text(record, "call_id");
        match text(record, "event") {
            "intent" => assert!(intents.insert(call), "{call} has one intent"),
            // One for each run.
            "execution" => {}
            _ => assert!(
                outcomes.insert(call, record).is_none(),
                "{call} has one outcome"
            ),
        }
    }
    for given in ledger {
        let record = outcomes.get(given.call_id.as_str());
        let record = record.unwrap_or_else(|| panic!("{given:?} is not on record"));
        assert_eq!(record["leaf_hash"], given.leaf_hash.as_str(), "{given:?}");
        assert_eq!(record["status"], "ok", "{given:?}");
        assert!(
            given.note.is_none() || intents.contains(given.call_id.as_str()),
            "{given:?}"
        );
    }
    assert!(
        intents.iter().all(|call| outcomes.contains_key(call)),
        "every intent has its outcome"
    );

    let notes: BTreeSet<String> = counter.notes().await.into_iter().collect();
    let acknowledged: BTreeSet<String> = ledger
        .iter()
        .filter_map(|given| given.note.clone())
        .collect();
    assert!(
        acknowledged.is_subset(&notes),
        "what was acknowledged was done"
    );
    assert!(
        notes.len() <= intents.len(),
        "{} writes, {} intents",
        notes.len(),
        intents.len()
    );

    let store = format!(
        "sqlite:{}?mode=ro",
        system.data_dir().join("audit.sqlite").display()
    );
    let mut store = SqliteConnection::connect(&store).await.unwrap();
    let rows = sqlx::query("SELECT leaf_hash, canonical FROM record ORDER BY sequence");
    for row in rows.fetch_all(&mut store).await.unwrap() {
        let (stored, canonical): (Vec<u8>, Vec<u8>) = (row.get(0), row.get(1));
        assert_eq!(
            stored,
            Digest::of(&[&[0], canonical.as_slice()].concat()).as_bytes()
        );
    }
}

/// Waits until intents that a kill left open have the outcome `unknown`.
async fn closed(system: &impl System) {
    until("every intent has its outcome", async || {
        let records = system.records();
        let calls = |event: &str| -> BTreeSet<&str> {
            let of_event = records.iter().filter(|record| record["event"] == event);
            of_event.map(|record| text(record, "call_id")).collect()
        };
        calls("intent").is_subset(&calls("outcome")).then_some(())
    })
    .await;
}

/// Soon, but not before a call in flight is over.
const ABANDONED_SOON: (&str, &str) = ("WARDGATE_AUDIT__UNKNOWN_AFTER_SECONDS", "4");

#[tokio::test(flavor = "multi_thread")]
async fn p7_the_audit_service_may_be_killed_at_any_time() {
    let environment = [LOOK_OFTEN, ABANDONED_SOON];
    let mut system =
        SeparateProcesses::start_with(WARDGATE, REPOSITORY.as_ref(), &environment).await;
    let mut counter = Counter::add_to(&system).await;
    let load = Load::start(&system, &doctor(&system), "audit");
    for round in 0..ROUNDS {
        load.goes_on(load.acknowledged()).await;
        tokio::time::sleep(moment(round)).await;
        tokio::task::block_in_place(|| system.restart("audit"));
    }
    load.goes_on(load.acknowledged()).await;
    let ledger = load.stop().await;
    assert!(ledger.len() as u64 > ROUNDS, "{}", ledger.len());
    closed(&system).await;
    reconcile(&system, &ledger, &mut counter).await;
    every_record_is_proved(&system);
    eprintln!(
        "{ROUNDS} kills, {} acknowledged results, 0 without a record",
        ledger.len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn p7_everything_in_one_process_may_be_killed_at_any_time() {
    let mut app = TestApp::start_with(WARDGATE, &[LOOK_OFTEN, ABANDONED_SOON]);
    let mut counter = Counter::add_to(&app).await;
    let mut ledger = Vec::new();
    for round in 0..ROUNDS_OF_OTHERS {
        let load = Load::start(&app, &doctor(&app), &format!("up-{round}"));
        load.goes_on(0).await;
        tokio::time::sleep(moment(round)).await;
        app.process.kill();
        ledger.extend(load.stop().await);
        tokio::task::block_in_place(|| app.restart());
    }
    closed(&app).await;
    reconcile(&app, &ledger, &mut counter).await;
    every_record_is_proved(&app);
}

#[tokio::test(flavor = "multi_thread")]
async fn p7_policy_tool_runner_and_gateway_may_be_killed_at_any_time() {
    let environment = [LOOK_OFTEN, ABANDONED_SOON];
    let mut system =
        SeparateProcesses::start_with(WARDGATE, REPOSITORY.as_ref(), &environment).await;
    let mut counter = Counter::add_to(&system).await;
    let mut ledger = Vec::new();
    for round in 0..ROUNDS_OF_OTHERS {
        for name in ["policy", "tool-runner", "gateway"] {
            let load = Load::start(&system, &doctor(&system), &format!("{name}-{round}"));
            load.goes_on(0).await;
            tokio::time::sleep(moment(round)).await;
            tokio::task::block_in_place(|| system.restart(name));
            system.until_ready(true).await;
            ledger.extend(load.stop().await);
        }
    }
    closed(&system).await;
    reconcile(&system, &ledger, &mut counter).await;
}
