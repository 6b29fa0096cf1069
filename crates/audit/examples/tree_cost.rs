//! What the transparency log adds to each record: processor time of leaf hash, tree, checkpoint and their commits.
//!
//! `make bench-tree` runs `tree_cost STORE…`. The stores are new ones. Bursts of as many records as a load has in half a second are
//! appended, each followed by the time in which the tree grows by them; then the service's background work is ended, and the
//! same bursts are appended without a tree. What is counted is the time of this process with a tree less that without, as the
//! median of some rounds; the server of a database is not counted.

use std::future::ready;
use std::time::{Duration, Instant};

use aws_lc_rs::signature::Ed25519KeyPair;
use futures::{StreamExt, TryStreamExt, stream};
use nix::sys::resource::{UsageWho, getrusage};
use tokio::time::sleep;
use wardgate_audit::{
    AuditKeys, CallingProcesses, CheckpointKind, Config, DetailsKey, LogKey, MacKey, RecordReader,
};
use wardgate_domain::{Ambient, Event, Record, RefusalCount, Refusals};
use wardgate_rpc::client::AuditClient;
use wardgate_rpc::{Peer, link};
use wardgate_store::DatabaseSettings;
use wardgate_transparency::{Checkpoint, leaf_hash};

type Failure = Box<dyn std::error::Error>;

/// Records a second.
const LOADS: [u64; 3] = [500, 2_000, 8_000];

/// How often the tree grows at each load.
const BURSTS: u64 = 10;

/// Appends that are under way at a time.
const IN_FLIGHT: usize = 256;

/// How often all is measured.
const ROUNDS: usize = 5;

/// How many times a second a checkpoint is signed under load.
const STEPS_PER_SECOND: u64 = 2;

/// What it takes until a checkpoint is signed, and stored on a slow disk.
const STEP: Duration = Duration::from_millis(800);

/// Records of one burst at each load.
const RECORDS_OF_BURSTS: u64 =
    records_of_burst(LOADS[0]) + records_of_burst(LOADS[1]) + records_of_burst(LOADS[2]);

/// How long the tree may take to grow by what was appended without it.
const CATCH_UP: Duration = Duration::from_secs(30);

/// Bytes of the outcome of a call.
const RECORD: usize = 700;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let leaf = leaf_hash_cost()?;
    println!("leaf hash of {RECORD} bytes: {leaf:.2} µs");
    for store in std::env::args().skip(1) {
        println!("{}", store.split(':').next().unwrap_or_default());
        for (load, grown) in LOADS.into_iter().zip(growth_costs(&store).await?) {
            let cost = leaf + grown;
            println!("{load:>6} records/s: {cost:.2} µs a record");
        }
    }
    Ok(())
}

/// Processor time so far.
fn worked(who: UsageWho) -> Result<Duration, Failure> {
    let usage = getrusage(who)?;
    let time = usage.user_time() + usage.system_time();
    let (seconds, micros) = (time.tv_sec().try_into()?, time.tv_usec().try_into()?);
    Ok(Duration::from_secs(seconds) + Duration::from_micros(micros))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a float is exact for so few records"
)]
fn micros_each(time: Duration, records: u64) -> f64 {
    time.as_secs_f64() * 1e6 / records as f64
}

/// Microseconds for one record.
fn leaf_hash_cost() -> Result<f64, Failure> {
    const TIMES: u64 = 200_000;
    let record = vec![b'r'; RECORD];
    let before = worked(UsageWho::RUSAGE_THREAD)?;
    for _ in 0..TIMES {
        std::hint::black_box(leaf_hash(std::hint::black_box(&record)));
    }
    let spent = worked(UsageWho::RUSAGE_THREAD)?.saturating_sub(before);
    Ok(micros_each(spent, TIMES))
}

/// Microseconds for one record at each load, without its leaf hash.
async fn growth_costs(store: &str) -> Result<Vec<f64>, Failure> {
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let stored = 2 * BURSTS * RECORDS_OF_BURSTS * round as u64;
        rounds.push(growth_costs_of_round(store, stored).await?);
    }
    let costs = (0..LOADS.len()).map(|load| {
        let mut costs: Vec<_> = rounds.iter().map(|round| round[load]).collect();
        costs.sort_by(f64::total_cmp);
        costs[ROUNDS / 2]
    });
    Ok(costs.collect())
}

/// Measures one round, before which the store has `stored` records.
async fn growth_costs_of_round(store: &str, stored: u64) -> Result<[f64; LOADS.len()], Failure> {
    let ambient = Ambient::system();
    let key = Ed25519KeyPair::from_seed_unchecked(&[1; 32])?.to_pkcs8()?;
    let keys = AuditKeys {
        details: DetailsKey::from_bytes(&[9; 32]),
        mac: MacKey::from_bytes(&[7; 32]),
        log: LogKey::from_pkcs8(key.as_ref())?,
    };
    let service = wardgate_audit::service(
        Config::for_store(store),
        keys,
        CallingProcesses::ThisProcess,
        None,
        ambient.clone(),
    );
    let (service, closer) = Box::pin(service).await?;
    let link = link::local(service, Peer::Gateway).link;
    let audit = AuditClient::new(link, Duration::from_secs(1));
    let reader = RecordReader::open(store, &DatabaseSettings::default()).await?;
    await_coverage(&reader, stored).await?;
    let with_tree = burst_costs(&audit, &ambient).await?;
    await_coverage(&reader, stored + BURSTS * RECORDS_OF_BURSTS).await?;
    closer.close().await;
    let without = burst_costs(&audit, &ambient).await?;
    let mut costs = [0.0; LOADS.len()];
    for (cost, (with, without)) in costs.iter_mut().zip(with_tree.into_iter().zip(without)) {
        *cost = with - without;
    }
    Ok(costs)
}

/// Waits until a signed checkpoint covers `size` records: those that were appended without a tree are in it after the next start.
async fn await_coverage(reader: &RecordReader, size: u64) -> Result<(), Failure> {
    let end = Instant::now() + CATCH_UP;
    loop {
        let note = reader.checkpoint(CheckpointKind::Signed).await?;
        let covered = note.text().parse::<Checkpoint>()?.head.size;
        if covered == size {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(format!("{size} records, and a checkpoint of {covered}").into());
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Microseconds for one record at each load, all that this process does.
async fn burst_costs(
    audit: &AuditClient,
    ambient: &Ambient,
) -> Result<[f64; LOADS.len()], Failure> {
    let mut costs = [0.0; LOADS.len()];
    for (cost, load) in costs.iter_mut().zip(LOADS) {
        let records = records_of_burst(load);
        let before = worked(UsageWho::RUSAGE_SELF)?;
        for _ in 0..BURSTS {
            let record = record(ambient);
            stream::iter(0..records)
                .map(|_| audit.append(&record, false))
                .buffer_unordered(IN_FLIGHT)
                .try_for_each(|_| ready(Ok(())))
                .await?;
            sleep(STEP).await;
        }
        let spent = worked(UsageWho::RUSAGE_SELF)?.saturating_sub(before);
        *cost = micros_each(spent, records * BURSTS);
    }
    Ok(costs)
}

const fn records_of_burst(load: u64) -> u64 {
    load / STEPS_PER_SECOND
}

fn record(ambient: &Ambient) -> Record {
    let count = RefusalCount {
        reason: "token_expired".to_owned(),
        client_ip: "192.0.2.7".to_owned(),
        subject: String::new(),
        count: 1,
    };
    let refusals = Refusals {
        window_start: ambient.now(),
        counts: vec![count],
    };
    Record {
        time: ambient.now(),
        event: Event::Refusals(refusals),
    }
}
