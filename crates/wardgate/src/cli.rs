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
    AuditQuery, AuditRetention, AuditVerify, AuditWitness, OperatorToken, RecordSource, RecordView,
    WitnessCommand,
};
pub(crate) use calls::{BenchArgs, CallArgs, ClientOptions, ProtocolEra};
pub(crate) use conversations::{
    ConversationsArgs, ConversationsCommand, HoldChange, ListOptions, OwnerFilter,
};
pub(crate) use doctor::{ConfigSection, DoctorArgs};
pub(crate) use import::{ImportArgs, ImportFrom};
pub(crate) use init::InitArgs;
pub(crate) use limits::LimitsArgs;
pub(crate) use login::{ContextsArgs, ContextsCommand, LoginArgs, LogoutArgs};
pub(crate) use output::{LogVerbosity, OutputFormat, OutputOptions, RecordFormat};
pub(crate) use policy::{
    PolicyArgs, PolicyCommand, PolicyDiff, PolicyExplain, PolicyReplay, PolicyShadow, PolicyTestRun,
};
pub(crate) use revoke::{RevocationOptions, RevokeArgs, RevokeCommand};
pub(crate) use stdio::StdioArgs;

/// Governed access for AI agents: known callers, rules down to row and column, a record of every call.
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
    /// Print what is used of the rate limit of each caller and of every quota, by whom, and when it resets.
    Limits(LimitsArgs),
    /// Refuse a token, a subject or a sign-in at every gateway within a second, or accept it again.
    Revoke(RevokeArgs),
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
        #[command(flatten)]
        output: OutputOptions,
    },
    /// List the tools of a catalogue.
    List {
        /// The `tools.yaml`, or a directory of such files. Without it, that of this directory; where there is none, or a
        /// gateway, token or sign-in is named, the tools that you may call there.
        file: Option<PathBuf>,
        #[command(flatten)]
        output: OutputOptions,
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
        #[command(flatten)]
        output: OutputOptions,
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
        #[command(flatten)]
        operator: OperatorSignIn,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Print who let which source of a running system act in their name.
    Connections {
        #[command(flatten)]
        system: RunningSystem,
        #[command(flatten)]
        operator: OperatorSignIn,
        #[command(flatten)]
        output: OutputOptions,
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
    #[command(flatten)]
    pub(crate) operator: OperatorSignIn,
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
    #[command(flatten)]
    pub(crate) operator: OperatorSignIn,
    #[command(flatten)]
    pub(crate) system: RunningSystem,
}

/// As whom a running system is asked. Without either, the token is that of the environment variable `WARDGATE_TOKEN`, or of
/// your sign-in.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct OperatorSignIn {
    /// File with your token. What the policy has to permit you, and that you did it, is on record.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Which sign-in of `wardgate login`.
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
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
    /// Print the configuration with the environment applied.
    Dump {
        #[command(flatten)]
        file: ConfigFile,
        /// How to print it.
        #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = OutputFormat::Json)]
        output: OutputFormat,
    },
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
