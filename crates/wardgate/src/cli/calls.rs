//! Options of `wardgate tools call` and `wardgate bench`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use reqwest::Url;

use super::{OutputFormat, OutputOptions};

/// The gateway and the credentials of the caller.
#[derive(Debug, Args)]
pub(crate) struct ClientOptions {
    /// URL of the gateway's MCP endpoint; the default path is `/mcp`. Default: that of your sign-in, or
    /// `http://127.0.0.1:8080`.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<Url>,
    /// Name of a sign-in of `wardgate login`. Default: the current one.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["token_file", "token", "url"])]
    pub(crate) context: Option<String>,
    /// File with your token. Default: the token in the environment variable `WARDGATE_TOKEN`, or that of your sign-in.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Your token, for trials. Other processes on this machine can read it.
    #[arg(long, value_name = "TOKEN", conflicts_with = "token_file")]
    pub(crate) token: Option<String>,
    /// MCP version: `modern` is 2026-07-28, `legacy` is 2025-11-25.
    #[arg(long, value_enum, default_value_t = ProtocolEra::Modern)]
    pub(crate) era: ProtocolEra,
    /// Maximum duration of a call in seconds.
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
    /// Arguments of the tool, as a JSON object.
    #[arg(long = "args", value_name = "JSON", default_value = "{}")]
    pub(crate) arguments: String,
    /// Output format of the result; `table` prints only its text.
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
    /// Arguments of the tool, as a JSON object.
    #[arg(long = "args", value_name = "JSON", default_value = "{}")]
    pub(crate) arguments: String,
    /// File with calls to make in turn instead of one tool, one `{"tool": …, "arguments": {…}}` per line.
    #[arg(long, value_name = "FILE", conflicts_with = "tool")]
    pub(crate) calls: Option<PathBuf>,
    /// Number of callers, each of which waits for its answer on its own connection (closed loop).
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 16,
        conflicts_with = "rate"
    )]
    pub(crate) connections: usize,
    /// Number of calls per second, regardless of answers (open loop). Latency is measured from the scheduled time.
    #[arg(long, value_name = "PER_SECOND")]
    pub(crate) rate: Option<f64>,
    /// Duration of the warm-up in seconds, which is not measured.
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    pub(crate) warm_up: u64,
    /// Duration of the measurement in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub(crate) seconds: u64,
    /// The URL is that of an MCP server, not of a gateway: answers have no receipt.
    #[arg(long)]
    pub(crate) direct: bool,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    #[command(flatten)]
    pub(crate) caller: ClientOptions,
}
