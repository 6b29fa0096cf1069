//! What the transparency log adds to each record: processor time of leaf hash, tree, checkpoint and their commits.
//!
//! `make bench-tree` runs `tree_cost STORE…` with new stores. It appends bursts of as many records as a load has in one gathering
//! interval of the publisher, and then a record every ten milliseconds, because the growth of the tree shares the transaction of a
//! record. It measures the processor time of this process while the tree grows and a checkpoint covers the burst, and then the time
//! of as many single records without a growth. The cost is the difference, and the leaf hash, which is measured alone. The server of
//! a database is not counted. It exits with 1 if a record costs too much at one of the loads.

use std::future::ready;
use std::time::Duration;

use aws_lc_rs::signature::Ed25519KeyPair;
use futures::{StreamExt, TryStreamExt, stream};
use nix::sys::resource::{UsageWho, getrusage};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use wardgate_audit::{
    AuditKeys, CallingProcesses, CheckpointKind, Config, DetailsKey, LogKey, MacKey, RecordReader,
};
use wardgate_domain::{Ambient, Event, Record, RefusalCount, Refusals};
use wardgate_rpc::client::AuditClient;
use wardgate_rpc::{Peer, link};
use wardgate_store::DatabaseSettings;
use wardgate_telemetry::as_float;
use wardgate_transparency::{Checkpoint, leaf_hash};

type Failure = Box<dyn std::error::Error>;

/// Records a second.
const LOADS: [u64; 3] = [500, 2_000, 8_000];

/// Maximum cost of a record, in microseconds.
const MOST: f64 = 2.0;

/// Number of bursts at each load.
const BURSTS: usize = 60;

/// Appends that are under way at a time.
const IN_FLIGHT: usize = 256;

/// Milliseconds during which the publisher gathers records on a fast store. The tree grows this long after the first record of a
/// burst.
const GATHER: u64 = 800;

/// Time from the start of a burst until single records follow. The tree grows in the second [`WINDOW`].
const BEFORE: Duration = Duration::from_millis(GATHER - 70);

/// Length of a measurement. The cost of its single records varies, so it is only as long as is necessary to contain the growth.
const WINDOW: Duration = Duration::from_millis(60);

/// Number of measurements without a growth, whose mean is compared with the one with a growth.
const STILL: u32 = 4;

/// Interval between single records.
const PAUSE: Duration = Duration::from_millis(10);

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
            // The SQLite file is written back now and then, in one measurement of several, which a mean would include.
            let quartiles = [1, 2, 3].map(|quarter| leaf + costs[BURSTS * quarter / 4]);
            let [lower, median, upper] = quartiles;
            println!("{load:>6} records/s: {median:.2} µs a record ({lower:.2} to {upper:.2})");
            if median > MOST {
                costly.push(format!("{name} at {load} records/s"));
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
fn processor_time(who: UsageWho) -> Result<Duration, Failure> {
    let usage = getrusage(who)?;
    let time = usage.user_time() + usage.system_time();
    let (seconds, micros) = (time.tv_sec().try_into()?, time.tv_usec().try_into()?);
    Ok(Duration::from_secs(seconds) + Duration::from_micros(micros))
}

/// Microseconds for one record.
fn leaf_hash_cost() -> Result<f64, Failure> {
    const TIMES: u64 = 200_000;
    let record = vec![b'r'; RECORD];
    let before = processor_time(UsageWho::RUSAGE_THREAD)?;
    for _ in 0..TIMES {
        std::hint::black_box(leaf_hash(std::hint::black_box(&record)));
    }
    let spent = processor_time(UsageWho::RUSAGE_THREAD)?.saturating_sub(before);
    Ok(spent.as_secs_f64() * 1e6 / as_float(TIMES))
}

/// Returns the costs per record of each burst at each load, in ascending order, without the leaf hash.
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
    let mut slow = 0;
    for (costs, load) in costs.iter_mut().zip(LOADS) {
        while costs.len() < BURSTS {
            match log.growth_cost(load * GATHER / 1_000).await? {
                Some(cost) => costs.push(cost),
                None if slow < BURSTS => slow += 1,
                None => return Err("the disk is too slow or too busy to measure".into()),
            }
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
    /// Returns the processor time, in microseconds per record, by which the growth of the tree by a burst of `records` records
    /// exceeds that of the single records that are appended meanwhile. Returns `None` if the disk was so slow that the tree did
    /// not grow within the first measurement, and only there.
    async fn growth_cost(&self, records: u64) -> Result<Option<f64>, Failure> {
        let size = self.checkpoint_size().await?;
        let started = Instant::now();
        let record = record(&self.ambient);
        stream::iter(0..records)
            .map(|_| self.audit.append(&record, false))
            .buffer_unordered(IN_FLIGHT)
            .try_for_each(|_| ready(Ok(())))
            .await?;
        sleep_until(started + BEFORE).await;
        // The first records after a pause cost more, because threads and caches are cold.
        self.worked_beside_records().await?;
        let before = self.checkpoint_size().await?;
        let growing = self.worked_beside_records().await?;
        let covered = self.checkpoint_size().await?;
        let mut still = Duration::ZERO;
        for _ in 0..STILL {
            still += self.worked_beside_records().await? / STILL;
        }
        let after = self.checkpoint_size().await?;
        // All records are covered by a checkpoint before the next burst begins.
        let last = self.audit.append(&record, false).await?;
        while self.checkpoint_size().await? <= last.sequence() {
            sleep_until(Instant::now() + PAUSE).await;
        }
        let is_measured = before == size && covered >= size + records && after == covered;
        let spent = growing.as_secs_f64() - still.as_secs_f64();
        Ok(is_measured.then(|| spent * 1e6 / as_float(covered - size)))
    }

    /// Appends single records for [`WINDOW`], and returns the processor time that this process used meanwhile.
    async fn worked_beside_records(&self) -> Result<Duration, Failure> {
        let before = processor_time(UsageWho::RUSAGE_SELF)?;
        let mut ticks = interval(PAUSE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let end = Instant::now() + WINDOW;
        for _ in 0..WINDOW.as_millis() / PAUSE.as_millis() {
            ticks.tick().await;
            self.audit.append(&record(&self.ambient), false).await?;
        }
        sleep_until(end).await;
        Ok(processor_time(UsageWho::RUSAGE_SELF)?.saturating_sub(before))
    }

    /// Returns the number of records that the newest signed checkpoint covers.
    async fn checkpoint_size(&self) -> Result<u64, Failure> {
        let note = self.reader.checkpoint(CheckpointKind::Signed).await?;
        Ok(note.text().parse::<Checkpoint>()?.head.size)
    }
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
