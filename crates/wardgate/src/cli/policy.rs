//! The options of `wardgate policy`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use wardgate_domain::{TimeZone, Timestamp};

use super::{
    OperatorSignIn, OutputOptions, RecordAccess, RunningSystem, call_count, claim, instant,
};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    pub(crate) command: Option<PolicyCommand>,
    /// Path of the configuration file to run the service with.
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Validate a directory of policies, and warn of probable mistakes: a policy without effect, an unknown name, a forbid
    /// that can fail to evaluate.
    Check {
        /// Directory of `*.cedar` files, and of `*.cedarschema` files that add row types and attributes of callers.
        directory: PathBuf,
        /// Path of the catalogue. Warns of tools, tags and classes that it does not define, and of what no caller can use.
        #[arg(long, value_name = "FILE")]
        tools: Option<PathBuf>,
        /// Role that issuers grant; may be repeated. Warns of other roles in the policies.
        #[arg(long = "role", value_name = "ROLE")]
        roles: Vec<String>,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Print how each column tier transforms the values of each class.
    Classes {
        /// Path of a `tools.yaml`, or of a directory of such files, whose `classes` are printed first.
        #[arg(long, value_name = "FILE")]
        tools: Option<PathBuf>,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Print the row types and arguments of a `tools.yaml`, for a `.cedarschema` beside the policies. Column types are read
    /// from its databases if they are reachable.
    Schema {
        /// Path of the `tools.yaml`, or of a directory of such files.
        #[arg(long, value_name = "FILE")]
        tools: PathBuf,
    },
    /// Run the tests of a directory of policies: `tests/*.yaml` and `*.test.yaml` in it. Exit code 1 if a test fails.
    Test(PolicyTestRun),
    /// Pack a directory of policies as a signed bundle with a version, or verify one, for `policy.bundle`.
    Bundle {
        #[command(subcommand)]
        command: BundleCommand,
    },
    /// Explain the decision on a given or a recorded call: the deciding policies, their inputs, and the changes that would
    /// reverse it. For policy authors; do not show it to a refused caller.
    Explain(Box<PolicyExplain>),
    /// Compare two directories of policies: access gained and lost per tool, row type and column class, by a bounded search.
    /// With the solver cvc5, also try to prove that nobody gains access.
    Diff(PolicyDiff),
    /// Evaluate recorded calls with other policies, and print those whose decision would change. Policy must permit
    /// `read_record`, unless with `--offline`.
    Replay(PolicyReplay),
    /// List the callers and tools that the candidate of `policy.shadow` decides differently in the running system, newest
    /// first. Arguments are not stored. With several replicas, one of them answers.
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
    /// Directory of policies.
    pub(crate) directory: PathBuf,
    /// Path of the catalogue with the tested tools. Default: `tools.yaml` beside the directory, if it exists.
    #[arg(long, value_name = "FILE")]
    pub(crate) tools: Option<PathBuf>,
    /// Fail also if a policy decides no test.
    #[arg(long)]
    pub(crate) require_coverage: bool,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BundleCommand {
    /// Check a directory of policies, run its tests, and write it as one signed file. The same directory, version and key
    /// always create the same file.
    Create(BundleCreation),
    /// Verify the signature of a bundle, try its policies and tests, and print its version, digest and files.
    Verify(BundleVerification),
}

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct BundleCreation {
    /// Directory of policies and tests.
    pub(crate) directory: PathBuf,
    /// Version of the bundle, at least 1. A service accepts no version below the highest that was in force.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) version: u64,
    /// Ed25519 private key, PKCS#8 in PEM.
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// Path of the file to write. In a directory of bundles, its name must end in `.bundle`.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Path of the catalogue with the tested tools. Default: `tools.yaml` beside the directory, if it exists.
    #[arg(long, value_name = "FILE")]
    pub(crate) tools: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Debug, Args)]
pub(crate) struct BundleVerification {
    /// Path of the bundle.
    pub(crate) file: PathBuf,
    /// Trusted Ed25519 public key, PEM; may be repeated.
    #[arg(long = "public-key", value_name = "FILE", required = true)]
    pub(crate) public_keys: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyExplain {
    /// Directory of policies.
    pub(crate) directory: PathBuf,
    /// Id of a recorded call, whose caller, roles, tool, time and address are used. Attributes and arguments are not
    /// recorded: specify them with --claim and --args. Policy must permit `read_record`, unless with --offline.
    #[arg(long, value_name = "ID", conflicts_with_all = ["sub", "roles", "tool", "client_ip", "time"])]
    pub(crate) call: Option<String>,
    /// Subject of the caller.
    #[arg(long, value_name = "SUB", required_unless_present = "call")]
    pub(crate) sub: Option<String>,
    /// Role of the caller; may be repeated.
    #[arg(long = "role", value_name = "ROLE")]
    pub(crate) roles: Vec<String>,
    /// Attribute of the caller, by its name in the schema, for example `ward=W2`; may be repeated. The value is read as
    /// JSON if it is valid JSON, otherwise as a string.
    #[arg(long = "claim", value_name = "NAME=VALUE", value_parser = claim)]
    pub(crate) claims: Vec<(String, String)>,
    /// Name of the tool (not an alias).
    #[arg(long, value_name = "NAME", required_unless_present = "call")]
    pub(crate) tool: Option<String>,
    /// Arguments of the call, as a JSON object.
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub(crate) args: String,
    /// Row of the result, as a JSON object; prints whether it would be released.
    #[arg(long, value_name = "JSON")]
    pub(crate) row: Option<String>,
    /// Address of the client.
    #[arg(long, value_name = "ADDR")]
    pub(crate) client_ip: Option<String>,
    /// Time of the call: 2026-01-07T12:00 in the time zone, or RFC 3339. Default: now.
    #[arg(long, value_name = "TIME")]
    pub(crate) time: Option<String>,
    /// Time zone of the policies, as `policy.time_zone` names it.
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    pub(crate) time_zone: TimeZone,
    /// Value of a counter of `entity History`, for example `exports=3`; may be repeated. Default: 0.
    #[arg(long = "history", value_name = "NAME=COUNT", value_parser = call_count)]
    pub(crate) history: Vec<(String, u64)>,
    /// Path of the catalogue with the tool. Default: `tools.yaml` beside the directory.
    #[arg(long, value_name = "FILE")]
    pub(crate) tools: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    #[command(flatten)]
    pub(crate) access: RecordAccess,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyDiff {
    /// Directory of the current policies.
    pub(crate) before: PathBuf,
    /// Directory of the new policies.
    pub(crate) after: PathBuf,
    /// Path of the catalogue. Default: `tools.yaml` beside the first directory if it exists, otherwise tools derived from
    /// the names and tags in the policies.
    #[arg(long, value_name = "FILE")]
    pub(crate) tools: Option<PathBuf>,
    /// Exit with 1 if any access is gained.
    #[arg(long)]
    pub(crate) fail_on_gain: bool,
    /// Path of the solver cvc5, version 1.3.1 or later. Default: `cvc5` in `PATH`, if it exists.
    #[arg(long, value_name = "FILE")]
    pub(crate) solver: Option<PathBuf>,
    /// Exit with 1 unless it is proved that nobody gains access.
    #[arg(long)]
    pub(crate) require_proof: bool,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyReplay {
    /// Directory of the policies to evaluate.
    #[arg(long, value_name = "DIR")]
    pub(crate) with: PathBuf,
    /// Path of the catalogue. Default: `tools.yaml` beside the directory.
    #[arg(long, value_name = "FILE")]
    pub(crate) tools: Option<PathBuf>,
    /// Time zone of the policies, as `policy.time_zone` names it.
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    pub(crate) time_zone: TimeZone,
    /// Only calls at or after this time (RFC 3339, or a date).
    #[arg(long, value_name = "TIME", value_parser = instant)]
    pub(crate) since: Option<Timestamp>,
    /// Only calls before this time (RFC 3339, or a date).
    #[arg(long, value_name = "TIME", value_parser = instant)]
    pub(crate) until: Option<Timestamp>,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    #[command(flatten)]
    pub(crate) access: RecordAccess,
}
