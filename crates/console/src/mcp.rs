//! A client of the gateway's MCP endpoint (protocol 2026-07-28). Each request is one POST with the person's own token.

use std::time::Duration;

use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wardgate_edge::{EdgeClient, EdgeClientError, GatewayCaller, GatewayRequest, GatewayResponse};
use wardgate_mcp::message::{ErrorObject, read_outcome};

use crate::session::SessionToken;

/// The gateway's MCP endpoint.
pub(crate) const MCP_PATH: &str = "/mcp";

/// Maximum size of a response, in bytes.
const MAX_ANSWER: usize = 4 * 1024 * 1024;

/// Maximum time of a request other than a tool call.
pub(crate) const ASK_LIMIT: Duration = Duration::from_secs(30);

/// Maximum time of a tool call. The gateway ends every call within 5 minutes, so this limit applies only if the gateway
/// does not.
pub(crate) const CALL_LIMIT: Duration = Duration::from_secs(310);

/// The client of the gateway.
#[derive(Debug, Clone)]
pub(crate) struct GatewayClient(EdgeClient);

/// A request with its response, and the outcome of the response.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) request: String,
    pub(crate) answer: String,
    pub(crate) outcome: Result<Value, ErrorObject>,
}

impl Exchange {
    /// Returns the `_meta` of the result or the `data` of the error, which contain the gateway's ids of the recorded
    /// call.
    pub(crate) fn meta(&self) -> &Value {
        match &self.outcome {
            Ok(result) => &result["_meta"],
            Err(error) => &error.data,
        }
    }

    /// Recreates an exchange from the texts of its request and its response.
    pub(crate) fn reread(request: String, answer: String) -> Option<Self> {
        let outcome = read_outcome(&answer, ID)?;
        Self::new(
            request,
            GatewayResponse {
                text: answer,
                outcome,
            },
        )
    }

    fn new(request: String, response: GatewayResponse) -> Option<Self> {
        let outcome = match response.outcome {
            Ok(result) => Ok(serde_json::from_str(result.get()).ok()?),
            Err(error) => Err(error),
        };
        Some(Self {
            request,
            answer: response.text,
            outcome,
        })
    }
}

/// A failure to get a response from the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub(crate) enum GatewayFault {
    #[error("the gateway cannot be reached")]
    Unreachable,
    #[error("the gateway did not answer in time")]
    Late,
    #[error("the gateway's answer is too large")]
    TooLarge,
    #[error("the gateway's answer cannot be read")]
    Unreadable,
    /// The gateway rejected the token, or there is none.
    #[error("the gateway does not accept the token")]
    Unauthorized,
    /// The gateway is overloaded, or the person exceeded a limit.
    #[error("the gateway is busy")]
    Busy,
}

impl GatewayFault {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::Unreachable | Self::TooLarge | Self::Unreadable => StatusCode::BAD_GATEWAY,
            Self::Late => StatusCode::GATEWAY_TIMEOUT,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns the explanation for people.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Unreachable => "It cannot be reached. Try again, or contact the operator.",
            Self::Late => {
                "It did not answer in time. The request may have been executed; check the audit records."
            }
            Self::TooLarge => "Its answer is larger than 4 MiB and is not shown.",
            Self::Unreadable => "Its answer cannot be read.",
            Self::Unauthorized => "It no longer accepts your token. Sign in again.",
            Self::Busy => "It is overloaded. Nothing was done; try again.",
        }
    }
}

impl From<EdgeClientError> for GatewayFault {
    fn from(error: EdgeClientError) -> Self {
        match error {
            EdgeClientError::Path | EdgeClientError::Unreachable => Self::Unreachable,
            EdgeClientError::TooLarge => Self::TooLarge,
            EdgeClientError::Unreadable => Self::Unreadable,
        }
    }
}

/// The id of every request. Each HTTP request carries exactly one JSON-RPC request, so ids need not differ.
const ID: u64 = 1;

impl GatewayClient {
    pub(crate) fn new(edge: EdgeClient) -> Self {
        Self(edge)
    }

    /// Sends `request` and waits for the response. Dropping the future cancels the request.
    pub(crate) async fn send_request(
        &self,
        token: &SessionToken,
        request: GatewayRequest<'_>,
        limit: Duration,
    ) -> Result<Exchange, GatewayFault> {
        let caller = GatewayCaller {
            client: "wardgate-console",
            bearer: token.header().ok_or(GatewayFault::Unauthorized)?,
            peer: token.peer(),
        };
        let work = async {
            let post = request.encode(&self.0, caller, ID)?;
            let body = post.body().clone();
            let response = self.0.send(post).await?;
            match response.status() {
                StatusCode::UNAUTHORIZED => return Err(GatewayFault::Unauthorized),
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                    return Err(GatewayFault::Busy);
                }
                _ => {}
            }
            let response = GatewayResponse::from_response(response, ID, MAX_ANSWER).await?;
            Exchange::new(body, response).ok_or(GatewayFault::Unreadable)
        };
        let answered = tokio::time::timeout(limit, work).await;
        answered.unwrap_or(Err(GatewayFault::Late))
    }
}
