//! `wardgate audit`: the service, and the record read, proved, exported, verified and witnessed.

mod witness;

use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use futures::{StreamExt, pin_mut};
use serde_json::Value;
use wardgate_audit::{
    CallReceipt, CheckpointKind, RecordReader, Verifier, access_view, record_line,
};
use wardgate_domain::{Digest, mark_invisible};
use wardgate_rpc::client::{AuditFilter, QueriedRecord};
use wardgate_transparency::{Checkpoint, TrustPolicy, VerifierKey};

use crate::Failure;
use crate::cli::{
    AuditArgs, AuditCommand, AuditExport, AuditProof, AuditQuery, AuditVerify, RecordSource, View,
};
use crate::commands::serve;
use crate::commands::terminal::cell;
use crate::config::{ServiceWiring, Settings};
use crate::data_dir::{self, DataDir};

pub(crate) async fn run(arguments: AuditArgs) -> Result<(), Failure> {
    match (arguments.command, arguments.config) {
        (Some(AuditCommand::Query(query)), _) => print_records(query).await,
        (Some(AuditCommand::Checkpoint(arguments)), _) => {
            let reader = open(&arguments.source).await?;
            let checkpoint = reader.checkpoint(kind(arguments.cosigned)).await?;
            print(&checkpoint.to_string())
        }
        (Some(AuditCommand::Key(source)), _) => print_key(&source).await,
        (Some(AuditCommand::Proof(proof)), _) => print_proof(proof).await,
        (Some(AuditCommand::Export(export)), _) => export_records(export).await,
        (Some(AuditCommand::Verify(verify)), _) => verify_records(verify),
        (Some(AuditCommand::Witness(arguments)), _) => witness::run(arguments).await,
        (None, Some(config)) => serve::audit(&config).await,
        (None, None) => Err("name a configuration file with --config".into()),
    }
}

async fn print_records(arguments: AuditQuery) -> Result<(), Failure> {
    let reader = open(&arguments.source).await?;
    let records = reader.query(AuditFilter {
        subject: arguments.user,
        tool: arguments.tool,
        call_id: arguments.call_id,
        status: arguments.status,
        since: arguments.since,
        until: arguments.until,
        limit: arguments.limit,
        newest_first: arguments.newest_first,
        ..AuditFilter::default()
    })?;
    pin_mut!(records);
    let mut out = BufWriter::new(std::io::stdout().lock());
    if !arguments.json {
        writeln!(out, "{HEADING}")?;
    }
    let mut damaged = 0;
    while let Some(found) = records.next().await {
        let stored = match found? {
            QueriedRecord::Intact(stored) => stored,
            QueriedRecord::Damaged(damage) => {
                out.flush()?;
                eprintln!("{damage}");
                damaged += 1;
                continue;
            }
        };
        let line = match (arguments.json, arguments.view) {
            (true, View::Full) => {
                record_line(stored.sequence, &stored.leaf_hash, &stored.record)?.to_string()
            }
            (true, View::Access) => access_view(stored.sequence, &stored.record)?.to_string(),
            (false, _) => row(&record_line(
                stored.sequence,
                &stored.leaf_hash,
                &stored.record,
            )?),
        };
        // A reader that has seen enough (`| head`) closes the pipe; that is no failure.
        match writeln!(out, "{line}") {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
    }
    out.flush()?;
    match damaged {
        0 => Ok(()),
        _ => Err(DAMAGED.into()),
    }
}

/// What to do about a record whose store was changed.
const DAMAGED: &str = "the record was changed from outside, as said above: keep its store as it is, and compare it with a backup";

/// Over the columns of [`row`].
const HEADING: &str = "SEQUENCE  TIME                         STATUS             USER              TOOL                           ROWS  ADDRESS";

async fn print_key(source: &RecordSource) -> Result<(), Failure> {
    let checkpoint = open(source)
        .await?
        .checkpoint(CheckpointKind::Signed)
        .await?;
    let checkpoint: Checkpoint = checkpoint.text().parse()?;
    let path = match &source.config {
        None => DataDir::existing(&source.data_dir)?.log_key(),
        Some(file) => {
            let settings = Settings::load(file)?;
            let (_, wiring): (wardgate_audit::Config, ServiceWiring) = settings.service("audit")?;
            wiring.log_key_file.ok_or("audit.log_key_file is missing")?
        }
    };
    let key = data_dir::log_key(&path)?.verifier_key(&checkpoint.origin)?;
    print(&format!("{key}\n"))
}

async fn print_proof(arguments: AuditProof) -> Result<(), Failure> {
    let reader = open(&arguments.source).await?;
    let sequence = match (arguments.receipt, arguments.record) {
        (Some(file), _) => {
            let receipt = CallReceipt::find(&std::fs::read_to_string(file)?)?;
            let hash = Digest::from_bytes(receipt.leaf_hash);
            find_of_call(&reader, receipt.call_id, Some(hash)).await?
        }
        (None, Some(record)) => match record.parse() {
            Ok(sequence) => sequence,
            Err(_) => find_of_call(&reader, record, None).await?,
        },
        (None, None) => return Err("name a record, or a receipt with --receipt".into()),
    };
    let proof = reader.prove(sequence, kind(arguments.cosigned)).await?;
    print(&proof.to_string())
}

fn kind(cosigned: bool) -> CheckpointKind {
    if cosigned {
        CheckpointKind::Cosigned
    } else {
        CheckpointKind::Signed
    }
}

/// A reader that has seen enough (`| head`) closes the pipe; that is no failure.
fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// The last record of a call; with a hash, the one that has it.
async fn find_of_call(
    reader: &RecordReader,
    call_id: String,
    leaf_hash: Option<Digest>,
) -> Result<u64, Failure> {
    let records = reader.query(AuditFilter {
        call_id: Some(call_id.clone()),
        newest_first: true,
        ..AuditFilter::default()
    })?;
    pin_mut!(records);
    while let Some(found) = records.next().await {
        match found? {
            QueriedRecord::Intact(stored) => {
                if leaf_hash.is_none_or(|wanted| wanted == stored.leaf_hash) {
                    return Ok(stored.sequence);
                }
            }
            QueriedRecord::Damaged(damage) => eprintln!("{damage}"),
        }
    }
    let named = leaf_hash.map_or("", |_| " that its receipt names");
    Err(format!("there is no record of the call {call_id}{named}").into())
}

async fn export_records(arguments: AuditExport) -> Result<(), Failure> {
    let reader = open(&arguments.source).await?;
    let mut progress = Progress::new("written");
    let exported = reader.export(&arguments.out, kind(arguments.cosigned), |done, of| {
        progress.tell(done, of);
    });
    let Checkpoint { origin, head } = exported.await?;
    let (size, directory) = (head.size, arguments.out.display());
    println!("{size} records of {origin} are in {directory}");
    Ok(())
}

fn verify_records(arguments: AuditVerify) -> Result<(), Failure> {
    let verifier = Verifier {
        policy: trusted(arguments.policy.as_deref(), arguments.key)?,
        since: arguments.since,
        receipt: arguments.receipt,
    };
    let mut progress = Progress::new("verified");
    let verified = verifier.verify(&arguments.path, |done, of| progress.tell(done, of));
    let Checkpoint { origin, head } = verified?;
    let (size, path) = (head.size, arguments.path.display());
    println!("{path} is as {origin} signed it, at {size} records");
    Ok(())
}

/// Whom a reader trusts who named a policy, a key or both.
fn trusted(policy: Option<&Path>, key: Option<VerifierKey>) -> Result<TrustPolicy, Failure> {
    let Some(path) = policy else {
        let key = key.ok_or("name the key of the log with --key")?;
        return Ok(TrustPolicy::of_log(key));
    };
    let at = |error: &dyn std::error::Error| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| at(&error))?;
    let policy: TrustPolicy = text
        .parse()
        .map_err(|error: wardgate_transparency::Error| at(&error))?;
    match key {
        Some(key) => Ok(policy.for_log(key)?),
        None if policy.logs().is_empty() => {
            Err("the policy names no log: name its key with --key".into())
        }
        None => Ok(policy),
    }
}

/// Tells a person how far long work has come, once a second.
struct Progress {
    verb: &'static str,
    told: Instant,
}

impl Progress {
    fn new(verb: &'static str) -> Self {
        let told = Instant::now();
        Self { verb, told }
    }

    fn tell(&mut self, done: u64, of: u64) {
        if self.told.elapsed() >= Duration::from_secs(1) {
            self.told = Instant::now();
            eprintln!("{done} of {of} records {}", self.verb);
        }
    }
}

async fn open(source: &RecordSource) -> Result<RecordReader, Failure> {
    Ok(RecordReader::open(&store(source)?).await?)
}

/// The store of a data directory, or of a configured system.
fn store(source: &RecordSource) -> Result<String, Failure> {
    match &source.config {
        None => Ok(DataDir::existing(&source.data_dir)?.record()),
        Some(file) => {
            let config: wardgate_audit::Config = Settings::load(file)?.unwired("audit", |_| {})?;
            Ok(config.store)
        }
    }
}

/// One line of the table; of the memory its method, and messages for rows. What a client typed is shown as a quoted string where it is not plain.
fn row(record: &Value) -> String {
    let text = |key: &str| match &record[key] {
        Value::String(text) => cell(text).into_owned(),
        Value::Null => "-".to_owned(),
        other => mark_invisible(&other.to_string()).into_owned(),
    };
    let of_outcome = || match record["action"].as_str() {
        // Another method than a tool's call.
        Some(method) if method.contains('/') => format!("{} {}", text("record_id"), cell(method)),
        _ => text("record_id"),
    };
    let (status, what, rows) = match record["event"].as_str() {
        Some("outcome") => ("status", of_outcome(), "rows"),
        Some("memory_access") => ("status", text("method"), "messages"),
        _ => ("event", text("record_id"), "rows"),
    };
    format!(
        "{:>8}  {:<27}  {:<17}  {:<16}  {:<28}  {:>5}  {}",
        text("sequence"),
        text("timestamp"),
        text(status),
        text("user"),
        what,
        text(rows),
        text("ip_address"),
    )
}
