//! The command-line interface: commands, their arguments and their options.

mod agent;
mod api_key;
mod approvals;
mod audit;
mod calls;
mod conversations;
mod doctor;
mod import;
mod init;
mod limits;
mod login;
mod output;
mod policy;
mod revoke;
mod stdio;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use wardgate_domain::Timestamp;

pub(crate) use agent::{AgentArgs, AgentCommand, ExtractArgs};
pub(crate) use api_key::{ApiKeyArgs, ApiKeyCommand, KeyFilePath, NewApiKey};
pub(crate) use approvals::{ApprovalOptions, ApprovalsArgs, ApprovalsCommand};
pub(crate) use audit::{
    AuditArgs, AuditCheckpoint, AuditCommand, AuditErase, AuditExport, AuditKey, AuditProof,
    AuditQuery, AuditRekey, AuditRetention, AuditVerify, AuditWitness, RecordAccess, RecordSource,
    RecordView, WitnessCommand,
};
pub(crate) use calls::{BenchArgs, CallArgs, ClientOptions, ProtocolEra};
pub(crate) use conversations::{
    ConversationsArgs, ConversationsCommand, HoldChange, ListOptions, OwnerFilter, RekeyOptions,
};
pub(crate) use doctor::{ConfigSection, DoctorArgs};
pub(crate) use import::{ImportArgs, ImportFrom};
pub(crate) use init::InitArgs;
pub(crate) use limits::LimitsArgs;
pub(crate) use login::{ContextsArgs, ContextsCommand, LoginArgs, LogoutArgs};
pub(crate) use output::{LogVerbosity, OutputFormat, OutputOptions, RecordFormat};
pub(crate) use policy::{
    BundleCommand, BundleCreation, BundleVerification, PolicyArgs, PolicyCommand, PolicyDiff,
    PolicyExplain, PolicyReplay, PolicyShadow, PolicyTestRun,
};
pub(crate) use revoke::{RevocationOptions, RevokeArgs, RevokeCommand};
pub(crate) use stdio::StdioArgs;

/// MCP gateway for AI agents: authenticated callers, policies down to row and column, and an audit log of every call.
#[derive(Debug, Parser)]
#[command(name = "wardgate", version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) verbosity: LogVerbosity,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a small project with a table, one tool and policies for two roles, and print the next steps.
    Init(InitArgs),
    /// Run all services in one process.
    Up(UpArgs),
    /// Run the gateway service: MCP over HTTP.
    Gateway(ConfigFile),
    /// Run the policy service, or check, test, explain, compare and replay policies.
    Policy(PolicyArgs),
    /// Run the tool-runner service.
    ToolRunner(ConfigFile),
    /// Run the audit service, or query, export and verify the audit log.
    Audit(AuditArgs),
    /// Run the agent service, or extract tool calls from model output.
    Agent(AgentArgs),
    /// Run the memory service.
    Memory(ConfigFile),
    /// Run the console service: web pages for users.
    Console(ConfigFile),
    /// List, erase and hold the conversations of a running system, without access to their content.
    Conversations(ConversationsArgs),
    /// Run a stdio MCP server that forwards a desktop client's requests to a gateway.
    Stdio(StdioArgs),
    /// Sign in to a gateway and store the token for other commands.
    Login(LoginArgs),
    /// Delete a stored sign-in.
    Logout(LogoutArgs),
    /// List stored sign-ins, or select the current one.
    Contexts(ContextsArgs),
    /// Print a token signed by the local issuer.
    Token(TokenArgs),
    /// Create, list or revoke API keys for machines.
    ApiKey(ApiKeyArgs),
    /// List, show, approve and refuse calls that wait for your approval.
    Approvals(ApprovalsArgs),
    /// Print the usage of rate limits and quotas by caller, and when they reset.
    Limits(LimitsArgs),
    /// Revoke a token, a subject or a session at every gateway within a second, or lift a revocation.
    Revoke(RevokeArgs),
    /// Check, list, import, approve, enable, disable and call tools.
    Tools(ToolsArgs),
    /// Create certificates and keys.
    Certs(CertsArgs),
    /// Check or print a configuration, or print a JSON Schema.
    Config(ConfigArgs),
    /// Diagnose a deployment without changing it, and print remedies. Checks configuration, keys, certificates, issuers,
    /// services, clocks, databases, versions and the audit log. Exit code 1 if a check fails.
    Doctor(DoctorArgs),
    /// Migrate every store of a configuration to the newest schema, and grant the services' roles access.
    Migrate(ConfigFile),
    /// Former name of `tools call`.
    #[command(hide = true)]
    Call(CallArgs),
    /// Load-test tools over MCP, verify every answer, and print latencies.
    Bench(BenchArgs),
    /// Check whether a running process is ready. Exit code 0 if it is.
    Health(HealthArgs),
    /// Print a shell completion script.
    Completions {
        /// Shell to complete in.
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Write a manual page for each command.
    Man {
        /// Output directory, created if it does not exist.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// The location of the configuration.
#[derive(Debug, Args)]
pub(crate) struct ConfigFile {
    /// Path of the configuration file (YAML). Environment variables such as `WARDGATE_GATEWAY__LISTEN` override it.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Path of the configuration file (YAML). Default: `wardgate.yaml` in this directory if it exists, otherwise the demo.
    #[arg(long, value_name = "FILE", conflicts_with = "demo")]
    pub(crate) config: Option<PathBuf>,
    /// Directory of keys, the audit log and the demo's data, created if it does not exist.
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub(crate) data_dir: PathBuf,
    /// Listen address and port; port 0 selects a free port. Overrides the configuration.
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,
    /// Demo to load.
    #[arg(long, value_enum)]
    pub(crate) demo: Option<Demo>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Demo {
    /// Patients, records, staff and shifts of a hospital, with policies for five roles.
    Hospital,
}

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// Data directory of the local issuer.
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub(crate) data_dir: PathBuf,
    /// Subject of the token.
    #[arg(long, value_name = "SUB")]
    pub(crate) sub: String,
    /// Role of the caller; may be repeated.
    #[arg(long = "role", value_name = "ROLE", required = true)]
    pub(crate) roles: Vec<String>,
    /// Additional claim, for example `ward=W2`; may be repeated.
    #[arg(long = "claim", value_name = "NAME=VALUE", value_parser = claim)]
    pub(crate) claims: Vec<(String, String)>,
    /// Lifetime of the token, for example `30m`, `1h` or `90s`.
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
    /// Check a catalogue: print every error with file, line and remedy, and warn of tools and columns that no caller can
    /// use.
    Check {
        /// Path of the `tools.yaml`, or of a directory of such files.
        #[arg(default_value = "tools.yaml")]
        file: PathBuf,
        /// Directory of the policies for its tools. Default: `policies` beside the catalogue, if it exists.
        #[arg(long, value_name = "DIR")]
        policies: Option<PathBuf>,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// List the tools of a catalogue, or those that a gateway offers you.
    List {
        /// Path of the `tools.yaml`, or of a directory of such files. Default: `tools.yaml` in this directory. If it does
        /// not exist, or a gateway, token or sign-in is given, the tools that you may call at the gateway are listed.
        file: Option<PathBuf>,
        #[command(flatten)]
        output: OutputOptions,
        #[command(flatten)]
        caller: ClientOptions,
    },
    /// Call a tool over MCP and print its result.
    Call(CallArgs),
    /// Validate arguments against input schemas, as a call does. Reads JSON lines `{"id", "schema", "arguments"}` from
    /// standard input and writes `{"id", "ok", "arguments" or "error" and "path"}` to standard output.
    Validate,
    /// Compare the current tools of MCP servers with those approved in `tools.lock`.
    Diff {
        #[command(flatten)]
        catalogue: CatalogueFile,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Approve the current tools of MCP servers in `tools.lock` beside the catalogue.
    Approve(ApproveArgs),
    /// Generate a catalogue for review from an existing source. Choices and omissions are reported on standard error.
    Import(ImportArgs),
    /// Enable a tool, toolset or upstream, overriding less specific switches.
    Enable(SwitchChange),
    /// Disable a tool, toolset or upstream: callers cannot see or call it.
    Disable(SwitchChange),
    /// Remove a switch, so that less specific switches apply.
    Reset(SwitchChange),
    /// Print the switches of a running system.
    Switches {
        #[command(flatten)]
        system: RunningSystem,
        #[command(flatten)]
        operator: OperatorSignIn,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Print which users authorized which sources to act in their name.
    Connections {
        #[command(flatten)]
        system: RunningSystem,
        #[command(flatten)]
        operator: OperatorSignIn,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Delete a user's tokens for sources. Their next call requires authorization again.
    Disconnect(DisconnectArgs),
}

/// The tokens to delete.
#[derive(Debug, Args)]
pub(crate) struct DisconnectArgs {
    /// Subject of the user at the issuer.
    #[arg(long, value_name = "SUBJECT")]
    pub(crate) user: String,
    /// Only users of this issuer.
    #[arg(long)]
    pub(crate) issuer: Option<String>,
    /// Only tokens for this source.
    #[arg(long)]
    pub(crate) source: Option<String>,
    #[command(flatten)]
    pub(crate) operator: OperatorSignIn,
    #[command(flatten)]
    pub(crate) system: RunningSystem,
}

/// The location of the catalogue.
#[derive(Debug, Args)]
pub(crate) struct CatalogueFile {
    /// Path of the `tools.yaml`, or of a directory of such files.
    #[arg(long, value_name = "FILE", default_value = "tools.yaml")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ApproveArgs {
    /// Names of the tools, as clients see them. A suspicious tool can only be approved by name.
    #[arg(value_name = "NAME", required_unless_present_any = ["all_harmless", "source"])]
    pub(crate) names: Vec<String>,
    /// Approve all harmless changes.
    #[arg(long, conflicts_with_all = ["names", "source"])]
    pub(crate) all_harmless: bool,
    /// Approve the tools of this source that are not suspicious. They are shown first, and approved with `--reviewed`.
    #[arg(long, value_name = "SOURCE", conflicts_with = "names")]
    pub(crate) source: Option<String>,
    /// Digest of the reviewed tools, as printed by `tools diff` and by `--source` alone. Nothing else is approved.
    #[arg(long, value_name = "DIGEST", conflicts_with = "all")]
    pub(crate) reviewed: Option<String>,
    /// With --source: approve all of its current tools without review.
    #[arg(long, requires = "source")]
    pub(crate) all: bool,
    /// Name of the approver, for the lock file and the audit log.
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    pub(crate) by: Option<String>,
    #[command(flatten)]
    pub(crate) catalogue: CatalogueFile,
}

#[derive(Debug, Args)]
pub(crate) struct SwitchChange {
    /// Name of the tool (not an alias), toolset or source.
    pub(crate) name: String,
    /// NAME is a toolset.
    #[arg(long, conflicts_with = "upstream")]
    pub(crate) toolset: bool,
    /// NAME is a source of `tools.yaml`; applies to all of its tools.
    #[arg(long)]
    pub(crate) upstream: bool,
    /// Only for callers with this role.
    #[arg(long, value_name = "ROLE", conflicts_with = "user")]
    pub(crate) role: Option<String>,
    /// Only for this caller. A user overrides roles, and a role overrides the general switch.
    #[arg(long, value_name = "SUB")]
    pub(crate) user: Option<String>,
    /// Only if the user's token is from this issuer.
    #[arg(long, value_name = "URL", requires = "user")]
    pub(crate) issuer: Option<String>,
    #[command(flatten)]
    pub(crate) operator: OperatorSignIn,
    #[command(flatten)]
    pub(crate) system: RunningSystem,
}

/// The credentials for a running system. Default: the token in the environment variable `WARDGATE_TOKEN`, or that of your
/// sign-in.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct OperatorSignIn {
    /// File with your token. The operation must be permitted by policy and is recorded.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Name of a sign-in of `wardgate login`.
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

/// The location of a running system.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct RunningSystem {
    /// Data directory of a running `wardgate up`.
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub(crate) data_dir: PathBuf,
    /// Path of a configuration file whose section `operator` has the URLs of the services.
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
    /// Create a temporary CA, a certificate for each service, and all required keys.
    Dev {
        /// Output directory; files are written to `certs/` and `keys/` in it. Existing keys are kept.
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
    /// Check a configuration file and the files that it names, as a start would load them.
    Check(ConfigCheck),
    /// Print the configuration, including environment variables.
    Dump {
        #[command(flatten)]
        file: ConfigFile,
        /// Output format.
        #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = OutputFormat::Json)]
        output: OutputFormat,
    },
    /// Print the JSON Schema of a file, for editors.
    Schema {
        /// File that the schema describes.
        #[arg(value_enum, value_name = "FILE", default_value_t = SchemaOf::Tools)]
        of: SchemaOf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ConfigCheck {
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    /// Check only the file itself, not the files that it names.
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
    #[command(flatten)]
    pub(crate) output: OutputOptions,
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

fn call_count(text: &str) -> Result<(String, u64), String> {
    let (name, count) = claim(text)?;
    let count = count.parse();
    Ok((
        name,
        count.map_err(|_| "write NAME=COUNT with a whole number")?,
    ))
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
        return Err("a token is valid for 1 second to 24 hours".to_owned());
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

    /// Splits a line into words as a shell does. Returns `None` if a quote is not closed.
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

    /// Returns the commands of this program in the shell blocks of a Markdown page.
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
                // Placeholders such as `KEY` are not valid values, so errors about values are ignored.
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
