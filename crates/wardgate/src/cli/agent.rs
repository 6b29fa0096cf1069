//! Options of `wardgate agent`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use wardgate_tool_call_parser::Family;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct AgentArgs {
    #[command(subcommand)]
    pub(crate) command: Option<AgentCommand>,
    /// Path of the configuration file to run the service with.
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Extract tool calls from model output: JSON lines from standard input to standard output.
    ///
    /// Each input line is `{"id", "text", "tools", "family"?, "template"?}`, with tools as in the chat completions API. Its
    /// output line is `{"id", "calls": [{"name", "arguments"}], "text"}`, or `{"id", "error"}` if the input is invalid.
    Extract(ExtractArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ExtractArgs {
    /// Model family of lines without `family`; `unknown` for any.
    #[arg(long, value_name = "FAMILY", default_value_t = Family::UNKNOWN)]
    pub(crate) family: Family,
    /// File with the chat template (Jinja) of the model, for lines with neither `template` nor `family`. Calls are parsed
    /// in the format of the template.
    #[arg(long, value_name = "FILE")]
    pub(crate) template: Option<PathBuf>,
}
