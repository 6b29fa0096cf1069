//! A `GatewayClient` that calls the gateway with one caller's token.

use std::collections::HashSet;

use futures::FutureExt;
use serde_json::value::to_raw_value;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use wardgate_domain::AgentRefusal;
use wardgate_mcp::error_code::{INVALID_PARAMS, INVALID_REQUEST};
use wardgate_telemetry::names;

use crate::clients::{GatewayClient, GatewayFailure, GatewayFuture, GatewayTool, ToolAnswer};
use crate::functions::result_text;
use crate::gateway::{CallEnding, GatewayEndpoint, GatewayError, ToolCall};
use crate::request::BearerToken;

/// A gateway client that acts on behalf of one caller.
#[derive(Debug, Clone)]
pub(crate) struct CallerGateway {
    gateway: GatewayEndpoint,
    token: BearerToken,
}

impl CallerGateway {
    pub(crate) fn new(gateway: GatewayEndpoint, token: BearerToken) -> Self {
        Self { gateway, token }
    }

    async fn list(&self, toolsets: &[String]) -> Result<Vec<GatewayTool>, GatewayFailure> {
        if toolsets.is_empty() {
            let list = self.gateway.list_tools(&self.token, None).await?;
            return Ok(list.offerable().to_vec());
        }
        let mut tools = Vec::new();
        let mut seen = HashSet::new();
        for toolset in toolsets {
            let list = self.gateway.list_tools(&self.token, Some(toolset)).await?;
            let fresh = list.offerable().iter();
            tools.extend(fresh.filter(|tool| seen.insert(tool.name.clone())).cloned());
        }
        Ok(tools)
    }

    async fn run(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        key: &str,
        conversation: &str,
    ) -> Result<ToolAnswer, GatewayFailure> {
        let arguments = to_raw_value(arguments).map_err(|_| GatewayFailure::Unreadable)?;
        let call = ToolCall {
            name: tool,
            arguments: &arguments,
            idempotency_key: key,
            conversation,
            // A turn cancels the call by dropping this future.
            cancel: &CancellationToken::new(),
        };
        let refused = |message| {
            Err(GatewayFailure::Refused {
                code: INVALID_PARAMS,
                reason: None,
                message,
            })
        };
        let outcome = self.gateway.call_tool(&self.token, &call).await?;
        tracing::debug!(
            { names::CALL_ID } = outcome.call_id,
            recorded = outcome.receipt.is_some(),
            "the gateway failed a call of an assistant"
        );
        match outcome.ending {
            CallEnding::Result(result) => Ok(ToolAnswer {
                text: result_text(&result),
                is_error: result.is_error,
            }),
            CallEnding::Denied { decision_id, text } => {
                tracing::info!(
                    decision_id,
                    tool,
                    "the policy denied a call of an assistant"
                );
                refused(text)
            }
            CallEnding::NeedsApproval { request, message } => Err(GatewayFailure::NeedsApproval {
                request_id: request.id,
                expires_at: request.expires_at,
                message,
            }),
            CallEnding::UnknownTool => refused(format!("Unknown tool: {tool}")),
            CallEnding::Refused { message } => refused(message),
            CallEnding::TimedOut { message } | CallEnding::Unavailable { message } => {
                Err(GatewayFailure::Unavailable { message })
            }
            // This turn did not cancel the call: it would have dropped this future.
            CallEnding::Cancelled => Err(GatewayFailure::Unavailable {
                message: "The call was cancelled.".to_owned(),
            }),
        }
    }
}

impl GatewayClient for CallerGateway {
    fn tools<'a>(&'a self, toolsets: &'a [String]) -> GatewayFuture<'a, Vec<GatewayTool>> {
        self.list(toolsets).boxed()
    }

    fn call<'a>(
        &'a self,
        tool: &'a str,
        arguments: &'a Map<String, Value>,
        key: &'a str,
        conversation: &'a str,
    ) -> GatewayFuture<'a, ToolAnswer> {
        self.run(tool, arguments, key, conversation).boxed()
    }

    fn record_refused<'a>(
        &'a self,
        tool: &'a str,
        refusal: AgentRefusal,
        key: &'a str,
    ) -> GatewayFuture<'a, ()> {
        async move {
            let gateway = &self.gateway;
            let recorded = gateway.record_refused(&self.token, tool, refusal, key);
            Ok(recorded.await?)
        }
        .boxed()
    }

    fn memory<'a>(&'a self, method: &'static str, params: Value) -> GatewayFuture<'a, Value> {
        async move { Ok(self.gateway.memory(&self.token, method, params).await?) }.boxed()
    }
}

impl From<GatewayError> for GatewayFailure {
    fn from(error: GatewayError) -> Self {
        let message = error.to_string();
        match error {
            GatewayError::Refused(fault) if fault.is_busy() => {
                let retry_after = fault.data.retry_after();
                let when = retry_after.map_or_else(String::new, |wait| {
                    format!(" Try again in {} seconds.", wait.as_secs())
                });
                Self::Busy {
                    retry_after,
                    message: message + &when,
                }
            }
            GatewayError::Refused(fault) => Self::Refused {
                code: fault.code,
                reason: fault.data.reason,
                message,
            },
            // Not `INVALID_PARAMS`, which says of a method of the memory that the gateway took the request and found it wrong.
            GatewayError::Unauthorized | GatewayError::UnknownToolset => Self::Refused {
                code: INVALID_REQUEST,
                reason: None,
                message,
            },
            GatewayError::Unreachable => Self::Unreachable,
            GatewayError::Late => Self::Late,
            GatewayError::TooLarge | GatewayError::Unreadable => Self::Unreadable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejected_token_does_not_read_as_an_absent_turn() {
        for error in [GatewayError::Unauthorized, GatewayError::UnknownToolset] {
            let GatewayFailure::Refused { code, .. } = error.into() else {
                panic!("it is refused")
            };
            assert_ne!(code, INVALID_PARAMS);
        }
    }
}
