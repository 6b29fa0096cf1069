//! `wardgate audit`: runs the audit service, and reads, proves, exports, verifies and witnesses the record.

mod csv;
mod rekey;
mod retention;
mod witness;

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::CommandFactory;
use clap::error::ErrorKind;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use serde_json::{Value, json};
use wardgate_audit::{
    CallReceipt, CheckpointKind, DetailsKeys, ExportDirectory, ExportPart, RecordReader,
    VerifiedLog, Verifier, access_view, record_line,
};
use wardgate_domain::{Digest, mark_invisible};
use wardgate_rpc::client::{
    AuditFilter, ContentFilter, DataSubjectFilter, ExportedPart, OperatorAuditClient,
    ProofSelector, QueriedRecord, RecordDetails,
};
use wardgate_transparency::{Checkpoint, TrustPolicy, VerifierKey};

use crate::Failure;
use crate::cli::{
    AuditArgs, AuditCheckpoint, AuditCommand, AuditExport, AuditKey, AuditProof, AuditQuery,
    AuditVerify, Cli, LogVerbosity, OutputFormat, RecordAccess, RecordFormat, RecordSource,
    RecordView,
};
use crate::commands::operator::{NO_TOKEN, find_token};
use crate::commands::output::{RowPrinter, print_document};
use crate::commands::progress::Progress;
use crate::commands::running::{LIMIT, operator_audit};
use crate::commands::serve;
use crate::commands::terminal::cell;
use crate::config::{ServiceWiring, Settings, StoreSettings};
use crate::data_dir::{self, DataDir};

pub(crate) async fn run(arguments: AuditArgs, verbosity: LogVerbosity) -> Result<(), Failure> {
    match (arguments.command, arguments.config) {
        (Some(AuditCommand::Query(query)), _) => print_records(query).await,
        (Some(AuditCommand::Checkpoint(checkpoint)), _) => print_checkpoint(checkpoint).await,
        (Some(AuditCommand::Key(key)), _) => print_key(&key).await,
        (Some(AuditCommand::Proof(proof)), _) => print_proof(proof).await,
        (Some(AuditCommand::Export(export)), _) => export_records(export, verbosity).await,
        (Some(AuditCommand::Verify(verify)), _) => verify_records(verify, verbosity),
        (Some(AuditCommand::Retention(arguments)), _) => retention::run(arguments, verbosity).await,
        (Some(AuditCommand::Erase(arguments)), _) => retention::erase(arguments).await,
        (Some(AuditCommand::Rekey(arguments)), _) => rekey::run(&arguments, verbosity).await,
        (Some(AuditCommand::Witness(arguments)), _) => witness::run(arguments, verbosity).await,
        (None, Some(config)) => serve::audit(&config, verbosity).await,
        (None, None) => Err("specify a configuration file with --config".into()),
    }
}

async fn print_records(arguments: AuditQuery) -> Result<(), Failure> {
    let format = arguments.format().unwrap_or_else(|wrong| {
        let mut command = Cli::command();
        command.error(ErrorKind::ArgumentConflict, wrong).exit()
    });
    let (follows, view) = (arguments.follow, arguments.view);
    let opened = OpenRecord::open(&arguments.access).await?;
    let with_details = arguments.details || arguments.subject.is_some();
    let filter = AuditFilter {
        data_subject: arguments.subject.map(|key| DataSubjectFilter {
            tenant: arguments.tenant,
            key,
        }),
        with_details,
        subject: arguments.user,
        tool: arguments.tool,
        call_id: arguments.call_id,
        status: arguments.status,
        since: arguments.since,
        until: arguments.until,
        limit: arguments.limit,
        newest_first: arguments.newest_first,
        content: ContentFilter {
            reason: arguments.reason,
            event: arguments.event,
            phi: arguments.phi,
            withheld: arguments.withheld,
            decision: arguments.decision,
        },
        ..AuditFilter::default()
    };
    let mut records: RecordStream = match opened {
        OpenRecord::Store(reader) if with_details => {
            let keys = details_keys(&arguments.access.source)?;
            let reader = reader.with_details_keys(keys).await?;
            OpenRecord::Store(Box::new(reader)).query(filter).await?
        }
        OpenRecord::System(client) if follows => {
            let records = client.watch_records(filter).await?;
            records.map_err(Failure::from).boxed()
        }
        opened => opened.query(filter).await?,
    };
    let mut rows = match format {
        RecordFormat::Csv => RowPrinter::stdout(OutputFormat::Table, Some(csv::HEADING))?,
        RecordFormat::Output(format) if with_details => {
            RowPrinter::stdout(format, Some(&format!("{HEADING}  RELEASED")))?
        }
        RecordFormat::Output(format) => RowPrinter::stdout(format, Some(HEADING))?,
    };
    if follows {
        rows.flush()?;
    }
    let (mut damaged, mut warned) = (0, 0);
    while let Some(found) = records.next().await {
        let stored = match found {
            Ok(QueriedRecord::Intact(stored)) => stored,
            Ok(QueriedRecord::Damaged(damage)) => {
                rows.flush()?;
                eprintln!("{damage}");
                if damage.is_warning {
                    warned += 1;
                } else {
                    damaged += 1;
                }
                continue;
            }
            Err(error) => {
                rows.flush()?;
                return Err(error);
            }
        };
        let record = match view {
            RecordView::Full => record_line(&stored)?,
            RecordView::Access => access_view(stored.sequence, &stored.record)?,
        };
        rows.print(&record.to_string(), || match format {
            RecordFormat::Csv => csv::row(&record),
            RecordFormat::Output(_) => row(&record, stored.details.as_ref()),
        })?;
        if follows {
            rows.flush()?;
        }
        if rows.is_closed() {
            return Ok(());
        }
    }
    rows.finish()?;
    match (damaged, follows) {
        (0, false) if warned > 0 => Err(CORRUPT_INDEX.into()),
        (0, false) => Ok(()),
        (0, true) => {
            Err("the audit service closed the stream; repeat the command with --since".into())
        }
        _ => Err(DAMAGED.into()),
    }
}

/// Records as they are read, or the error that ended the reading.
pub(super) type RecordStream = BoxStream<'static, Result<QueriedRecord, Failure>>;

/// An open record, in its store or behind a running system.
pub(super) enum OpenRecord {
    /// The store itself, for a user with access to its files or its database.
    Store(Box<RecordReader>),
    /// A running system, for an operator whom the policy permits to read the record.
    System(OperatorAuditClient),
}

impl OpenRecord {
    /// Opens the store with `--offline`, and the record of the running system otherwise.
    pub(super) async fn open(access: &RecordAccess) -> Result<Self, Failure> {
        if access.offline {
            return Ok(Self::Store(Box::new(open(&access.source).await?)));
        }
        let token = find_token(&access.operator).await?;
        let token = token.ok_or_else(|| {
            format!(
                "{NO_TOKEN}; or read the store directly with --offline, without policy and record"
            )
        })?;
        Ok(Self::System(operator_audit(&access.source, token)?))
    }

    /// Returns the records that match. A running system records the reading as `audit.query` before it sends any.
    pub(super) async fn query(self, filter: AuditFilter) -> Result<RecordStream, Failure> {
        Ok(match self {
            Self::Store(reader) => reader.query(filter)?.map_err(Failure::from).boxed(),
            Self::System(client) => {
                let records = client.read_records(filter).await?;
                records.map_err(Failure::from).boxed()
            }
        })
    }
}

/// Error message after records that were changed, removed, or cannot be read.
const DAMAGED: &str = "the audit store was modified outside the audit service, or is corrupt; see the output above: preserve the store \
                       unchanged, and compare it with a backup";

/// Error message after records that were all returned although an index is corrupt.
const CORRUPT_INDEX: &str = "an index of the audit store is corrupt, and every record was returned; see the output above: copy the store, and \
                             rebuild its indexes with REINDEX";

/// Heading of the columns of [`row`].
const HEADING: &str = "SEQUENCE  TIME                         STATUS             USER              TOOL                           ROWS  ADDRESS";

/// Prints the public key of the log. Of the store, only the newest checkpoint is read, for the name of the log; the key is that
/// of the log's key file. Both are public and no record is read, so the command needs no token and is not recorded.
async fn print_key(arguments: &AuditKey) -> Result<(), Failure> {
    let source = &arguments.source;
    let checkpoint = open(source)
        .await?
        .checkpoint(CheckpointKind::Signed)
        .await?;
    let checkpoint: Checkpoint = checkpoint.text().parse()?;
    let path = match &source.config {
        None => DataDir::open_existing(&source.data_dir)?.log_key(),
        Some(file) => {
            let settings = Settings::load(file)?;
            let (_, wiring): (wardgate_audit::Config, ServiceWiring) = settings.service("audit")?;
            wiring.log_key_file.ok_or("audit.log_key_file is missing")?
        }
    };
    let key = data_dir::log_key(&path)?.verifier_key(&checkpoint.origin)?;
    let key = key.to_string();
    let document = json!({ "origin": checkpoint.origin, "key": key }).to_string();
    print_document(arguments.output.format(), &document, || format!("{key}\n"))
}

async fn print_checkpoint(arguments: AuditCheckpoint) -> Result<(), Failure> {
    let cosigned = arguments.cosigned;
    let opened = OpenRecord::open(&arguments.access).await?;
    let checkpoint = match opened {
        OpenRecord::Store(reader) => reader.checkpoint(kind(cosigned)).await?,
        OpenRecord::System(client) => client.checkpoint(cosigned, LIMIT).await?,
    };
    let Checkpoint { origin, head } = checkpoint.text().parse()?;
    let note = checkpoint.to_string();
    let document = json!({
        "origin": origin,
        "records": head.size,
        "root": STANDARD.encode(head.root),
        "checkpoint": note,
    });
    print_document(arguments.output.format(), &document.to_string(), || note)
}

async fn print_proof(arguments: AuditProof) -> Result<(), Failure> {
    let cosigned = arguments.cosigned;
    let selector = match (arguments.receipt, arguments.record) {
        (Some(file), _) => {
            let receipt = CallReceipt::find(&std::fs::read_to_string(file)?)?;
            ProofSelector::Call {
                call_id: receipt.call_id,
                leaf_hash: Some(Digest::from_bytes(receipt.leaf_hash)),
            }
        }
        (None, Some(record)) => match record.parse() {
            Ok(sequence) => ProofSelector::Sequence(sequence),
            Err(_) => ProofSelector::Call {
                call_id: record,
                leaf_hash: None,
            },
        },
        (None, None) => {
            return Err("specify the number of a record, or a receipt with --receipt".into());
        }
    };
    let proof = match OpenRecord::open(&arguments.access).await? {
        OpenRecord::Store(reader) => {
            let sequence = match &selector {
                ProofSelector::Sequence(sequence) => *sequence,
                ProofSelector::Call { call_id, leaf_hash } => {
                    reader.find_of_call(call_id, *leaf_hash).await?
                }
            };
            reader.prove(sequence, kind(cosigned)).await?
        }
        OpenRecord::System(client) => client.proof(selector, cosigned, LIMIT).await?,
    };
    let text = proof.to_string();
    let Checkpoint { origin, head } = proof.checkpoint.text().parse()?;
    let document = json!({
        "origin": origin,
        "sequence": proof.index,
        "records": head.size,
        "proof": text,
    });
    print_document(arguments.output.format(), &document.to_string(), || text)
}

fn kind(cosigned: bool) -> CheckpointKind {
    if cosigned {
        CheckpointKind::Cosigned
    } else {
        CheckpointKind::Signed
    }
}

async fn export_records(arguments: AuditExport, verbosity: LogVerbosity) -> Result<(), Failure> {
    let mut progress = Progress::new("written", verbosity);
    let progress = |done, of| progress.print_count(done, Some(of));
    let exported = match OpenRecord::open(&arguments.access).await? {
        OpenRecord::Store(reader) => {
            let kind = kind(arguments.cosigned);
            reader.export(&arguments.out, kind, progress).await?
        }
        OpenRecord::System(client) => {
            let directory = ExportDirectory::create(&arguments.out)?;
            let exported = client.export(arguments.cosigned).await?;
            let parts = exported.parts.map(|part| match part? {
                ExportedPart::PrunedTile(hashes) => Ok(ExportPart::PrunedTile(hashes.to_vec())),
                ExportedPart::Record(QueriedRecord::Intact(stored)) => {
                    Ok(ExportPart::Record(stored))
                }
                ExportedPart::Record(QueriedRecord::Damaged(damage)) => Err(Failure::from(damage)),
            });
            let written = directory.write(&exported.checkpoint, parts, progress);
            written.await?
        }
    };
    let Checkpoint { origin, head } = exported;
    let (size, directory) = (head.size, arguments.out.display().to_string());
    let document = json!({ "origin": origin, "records": size, "directory": directory });
    print_document(arguments.output.format(), &document.to_string(), || {
        format!("{size} records of {origin} were written to {directory}\n")
    })
}

fn verify_records(arguments: AuditVerify, verbosity: LogVerbosity) -> Result<(), Failure> {
    let verifier = Verifier {
        policy: trust_policy(arguments.policy.as_deref(), arguments.key)?,
        since: arguments.since,
        receipt: arguments.receipt,
    };
    let mut progress = Progress::new("verified", verbosity);
    let verified = verifier.verify(&arguments.path, |done, of| {
        progress.print_count(done, Some(of));
    });
    let VerifiedLog {
        checkpoint: Checkpoint { origin, head },
        minimum_index,
    } = verified?;
    let (size, path) = (head.size, arguments.path.display().to_string());
    let document = json!({
        "path": path,
        "origin": origin,
        "records": size,
        "root": STANDARD.encode(head.root),
        "first_record": minimum_index,
    });
    print_document(arguments.output.format(), &document.to_string(), || {
        let mut text =
            format!("{path} matches the checkpoint signed by {origin}, at {size} records\n");
        if minimum_index > 0 {
            text.push_str(&format!(
                "of the records below {minimum_index}, only the hashes are present: retention removed the records\n"
            ));
        }
        text
    })
}

/// Returns the trust policy of a reader who named a policy file, the key of a log, or both.
fn trust_policy(policy: Option<&Path>, key: Option<VerifierKey>) -> Result<TrustPolicy, Failure> {
    let Some(path) = policy else {
        let key = key.ok_or("specify the key of the log with --key")?;
        return Ok(TrustPolicy::of_log(key));
    };
    let at = |error: &dyn std::error::Error| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| at(&error))?;
    let policy: TrustPolicy = text
        .parse()
        .map_err(|error: wardgate_transparency::Error| at(&error))?;
    for witness in policy.unknown_witnesses() {
        eprintln!(
            "warning: {}: the key of the witness `{witness}` has an unknown type and does not count towards a quorum",
            path.display()
        );
    }
    match key {
        Some(key) => Ok(policy.for_log(key)?),
        None if policy.logs().is_empty() => {
            Err("the policy contains no log: specify the key of the log with --key".into())
        }
        None => Ok(policy),
    }
}

/// Reads the keys for the details of calls, of a data directory or a configured system.
fn details_keys(source: &RecordSource) -> Result<DetailsKeys, Failure> {
    match &source.config {
        None => {
            let dir = DataDir::open_existing(&source.data_dir)?;
            Ok(data_dir::details_keys_of_up(&dir)?)
        }
        Some(file) => {
            let settings = Settings::load(file)?;
            let (_, wiring): (wardgate_audit::Config, ServiceWiring) = settings.service("audit")?;
            serve::details_keys(&wiring)
        }
    }
}

async fn open(source: &RecordSource) -> Result<RecordReader, Failure> {
    let StoreSettings { store, database } = store(source)?;
    Ok(RecordReader::open(&store, &database).await?)
}

/// Returns the settings of the store of a data directory, or of a configured system.
fn store(source: &RecordSource) -> Result<StoreSettings, Failure> {
    match &source.config {
        None => {
            let record = DataDir::open_existing(&source.data_dir)?.record();
            Ok(StoreSettings::file(record))
        }
        Some(file) => {
            let config: wardgate_audit::Config =
                Settings::load(file)?.own_settings("audit", |_| {})?;
            let (store, database) = (config.store, config.database);
            Ok(StoreSettings { store, database })
        }
    }
}

/// Formats a record as one line of the table. A memory access shows its method, and messages instead of rows; an operator's
/// change shows its action and object. Text that a client chose is shown as a quoted string unless it is plain.
fn row(record: &Value, details: Option<&RecordDetails>) -> String {
    let text = |key: &str| match &record[key] {
        Value::String(text) => cell(text).into_owned(),
        Value::Null => "-".to_owned(),
        other => mark_invisible(&other.to_string()).into_owned(),
    };
    let of_outcome = || match record["action"].as_str() {
        // A method other than `tools/call`.
        Some(method) if method.contains('/') => format!("{} {}", text("record_id"), cell(method)),
        _ => text("record_id"),
    };
    let (status, what, rows) = match record["event"].as_str() {
        Some("outcome") => ("status", of_outcome(), "rows"),
        Some("memory_access") => ("status", text("method"), "messages"),
        Some("admin_change") => (
            "event",
            format!("{} {}", text("action"), text("record_id")),
            "rows",
        ),
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
    match format_released_columns(details) {
        Some(released) => format!("{line}  {released}"),
        None => line,
    }
}

/// Returns the columns that a call released, or `None` if its details were not requested.
fn format_released_columns(details: Option<&RecordDetails>) -> Option<String> {
    let details = details?;
    Some(match details.released_columns() {
        Some(columns) => mark_invisible(&columns.join(", ")).into_owned(),
        None if *details == RecordDetails::Undecryptable => "(undecryptable)".to_owned(),
        None => "(erased)".to_owned(),
    })
}
