//! Exposes a gateway as a stdio MCP server, for desktop clients.
//!
//! ```text
//!            a line, a message                          Streamable HTTP
//!  client ──▶ stdin ──▶ pipes ──▶ bridge ── POST ──────────────────────▶ gateway
//!         ◀── stdout ◀──┘ ◀──────────┤ ◀─── JSON, or a stream of events ──┘
//!                                    └──── GET, of a legacy session: server messages
//! ```
//!
//! The crate forwards each message, of either protocol era, and makes sure that every request is answered. It keeps the
//! session of a legacy client and the names of mirrored arguments, and makes no decisions: a message is forwarded
//! unchanged, with the user's token.

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

/// Maximum size of a line and of a message from the gateway, in bytes. It is well above the sizes that a gateway
/// accepts and sends.
const MAX_MESSAGE_BYTES: usize = 8 << 20;

/// Maximum time that requests may continue after the client closed its end.
const LAST_ANSWERS: Duration = Duration::from_secs(30);

/// Maximum time for the client to read the remaining output.
const LAST_LINES: Duration = Duration::from_secs(2);

/// The reason why a bridge cannot start or lost its client.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL cannot be that of a gateway.
    #[error("--url: {0}")]
    Url(&'static str),
    /// The token file cannot be used.
    #[error("the token file {path} cannot be used: {problem}")]
    TokenFile {
        /// The path of the file, as it was given.
        path: String,
        /// The reason.
        problem: String,
    },
    /// `WARDGATE_TOKEN` is not a token.
    #[error("WARDGATE_TOKEN is not a valid token")]
    TokenVariable,
    /// The system has no certificates to verify the gateway with.
    #[error("TLS is not available: the system's certificates cannot be read")]
    Tls,
    /// The client sent a line that is longer than any gateway accepts. It is fatal because the client would wait for a
    /// response forever.
    #[error("a message is longer than {} MiB", MAX_MESSAGE_BYTES >> 20)]
    LineTooLong,
    /// Standard input could not be read.
    #[error("standard input cannot be read")]
    Input(#[source] io::Error),
}

/// The address of the gateway, and the token to use.
#[derive(Debug)]
pub struct Settings {
    /// The MCP endpoint of the gateway. If the URL has no path, `/mcp` is used.
    pub url: Url,
    /// The source of the user's token.
    pub token: TokenSource,
}

/// Serves the client at `input` and `output` until the client closes its end or `stop` completes. If the client closed
/// its end, the requests in flight have limited time to finish; after `stop` they have none. Then the session ends.
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
    // A client that no longer reads does not need the remaining output.
    let _ = tokio::time::timeout(LAST_LINES, written).await;
    ended
}

#[cfg(test)]
mod tests;
