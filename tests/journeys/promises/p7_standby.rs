//! Tests of P7 with several machines: the PostgreSQL primary with the record is killed, and its synchronous standby is
//! promoted.

use std::path::Path;
use std::time::{Duration, Instant};

use wardgate_testkit::{SeparateProcesses, System, run};

use super::super::extra_tools::{Counter, LOOK_OFTEN};
use super::super::people::doctor;
use super::super::standby::ReplicatedDatabase;
use super::p7_kill::{
    ABANDONED_SOON, CallingClients, moment, reconcile, report, rounds, wait_for_outcomes,
};
use crate::{REPOSITORY, WARDGATE};

/// Number of times that the primary is killed, unless the environment variable sets another one. Each server is a
/// standby once and is promoted.
const PRIMARY_KILLS: (&str, u64) = ("PRIMARY_KILLS", 2);

/// An outage longer than the timeout of a write, so that the audit service reconnects in between.
const AWAY: Duration = Duration::from_secs(6);

async fn start(database: &ReplicatedDatabase) -> (SeparateProcesses, Counter) {
    let url = database.address.url.as_str();
    let environment = [
        ("WARDGATE_AUDIT__STORE", url),
        ("WARDGATE_GATEWAY__STORE", url),
        ("WARDGATE_TOOL_RUNNER__STORE", url),
        ("WARDGATE_MEMORY__STORE", url),
        LOOK_OFTEN,
        ABANDONED_SOON,
    ];
    let system = SeparateProcesses::start_with(WARDGATE, REPOSITORY.as_ref(), &environment).await;
    let counter = Counter::add_to(&system).await;
    (system, counter)
}

/// Checks that the log extends each of these checkpoints.
fn goes_on_from(system: &impl System, checkpoints: &Path) {
    let out = checkpoints.join("exported");
    let words = ["export", "--offline", "--out", out.to_str().unwrap()];
    system.audit(&words).success();
    let key = system.audit(&["key"]).success();
    for entry in std::fs::read_dir(checkpoints).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let (out, since) = (out.to_str().unwrap(), path.to_str().unwrap());
            let words = [
                "audit",
                "verify",
                out,
                "--key",
                key.trim(),
                "--since",
                since,
            ];
            run(system.binary(), &words, &[]).success();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p7_a_postgresql_primary_may_be_killed_where_a_synchronous_standby_is_promoted() {
    let Some(mut database) = ReplicatedDatabase::start().await else {
        return;
    };
    let (system, mut counter) = start(&database).await;
    let load = CallingClients::start(&system, &doctor(&system), "primary");
    let kept = tempfile::tempdir().unwrap();
    let rounds = rounds(PRIMARY_KILLS);
    let (mut promoted_in, mut served_in) = (Duration::ZERO, Duration::ZERO);
    for round in 0..rounds {
        load.goes_on(load.acknowledged_count()).await;
        // A checkpoint that a witness may have seen must not be undone.
        let checkpoint = system.audit(&["checkpoint", "--offline"]).success();
        std::fs::write(kept.path().join(round.to_string()), checkpoint).unwrap();
        load.goes_on(load.acknowledged_count()).await;
        tokio::time::sleep(moment(round)).await;
        let began = Instant::now();
        tokio::task::block_in_place(|| {
            database.kill_primary();
            database.promote_standby();
        });
        promoted_in = promoted_in.max(began.elapsed());
        let promoted = Instant::now();
        load.goes_on(load.acknowledged_count()).await;
        served_in = served_in.max(promoted.elapsed());
        database.add_standby().await;
    }
    load.goes_on(load.acknowledged_count()).await;
    let ledger = load.stop().await;
    wait_for_outcomes(&system).await;
    reconcile(&system, &ledger, &mut counter).await;
    goes_on_from(&system, kept.path());
    report("PostgreSQL with a standby", rounds, &ledger);
    eprintln!("promoted within {promoted_in:?}, calls worked {served_in:?} later at most");
}

#[tokio::test(flavor = "multi_thread")]
async fn p7_what_is_acknowledged_while_the_standby_is_away_is_not_lost_with_the_primary() {
    let Some(mut database) = ReplicatedDatabase::start().await else {
        return;
    };
    let (system, mut counter) = start(&database).await;
    let load = CallingClients::start(&system, &doctor(&system), "standby");
    load.goes_on(0).await;
    tokio::task::block_in_place(|| database.kill_standby());
    // No commit completes, and therefore no call.
    tokio::time::sleep(AWAY).await;
    tokio::task::block_in_place(|| {
        database.kill_primary();
        database.restart_standby();
        database.promote_standby();
    });
    load.goes_on(load.acknowledged_count()).await;
    let ledger = load.stop().await;
    wait_for_outcomes(&system).await;
    reconcile(&system, &ledger, &mut counter).await;
}
