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
    /// Run the service with this configuration file.
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Print records.
    Query(AuditQuery),
    /// Print the newest signed checkpoint: what the log of the record is called, how many records it has, and their root hash.
    Checkpoint(AuditCheckpoint),
    /// Print the key that checkpoints, proofs and exports are verified with. Give it to those who verify before they need it.
    Key(AuditKey),
    /// Print the proof that a record is in the log, with the record, for `wardgate audit verify`.
    Proof(AuditProof),
    /// Write all records, their tree and the newest checkpoint to a directory, for `wardgate audit verify`.
    Export(AuditExport),
    /// Verify an exported directory or a proof. Needs no network and no access to the system.
    Verify(AuditVerify),
    /// Show how long records are kept and what can be removed; remove it; set and lift legal holds.
    Retention(AuditRetention),
    /// Erase the details of all calls that concerned a data subject, by destroying their key. The record and its proofs stay.
    Erase(AuditErase),
    /// Run a witness, which cosigns the checkpoints of a log that has one history; on another host than the log.
    Witness(AuditWitness),
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct AuditWitness {
    #[command(subcommand)]
    pub(crate) command: Option<WitnessCommand>,
    /// Run it as the section `witness` of this configuration file says.
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WitnessCommand {
    /// Print the key that its cosignatures are verified with, for trust policies.
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
    pub(crate) source: RecordSource,
    #[command(flatten)]
    pub(crate) operator: OperatorToken,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    /// The newest one that a quorum of witnesses cosigned, which is a moment older.
    #[arg(long)]
    pub(crate) cosigned: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AuditProof {
    #[command(flatten)]
    pub(crate) source: RecordSource,
    #[command(flatten)]
    pub(crate) operator: OperatorToken,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    /// The record's sequence number, or the id of a call: then its last record, which is its outcome.
    #[arg(value_name = "SEQUENCE|CALL_ID", required_unless_present = "receipt")]
    pub(crate) record: Option<String>,
    /// The record that the receipt in a saved answer of a call names.
    #[arg(long, value_name = "FILE", conflicts_with = "record")]
    pub(crate) receipt: Option<PathBuf>,
    /// By the newest checkpoint that a quorum of witnesses cosigned.
    #[arg(long)]
    pub(crate) cosigned: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AuditExport {
    #[command(flatten)]
    pub(crate) source: RecordSource,
    #[command(flatten)]
    pub(crate) operator: OperatorToken,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    /// The directory: empty, or not there yet.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// The records of the newest checkpoint that a quorum of witnesses cosigned.
    #[arg(long)]
    pub(crate) cosigned: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AuditVerify {
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    /// An exported directory, or a file with a proof.
    #[arg(value_name = "DIR|BUNDLE")]
    pub(crate) path: PathBuf,
    /// The key of the log, as `wardgate audit key` prints it.
    #[arg(long, value_name = "VKEY", required_unless_present = "policy")]
    pub(crate) key: Option<VerifierKey>,
    /// A trust policy (c2sp.org/tlog-policy): fails unless its quorum of witnesses cosigned. Without `--key` it names the
    /// log too.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// The saved answer of a call: fails unless its record is the one of the proof, or among those of the directory.
    #[arg(long, value_name = "FILE")]
    pub(crate) receipt: Option<PathBuf>,
    /// An older checkpoint that was kept: the records of the directory must begin with those that it covers.
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
    /// Remove what can be removed. The policy has to permit you `manage_record`, as for the next two.
    #[arg(long, conflicts_with = "OutputOptions")]
    pub(crate) apply: bool,
    /// Set a legal hold of this name: on the whole record, or on what `--tenant` or `--subject` says.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["apply", "OutputOptions"])]
    pub(crate) hold: Option<String>,
    /// Lift the legal hold of this name.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["apply", "OutputOptions", "hold"])]
    pub(crate) lift: Option<String>,
    /// Hold what concerns this data subject.
    #[arg(long, value_name = "KEY", requires = "hold")]
    pub(crate) subject: Option<String>,
    /// Hold what callers of this tenant did; with `--subject`, the tenant of those callers.
    #[arg(long, value_name = "TENANT", requires = "hold")]
    pub(crate) tenant: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct AuditErase {
    #[command(flatten)]
    pub(crate) source: RecordSource,
    #[command(flatten)]
    pub(crate) operator: OperatorSignIn,
    /// The data subject: the value of a key that `result.subject` of a tool names, for example a patient's code. The policy
    /// has to permit you `manage_record`.
    #[arg(long, value_name = "KEY")]
    pub(crate) subject: String,
    /// Tenant of the callers, where there are tenants.
    #[arg(
        long,
        value_name = "TENANT",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) tenant: String,
}

#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
pub(crate) struct AuditQuery {
    #[command(flatten)]
    pub(crate) source: RecordSource,
    #[command(flatten)]
    pub(crate) operator: OperatorToken,
    /// How to print them.
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORMAT",
        default_value = "table"
    )]
    output: RecordFormat,
    /// The name that `--output jsonl` had first.
    #[arg(long, hide = true, conflicts_with = "output")]
    json: bool,
    /// The name that `--output csv` had first.
    #[arg(long, hide = true, conflicts_with_all = ["output", "json"])]
    csv: bool,
    /// Go on with each new record once it is durable, until you stop it; with `--since`, after those from then on. Of a running
    /// system alone.
    #[arg(long, requires = "OperatorToken", conflicts_with_all = ["limit", "newest_first", "until"])]
    pub(crate) follow: bool,
    /// Which fields to print as JSON or YAML.
    #[arg(long, value_enum, default_value_t = RecordView::Full)]
    pub(crate) view: RecordView,
    /// Print at most so many.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Newest first.
    #[arg(long)]
    pub(crate) newest_first: bool,
    /// Only calls of this subject.
    #[arg(long, value_name = "SUB")]
    pub(crate) user: Option<String>,
    /// Only calls of this tool, or uses of the conversation of this key.
    #[arg(long, value_name = "NAME")]
    pub(crate) tool: Option<String>,
    /// Only this call.
    #[arg(long, value_name = "ID")]
    pub(crate) call_id: Option<String>,
    /// Only calls that released rows of this data subject, with what they released: the value of a key that `result.subject`
    /// of a tool names, for example a patient's code.
    #[arg(long, value_name = "KEY")]
    pub(crate) subject: Option<String>,
    /// Tenant of the callers, where there are tenants.
    #[arg(
        long,
        value_name = "TENANT",
        requires = "subject",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) tenant: String,
    /// With the details of each call: columns released, arguments without their values, stages, delegation; a table has the
    /// columns alone. Implied by `--subject`.
    #[arg(long, conflicts_with = "csv")]
    pub(crate) details: bool,
    /// Only calls that ended so.
    #[arg(long, value_parser = status)]
    pub(crate) status: Option<Status>,
    /// Only what was refused or failed for this reason, for example `not_permitted`; each record of the time is read for it, as
    /// for the next four.
    #[arg(long, value_name = "KIND")]
    pub(crate) reason: Option<String>,
    /// Only what the decision of this id, or a policy of this id, decided.
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
    /// Only from this instant on (RFC 3339, or a date, which begins at midnight UTC).
    #[arg(long, value_name = "TIME", value_parser = instant)]
    pub(crate) since: Option<Timestamp>,
    /// Only before this instant (RFC 3339, or a date).
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
            return Err("--view chooses the fields of --output json, jsonl or yaml");
        }
        let is_document = [OutputFormat::Json, OutputFormat::Yaml].map(RecordFormat::Output);
        if self.follow && is_document.contains(&format) {
            return Err("--follow never ends, and a document does: use --output jsonl or table");
        }
        Ok(format)
    }
}

/// Where the record is.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct RecordSource {
    /// A data directory, of a running system or a stopped one.
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub(crate) data_dir: PathBuf,
    /// The store that this configuration file names.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// As whom a running system is asked. Without any, the store is read, which needs access to its files or its database.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct OperatorToken {
    /// Ask the running system, as you: file with your token. The policy has to permit you `read_record`, and that you read is
    /// on record. With `--config` the system is where its section `operator` says.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The same with the token of this sign-in of `wardgate login`.
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordView {
    /// Everything on record.
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
