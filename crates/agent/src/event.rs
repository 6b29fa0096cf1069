//! What a client of a chat gets: one event after another, each a line of JSON.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::Value;
use wardgate_domain::Timestamp;

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentEvent {
    /// Its place in the turn. Ids grow within a stream, and a turn that is told again has the same ones. So a client
    /// goes on after the last id it saw, and where it gets an id again, what it had from that id on is void.
    pub id: u64,
    /// What happened.
    #[serde(flatten)]
    pub body: EventBody,
    /// When it was sent.
    #[serde(serialize_with = "rfc_3339")]
    pub timestamp: Timestamp,
}

/// What happened.
#[derive(Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EventBody {
    /// Some more of the answer.
    Token {
        /// The text, to be put behind what came before.
        text: String,
    },
    /// The model asks for a tool.
    ToolCall {
        /// Unique in the turn.
        call_id: String,
        /// As the model calls it.
        tool_name: String,
        /// As the model wrote them: an object, or a text where it is no JSON.
        arguments: Value,
    },
    /// What the call gave. Every `tool_call` is followed by one, unless it waits for an approval.
    ToolResult {
        /// The call it answers.
        call_id: String,
        /// As the model calls it.
        tool_name: String,
        /// Whether the tool did what was asked.
        success: bool,
        /// Its result, null when it failed.
        data: Value,
        /// Why it failed, null when it did not.
        error: Option<String>,
    },
    /// The call waits for a person's decision.
    ApprovalRequired {
        /// What to decide with.
        approval_id: String,
        /// The call it is about.
        call_id: String,
        /// As the model calls it.
        tool_name: String,
        /// Exactly what it would run with.
        arguments: Value,
        /// Until when it can be decided.
        #[serde(serialize_with = "rfc_3339")]
        expires_at: Timestamp,
    },
    /// A policy demands that somebody approves the call, and nothing ran. Whoever may approves it at the gateway; then the same
    /// message goes on where it stopped.
    ApprovalPending {
        /// What approvers decide with, at the gateway.
        request_id: String,
        /// The call it is about.
        call_id: String,
        /// As the model calls it.
        tool_name: String,
        /// Exactly what it would run with.
        arguments: Value,
        /// Until when it can be approved, RFC 3339.
        expires_at: String,
        /// By whom and how, for people.
        message: String,
    },
    /// Something went wrong. The stream goes on, at least to its `done`.
    Error {
        /// For programs.
        kind: ErrorKind,
        /// For people; nothing of what was said is in it.
        message: String,
    },
    /// What the model took, once at the end.
    Usage {
        /// Tokens read.
        input_tokens: u64,
        /// Tokens written.
        output_tokens: u64,
    },
    /// The last event of every stream.
    Done {
        /// Why it ends.
        finish_reason: FinishReason,
        /// The conversation, unless nothing of the message was kept.
        conversation_id: Option<String>,
        /// The turn: the id of the message it answers.
        turn_id: String,
        /// The answer's own id, where there is one.
        message_id: Option<String>,
        /// The limit that ended the model's use of tools.
        #[serde(skip_serializing_if = "Option::is_none")]
        cap: Option<Cap>,
    },
}

/// Why a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The answer is whole.
    Stop,
    /// The model came to its limit of tokens.
    Length,
    /// A filter took the answer: the provider's, or a configured check.
    ContentFilter,
    /// A check or the guardrail refused the question; nothing was kept.
    Refused,
    /// A call waits for a decision: the person's own, or that of an approver at the gateway.
    ApprovalRequired,
    /// It failed; the same message id goes on where it stopped.
    Error,
}

/// A limit of one turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cap {
    /// Rounds of calls.
    Turns,
    /// Tokens of the model.
    Tokens,
    /// What they cost.
    Cost,
    /// Time.
    Seconds,
    /// The same call again.
    IdenticalCalls,
}

/// What went wrong, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The request cannot be used as it is.
    InvalidRequest,
    /// No assistant has that name.
    UnknownModel,
    /// The assistant's provider is not configured here.
    ModelNotConfigured,
    /// The provider failed.
    ModelFailed,
    /// The model gave neither words nor a call that may run.
    EmptyAnswer,
    /// The model asked for a tool that it was not offered.
    ToolNotAvailable,
    /// The model repeated a call that stands in what a tool gave.
    CallInData,
    /// The guardrail could not decide.
    GuardrailFailed,
    /// The gateway, or the memory behind it, could not be used.
    GatewayFailed,
    /// Another request is at work on the same turn, or the id is taken by another message.
    Conflict,
    /// The approval is of somebody else, too late, used, or for another call.
    InvalidApproval,
    /// The caller has as many turns under way as one person may; nothing was begun.
    TooManyTurns,
}

/// Without what was said, and without what tools were given and gave.
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
    /// As it is written.
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
    /// Every kind.
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

    /// As it is written.
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
