//! Options of `wardgate tools call` and `wardgate bench`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use reqwest::Url;

use super::{OutputFormat, OutputOptions};

/// Where, and as whom.
#[derive(Debug, Args)]
pub(crate) struct ClientOptions {
    /// The gateway's MCP endpoint; without a path, `/mcp`. Without it, that of your sign-in, or `http://127.0.0.1:8080`.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<Url>,
    /// Which sign-in of `wardgate login`; without it, the current one.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["token_file", "token", "url"])]
    pub(crate) context: Option<String>,
    /// File with your token. Without one, the token is that of the environment variable `WARDGATE_TOKEN`, or of your sign-in.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The token itself, for trials: every process of this machine can read it here.
    #[arg(long, value_name = "TOKEN", conflicts_with = "token_file")]
    pub(crate) token: Option<String>,
    /// Which versions of MCP to speak: `modern` is 2026-07-28, `legacy` 2025-11-25.
    #[arg(long, value_enum, default_value_t = ProtocolEra::Modern)]
    pub(crate) era: ProtocolEra,
    /// Seconds one call may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) limit: u64,
}

impl ClientOptions {
    /// Returns whether the options name a gateway, a token or a sign-in.
    pub(crate) fn names_anything(&self) -> bool {
        let named = [&self.token, &self.context]
            .into_iter()
            .any(Option::is_some);
        named || self.url.is_some() || self.token_file.is_some()
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ProtocolEra {
    Modern,
    Legacy,
}

#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    /// Name of the tool.
    pub(crate) tool: String,
    /// Its arguments, a JSON object.
    #[arg(long = "args", value_name = "JSON", default_value = "{}")]
    pub(crate) arguments: String,
    /// How to print the result; `table` prints its texts alone.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = OutputFormat::Json)]
    pub(crate) output: OutputFormat,
    #[command(flatten)]
    pub(crate) caller: ClientOptions,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Name of the tool.
    #[arg(long, value_name = "NAME", required_unless_present = "calls")]
    pub(crate) tool: Option<String>,
    /// Its arguments, a JSON object.
    #[arg(long = "args", value_name = "JSON", default_value = "{}")]
    pub(crate) arguments: String,
    /// File of calls that are made in turn, one `{"tool": …, "arguments": {…}}` a line, instead of one tool.
    #[arg(long, value_name = "FILE", conflicts_with = "tool")]
    pub(crate) calls: Option<PathBuf>,
    /// So many callers, each with a connection on which it waits for its answer (a closed loop).
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 16,
        conflicts_with = "rate"
    )]
    pub(crate) connections: usize,
    /// So many calls a second, whatever comes back (an open loop): latency counts from when a call was due.
    #[arg(long, value_name = "PER_SECOND")]
    pub(crate) rate: Option<f64>,
    /// Seconds of calls that are not counted.
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    pub(crate) warm_up: u64,
    /// Seconds of calls that are.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub(crate) seconds: u64,
    /// The URL is an MCP server itself, not a gateway: its answers carry no receipt.
    #[arg(long)]
    pub(crate) direct: bool,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    #[command(flatten)]
    pub(crate) caller: ClientOptions,
}
