//! Options of `wardgate agent`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use wardgate_tool_call_parser::Family;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct AgentArgs {
    #[command(subcommand)]
    pub(crate) command: Option<AgentCommand>,
    /// Run the service with this configuration file.
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Find the tool calls in what models wrote: JSON lines from standard input to standard output.
    ///
    /// A line `{"id", "text", "tools", "family"?, "template"?}`, with tools as in the chat completions API, gives a line
    /// `{"id", "calls": [{"name", "arguments"}], "text"}`, or `{"id", "error"}` if it cannot be used.
    Extract(ExtractArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ExtractArgs {
    /// Which models wrote it, for lines that do not say; `unknown` for any.
    #[arg(long, value_name = "FAMILY", default_value_t = Family::UNKNOWN)]
    pub(crate) family: Family,
    /// The chat template (Jinja) of the model that wrote it, for lines that hold none and name no family. The calls are
    /// read as the template writes them.
    #[arg(long, value_name = "FILE")]
    pub(crate) template: Option<PathBuf>,
}
