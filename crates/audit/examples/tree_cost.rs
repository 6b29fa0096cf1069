//! What the transparency log adds to each record: processor time of leaf hash, tree, checkpoint and their commits.
//!
//! `make bench-tree` runs `tree_cost STORE…` with new stores. It appends bursts of as many records as a load has in half a second.
//! After each burst, it measures the processor time of this process until a checkpoint covers the burst, and then the time of
//! as long a pause. The cost is the difference, and the leaf hash, which is measured alone. The server of a database is not
//! counted. It exits with 1 if a record costs too much at the highest load, at which many records share a checkpoint.

use std::future::ready;
use std::time::Duration;

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

/// Maximum cost of a record at the highest load, in microseconds.
const MOST: f64 = 2.0;

/// Number of bursts of a measurement.
const BURSTS: u64 = 5;

/// Appends that are under way at a time.
const IN_FLIGHT: usize = 256;

/// Number of measurements of each load.
const ROUNDS: usize = 5;

/// How many times a second a checkpoint is signed under load.
const STEPS_PER_SECOND: u64 = 2;

/// Time within which a checkpoint covers a burst, on a slow disk.
const STEP: Duration = Duration::from_millis(800);

/// Bytes of the outcome of a call.
const RECORD: usize = 700;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let leaf = leaf_hash_cost()?;
    println!("leaf hash of {RECORD} bytes: {leaf:.2} µs");
    let mut costly = Vec::new();
    for store in std::env::args().skip(1) {
        let name = store.split(':').next().unwrap_or_default();
        println!("{name}");
        for (load, costs) in LOADS.into_iter().zip(growth_costs(&store).await?) {
            let [least, median, most] = [0, ROUNDS / 2, ROUNDS - 1].map(|at| leaf + costs[at]);
            println!("{load:>6} records/s: {median:.2} µs a record ({least:.2} to {most:.2})");
            if Some(&load) == LOADS.last() && median > MOST {
                costly.push(name.to_owned());
            }
        }
    }
    if !costly.is_empty() {
        let stores = costly.join(", ");
        return Err(format!("the log adds more than {MOST} µs to a record: {stores}").into());
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

/// Returns the costs per record at each load, in ascending order of the rounds, without the leaf hash.
async fn growth_costs(store: &str) -> Result<[Vec<f64>; LOADS.len()], Failure> {
    let ambient = Ambient::system();
    let key = Ed25519KeyPair::from_seed_unchecked(&[1; 32])?.to_pkcs8()?;
    let keys = AuditKeys {
        details: DetailsKey::from_bytes(&[9; 32]).into(),
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
    let log = MeasuredLog {
        audit: AuditClient::new(link, Duration::from_secs(1)),
        reader: RecordReader::open(store, &DatabaseSettings::default()).await?,
        ambient,
    };
    let mut costs = LOADS.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for (costs, load) in costs.iter_mut().zip(LOADS) {
            costs.push(log.growth_cost(load / STEPS_PER_SECOND).await?);
        }
    }
    closer.close().await;
    for costs in &mut costs {
        costs.sort_by(f64::total_cmp);
    }
    Ok(costs)
}

/// A service with its log.
struct MeasuredLog {
    audit: AuditClient,
    reader: RecordReader,
    ambient: Ambient,
}

impl MeasuredLog {
    /// Returns the processor time, in microseconds per record, that the process uses while its tree grows by bursts of `records`
    /// records, less the time that it uses while nothing happens.
    async fn growth_cost(&self, records: u64) -> Result<f64, Failure> {
        let (mut growing, mut idle) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..BURSTS {
            let size = self.covered().await?;
            let record = record(&self.ambient);
            stream::iter(0..records)
                .map(|_| self.audit.append(&record, false))
                .buffer_unordered(IN_FLIGHT)
                .try_for_each(|_| ready(Ok(())))
                .await?;
            if self.covered().await? != size {
                return Err("a burst took longer than the interval of checkpoints".into());
            }
            growing += worked_during(STEP).await?;
            if self.covered().await? != size + records {
                return Err(format!("no checkpoint within {STEP:?}").into());
            }
            idle += worked_during(STEP).await?;
        }
        let spent = growing.saturating_sub(idle);
        Ok(micros_each(spent, records * BURSTS))
    }

    /// Returns the number of records that the newest signed checkpoint covers.
    async fn covered(&self) -> Result<u64, Failure> {
        let note = self.reader.checkpoint(CheckpointKind::Signed).await?;
        Ok(note.text().parse::<Checkpoint>()?.head.size)
    }
}

/// Waits for `time`, and returns the processor time that this process used meanwhile.
async fn worked_during(time: Duration) -> Result<Duration, Failure> {
    let before = worked(UsageWho::RUSAGE_SELF)?;
    sleep(time).await;
    Ok(worked(UsageWho::RUSAGE_SELF)?.saturating_sub(before))
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
