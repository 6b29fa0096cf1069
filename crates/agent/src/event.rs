//! The events that a chat client receives, each serialized as one line of JSON.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::Value;
use wardgate_domain::Timestamp;

/// An event of a chat stream.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentEvent {
    /// Position of the event in the turn. Ids increase within a stream, and a replayed turn has the same ids. A client
    /// therefore resumes after the last id that it received. If an id arrives a second time, everything that the client
    /// received from that id on is void.
    pub id: u64,
    /// The type and content of the event.
    #[serde(flatten)]
    pub body: EventBody,
    /// Time at which the event was sent.
    #[serde(serialize_with = "rfc_3339")]
    pub timestamp: Timestamp,
}

/// The type and content of an event.
#[derive(Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EventBody {
    /// A piece of the answer.
    Token {
        /// The text to append to the answer.
        text: String,
    },
    /// The model calls a tool.
    ToolCall {
        /// The id of the call, unique within the turn.
        call_id: String,
        /// The name by which the model calls the tool.
        tool_name: String,
        /// The arguments as the model wrote them: an object, or a string if they are not valid JSON.
        arguments: Value,
    },
    /// The result of a tool call. Every `tool_call` is followed by a result, unless the call waits for an approval.
    ToolResult {
        /// The id of the call.
        call_id: String,
        /// The name by which the model calls the tool.
        tool_name: String,
        /// Whether the call succeeded.
        success: bool,
        /// The result of the tool; null if the call failed.
        data: Value,
        /// The reason for the failure; null if the call succeeded.
        error: Option<String>,
    },
    /// The call waits for the user's decision.
    ApprovalRequired {
        /// The id that the decision has to name.
        approval_id: String,
        /// The id of the call.
        call_id: String,
        /// The name by which the model calls the tool.
        tool_name: String,
        /// The exact arguments with which the tool would run.
        arguments: Value,
        /// The deadline of the decision.
        #[serde(serialize_with = "rfc_3339")]
        expires_at: Timestamp,
    },
    /// A policy requires an approval of the call, and nothing ran. An approver approves the call at the gateway; after that,
    /// sending the same message again continues the turn where it stopped.
    ApprovalPending {
        /// The id that approvers use to decide at the gateway.
        request_id: String,
        /// The id of the call.
        call_id: String,
        /// The name by which the model calls the tool.
        tool_name: String,
        /// The exact arguments with which the tool would run.
        arguments: Value,
        /// The deadline of the approval, in RFC 3339 format.
        expires_at: String,
        /// A human-readable explanation of who can approve the call, and how.
        message: String,
    },
    /// An error occurred. At least the `done` event still follows.
    Error {
        /// The machine-readable kind.
        kind: ErrorKind,
        /// The human-readable message, which contains nothing of the conversation.
        message: String,
    },
    /// The model's token usage, sent once at the end.
    Usage {
        /// Number of input tokens.
        input_tokens: u64,
        /// Number of output tokens.
        output_tokens: u64,
    },
    /// The last event of every stream.
    Done {
        /// The reason why the stream ends.
        finish_reason: FinishReason,
        /// The id of the conversation, or `None` if nothing of the message was stored.
        conversation_id: Option<String>,
        /// The id of the turn, which is the id of the message that it answers.
        turn_id: String,
        /// The id of the answer, or `None` if there is no answer.
        message_id: Option<String>,
        /// The limit that stopped the model's use of tools, or `None` if no limit was reached.
        #[serde(skip_serializing_if = "Option::is_none")]
        cap: Option<Cap>,
    },
}

/// The reason why a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The answer is complete.
    Stop,
    /// The model reached its token limit.
    Length,
    /// A filter removed the answer: the filter of the provider or a configured check.
    ContentFilter,
    /// A check or the guardrail refused the message, and nothing was stored.
    Refused,
    /// A call waits for a decision of the user or of an approver at the gateway.
    ApprovalRequired,
    /// The turn failed. Sending the same message id again continues it where it stopped.
    Error,
}

/// A limit of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cap {
    /// Number of rounds of tool calls.
    Turns,
    /// Number of model tokens.
    Tokens,
    /// Cost of the model tokens.
    Cost,
    /// Duration of the turn.
    Seconds,
    /// Repetitions of an identical call.
    IdenticalCalls,
}

/// The machine-readable kind of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The request is invalid.
    InvalidRequest,
    /// No assistant has the requested name.
    UnknownModel,
    /// The assistant's provider is not configured.
    ModelNotConfigured,
    /// The model provider failed.
    ModelFailed,
    /// The model answered with neither text nor a call that may run.
    EmptyAnswer,
    /// The model called a tool that it was not offered.
    ToolNotAvailable,
    /// The model repeated a call that is quoted in the result of a tool.
    CallInData,
    /// The guardrail did not reach a decision.
    GuardrailFailed,
    /// The gateway, or the memory behind it, failed.
    GatewayFailed,
    /// Another request is working on the same turn, or the message id belongs to a different message.
    Conflict,
    /// The approval belongs to another user, has expired, was already used, or is for a different call.
    InvalidApproval,
    /// The caller has reached the maximum number of concurrent turns per user. No turn was started.
    TooManyTurns,
}

/// Omits the content of messages and the arguments and results of tools.
impl fmt::Debug for EventBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token { text } => write!(f, "Token({} bytes)", text.len()),
            Self::ToolCall { call_id, .. } => write!(f, "ToolCall({call_id})"),
            Self::ToolResult {
                call_id, success, ..
            } => write!(f, "ToolResult({call_id}, success: {success})"),
            Self::ApprovalRequired { call_id, .. } => write!(f, "ApprovalRequired({call_id})"),
            Self::ApprovalPending { call_id, .. } => write!(f, "ApprovalPending({call_id})"),
            Self::Error { kind, .. } => write!(f, "Error({})", kind.as_str()),
            Self::Usage {
                input_tokens,
                output_tokens,
            } => write!(f, "Usage({input_tokens}, {output_tokens})"),
            Self::Done {
                finish_reason, cap, ..
            } => write!(f, "Done({}, cap: {cap:?})", finish_reason.as_str()),
        }
    }
}

impl FinishReason {
    /// Returns the reason as it is serialized.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ContentFilter => "content_filter",
            Self::Refused => "refused",
            Self::ApprovalRequired => "approval_required",
            Self::Error => "error",
        }
    }
}

impl ErrorKind {
    /// All kinds.
    pub(crate) const ALL: [Self; 12] = [
        Self::InvalidRequest,
        Self::UnknownModel,
        Self::ModelNotConfigured,
        Self::ModelFailed,
        Self::EmptyAnswer,
        Self::ToolNotAvailable,
        Self::CallInData,
        Self::GuardrailFailed,
        Self::GatewayFailed,
        Self::Conflict,
        Self::InvalidApproval,
        Self::TooManyTurns,
    ];

    /// Returns the kind as it is serialized.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::UnknownModel => "unknown_model",
            Self::ModelNotConfigured => "model_not_configured",
            Self::ModelFailed => "model_failed",
            Self::EmptyAnswer => "empty_answer",
            Self::ToolNotAvailable => "tool_not_available",
            Self::CallInData => "call_in_data",
            Self::GuardrailFailed => "guardrail_failed",
            Self::GatewayFailed => "gateway_failed",
            Self::Conflict => "conflict",
            Self::InvalidApproval => "invalid_approval",
            Self::TooManyTurns => "too_many_turns",
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn rfc_3339<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(body: EventBody) -> String {
        serde_json::to_string(&AgentEvent {
            id: 7,
            body,
            timestamp: Timestamp::from_seconds(1_762_869_000),
        })
        .unwrap()
    }

    #[test]
    fn every_field_of_a_result_is_there_and_time_is_utc() {
        let body = EventBody::ToolResult {
            call_id: "c1".to_owned(),
            tool_name: "t".to_owned(),
            success: true,
            data: json!([{"content": "Hypertension"}]),
            error: None,
        };
        assert_eq!(
            line(body),
            r#"{"id":7,"type":"tool_result","call_id":"c1","tool_name":"t","success":true,"data":[{"content":"Hypertension"}],"error":null,"timestamp":"2025-11-11T13:50:00.000000Z"}"#
        );
    }

    #[test]
    fn nothing_that_was_said_is_in_debug() {
        let canary = || "canary".to_owned();
        let bodies = [
            EventBody::Token { text: canary() },
            EventBody::ToolCall {
                call_id: "c1".to_owned(),
                tool_name: "t".to_owned(),
                arguments: json!(canary()),
            },
            EventBody::ToolResult {
                call_id: "c1".to_owned(),
                tool_name: "t".to_owned(),
                success: true,
                data: json!(canary()),
                error: Some(canary()),
            },
        ];
        let shown = format!("{bodies:?}");
        assert!(!shown.contains("canary"), "{shown}");
    }

    #[test]
    fn the_last_event_names_the_cap_only_where_there_was_one() {
        let done = |cap| {
            line(EventBody::Done {
                finish_reason: FinishReason::Stop,
                conversation_id: Some("c".to_owned()),
                turn_id: "t".to_owned(),
                message_id: None,
                cap,
            })
        };
        assert!(!done(None).contains("cap"));
        assert!(done(Some(Cap::IdenticalCalls)).contains(r#""cap":"identical_calls""#));
    }
}
