//! `tools/call`: one call, and what became of it.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use wardgate_domain::AgentRefusal;
use wardgate_edge::{EdgeClient, GatewayRequest};
use wardgate_mcp::error_code::INTERNAL_ERROR;

use super::MCP_PATH;
use super::exchange::exchange;
use super::fault::{ApprovalRequest, GatewayError, RpcFault};
use crate::mcp_tool::ToolResult;
use crate::request::BearerToken;

/// The gateway ends every call within 5 minutes itself; this catches one that does not.
const TIME_LIMIT: Duration = Duration::from_secs(310);

/// The member of `_meta` with the key under which a call runs, or is put on record as refused, once.
const IDEMPOTENCY_KEY: &str = "dev.wardgate/idempotencyKey";

/// The member of `_meta` with the id of the conversation that a call is part of.
const CONVERSATION: &str = "dev.wardgate/conversation";

/// A call to make.
pub(crate) struct ToolCall<'c> {
    pub(crate) name: &'c str,
    /// A JSON object; it goes as it is written.
    pub(crate) arguments: &'c RawValue,
    /// Under one key a tool that may write runs once. 1 to 128 visible ASCII characters.
    pub(crate) idempotency_key: &'c str,
    /// The id of the conversation.
    pub(crate) conversation: &'c str,
    pub(crate) cancel: &'c CancellationToken,
}

/// What became of a call, and where it is on record.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CallOutcome {
    /// None where the gateway never took it up, or was not heard.
    pub(crate) call_id: Option<String>,
    /// That the outcome is on record.
    pub(crate) receipt: Option<Value>,
    pub(crate) ending: CallEnding,
}

/// How a call ended. The texts are fit for a model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CallEnding {
    /// The tool's own answer, which may say that it failed.
    Result(ToolResult),
    /// The policy refused these arguments.
    Denied {
        decision_id: String,
        text: String,
    },
    /// A policy demands somebody's approval, for which the call waits.
    NeedsApproval {
        request: ApprovalRequest,
        message: String,
    },
    /// There is no such tool, or not for this caller.
    UnknownTool,
    /// The call itself is at fault.
    Refused {
        message: String,
    },
    TimedOut {
        message: String,
    },
    /// The platform failed. The message says where it is not known whether the tool ran.
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

/// A member that is there, even as `null`.
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
        // First, so that nothing is sent for a turn that is already over.
        biased;
        () = call.cancel.cancelled() => return Ok(CallOutcome {
            call_id: None,
            receipt: None,
            ending: CallEnding::Cancelled,
        }),
        answer = exchange(edge, token, request, TIME_LIMIT) => answer,
    };
    match answer {
        Ok(result) => ended(&result),
        Err(GatewayError::Refused(fault)) if !fault.is_busy() => Ok(failed(*fault)),
        Err(error) => Err(error),
    }
}

/// The longest name of a tool that is sent of a call that is not made, in characters. The record takes no longer one.
const MAX_NAME: usize = 128;

/// The reason that the gateway gives once such a call is on record.
const ON_RECORD: &str = "refused_by_agent";

/// Puts on record that a call of `tool` is not made, once for each `key`. Its arguments are not sent: nothing runs with them, and they may be
/// no JSON.
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
        // The gateway answers such a call by an error.
        Ok(_) => Err(GatewayError::Unreadable),
    }
}

fn ended(result: &RawValue) -> Result<CallOutcome, GatewayError> {
    let Members {
        result_type,
        content,
        structured_content,
        is_error,
        meta,
    } = serde_json::from_str(result.get()).map_err(|_| GatewayError::Unreadable)?;
    // Nothing else was asked for: no capability was declared.
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

fn failed(fault: RpcFault) -> CallOutcome {
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
