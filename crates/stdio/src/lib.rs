//! A gateway as a stdio MCP server, for clients on a desktop.
//!
//! ```text
//!            a line, a message                          Streamable HTTP
//!  client ──▶ stdin ──▶ pipes ──▶ bridge ── POST ──────────────────────▶ gateway
//!         ◀── stdout ◀──┘ ◀──────────┤ ◀─── JSON, or a stream of events ──┘
//!                                    └──── GET, of a legacy session: what comes unasked
//! ```
//!
//! One job: carry each message over, of either era, and see to it that every request has an end. It keeps the
//! session of a legacy client and the names of repeated arguments, and decides nothing: a message goes as it
//! came, with the holder's token.

mod bridge;
mod events;
mod fault;
mod gateway;
mod headers;
mod in_flight;
mod message;
mod mirrored_headers;
mod pipes;
mod session;
mod token;

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;

pub use token::TokenSource;

use bridge::Bridge;
use gateway::GatewayClient;

/// The longest line, and the longest message of the gateway: well above what a gateway takes and gives.
const MAX_MESSAGE_BYTES: usize = 8 << 20;

/// How long requests may still run when the client closed its end.
const LAST_ANSWERS: Duration = Duration::from_secs(30);

/// How long the client may take to read what was still said to it.
const LAST_LINES: Duration = Duration::from_secs(2);

/// A bridge that cannot start, or that lost its client.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be a gateway's.
    #[error("--url: {0}")]
    Url(&'static str),
    /// The token file cannot be used.
    #[error("the token file {path} cannot be used: {problem}")]
    TokenFile {
        /// Its path, as it was named.
        path: String,
        /// Why.
        problem: String,
    },
    /// `WARDGATE_TOKEN` is no token.
    #[error("WARDGATE_TOKEN is not a token")]
    TokenVariable,
    /// The system has no certificates to check the gateway's with.
    #[error("no TLS: the system's certificates cannot be read")]
    Tls,
    /// A line that no gateway would take, from a client that would wait for its answer for ever.
    #[error("a message is longer than {} MiB", MAX_MESSAGE_BYTES >> 20)]
    LineTooLong,
    /// Standard input failed.
    #[error("standard input cannot be read")]
    Input(#[source] io::Error),
}

/// Where the gateway is, and as whom to come.
#[derive(Debug)]
pub struct Settings {
    /// Its MCP endpoint; without a path, `/mcp`.
    pub url: Url,
    /// Where the holder's token is.
    pub token: TokenSource,
}

/// Serves the client at `input` and `output` until it closes its end, or until `stop`. After that the requests
/// under way have a while to end, with `stop` none; then the session ends.
pub async fn run(
    settings: Settings,
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    let gateway = GatewayClient::new(settings)?;
    let mut lines = pipes::lines(input);
    let (out, written) = pipes::output(output);
    let bridge = Arc::new(Bridge::new(gateway, out.clone()));
    let reading = out.clone();
    let stopped = async {
        tokio::select! {
            () = stop => {}
            () = reading.closed() => {}
        }
    };
    let served = async {
        let ended = bridge.serve(&mut lines).await;
        bridge.finish(LAST_ANSWERS).await;
        ended
    };
    let ended = tokio::select! {
        biased;
        () = stopped => Ok(()),
        ended = served => ended,
    };
    bridge.close().await;
    drop((bridge, out, reading));
    // A client that reads no more has seen what it wanted to see.
    let _ = tokio::time::timeout(LAST_LINES, written).await;
    ended
}

#[cfg(test)]
mod tests;
