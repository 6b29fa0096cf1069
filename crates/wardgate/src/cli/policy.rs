//! The options of `wardgate policy`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use wardgate_domain::{TimeZone, Timestamp};

use super::{
    OperatorSignIn, OutputOptions, RecordSource, RunningSystem, call_count, claim, instant,
};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    pub(crate) command: Option<PolicyCommand>,
    /// Run the service with this configuration file.
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Load and validate a directory of policies, and warn of what is valid and looks like a mistake: a policy that never
    /// changes an answer, a name that there is not, a forbid that can fail.
    Check {
        /// Directory with `*.cedar` files, and `*.cedarschema` files that add row types and attributes of callers.
        directory: PathBuf,
        /// Warn of tools, tags and classes that this catalogue does not have, and of what in it reaches nobody.
        #[arg(long, value_name = "FILE")]
        tools: Option<PathBuf>,
        /// A role that issuers give; may be given several times. Warns of other roles in the policies.
        #[arg(long = "role", value_name = "ROLE")]
        roles: Vec<String>,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Print what each column tier does to the values of each class.
    Classes {
        /// A `tools.yaml`, or a directory of them, whose `classes` are printed first.
        #[arg(long, value_name = "FILE")]
        tools: Option<PathBuf>,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Print the row types and the arguments of a `tools.yaml`, for a `.cedarschema` beside the policies. Its databases tell
    /// the types of columns where they can be reached.
    Schema {
        /// The `tools.yaml`, or a directory of them.
        #[arg(long, value_name = "FILE")]
        tools: PathBuf,
    },
    /// Run the tests of a directory of policies: `tests/*.yaml` in it and `*.test.yaml` beside the policies. Exit code 1 when
    /// one fails.
    Test(PolicyTestRun),
    /// Explain a decision, ad hoc or of a recorded call: the policies that decided, what they look at, and what would have to
    /// change for the other answer. For those who write policies; do not show it to a refused caller.
    Explain(Box<PolicyExplain>),
    /// Compare two directories of policies: who gains and who loses what, per tool, row type and column class. A bounded
    /// search, no proof.
    Diff(PolicyDiff),
    /// Decide recorded calls anew by other policies, and print those whose decision would flip.
    Replay(PolicyReplay),
    /// List what the candidate of `policy.shadow` decides differently from the policies in force, in the running system:
    /// callers and tools, the newest first. Arguments are not kept. With several replicas, of the one that answers.
    Shadow(PolicyShadow),
}

#[derive(Debug, Args)]
pub(crate) struct PolicyShadow {
    #[command(flatten)]
    pub(crate) system: RunningSystem,
    #[command(flatten)]
    pub(crate) operator: OperatorSignIn,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyTestRun {
    /// The directory of policies.
    pub(crate) directory: PathBuf,
    /// The catalogue whose tools the tests name; without it, `tools.yaml` beside the directory where that is there.
    #[arg(long, value_name = "FILE")]
    pub(crate) tools: Option<PathBuf>,
    /// Fail too where a policy decided nothing in any test.
    #[arg(long)]
    pub(crate) require_coverage: bool,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyExplain {
    /// The directory of policies.
    pub(crate) directory: PathBuf,
    /// A recorded call: its caller, roles, tool, time and address are taken from the record. Attributes and arguments are not on record:
    /// give them with --claim and --args.
    #[arg(long, value_name = "ID", conflicts_with_all = ["sub", "roles", "tool", "client_ip", "time"])]
    pub(crate) call: Option<String>,
    /// Subject of the caller.
    #[arg(long, value_name = "SUB", required_unless_present = "call")]
    pub(crate) sub: Option<String>,
    /// Role of the caller; may be given several times.
    #[arg(long = "role", value_name = "ROLE")]
    pub(crate) roles: Vec<String>,
    /// Attribute of the caller, by its name in the schema, for example `ward=W2`; may be given several times. The value is
    /// read as JSON where it is JSON, and as text otherwise.
    #[arg(long = "claim", value_name = "NAME=VALUE", value_parser = claim)]
    pub(crate) claims: Vec<(String, String)>,
    /// Name of the tool, no alias.
    #[arg(long, value_name = "NAME", required_unless_present = "call")]
    pub(crate) tool: Option<String>,
    /// Arguments of the call, as a JSON object.
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub(crate) args: String,
    /// A row of the result, as a JSON object: says whether it would leave.
    #[arg(long, value_name = "JSON")]
    pub(crate) row: Option<String>,
    /// Address of the client.
    #[arg(long, value_name = "ADDR")]
    pub(crate) client_ip: Option<String>,
    /// Time of the call: 2026-01-07T12:00 in the time zone, or RFC 3339. Without it, now.
    #[arg(long, value_name = "TIME")]
    pub(crate) time: Option<String>,
    /// Time zone of the policies, as `policy.time_zone` names it.
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    pub(crate) time_zone: TimeZone,
    /// What a counter of `entity History` says, by its name, for example `exports=3`; may be given several times. Without it, 0.
    #[arg(long = "history", value_name = "NAME=COUNT", value_parser = call_count)]
    pub(crate) history: Vec<(String, u64)>,
    /// The catalogue that has the tool; without it, `tools.yaml` beside the directory.
    #[arg(long, value_name = "FILE")]
    pub(crate) tools: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    #[command(flatten)]
    pub(crate) record: RecordSource,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyDiff {
    /// The directory of policies as they are.
    pub(crate) before: PathBuf,
    /// The directory of policies as they are to be.
    pub(crate) after: PathBuf,
    /// The catalogue of tools; without it, `tools.yaml` beside the first directory where that is there, and otherwise tools
    /// made of the names and tags in the policies.
    #[arg(long, value_name = "FILE")]
    pub(crate) tools: Option<PathBuf>,
    /// Exit with 1 when somebody gains something.
    #[arg(long)]
    pub(crate) fail_on_gain: bool,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyReplay {
    /// The directory of policies that decide anew.
    #[arg(long, value_name = "DIR")]
    pub(crate) with: PathBuf,
    /// The catalogue of tools; without it, `tools.yaml` beside the directory.
    #[arg(long, value_name = "FILE")]
    pub(crate) tools: Option<PathBuf>,
    /// Time zone of the policies, as `policy.time_zone` names it.
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    pub(crate) time_zone: TimeZone,
    /// Only calls from this instant on (RFC 3339).
    #[arg(long, value_name = "TIME", value_parser = instant)]
    pub(crate) since: Option<Timestamp>,
    /// Only calls before this instant (RFC 3339).
    #[arg(long, value_name = "TIME", value_parser = instant)]
    pub(crate) until: Option<Timestamp>,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    #[command(flatten)]
    pub(crate) record: RecordSource,
}
