//! `wardgate audit`: the service, and the record read, proved, exported and verified.

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures::{StreamExt, pin_mut};
use serde_json::Value;
use wardgate_audit::{RecordReader, access_view, record_line};
use wardgate_domain::mark_invisible;
use wardgate_rpc::client::{AuditFilter, DataSubjectFilter, QueriedRecord};
use wardgate_transparency::Checkpoint;

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
        (Some(AuditCommand::Checkpoint(source)), _) => {
            print(&open(&source).await?.checkpoint().await?.to_string())
        }
        (Some(AuditCommand::Key(source)), _) => print_key(&source).await,
        (Some(AuditCommand::Proof(proof)), _) => print_proof(proof).await,
        (Some(AuditCommand::Export(export)), _) => export_records(export).await,
        (Some(AuditCommand::Verify(verify)), _) => verify_records(&verify),
        (None, Some(config)) => serve::audit(&config).await,
        (None, None) => Err("name a configuration file with --config".into()),
    }
}

async fn print_records(arguments: AuditQuery) -> Result<(), Failure> {
    let mut reader = open(&arguments.source).await?;
    let with_details = arguments.details || arguments.subject.is_some();
    if with_details {
        let key = data_dir::details_key(&details_key(&arguments.source)?)?;
        reader = reader.with_details_key(key);
    }
    let data_subject = arguments.subject.map(|key| DataSubjectFilter {
        tenant: arguments.tenant,
        key,
    });
    let is_of_subject = data_subject.is_some();
    let records = reader.query(AuditFilter {
        data_subject,
        with_details,
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
        let more = if is_of_subject { "  RELEASED" } else { "" };
        writeln!(out, "{HEADING}{more}")?;
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
            (true, View::Full) => record_line(&stored)?.to_string(),
            (true, View::Access) => access_view(stored.sequence, &stored.record)?.to_string(),
            (false, _) => row(&record_line(&stored)?),
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
    let checkpoint = open(source).await?.checkpoint().await?;
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
    let sequence = match arguments.record.parse() {
        Ok(sequence) => sequence,
        Err(_) => last_of_call(&reader, arguments.record).await?,
    };
    print(&reader.prove(sequence).await?.to_string())
}

/// A reader that has seen enough (`| head`) closes the pipe; that is no failure.
fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

async fn last_of_call(reader: &RecordReader, call_id: String) -> Result<u64, Failure> {
    let records = reader.query(AuditFilter {
        call_id: Some(call_id.clone()),
        newest_first: true,
        ..AuditFilter::default()
    })?;
    pin_mut!(records);
    while let Some(found) = records.next().await {
        match found? {
            QueriedRecord::Intact(stored) => return Ok(stored.sequence),
            QueriedRecord::Damaged(damage) => eprintln!("{damage}"),
        }
    }
    Err(format!("there is no record of the call {call_id}").into())
}

async fn export_records(arguments: AuditExport) -> Result<(), Failure> {
    let reader = open(&arguments.source).await?;
    let mut progress = Progress::new("written");
    let exported = reader.export(&arguments.out, |done, of| progress.tell(done, of));
    let Checkpoint { origin, head } = exported.await?;
    let (size, directory) = (head.size, arguments.out.display());
    println!("{size} records of {origin} are in {directory}");
    Ok(())
}

fn verify_records(arguments: &AuditVerify) -> Result<(), Failure> {
    let mut progress = Progress::new("verified");
    let (path, since) = (&arguments.path, arguments.since.as_deref());
    let verified = wardgate_audit::verify(path, &arguments.key, since, |done, of| {
        progress.tell(done, of);
    });
    let Checkpoint { origin, head } = verified?;
    let (size, path) = (head.size, path.display());
    println!("{path} is as {origin} signed it, at {size} records");
    Ok(())
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

/// The key file of the details of calls, of a data directory or of a configured system.
fn details_key(source: &RecordSource) -> Result<PathBuf, Failure> {
    match &source.config {
        None => Ok(DataDir::existing(&source.data_dir)?.details_key()),
        Some(file) => {
            let settings = Settings::load(file)?;
            let (_, wiring): (wardgate_audit::Config, ServiceWiring) = settings.service("audit")?;
            let key = wiring.details_key_file;
            Ok(key.ok_or("audit.details_key_file is missing")?)
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
    let line = format!(
        "{:>8}  {:<27}  {:<17}  {:<16}  {:<28}  {:>5}  {}",
        text("sequence"),
        text("timestamp"),
        text(status),
        text("user"),
        what,
        text(rows),
        text("ip_address"),
    );
    match released(record) {
        Some(released) => format!("{line}  {released}"),
        None => line,
    }
}

/// The columns that a call released, with the tier of those that were not released in clear; none where the details of the
/// call were not asked for.
fn released(record: &Value) -> Option<String> {
    let details = record.get("details")?;
    let Some(columns) = details["columns"].as_array() else {
        return Some("(erased)".to_owned());
    };
    let columns = columns.iter().filter_map(|column| {
        let name = column["name"].as_str()?;
        Some(match column["tier"].as_str()? {
            "clear" => name.to_owned(),
            tier => format!("{name} ({tier})"),
        })
    });
    let columns: Vec<_> = columns.collect();
    Some(mark_invisible(&columns.join(", ")).into_owned())
}
