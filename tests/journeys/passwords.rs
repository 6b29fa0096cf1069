//! Tests of the replacement of the password of the stores' role while calls are being made.
//!
//! ```text
//!  four callers ──▶ one process ──▶ PostgreSQL: password 0, 1, 2 …
//!                      └── reads the file again when the server refuses the previous password
//! ```

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use wardgate_testkit::{Client, PasswordRole, System, TestApp, run, until_true};

use super::people::{doctor, of_patient};
use super::postgres::{Database, RecordElsewhere};
use crate::WARDGATE;

const CALLERS: u64 = 4;
const ROTATIONS: u64 = 6;

/// Delay after which a client repeats a failed call. On a busy machine, the reconnection of all services takes more than a second.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// The services with stores, as environment variables name them.
const SERVICES: [&str; 4] = ["GATEWAY", "TOOL_RUNNER", "AUDIT", "MEMORY"];

fn environment(role: &PasswordRole, services: &[&str]) -> Vec<(String, String)> {
    let file = role.password_file().display().to_string();
    let each = services.iter().flat_map(|service| {
        [
            (format!("WARDGATE_{service}__STORE"), role.url.clone()),
            (
                format!("WARDGATE_{service}__DATABASE__PASSWORD_FILE"),
                file.clone(),
            ),
        ]
    });
    each.collect()
}

fn lent(environment: &[(String, String)]) -> Vec<(&str, &str)> {
    let each = environment.iter();
    each.map(|(name, value)| (name.as_str(), value.as_str()))
        .collect()
}

/// Calls of clients. Each call that fails is repeated once.
#[derive(Default)]
struct Calls {
    answered: AtomicU64,
    made_again: AtomicU64,
    failed: Mutex<Vec<String>>,
    are_over: AtomicBool,
}

impl Calls {
    /// Makes calls until `are_over` is set, and returns the IDs of the successful calls.
    async fn run(&self, client: Client, token: &str) -> Vec<String> {
        let mut answered = Vec::new();
        while !self.are_over.load(Ordering::Relaxed) {
            let mut called = call_once(&client, token).await;
            if called.is_err() {
                self.made_again.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(RETRY_AFTER).await;
                called = call_once(&client, token).await;
            }
            match called {
                Ok(id) => {
                    answered.push(id);
                    self.answered.fetch_add(1, Ordering::Relaxed);
                }
                Err(refusal) => self.failed.lock().unwrap().push(refusal),
            }
        }
        answered
    }

    /// Waits until `more` further calls have succeeded.
    async fn go_on(&self, more: u64) {
        let wanted = self.answered.load(Ordering::Relaxed) + more;
        until_true("calls go on", async || {
            self.answered.load(Ordering::Relaxed) >= wanted
        })
        .await;
    }
}

/// Returns the ID of a call that returned rows, or else the response.
async fn call_once(client: &Client, token: &str) -> Result<String, String> {
    let reply = client.try_call(token, "get_medical_records", of_patient("NUGWI"));
    let reply = reply.await.unwrap();
    let answer = reply.json();
    if answer["result"]["isError"] != false {
        return Err(reply.body);
    }
    let id = &reply.call()["dev.wardgate/callId"];
    Ok(id.as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_go_on_while_the_password_of_the_stores_is_replaced_and_each_answered_one_is_on_record()
 {
    let Some(database) = Database::create().await else {
        return;
    };
    let role = PasswordRole::create(&database.url).await;
    let app = TestApp::start_with(WARDGATE, &lent(&environment(&role, &SERVICES)));
    let (calls, token) = (Calls::default(), doctor(&app));
    let callers =
        futures::future::join_all((0..CALLERS).map(|_| calls.run(app.client().clone(), &token)));
    let rotate = async {
        calls.go_on(20).await;
        for rotation in 0..ROTATIONS {
            let password = format!("password {rotation}");
            if rotation % 2 == 0 {
                role.write(&password);
                calls.go_on(20).await;
                role.alter(&password).await;
            } else {
                // In between, the server refuses the password that the services know.
                role.alter(&password).await;
                role.write(&password);
            }
            assert!(role.disconnect().await > 0);
            calls.go_on(20).await;
        }
        calls.are_over.store(true, Ordering::Relaxed);
    };
    let (answered, ()) = tokio::join!(callers, rotate);
    let answered: BTreeSet<_> = answered.into_iter().flatten().collect();
    eprintln!(
        "{} answered, {} made again",
        answered.len(),
        calls.made_again.load(Ordering::Relaxed)
    );
    let failed = calls.failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{failed:?}");

    let store = database.url.clone();
    let system = RecordElsewhere { system: app, store };
    let recorded: BTreeSet<_> = system
        .records()
        .iter()
        .filter(|record| record["event"] == "outcome" && record["status"] == "ok")
        .filter_map(|record| record["call_id"].as_str().map(str::to_owned))
        .collect();
    let lost: Vec<_> = answered.difference(&recorded).collect();
    assert!(lost.is_empty(), "{lost:?}");
    drop(system);

    // Commands connect in the same way, and their errors name the file whose password is refused. The shipped
    // configuration also has a console.
    let services = [&SERVICES[..], &["CONSOLE"]].concat();
    let environment = environment(&role, &services);
    let migrate = || {
        let arguments = ["migrate", "--config", super::postgres::SEPARATE];
        run(WARDGATE.as_ref(), &arguments, &lent(&environment))
    };
    migrate().success();
    role.write("another");
    let refused = migrate();
    let expected = format!(
        "the server refuses the password in {}",
        role.password_file().display()
    );
    assert!(refused.stderr.contains(&expected), "{}", refused.stderr);
    assert_eq!(refused.code, Some(1));
    role.remove().await;
    database.remove().await;
}
