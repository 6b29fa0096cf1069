//! Options of `wardgate audit`.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use wardgate_audit::RecordKind;
use wardgate_domain::{Status, Timestamp};
use wardgate_transparency::VerifierKey;

use super::{ConfigFile, OperatorSignIn, OutputFormat, OutputOptions, RecordFormat, instant};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    pub(crate) command: Option<AuditCommand>,
    /// Path of the configuration file to run the service with.
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Query the audit log.
    #[command(visible_alias = "tail")]
    Query(AuditQuery),
    /// Print the newest signed checkpoint: origin, size and root hash of the transparency log.
    Checkpoint(AuditCheckpoint),
    /// Print the public key that verifies checkpoints, proofs and exports. Give it to verifiers in advance. It reads no record,
    /// so it needs no token.
    Key(AuditKey),
    /// Print a record and the proof of its inclusion in the log, for `wardgate audit verify`.
    Proof(AuditProof),
    /// Export all records, their Merkle tree and the newest checkpoint to a directory, for `wardgate audit verify`.
    Export(AuditExport),
    /// Verify an export or a proof offline, without access to the system.
    Verify(AuditVerify),
    /// Show and apply the retention of records, and set and lift legal holds.
    Retention(AuditRetention),
    /// Erase the details of all calls about a data subject by destroying their key. Records and proofs are kept.
    Erase(AuditErase),
    /// Move the keys of all data subjects from a former key of the details of calls to the current one, while the audit
    /// services run with both keys. After an interruption, run the command again.
    Rekey(AuditRekey),
    /// Run a witness, which cosigns consistent checkpoints of logs. Use another host than the log's.
    Witness(AuditWitness),
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct AuditWitness {
    #[command(subcommand)]
    pub(crate) command: Option<WitnessCommand>,
    /// Path of the configuration file to run the witness with (section `witness`).
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WitnessCommand {
    /// Print the public key that verifies its cosignatures, for trust policies.
    Key(ConfigFile),
}

#[derive(Debug, Args)]
pub(crate) struct AuditKey {
    #[command(flatten)]
    pub(crate) source: RecordSource,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Debug, Args)]
pub(crate) struct AuditCheckpoint {
    #[command(flatten)]
    pub(crate) access: RecordAccess,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    /// Print the newest checkpoint that a quorum of witnesses cosigned, which is slightly older.
    #[arg(long)]
    pub(crate) cosigned: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AuditProof {
    #[command(flatten)]
    pub(crate) access: RecordAccess,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    /// Sequence number of the record, or id of a call for its last record, the outcome.
    #[arg(value_name = "SEQUENCE|CALL_ID", required_unless_present = "receipt")]
    pub(crate) record: Option<String>,
    /// File with a saved answer of a call, whose receipt names the record.
    #[arg(long, value_name = "FILE", conflicts_with = "record")]
    pub(crate) receipt: Option<PathBuf>,
    /// Use the newest checkpoint that a quorum of witnesses cosigned.
    #[arg(long)]
    pub(crate) cosigned: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AuditExport {
    #[command(flatten)]
    pub(crate) access: RecordAccess,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    /// Output directory: empty, or not existing yet.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Export up to the newest checkpoint that a quorum of witnesses cosigned.
    #[arg(long)]
    pub(crate) cosigned: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AuditVerify {
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    /// Directory of an export, or file with a proof.
    #[arg(value_name = "DIR|BUNDLE")]
    pub(crate) path: PathBuf,
    /// Public key of the log, as printed by `wardgate audit key`.
    #[arg(long, value_name = "VKEY", required_unless_present = "policy")]
    pub(crate) key: Option<VerifierKey>,
    /// File with a trust policy (c2sp.org/tlog-policy), whose quorum of witnesses is required. Without `--key`, it also
    /// provides the log's key.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// File with a saved answer of a call, whose record must be that of the proof, or in the export.
    #[arg(long, value_name = "FILE")]
    pub(crate) receipt: Option<PathBuf>,
    /// File with an older checkpoint; the export must begin with the records that it covers.
    #[arg(long, value_name = "FILE")]
    pub(crate) since: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct AuditRetention {
    #[command(flatten)]
    pub(crate) source: RecordSource,
    #[command(flatten)]
    pub(crate) operator: OperatorSignIn,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    /// Remove expired records. Policy must permit `manage_record`, as for the next two options.
    #[arg(long, conflicts_with = "OutputOptions")]
    pub(crate) apply: bool,
    /// Set a legal hold with this name on all records, or on those selected by `--tenant` or `--subject`.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["apply", "OutputOptions"])]
    pub(crate) hold: Option<String>,
    /// Lift the legal hold with this name.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["apply", "OutputOptions", "hold"])]
    pub(crate) lift: Option<String>,
    /// Hold the records of this data subject.
    #[arg(long, value_name = "KEY", requires = "hold")]
    pub(crate) subject: Option<String>,
    /// Hold the records of callers of this tenant; with `--subject`, the tenant of those callers.
    #[arg(long, value_name = "TENANT", requires = "hold")]
    pub(crate) tenant: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct AuditErase {
    #[command(flatten)]
    pub(crate) source: RecordSource,
    #[command(flatten)]
    pub(crate) operator: OperatorSignIn,
    /// Data subject: a value of the key that `result.subject` of a tool names, for example a patient's code. Policy must
    /// permit `manage_record`.
    #[arg(long, value_name = "KEY")]
    pub(crate) subject: String,
    /// Tenant of the callers, if there are tenants.
    #[arg(
        long,
        value_name = "TENANT",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) tenant: String,
}

/// The store and the keys to use. Both are needed, since no service gives a key away.
#[derive(Debug, Args)]
pub(crate) struct AuditRekey {
    /// Data directory of `wardgate up`, with `keys/audit-details-former.key`.
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub(crate) data_dir: PathBuf,
    /// Path of a configuration file whose section `audit` names the store, `details_key_file` and
    /// `former_details_key_files`.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
pub(crate) struct AuditQuery {
    #[command(flatten)]
    pub(crate) access: RecordAccess,
    /// Output format.
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORMAT",
        default_value = "table"
    )]
    output: RecordFormat,
    /// Former name of `--output jsonl`.
    #[arg(long, hide = true, conflicts_with = "output")]
    json: bool,
    /// Former name of `--output csv`.
    #[arg(long, hide = true, conflicts_with_all = ["output", "json"])]
    csv: bool,
    /// Print new records as they become durable, until interrupted. With `--since`, earlier records are printed first.
    #[arg(short, long, conflicts_with_all = ["offline", "limit", "newest_first", "until"])]
    pub(crate) follow: bool,
    /// Fields to print as JSON or YAML.
    #[arg(long, value_enum, default_value_t = RecordView::Full)]
    pub(crate) view: RecordView,
    /// Maximum number of records to print.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Print the newest records first.
    #[arg(long)]
    pub(crate) newest_first: bool,
    /// Only calls of this subject.
    #[arg(long, value_name = "SUB")]
    pub(crate) user: Option<String>,
    /// Only calls of this tool, or uses of the conversation of this key.
    #[arg(long, value_name = "NAME")]
    pub(crate) tool: Option<String>,
    /// Only the call with this id.
    #[arg(long, value_name = "ID")]
    pub(crate) call_id: Option<String>,
    /// Only calls that released rows of this data subject, with the released data: a value of the key that `result.subject`
    /// of a tool names, for example a patient's code.
    #[arg(long, value_name = "KEY")]
    pub(crate) subject: Option<String>,
    /// Tenant of the callers, if there are tenants.
    #[arg(
        long,
        value_name = "TENANT",
        requires = "subject",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) tenant: String,
    /// Include the details of each call: released columns, arguments without values, stages, delegation. A table shows only
    /// the columns. Implied by `--subject`.
    #[arg(long, conflicts_with = "csv")]
    pub(crate) details: bool,
    /// Only calls with this status.
    #[arg(long, value_parser = status)]
    pub(crate) status: Option<Status>,
    /// Only refusals and failures with this reason, for example `not_permitted`. This and the next four options read every
    /// record of the period.
    #[arg(long, value_name = "KIND")]
    pub(crate) reason: Option<String>,
    /// Only calls decided by the decision or the policy with this id.
    #[arg(long, value_name = "ID")]
    pub(crate) decision: Option<String>,
    /// Only records of this kind.
    #[arg(long, value_name = "KIND", value_parser = PossibleValuesParser::new(RecordKind::ALL.map(RecordKind::as_str)))]
    pub(crate) event: Option<String>,
    /// Only calls that released health information.
    #[arg(long)]
    pub(crate) phi: bool,
    /// Only calls of which rows or messages were withheld.
    #[arg(long)]
    pub(crate) withheld: bool,
    /// Only records at or after this time (RFC 3339, or a date, which means midnight UTC).
    #[arg(long, value_name = "TIME", value_parser = instant)]
    pub(crate) since: Option<Timestamp>,
    /// Only records before this time (RFC 3339, or a date).
    #[arg(long, value_name = "TIME", value_parser = instant)]
    pub(crate) until: Option<Timestamp>,
}

impl AuditQuery {
    /// Returns the format in which records are printed, or an error if the options contradict one another.
    pub(crate) fn format(&self) -> Result<RecordFormat, &'static str> {
        let format = match (self.json, self.csv) {
            (true, _) => RecordFormat::Output(OutputFormat::Jsonl),
            (_, true) => RecordFormat::Csv,
            _ => self.output,
        };
        let is_for_people = format == RecordFormat::Output(OutputFormat::Table);
        if format == RecordFormat::Csv && self.details {
            return Err("--details cannot be printed with --output csv");
        }
        if self.view != RecordView::Full && (is_for_people || format == RecordFormat::Csv) {
            return Err("--view selects the fields of --output json, jsonl or yaml only");
        }
        let is_document = [OutputFormat::Json, OutputFormat::Yaml].map(RecordFormat::Output);
        if self.follow && is_document.contains(&format) {
            return Err(
                "--follow does not end, so the output cannot be one document: use --output jsonl or table",
            );
        }
        Ok(format)
    }
}

/// The location of the audit log.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct RecordSource {
    /// Data directory of a running or a stopped system.
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub(crate) data_dir: PathBuf,
    /// Path of a configuration file: section `operator` has the URLs of a running system, section `audit` the store.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// The audit log, read as an operator of a running system whom the policy permits `read_record`, or directly from its store.
#[derive(Debug, Args)]
pub(crate) struct RecordAccess {
    #[command(flatten)]
    pub(crate) source: RecordSource,
    #[command(flatten)]
    pub(crate) operator: OperatorSignIn,
    /// Read the store directly, without policy and record: for a stopped system, a backup or a restore drill.
    #[arg(long, conflicts_with = "OperatorSignIn")]
    pub(crate) offline: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordView {
    /// All fields.
    Full,
    /// Seven fields: `user`, `action`, `table_name`, `record_id`, `timestamp`, `is_phi_access`, `ip_address`.
    Access,
}

fn status(text: &str) -> Result<Status, String> {
    Status::ALL
        .into_iter()
        .find(|status| status.as_str() == text)
        .ok_or_else(|| format!("use one of {}", Status::ALL.map(Status::as_str).join(", ")))
}
