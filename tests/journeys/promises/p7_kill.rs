//! Tests of P7: any process may be killed at any time, and acknowledged results survive.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::hmac;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use wardgate_domain::Digest;
use wardgate_testkit::{Client, SeparateProcesses, System, TestApp, until};

use super::super::audit_log::every_record_is_proved;
use super::super::extra_tools::{Counter, LOOK_OFTEN};
use super::super::people::{doctor, of_patient};
use super::super::postgres::{Database, RecordElsewhere};
use crate::{REPOSITORY, WARDGATE};

/// Number of times that the audit service is killed on each kind of store, unless the environment variable sets another one.
const AUDIT_KILLS: (&str, u64) = ("AUDIT_KILLS", 100);
/// Number of times that the single process with all services is killed, and each of the other services.
const SYSTEM_KILLS: (&str, u64) = ("SYSTEM_KILLS", 5);
/// Number of concurrent clients.
const CLIENTS: usize = 10;

/// A result that a client received.
#[derive(Debug)]
pub(super) struct AcknowledgedResult {
    call_id: String,
    leaf_hash: String,
    /// The note that a writing call wrote.
    note: Option<String>,
}

/// Clients that make calls, half of them of writing tools, and record the results that they received.
pub(super) struct CallingClients {
    on: Arc<AtomicBool>,
    ledger: Arc<Mutex<Vec<AcknowledgedResult>>>,
    clients: JoinSet<()>,
}

impl CallingClients {
    /// Starts the clients. Each runs until it is stopped or its connection is lost.
    pub(super) fn start(system: &impl System, token: &str, prefix: &str) -> Self {
        let on = Arc::new(AtomicBool::new(true));
        let ledger = Arc::<Mutex<Vec<AcknowledgedResult>>>::default();
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
                        // A client that is asked to try again later waits before the next call.
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

    pub(super) fn acknowledged_count(&self) -> usize {
        self.ledger.lock().unwrap().len()
    }

    /// Waits until there are more than `before` results.
    pub(super) async fn goes_on(&self, before: usize) {
        until("calls work", async || {
            (self.acknowledged_count() > before).then_some(())
        })
        .await;
    }

    pub(super) async fn stop(mut self) -> Vec<AcknowledgedResult> {
        self.on.store(false, Ordering::Relaxed);
        while let Some(client) = self.clients.join_next().await {
            client.expect("every answer was well-formed");
        }
        std::mem::take(&mut self.ledger.lock().unwrap())
    }
}

/// Makes a call, and returns its result, or `None` if the call failed as expected.
async fn one_call(
    client: &Client,
    token: &str,
    note: Option<String>,
) -> reqwest::Result<Option<AcknowledgedResult>> {
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
    // The request was refused before it became a call.
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
    Ok(Some(AcknowledgedResult {
        call_id,
        leaf_hash: receipt["leafHash"].as_str().expect("a receipt").to_owned(),
        note,
    }))
}

/// Returns a duration of 5 to 50 milliseconds, which varies with the round.
pub(super) fn moment(round: u64) -> Duration {
    Duration::from_millis(5 + round * 29 % 46)
}

fn text<'a>(record: &'a Value, name: &str) -> &'a str {
    record[name].as_str().unwrap_or_default()
}

/// The key of the digests in the record of a system.
struct RecordMacKey(hmac::Key);

impl RecordMacKey {
    fn read_from(system: &impl System) -> Self {
        let digits = fs::read_to_string(system.data_dir().join("keys/audit-mac.key")).unwrap();
        let key: Digest = digits.trim().parse().unwrap();
        Self(hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()))
    }

    /// Returns the digest of a call's arguments that its intent contains.
    fn mac(&self, arguments: &Value) -> String {
        let digest = Digest::compute(arguments.to_string().as_bytes());
        let mac = hmac::sign(&self.0, digest.as_bytes());
        Digest::from_bytes(mac.as_ref().try_into().unwrap()).to_string()
    }
}

/// Compares the results that clients received, and the effects of the tool, with the record.
pub(super) async fn reconcile(
    system: &impl System,
    ledger: &[AcknowledgedResult],
    counter: &mut Counter,
) {
    let records = system.records();
    for (position, record) in (0_u64..).zip(&records) {
        assert_eq!(record["sequence"], position, "the sequence is dense");
    }
    let mut outcomes = BTreeMap::new();
    let mut intents = BTreeMap::new();
    for record in records
        .iter()
        .filter(|record| record["call_id"].is_string())
    {
        let call = text(record, "call_id");
        match text(record, "event") {
            "intent" => assert!(
                intents.insert(call, record).is_none(),
                "{call} has one intent"
            ),
            // There is one for each run.
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
            given.note.is_none() || intents.contains_key(given.call_id.as_str()),
            "{given:?}"
        );
    }
    assert!(
        intents.keys().all(|call| outcomes.contains_key(call)),
        "every intent has its outcome"
    );

    let written = counter.notes().await;
    let notes: BTreeSet<&str> = written.iter().map(String::as_str).collect();
    assert_eq!(notes.len(), written.len(), "nothing is done twice");
    // Each note is sent once, so the intent with these arguments is that of the call.
    let mac_key = RecordMacKey::read_from(system);
    let intended: BTreeMap<&str, &str> = intents
        .iter()
        .map(|(call, intent)| (text(intent, "arguments_hmac"), *call))
        .collect();
    for note in &notes {
        let mac = mac_key.mac(&json!({ "note": note }));
        assert!(intended.contains_key(mac.as_str()), "{note} has no intent");
    }
    for given in ledger {
        if let Some(note) = &given.note {
            let mac = mac_key.mac(&json!({ "note": note }));
            assert_eq!(intended[mac.as_str()], given.call_id, "{given:?}");
            assert!(notes.contains(note.as_str()), "{given:?} was not done");
        }
    }
    every_record_is_proved(system);
}

/// Waits until the intents that a kill left open have the outcome `unknown`.
pub(super) async fn wait_for_outcomes(system: &impl System) {
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

/// A short timeout of open intents, which is longer than any call in progress.
pub(super) const ABANDONED_SOON: (&str, &str) = ("WARDGATE_AUDIT__UNKNOWN_AFTER_SECONDS", "4");

pub(super) fn rounds((variable, default): (&str, u64)) -> u64 {
    let rounds = std::env::var(variable);
    rounds.map_or(default, |rounds| rounds.parse().expect("a number"))
}

/// Prints a summary, which is useful if more rounds are run than usual.
pub(super) fn report(store: &str, kills: u64, ledger: &[AcknowledgedResult]) {
    let results = ledger.len();
    eprintln!("{store}: {kills} kills, {results} acknowledged results, 0 without a record");
}

async fn the_audit_service_is_killed(store: &str, environment: &[(&str, &str)]) {
    let environment = [&[LOOK_OFTEN, ABANDONED_SOON], environment].concat();
    let mut system =
        SeparateProcesses::start_with(WARDGATE, REPOSITORY.as_ref(), &environment).await;
    let mut counter = Counter::add_to(&system).await;
    let load = CallingClients::start(&system, &doctor(&system), "audit");
    let rounds = rounds(AUDIT_KILLS);
    for round in 0..rounds {
        load.goes_on(load.acknowledged_count()).await;
        tokio::time::sleep(moment(round)).await;
        tokio::task::block_in_place(|| system.restart("audit"));
    }
    load.goes_on(load.acknowledged_count()).await;
    let ledger = load.stop().await;
    assert!(ledger.len() as u64 > rounds, "{}", ledger.len());
    wait_for_outcomes(&system).await;
    reconcile(&system, &ledger, &mut counter).await;
    report(store, rounds, &ledger);
}

#[tokio::test(flavor = "multi_thread")]
async fn p7_the_audit_service_may_be_killed_at_any_time() {
    the_audit_service_is_killed("SQLite", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p7_the_audit_service_may_be_killed_at_any_time_on_postgresql() {
    let Some(record) = Database::create().await else {
        return;
    };
    the_audit_service_is_killed("PostgreSQL", &[("WARDGATE_AUDIT__STORE", &record.url)]).await;
    record.remove().await;
}

/// Kills the process of `app`, which runs all services. `with_record` returns the system with the location of its record.
async fn everything_is_killed<S: System>(
    store: &str,
    mut app: TestApp,
    with_record: impl FnOnce(TestApp) -> S,
) {
    let mut counter = Counter::add_to(&app).await;
    let mut ledger = Vec::new();
    let rounds = rounds(SYSTEM_KILLS);
    for round in 0..rounds {
        let load = CallingClients::start(&app, &doctor(&app), &format!("up-{round}"));
        load.goes_on(0).await;
        tokio::time::sleep(moment(round)).await;
        app.process.kill();
        ledger.extend(load.stop().await);
        tokio::task::block_in_place(|| app.restart());
    }
    let system = with_record(app);
    wait_for_outcomes(&system).await;
    reconcile(&system, &ledger, &mut counter).await;
    report(store, rounds, &ledger);
}

#[tokio::test(flavor = "multi_thread")]
async fn p7_everything_in_one_process_may_be_killed_at_any_time() {
    let app = TestApp::start_with(WARDGATE, &[LOOK_OFTEN, ABANDONED_SOON]);
    everything_is_killed("SQLite", app, |app| app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p7_everything_in_one_process_may_be_killed_at_any_time_on_postgresql() {
    let Some(record) = Database::create().await else {
        return;
    };
    let store = record.url.clone();
    let of_record = ("WARDGATE_AUDIT__STORE", store.as_str());
    let app = TestApp::start_with(WARDGATE, &[LOOK_OFTEN, ABANDONED_SOON, of_record]);
    everything_is_killed("PostgreSQL", app, |system| RecordElsewhere {
        system,
        store: store.clone(),
    })
    .await;
    record.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p7_policy_tool_runner_and_gateway_may_be_killed_at_any_time() {
    let environment = [LOOK_OFTEN, ABANDONED_SOON];
    let mut system =
        SeparateProcesses::start_with(WARDGATE, REPOSITORY.as_ref(), &environment).await;
    let mut counter = Counter::add_to(&system).await;
    let mut ledger = Vec::new();
    for round in 0..rounds(SYSTEM_KILLS) {
        for name in ["policy", "tool-runner", "gateway"] {
            let load = CallingClients::start(&system, &doctor(&system), &format!("{name}-{round}"));
            load.goes_on(0).await;
            tokio::time::sleep(moment(round)).await;
            tokio::task::block_in_place(|| system.restart(name));
            system.until_ready(true).await;
            ledger.extend(load.stop().await);
        }
    }
    wait_for_outcomes(&system).await;
    reconcile(&system, &ledger, &mut counter).await;
}
