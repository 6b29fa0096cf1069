//! What the transparency log adds to each record: processor time of leaf hash, tree, checkpoint and their commits.
//!
//! `make bench-tree` runs `tree_cost STORE…`. The stores are new ones. What an append costs besides is left out: another process (`tree_cost fill STORE`) puts the records of
//! each half second into the store, all but one, whose append lets the service grow its tree as it does under such a load. What is
//! counted is the time of this process, less that of a service to which nothing happens, and less that one append, which is what
//! further appends take beside it; the server of a database is not counted.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use aws_lc_rs::signature::Ed25519KeyPair;
use nix::sys::resource::{UsageWho, getrusage};
use sqlx::{Connection, PgConnection, SqliteConnection};
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
const STEPS: u64 = 20;

/// Appends by which the time of one is measured.
const FURTHER_APPENDS: u64 = 20;

/// How many times a second a checkpoint is signed under load.
const STEPS_PER_SECOND: u64 = 2;

/// What it takes until a checkpoint is signed, and stored on a slow disk.
const STEP: Duration = Duration::from_millis(800);

/// Bytes of the sealed details of a call.
const DETAILS: usize = 800;

/// Bytes of the outcome of a call.
const RECORD: usize = 700;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [command, store] = &arguments[..]
        && command == "fill"
    {
        return fill(store).await;
    }
    let leaf = leaf_hash_cost()?;
    println!("leaf hash of {RECORD} bytes: {leaf:.2} µs");
    for store in &arguments {
        println!("{}", store.split(':').next().unwrap_or_default());
        for (load, grown) in LOADS.into_iter().zip(growth_costs(store).await?) {
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
    let mut filler = Filler::start(store)?;

    let before = worked(UsageWho::RUSAGE_SELF)?;
    sleep(STEP * u32::try_from(STEPS)?).await;
    let idle = worked(UsageWho::RUSAGE_SELF)?.saturating_sub(before);
    let mut bursts = [Duration::ZERO; 2];
    for (burst, appends) in bursts.iter_mut().zip([1, 1 + FURTHER_APPENDS]) {
        let before = worked(UsageWho::RUSAGE_SELF)?;
        for _ in 0..STEPS {
            for _ in 0..appends {
                audit.append(&record(&ambient), false).await?;
            }
            sleep(STEP).await;
        }
        *burst = worked(UsageWho::RUSAGE_SELF)?.saturating_sub(before);
    }
    let appends = (bursts[1].saturating_sub(bursts[0])) / u32::try_from(FURTHER_APPENDS)?;
    println!(
        "step of one record: {:.0} µs; append: {:.0} µs",
        micros_each(bursts[0].saturating_sub(idle + appends), STEPS),
        micros_each(appends, STEPS)
    );
    let (mut costs, mut stored) = (Vec::new(), STEPS * (2 + FURTHER_APPENDS));
    for load in LOADS {
        let records = load / STEPS_PER_SECOND;
        let before = worked(UsageWho::RUSAGE_SELF)?;
        for _ in 0..STEPS {
            filler.fill(records - 1)?;
            audit.append(&record(&ambient), false).await?;
            sleep(STEP).await;
        }
        let spent = worked(UsageWho::RUSAGE_SELF)?.saturating_sub(before);
        let of_tree = spent.saturating_sub(idle + appends);
        costs.push(micros_each(of_tree, records * STEPS));
        stored += records * STEPS;
        let reader = RecordReader::open(store, &DatabaseSettings::default()).await?;
        let note = reader.checkpoint(CheckpointKind::Signed).await?;
        let covered = note.text().parse::<Checkpoint>()?.head.size;
        if covered != stored {
            return Err(format!("{stored} records, and a checkpoint of {covered}").into());
        }
    }
    closer.close().await;
    Ok(costs)
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

/// The process that puts records into the store.
struct Filler {
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Filler {
    fn start(store: &str) -> Result<Self, Failure> {
        let child = Command::new(std::env::current_exe()?)
            .args(["fill", store])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        Ok(Self {
            orders: child.stdin.ok_or("no pipe")?,
            answers: BufReader::new(child.stdout.ok_or("no pipe")?),
        })
    }

    /// Waits until so many records more are stored.
    fn fill(&mut self, records: u64) -> Result<(), Failure> {
        writeln!(self.orders, "{records}")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        if answer.trim() != "done" {
            return Err("the records were not stored".into());
        }
        Ok(())
    }
}

/// Stores as many records as each line of the standard input says.
async fn fill(store: &str) -> Result<(), Failure> {
    let (leaf, record) = ([7_u8; 32], vec![b'r'; RECORD]);
    let details = vec![b'd'; DETAILS];
    for line in std::io::stdin().lock().lines() {
        let count: i64 = line?.parse()?;
        if store.starts_with("sqlite:") {
            let mut connection = SqliteConnection::connect(store).await?;
            let fill = "WITH RECURSIVE filled (value, missing) AS (
                    SELECT (SELECT coalesce(max(sequence) + 1, 0) FROM record), ?1
                    UNION ALL SELECT value + 1, missing - 1 FROM filled WHERE missing > 1)
                INSERT INTO record (sequence, leaf_hash, canonical, event, time, call_id, subject, tool, status, details)
                SELECT value, ?2, ?3, 'outcome', value, printf('019a7318-2b40-7000-8000-%012x', value), 'dr.yenji',
                       'get_medical_records', 'ok', ?4
                FROM filled";
            let query = sqlx::query(fill)
                .bind(count)
                .bind(leaf.to_vec())
                .bind(record.clone());
            query.bind(details.clone()).execute(&mut connection).await?;
            connection.close().await?;
        } else {
            let mut connection = PgConnection::connect(store).await?;
            let fill = "WITH head AS (UPDATE audit.head SET size = size + $1 RETURNING size)
                INSERT INTO audit.record (sequence, leaf_hash, canonical, event, time, call_id, subject, tool, status, details)
                SELECT value, $2, $3, 'outcome', value, '019a7318-2b40-7000-8000-' || lpad(to_hex(value), 12, '0'), 'dr.yenji',
                       'get_medical_records', 'ok', $4
                FROM head, generate_series(head.size - $1, head.size - 1) AS value";
            let query = sqlx::query(fill)
                .bind(count)
                .bind(leaf.to_vec())
                .bind(record.clone());
            query.bind(details.clone()).execute(&mut connection).await?;
            connection.close().await?;
        }
        println!("done");
    }
    Ok(())
}
