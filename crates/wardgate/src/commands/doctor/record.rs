//! Checks of the record: it can be read, its newest part is complete and unchanged, and new events are recorded.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use futures::{TryStreamExt, pin_mut};
use wardgate_audit::{CheckpointKind, RecordReader, StoreGrowth, StoreRoom, WitnessSettings};
use wardgate_domain::Ambient;
use wardgate_rpc::client::{AuditFilter, QueriedRecord, StoredRecord};
use wardgate_transparency::Checkpoint;

use super::deployment::Deployment;
use super::edges;
use super::finding::{Finding, FindingSubject};

/// Number of the newest records that are verified unless all are requested.
const LOOKED_AT: u64 = 1_000;
/// Number of records by which a checkpoint or a copy may lag behind: those of some seconds on a busy system.
const UNCOVERED: u64 = 10_000;
/// Maximum time until a refused request is recorded. Refusals are recorded once a second.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(200);
/// Days until the store is full below which it needs attention. The alert `WardgateAuditStoreFilling` uses the same limit.
const FEW_DAYS: f64 = 14.0;

pub(super) async fn examine(deployment: &Deployment) -> Vec<Finding> {
    let Some(store) = &deployment.record else {
        return Vec::new();
    };
    let about = FindingSubject::new("record", "audit");
    let remedy = "see the result for audit.store, and the log of the audit service";
    let reader = match RecordReader::open(&store.store, &store.database).await {
        Ok(reader) => reader,
        Err(error) => return vec![about.fail(error.to_string(), remedy)],
    };
    let limit = (!deployment.whole_record).then_some(LOOKED_AT);
    let verified = verify(&reader, limit).await;
    let newest = verified.as_ref().ok().and_then(|seen| seen.newest);
    let finding = match verified {
        Ok(seen) => about.ok(seen.to_string()),
        Err(RecordProblem::Unreadable(error)) => return vec![about.fail(error, remedy)],
        Err(RecordProblem::Record(what)) => about.fail(
            what,
            "the store was modified outside the audit service, or is corrupt: preserve it unchanged, and compare it with a backup",
        ),
    };
    let mut findings = vec![finding];
    findings.push(room(&reader, &deployment.room).await);
    if let Some(directory) = &deployment.room.second_copy {
        findings.push(second_copy(&reader, directory, &store.store).await);
    }
    findings.extend(checkpoints(&reader, newest, deployment.witnesses.as_ref()).await);
    for name in &deployment.exports {
        findings.push(export(&reader, name).await);
    }
    let gateway = deployment.edges.iter().find(|edge| edge.name == "gateway");
    if let Some(edge) = gateway
        && edges::check_refusal(edge).await.is_ok()
    {
        findings.push(moves(&reader, newest).await);
    }
    findings
}

/// The records that were verified.
#[derive(Debug, Default, PartialEq, Eq)]
struct VerifiedRecords {
    newest: Option<u64>,
    records: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum RecordProblem {
    Unreadable(String),
    /// A record is missing or changed.
    Record(String),
}

impl VerifiedRecords {
    /// Counts the next older record.
    fn add(&mut self, record: &StoredRecord) {
        self.newest = self.newest.or(Some(record.sequence));
        self.records += 1;
    }
}

impl fmt::Display for VerifiedRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.newest.map(|newest| newest + 1) {
            None => f.write_str("contains no records yet"),
            Some(all) if all == self.records => write!(f, "contains {all} records, all verified"),
            Some(all) => write!(
                f,
                "contains {all} records, the newest {} verified",
                self.records
            ),
        }
    }
}

/// Verifies records from the newest to older ones, at most `limit`.
async fn verify(
    reader: &RecordReader,
    limit: Option<u64>,
) -> Result<VerifiedRecords, RecordProblem> {
    let unreadable = |error: wardgate_audit::Error| RecordProblem::Unreadable(error.to_string());
    let filter = AuditFilter {
        limit,
        newest_first: true,
        ..AuditFilter::default()
    };
    let records = reader.query(filter).map_err(unreadable)?;
    pin_mut!(records);
    let mut seen = VerifiedRecords::default();
    while let Some(found) = records.try_next().await.map_err(unreadable)? {
        match found {
            QueriedRecord::Intact(record) => seen.add(&record),
            QueriedRecord::Damaged(damage) => {
                return Err(RecordProblem::Record(damage.to_string()));
            }
        }
    }
    Ok(seen)
}

/// Checks how long the store has room for the record.
async fn room(reader: &RecordReader, room: &StoreRoom) -> Finding {
    let about = FindingSubject::new("record", "room");
    match reader.growth(room, Ambient::system().now()).await {
        Ok(growth) => room_finding(&about, &growth),
        Err(error) => about.warn(error.to_string(), "see the result for audit.store"),
    }
}

fn room_finding(about: &FindingSubject, growth: &StoreGrowth) -> Finding {
    let megabytes = |bytes: f64| bytes / 1_000_000.0;
    #[expect(
        clippy::cast_precision_loss,
        reason = "it is shown to a tenth of a megabyte"
    )]
    let size = megabytes(growth.bytes as f64);
    let pace = megabytes(growth.bytes_per_day);
    let takes = format!("uses {size:.1} MB and grows by {pace:.1} MB per day");
    match growth.days_left() {
        None => about.ok(format!(
            "{takes}; set `audit.capacity_bytes` to the space that the server provides for it"
        )),
        Some(days) if days.is_infinite() => about.ok(format!(
            "uses {size:.1} MB and did not grow in the last day"
        )),
        Some(days) if days < FEW_DAYS => {
            let remedy = "provide more space: no call runs when it is full. `wardgate audit retention` shows which records can be removed";
            about.warn(format!("{takes}: full in {days:.1} days"), remedy)
        }
        Some(days) => about.ok(format!("{takes}: full in {days:.0} days")),
    }
}

/// Checks whether the second copy has the records of the store, and is on another file system.
async fn second_copy(reader: &RecordReader, directory: &Path, store: &str) -> Finding {
    let about = FindingSubject::new("record", "second copy");
    let remedy = "see the log of the audit service; without its second copy it accepts no records";
    match reader.compare_second_copy(directory).await {
        Ok((copied, size)) if copied + UNCOVERED < size => {
            about.warn(format!("contains {copied} of {size} records"), remedy)
        }
        Ok(_) if is_on_one_disk(directory, store) => about.warn(
            "is on the same file system as the store, and would be lost with it".to_owned(),
            "set audit.second_copy_dir to a directory on another disk or machine",
        ),
        Ok((copied, size)) => about.ok(format!(
            "contains {copied} of {size} records, the newest compared with the store"
        )),
        Err(error) => about.fail(error.to_string(), remedy),
    }
}

#[cfg(unix)]
fn is_on_one_disk(directory: &Path, store: &str) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| Some(std::fs::metadata(path).ok()?.dev());
    let file = store.strip_prefix("sqlite:").map(Path::new);
    file.is_some_and(|file| device(file).is_some() && device(file) == device(directory))
}

#[cfg(not(unix))]
fn is_on_one_disk(_directory: &Path, _store: &str) -> bool {
    false
}

/// Checks how much of the record is covered by signed checkpoints, and by checkpoints that the quorum of witnesses
/// cosigned.
async fn checkpoints(
    reader: &RecordReader,
    newest: Option<u64>,
    witnesses: Option<&WitnessSettings>,
) -> Vec<Finding> {
    let about = FindingSubject::new("log", "checkpoint");
    let covers = async |kind| {
        let note = reader.checkpoint(kind).await?;
        let checkpoint: Checkpoint = note.text().parse()?;
        Ok::<_, wardgate_audit::Error>((note, checkpoint.head.size))
    };
    let records = newest.map_or(0, |newest| newest + 1);
    let (signed, mut findings) = match covers(CheckpointKind::Signed).await {
        Ok((_, size)) if size + UNCOVERED < records => {
            let what = format!("the newest checkpoint covers {size} of {records} records");
            let remedy = "see the log of the audit service: it is still building the tree of a large store, or cannot sign";
            (size, vec![about.warn(what, remedy)])
        }
        Ok((_, size)) => (size, vec![about.ok(format!("covers {size} records"))]),
        Err(error) => {
            let remedy = "the audit service signs one when it runs; see its log";
            return vec![about.warn(error.to_string(), remedy)];
        }
    };
    let Some(settings) = witnesses else {
        return findings;
    };
    let about = FindingSubject::new("log", "witnesses");
    let remedy = "see the log of the audit service, and wardgate_audit_witness_failures_total";
    let cosigned = async {
        let policy = settings.read_policy()?;
        let (note, size) = covers(CheckpointKind::Cosigned).await?;
        policy.verify_quorum(&note)?;
        Ok::<_, wardgate_audit::Error>(size)
    };
    findings.push(match cosigned.await {
        Ok(size) if size + UNCOVERED < signed => {
            let what = format!("the quorum cosigned {size} of {signed} records");
            about.warn(what, remedy)
        }
        Ok(size) => about.ok(format!("the quorum cosigned {size} records")),
        Err(error) => about.warn(error.to_string(), remedy),
    });
    findings
}

/// Checks how much of the record was exported to a security tool.
async fn export(reader: &RecordReader, name: &str) -> Finding {
    let about = FindingSubject::new("export", name);
    let remedy = "see the log of the audit service, and wardgate_audit_export_failures_total";
    match reader.export_position(name).await {
        Ok(Some((position, size))) if position + UNCOVERED < size => {
            let what = format!("the security tool received {position} of {size} records");
            about.warn(what, remedy)
        }
        Ok(Some((position, size))) => about.ok(format!("received {position} of {size} records")),
        Ok(None) => about.warn("never began".to_owned(), remedy),
        Err(error) => about.warn(error.to_string(), remedy),
    }
}

/// Checks that the request refused just now is recorded within [`PATIENCE`].
async fn moves(reader: &RecordReader, before: Option<u64>) -> Finding {
    let about = FindingSubject::new("record", "gateway to audit");
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let seen = verify(reader, Some(1)).await;
        if seen.is_ok_and(|seen| seen.newest > before) {
            let took = began.elapsed().as_secs_f64();
            return about.ok(format!("a refused request was recorded within {took:.1} s"));
        }
        tokio::time::sleep(PAUSE).await;
    }
    let what = format!(
        "a refused request was not recorded within {} s",
        PATIENCE.as_secs()
    );
    let remedy = "check that the gateway's link leads to the audit service of this store, and check both logs";
    about.fail(what, remedy)
}
