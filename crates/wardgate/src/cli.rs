//! The command line.

mod agent;
mod api_key;
mod approvals;
mod calls;
mod conversations;
mod doctor;
mod import;
mod init;
mod login;
mod policy;
mod stdio;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use wardgate_domain::{Status, Timestamp};
use wardgate_transparency::VerifierKey;

pub(crate) use agent::{AgentArgs, AgentCommand, ExtractArgs};
pub(crate) use api_key::{ApiKeyArgs, ApiKeyCommand, KeyFilePath, NewApiKey};
pub(crate) use approvals::{ApprovalOptions, ApprovalsArgs, ApprovalsCommand};
pub(crate) use calls::{BenchArgs, CallArgs, ClientOptions, ProtocolEra};
pub(crate) use conversations::{ConversationsArgs, ConversationsCommand, HoldChange, ListOptions};
pub(crate) use doctor::{ConfigSection, DoctorArgs};
pub(crate) use import::{ImportArgs, ImportFrom};
pub(crate) use init::InitArgs;
pub(crate) use login::{ContextsArgs, ContextsCommand, LoginArgs, LogoutArgs};
pub(crate) use policy::{
    PolicyArgs, PolicyCommand, PolicyDiff, PolicyExplain, PolicyReplay, PolicyTestRun,
};
pub(crate) use stdio::StdioArgs;

/// Governed access for AI agents: known callers, rules down to row and column, a record of every call.
#[derive(Debug, Parser)]
#[command(name = "wardgate", version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a small project: a table, one tool, policies for two roles; and say what to do with it.
    Init(InitArgs),
    /// Run every service in this process.
    Up(UpArgs),
    /// Run the gateway alone: MCP over HTTP.
    Gateway(ConfigFile),
    /// Run the policy service alone, or check, test, explain, compare and replay policies.
    Policy(PolicyArgs),
    /// Run the tool-runner alone.
    ToolRunner(ConfigFile),
    /// Run the audit service alone, or read the record.
    Audit(AuditArgs),
    /// Run the agent alone, or find tool calls in what models wrote.
    Agent(AgentArgs),
    /// Run the memory service alone.
    Memory(ConfigFile),
    /// Run the console alone: web pages for people.
    Console(ConfigFile),
    /// See, erase and hold the conversations of a running system, without a word of what was said.
    Conversations(ConversationsArgs),
    /// Be a stdio MCP server for a desktop client, whose requests go to a gateway.
    Stdio(StdioArgs),
    /// Sign in at a gateway, once: other commands then find your token.
    Login(LoginArgs),
    /// Forget a sign-in.
    Logout(LogoutArgs),
    /// List sign-ins, or change the current one.
    Contexts(ContextsArgs),
    /// Print a token of the local issuer.
    Token(TokenArgs),
    /// Make, list or revoke API keys of machines.
    ApiKey(ApiKeyArgs),
    /// List, show, approve and refuse calls that wait for your approval.
    Approvals(ApprovalsArgs),
    /// Check or list a catalogue of tools, approve and switch tools, or call one.
    Tools(ToolsArgs),
    /// Make certificates and keys.
    Certs(CertsArgs),
    /// Check or show a configuration.
    Config(ConfigArgs),
    /// Examine a deployment, change nothing, and say what to do: configuration, keys, certificates, issuers, neighbours,
    /// clocks, databases, versions and the record. Exit code 1 when something fails.
    Doctor(DoctorArgs),
    /// Bring every store that a configuration names to its newest schema, and let the services' roles use them.
    Migrate(ConfigFile),
    /// The name that `tools call` had first.
    #[command(hide = true)]
    Call(CallArgs),
    /// Call tools over MCP under load, verify every answer, and print how long they took.
    Bench(BenchArgs),
    /// Ask a running process whether it is ready; exit code 0 when it is.
    Health(HealthArgs),
    /// Print the script by which a shell completes commands and options.
    Completions {
        /// Which shell.
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Write a manual page for each command.
    Man {
        /// The directory, made when absent.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// Where the configuration is.
#[derive(Debug, Args)]
pub(crate) struct ConfigFile {
    /// Configuration file (YAML). Environment variables such as `WARDGATE_GATEWAY__LISTEN` override it.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Configuration file (YAML). Without one, `wardgate.yaml` of this directory, and where there is none, the demo.
    #[arg(long, value_name = "FILE", conflicts_with = "demo")]
    pub(crate) config: Option<PathBuf>,
    /// Where keys, the record and the demo's data live; made when absent.
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub(crate) data_dir: PathBuf,
    /// Address and port; port 0 lets the system choose. Overrides the configuration.
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,
    /// Demo to load.
    #[arg(long, value_enum)]
    pub(crate) demo: Option<Demo>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Demo {
    /// Patients, records, staff and shifts of a hospital, with rules for five roles.
    Hospital,
}

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
    Key(RecordSource),
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
pub(crate) struct AuditCheckpoint {
    #[command(flatten)]
    pub(crate) source: RecordSource,
    #[command(flatten)]
    pub(crate) operator: OperatorToken,
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
    /// The directory: empty, or not there yet.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// The records of the newest checkpoint that a quorum of witnesses cosigned.
    #[arg(long)]
    pub(crate) cosigned: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AuditVerify {
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
    pub(crate) operator: OperatorToken,
    /// One JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// Remove what can be removed. The policy has to permit you `manage_record`, as for the next two.
    #[arg(long, conflicts_with = "json")]
    pub(crate) apply: bool,
    /// Set a legal hold of this name: on the whole record, or on what `--tenant` or `--subject` says.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["apply", "json"])]
    pub(crate) hold: Option<String>,
    /// Lift the legal hold of this name.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["apply", "json", "hold"])]
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
    pub(crate) operator: OperatorToken,
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
    /// One JSON object a line, instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Comma-separated values (RFC 4180) with a heading, for spreadsheets.
    #[arg(long, conflicts_with_all = ["json", "details"])]
    pub(crate) csv: bool,
    /// Go on with each new record once it is durable, until you stop it; with `--since`, after those from then on. Of a running
    /// system alone.
    #[arg(long, requires = "OperatorToken", conflicts_with_all = ["limit", "newest_first", "until"])]
    pub(crate) follow: bool,
    /// Which fields to print as JSON.
    #[arg(long, value_enum, default_value_t = View::Full, requires = "json")]
    pub(crate) view: View,
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
    /// With the details of each call: columns released, arguments without their values, stages, delegation. Implied by
    /// `--subject`.
    #[arg(long, requires = "json")]
    pub(crate) details: bool,
    /// Only calls that ended so.
    #[arg(long, value_parser = status)]
    pub(crate) status: Option<Status>,
    /// Only what was refused or failed for this reason, for example `not_permitted`; each record of the time is read for it, as
    /// for the next three.
    #[arg(long, value_name = "KIND")]
    pub(crate) reason: Option<String>,
    /// Only records of this kind.
    #[arg(long, value_name = "KIND", value_parser = ["intent", "outcome", "execution", "refusals", "admin_change", "memory_access"])]
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
pub(crate) enum View {
    /// Everything on record.
    Full,
    /// Seven fields: `user`, `action`, `table_name`, `record_id`, `timestamp`, `is_phi_access`, `ip_address`.
    Access,
}

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// Data directory of the local issuer.
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub(crate) data_dir: PathBuf,
    /// Subject: who the token is for.
    #[arg(long, value_name = "SUB")]
    pub(crate) sub: String,
    /// Role; may be given several times.
    #[arg(long = "role", value_name = "ROLE", required = true)]
    pub(crate) roles: Vec<String>,
    /// Further claim, for example `ward=W2`; may be given several times.
    #[arg(long = "claim", value_name = "NAME=VALUE", value_parser = claim)]
    pub(crate) claims: Vec<(String, String)>,
    /// How long the token lives, for example `30m`, `1h` or `90s`.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = lifetime)]
    pub(crate) ttl: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct ToolsArgs {
    #[command(subcommand)]
    pub(crate) command: ToolsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ToolsCommand {
    /// Name every fault of a catalogue, with file, line and what to do, and warn of what reaches nobody.
    Check {
        /// The `tools.yaml`, or a directory of such files.
        #[arg(default_value = "tools.yaml")]
        file: PathBuf,
        /// The directory of policies that decide about its tools; without it, `policies` beside the catalogue where
        /// that is there.
        #[arg(long, value_name = "DIR")]
        policies: Option<PathBuf>,
    },
    /// List the tools of a catalogue.
    List {
        /// The `tools.yaml`, or a directory of such files. Without it, that of this directory; where there is none, or a
        /// gateway, token or sign-in is named, the tools that you may call there.
        file: Option<PathBuf>,
        /// One JSON object a line, instead of a table.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        caller: ClientOptions,
    },
    /// Call one tool over MCP and print its result.
    Call(CallArgs),
    /// Check arguments against input schemas, as a call does: JSON lines `{"id", "schema", "arguments"}` from
    /// standard input, `{"id", "ok", "arguments" or "error" and "path"}` to standard output.
    Validate,
    /// Show what the tools of MCP servers are now, against what was approved in `tools.lock`.
    Diff {
        #[command(flatten)]
        catalogue: CatalogueFile,
        /// One JSON object a line, instead of a report.
        #[arg(long)]
        json: bool,
    },
    /// Approve tools of MCP servers as they are now, in `tools.lock` beside the catalogue.
    Approve(ApproveArgs),
    /// Make a catalogue to review, from what is there already. What was chosen or left out is said on standard
    /// error.
    Import(ImportArgs),
    /// Turn a tool, toolset or upstream on, whatever less specific switches say.
    Enable(SwitchChange),
    /// Turn it off: nobody concerned sees it or can call it.
    Disable(SwitchChange),
    /// Take its switch away, so that less specific switches decide.
    Reset(SwitchChange),
    /// Print the switches of a running system.
    Switches {
        #[command(flatten)]
        system: RunningSystem,
        /// One JSON object a line, instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Print who let which source of a running system act in their name.
    Connections {
        #[command(flatten)]
        system: RunningSystem,
        /// One JSON object a line, instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Forget the tokens that somebody got a source: their next call has to be allowed anew.
    Disconnect(DisconnectArgs),
}

/// Whose tokens are forgotten.
#[derive(Debug, Args)]
pub(crate) struct DisconnectArgs {
    /// What the issuer calls the person.
    #[arg(long, value_name = "SUBJECT")]
    pub(crate) user: String,
    /// Only where this issuer calls them so.
    #[arg(long)]
    pub(crate) issuer: Option<String>,
    /// Only of this source.
    #[arg(long)]
    pub(crate) source: Option<String>,
    /// Who you are, for the record.
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    pub(crate) by: Option<String>,
    #[command(flatten)]
    pub(crate) system: RunningSystem,
}

/// Where the tools are configured.
#[derive(Debug, Args)]
pub(crate) struct CatalogueFile {
    /// The `tools.yaml`, or a directory of such files.
    #[arg(long, value_name = "FILE", default_value = "tools.yaml")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ApproveArgs {
    /// Tools by the names that clients see. A suspicious one is only approved by its name.
    #[arg(value_name = "NAME", required_unless_present_any = ["all_harmless", "source"])]
    pub(crate) names: Vec<String>,
    /// Every change that is harmless.
    #[arg(long, conflicts_with_all = ["names", "source"])]
    pub(crate) all_harmless: bool,
    /// The tools of this source that are not suspicious: shown first, and approved by the digest of what was shown.
    #[arg(long, value_name = "SOURCE", conflicts_with = "names")]
    pub(crate) source: Option<String>,
    /// The digest of what you were shown, as `tools diff` and `--source` alone print it: nothing else is approved.
    #[arg(long, value_name = "DIGEST", conflicts_with = "all")]
    pub(crate) reviewed: Option<String>,
    /// With --source: all of its tools as they are now, unseen.
    #[arg(long, requires = "source")]
    pub(crate) all: bool,
    /// Who approves, for the lock file and the record.
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    pub(crate) by: Option<String>,
    #[command(flatten)]
    pub(crate) catalogue: CatalogueFile,
}

#[derive(Debug, Args)]
pub(crate) struct SwitchChange {
    /// The tool (not an alias), or the toolset or source.
    pub(crate) name: String,
    /// NAME is a toolset.
    #[arg(long, conflicts_with = "upstream")]
    pub(crate) toolset: bool,
    /// NAME is a source of `tools.yaml`: all of its tools.
    #[arg(long)]
    pub(crate) upstream: bool,
    /// Only for callers with this role.
    #[arg(long, value_name = "ROLE", conflicts_with = "user")]
    pub(crate) role: Option<String>,
    /// Only for this caller; a user wins over roles, and a role over everyone.
    #[arg(long, value_name = "SUB")]
    pub(crate) user: Option<String>,
    /// Only if this issuer names the user.
    #[arg(long, value_name = "URL", requires = "user")]
    pub(crate) issuer: Option<String>,
    /// Who makes the change, for the record.
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    pub(crate) by: Option<String>,
    #[command(flatten)]
    pub(crate) system: RunningSystem,
}

/// How to reach a running system.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct RunningSystem {
    /// The data directory of a running `wardgate up`.
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub(crate) data_dir: PathBuf,
    /// A configuration file whose section `operator` says where the services are.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CertsArgs {
    #[command(subcommand)]
    pub(crate) command: CertsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CertsCommand {
    /// Make a throw-away authority, a certificate for each service, and every key they need.
    Dev {
        /// Directory to write to: `certs/` and `keys/` below it. Existing keys are kept.
        #[arg(long, value_name = "DIR", default_value = "data")]
        data_dir: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Say whether a configuration file can be used, with the catalogue, policies and assistants that it names.
    Check(ConfigCheck),
    /// Print the configuration with the environment applied, as JSON.
    Dump(ConfigFile),
    /// Print the JSON Schema of a file, for editors.
    Schema {
        /// Of which file.
        #[arg(value_enum, value_name = "FILE", default_value_t = SchemaOf::Tools)]
        of: SchemaOf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ConfigCheck {
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    /// Only the file itself, where the files that it names are elsewhere.
    #[arg(long)]
    pub(crate) alone: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum SchemaOf {
    #[value(name = "tools.yaml")]
    Tools,
    #[value(name = "wardgate.yaml")]
    Configuration,
    #[value(name = "policy-tests")]
    PolicyTests,
}

#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// Base URL of the process's probes.
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    pub(crate) url: String,
}

fn status(text: &str) -> Result<Status, String> {
    Status::ALL
        .into_iter()
        .find(|status| status.as_str() == text)
        .ok_or_else(|| format!("use one of {}", Status::ALL.map(Status::as_str).join(", ")))
}

fn instant(text: &str) -> Result<Timestamp, String> {
    let midnight = || format!("{text}T00:00:00Z").parse();
    text.parse().or_else(|_| midnight()).map_err(|_| {
        "write RFC 3339, for example 2026-01-31T08:00:00Z, or a date, for example 2026-01-31"
            .to_owned()
    })
}

fn claim(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

fn lifetime(text: &str) -> Result<Duration, String> {
    let (digits, unit) =
        text.split_at(text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len());
    let amount: u64 = digits
        .parse()
        .map_err(|_| "write a number and s, m or h, for example 30m")?;
    let seconds = match unit {
        "s" | "" => amount,
        "m" => amount.saturating_mul(60),
        "h" => amount.saturating_mul(3_600),
        _ => return Err("the unit must be s, m or h".to_owned()),
    };
    if !(1..=86_400).contains(&seconds) {
        return Err("a token lives 1 second to 24 hours".to_owned());
    }
    Ok(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// The words of a line as a shell splits them; `None` where a quote is open.
    fn words(line: &str) -> Option<Vec<String>> {
        let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
        for c in line.chars() {
            match (quote, c) {
                (Some(open), _) if open == c => quote = None,
                (None, '\'' | '"') => {
                    quote = Some(c);
                    word.get_or_insert_default();
                }
                (None, ' ') => words.extend(word.take()),
                _ => word.get_or_insert_default().push(c),
            }
        }
        words.extend(word);
        quote.is_none().then_some(words)
    }

    /// The commands of this program in the shell blocks of a page.
    fn commands(page: &str) -> Vec<Vec<String>> {
        let mut is_shell = false;
        let mut found = Vec::new();
        for line in page.lines() {
            if let Some(language) = line.trim().strip_prefix("```") {
                is_shell = language.split(',').next() == Some("sh");
                continue;
            }
            let line = line.split(" #").next().unwrap_or_default();
            for part in line.split(['|', '&', ';', '>']).filter(|_| is_shell) {
                let Some(mut words) = words(part.trim()) else {
                    continue;
                };
                let is_setting = |word: &String| word.contains('=') && !word.starts_with('-');
                words.drain(..words.iter().take_while(|word| is_setting(word)).count());
                let program = words
                    .first()
                    .map(|word| word.rsplit('/').next() == Some("wardgate"));
                let is_whole = !words
                    .iter()
                    .any(|word| word.contains(['$', '\\', '<', '…']));
                if program == Some(true) && words.len() > 1 && is_whole {
                    found.push(words);
                }
            }
        }
        found
    }

    #[test]
    fn every_command_of_the_documentation_is_one() {
        let repository = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let mut directories: Vec<_> = ["crates", "deploy", "docs", "tests"]
            .map(|name| repository.join(name))
            .into();
        let mut pages = vec![
            repository.join("README.md"),
            repository.join("CONTRIBUTING.md"),
        ];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() && !path.ends_with("node_modules") {
                    directories.push(path);
                } else if path.extension().is_some_and(|it| it == "md") {
                    pages.push(path);
                }
            }
        }
        let mut seen = 0;
        for page in pages {
            for command in commands(&std::fs::read_to_string(&page).unwrap()) {
                let error = Cli::try_parse_from(&command).err();
                // `KEY` stands for a value, and is none.
                let error = error.filter(|error| error.kind() != ErrorKind::ValueValidation);
                let error = error.map(|error| error.to_string());
                assert_eq!(error, None, "{}: {command:?}", page.display());
                seen += 1;
            }
        }
        assert!(seen > 30, "the pages are where they are looked for: {seen}");
    }

    #[test]
    fn a_lifetime_reads_as_people_write_it() {
        assert_eq!(lifetime("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(lifetime("30m"), Ok(Duration::from_secs(1_800)));
        assert_eq!(lifetime("1h"), Ok(Duration::from_secs(3_600)));
        for bad in ["", "h", "1d", "0s", "25h", "-1s"] {
            assert!(lifetime(bad).is_err(), "{bad}");
        }
    }
}
