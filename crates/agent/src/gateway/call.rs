//! `tools/call`: a tool call and its outcome.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use wardgate_domain::AgentRefusal;
use wardgate_edge::{EdgeClient, GatewayRequest};
use wardgate_mcp::error_code::INTERNAL_ERROR;
use wardgate_mcp::meta::{CONVERSATION, IDEMPOTENCY_KEY};

use super::MCP_PATH;
use super::exchange::exchange;
use super::fault::{ApprovalRequest, GatewayError, RpcFault};
use crate::mcp_tool::ToolResult;
use crate::request::BearerToken;

/// Timeout of a call. The gateway itself ends every call within 5 minutes; this limit covers a gateway that does not.
const TIME_LIMIT: Duration = Duration::from_secs(310);

/// A tool call to send.
pub(crate) struct ToolCall<'c> {
    pub(crate) name: &'c str,
    /// The arguments: a JSON object, sent unchanged.
    pub(crate) arguments: &'c RawValue,
    /// The idempotency key: 1 to 128 visible ASCII characters. A tool that may write runs at most once per key.
    pub(crate) idempotency_key: &'c str,
    /// The id of the conversation that the call belongs to.
    pub(crate) conversation: &'c str,
    pub(crate) cancel: &'c CancellationToken,
}

/// The outcome of a call and its place in the record.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CallOutcome {
    /// The id of the call, or `None` if the gateway did not accept the call or its response was lost.
    pub(crate) call_id: Option<String>,
    /// The proof that the outcome is recorded.
    pub(crate) receipt: Option<Value>,
    pub(crate) ending: CallEnding,
}

/// How a call ended. The texts may be shown to a model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CallEnding {
    /// The tool's result, which may report a failure.
    Result(ToolResult),
    /// The policy denied the call with these arguments.
    Denied {
        decision_id: String,
        text: String,
    },
    /// A policy requires an approval, and the call waits for it.
    NeedsApproval {
        request: ApprovalRequest,
        message: String,
    },
    /// The tool does not exist, or the caller may not use it.
    UnknownTool,
    /// The call is invalid.
    Refused {
        message: String,
    },
    TimedOut {
        message: String,
    },
    /// The platform failed. The message states whether it is unknown if the tool ran.
    Unavailable {
        message: String,
    },
    Cancelled,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Members {
    #[serde(default)]
    result_type: Option<String>,
    #[serde(default)]
    content: Vec<Value>,
    #[serde(default, deserialize_with = "present")]
    structured_content: Option<Value>,
    #[serde(default)]
    is_error: bool,
    #[serde(default, rename = "_meta")]
    meta: ResultMeta,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResultMeta {
    #[serde(rename = "dev.wardgate/callId")]
    call_id: Option<String>,
    #[serde(rename = "dev.wardgate/receipt")]
    receipt: Option<Value>,
    #[serde(rename = "dev.wardgate/decisionId")]
    decision_id: Option<String>,
}

/// Deserializes a member that is present, even if its value is `null`.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

pub(super) async fn call(
    edge: &EdgeClient,
    token: &BearerToken,
    call: &ToolCall<'_>,
) -> Result<CallOutcome, GatewayError> {
    let mut params = Map::new();
    params.insert("name".to_owned(), json!(call.name));
    let request = GatewayRequest {
        path: MCP_PATH,
        method: "tools/call",
        name: Some(call.name),
        params,
        arguments: Some(call.arguments),
        meta: &[
            (IDEMPOTENCY_KEY, call.idempotency_key),
            (CONVERSATION, call.conversation),
        ],
    };
    let answer = tokio::select! {
        // `biased` polls the cancellation first, so that nothing is sent for a turn that is already over.
        biased;
        () = call.cancel.cancelled() => return Ok(CallOutcome {
            call_id: None,
            receipt: None,
            ending: CallEnding::Cancelled,
        }),
        answer = exchange(edge, token, request, TIME_LIMIT) => answer,
    };
    match answer {
        Ok(result) => outcome_from_result(&result),
        Err(GatewayError::Refused(fault)) if !fault.is_busy() => Ok(outcome_from_fault(*fault)),
        Err(error) => Err(error),
    }
}

/// Maximum length of a tool name in a refusal, in characters. The record rejects longer names.
const MAX_NAME: usize = 128;

/// The error reason with which the gateway confirms that a refusal is recorded.
const ON_RECORD: &str = "refused_by_agent";

/// Records that a call of `tool` is not made, once per `key`. The arguments of the call are not sent, because nothing runs with
/// them and they may not be valid JSON.
pub(super) async fn record_refused(
    edge: &EdgeClient,
    token: &BearerToken,
    tool: &str,
    refusal: AgentRefusal,
    key: &str,
) -> Result<(), GatewayError> {
    let name: String = tool.chars().take(MAX_NAME).collect();
    let mut params = Map::new();
    params.insert("name".to_owned(), json!(name));
    let request = GatewayRequest {
        path: MCP_PATH,
        method: "tools/call",
        name: Some(&name),
        params,
        arguments: None,
        meta: &[
            (AgentRefusal::META, refusal.as_str()),
            (IDEMPOTENCY_KEY, key),
        ],
    };
    match exchange(edge, token, request, super::TIME_LIMIT).await {
        Err(GatewayError::Refused(fault)) if fault.data.reason.as_deref() == Some(ON_RECORD) => {
            Ok(())
        }
        Err(error) => Err(error),
        // The gateway answers a recorded refusal with an error, never with a result.
        Ok(_) => Err(GatewayError::Unreadable),
    }
}

fn outcome_from_result(result: &RawValue) -> Result<CallOutcome, GatewayError> {
    let Members {
        result_type,
        content,
        structured_content,
        is_error,
        meta,
    } = serde_json::from_str(result.get()).map_err(|_| GatewayError::Unreadable)?;
    // No other result type is possible, because the agent declares no capability.
    if result_type.is_some_and(|kind| kind != "complete") {
        return Err(GatewayError::Unreadable);
    }
    let ending = match meta.decision_id {
        Some(decision_id) if is_error => {
            let text = content.first().and_then(|block| block["text"].as_str());
            CallEnding::Denied {
                decision_id,
                text: text
                    .unwrap_or("Not permitted with these arguments.")
                    .to_owned(),
            }
        }
        _ => CallEnding::Result(ToolResult {
            content,
            structured: structured_content,
            is_error,
        }),
    };
    Ok(CallOutcome {
        call_id: meta.call_id,
        receipt: meta.receipt,
        ending,
    })
}

fn outcome_from_fault(fault: RpcFault) -> CallOutcome {
    let RpcFault {
        code,
        message,
        data,
        ..
    } = fault;
    let ending = match (data.reason.as_deref(), data.approval) {
        (Some("approval_required"), Some(request)) => {
            CallEnding::NeedsApproval { request, message }
        }
        // Nothing ran.
        (Some("approval_required" | "approval_refused"), _) => CallEnding::Refused { message },
        (Some("unknown_tool"), _) => CallEnding::UnknownTool,
        (Some("timeout"), _) => CallEnding::TimedOut { message },
        (Some("cancelled"), _) => CallEnding::Cancelled,
        _ if code == INTERNAL_ERROR => CallEnding::Unavailable { message },
        _ => CallEnding::Refused { message },
    };
    CallOutcome {
        call_id: data.call_id,
        receipt: data.receipt,
        ending,
    }
}
