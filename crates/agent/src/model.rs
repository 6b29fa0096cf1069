//! Requests to models and their answers, independent of the provider.

use std::fmt;
use std::time::Duration;

use futures::stream::BoxStream;
pub(crate) use wardgate_tool_call_parser::Function;

/// A request to a model.
#[derive(Clone)]
pub(crate) struct ModelRequest {
    /// The provider's name of the model.
    pub(crate) model: String,
    pub(crate) messages: Vec<ModelMessage>,
    /// The offered functions, in a stable order that lets the provider's cache work.
    pub(crate) functions: Vec<Function>,
    pub(crate) choice: FunctionChoice,
    pub(crate) temperature: Option<f64>,
    pub(crate) max_output_tokens: Option<u32>,
}

/// A message to a model.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum ModelMessage {
    System(String),
    User(String),
    Assistant {
        text: String,
        calls: Vec<FunctionCall>,
    },
    /// The result of a call. The model receives failures too, so that it can recover.
    Result {
        call_id: String,
        name: String,
        text: String,
        is_error: bool,
    },
}

/// Whether the model may call functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FunctionChoice {
    Auto,
    /// The model must answer with text.
    None,
}

/// A complete function call. A call that the model did not finish is never represented by this type.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct FunctionCall {
    /// The provider's id, or a generated id if the provider sends none; unique within the turn.
    pub(crate) id: String,
    pub(crate) name: String,
    /// The arguments as the model wrote them, meant to be JSON but not validated.
    pub(crate) arguments: String,
}

/// An event of a model's answer, in the order of arrival. The last event is `Finished`; a stream without it was cut off.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum ModelEvent {
    Text(String),
    /// Reasoning that is not part of the answer. It is never shown or stored.
    Reasoning(String),
    Call(FunctionCall),
    Usage(TokenUsage),
    Finished(FinishReason),
}

/// Token counts as the provider reports them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TokenUsage {
    pub(crate) input: u64,
    pub(crate) output: u64,
}

/// The reason why a model stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FinishReason {
    Stop,
    Calls,
    /// The model reached the token limit. An unfinished call is lost.
    Length,
    /// The provider's filter stopped the answer.
    Filtered,
    /// A provider-specific reason.
    Other(String),
}

/// The reason why there is no answer or only a part of it. No message contains a key, a prompt or a body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ModelError {
    #[error("the model provider cannot be reached")]
    Unreachable,
    #[error("the model provider did not answer in time")]
    Late,
    #[error("the model provider is busy")]
    Busy { retry_after: Option<Duration> },
    #[error("the model provider refused its credentials (HTTP {status})")]
    Credentials { status: u16 },
    #[error("the model provider does not offer the model")]
    UnknownModel,
    #[error("the conversation exceeds the context of the model")]
    TooLong,
    #[error("the model provider refused the request (HTTP {status})")]
    Refused { status: u16 },
    #[error("the model provider failed (HTTP {status})")]
    Failed { status: u16 },
    #[error("the model's answer was truncated")]
    Cut,
    #[error("the model provider's answer cannot be read")]
    Unreadable,
    #[error("the model's answer exceeds the size limit")]
    TooLarge,
}

impl ModelError {
    /// Returns the kind of the error as one word, for events, spans and metrics.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Late => "timeout",
            Self::Busy { .. } => "busy",
            Self::Credentials { .. } => "credentials",
            Self::UnknownModel => "unknown_model",
            Self::TooLong => "too_long",
            Self::Refused { .. } => "refused",
            Self::Failed { .. } => "failed",
            Self::Cut => "cut",
            Self::Unreadable => "unreadable",
            Self::TooLarge => "too_large",
        }
    }
}

/// The events of one answer. Dropping the stream cancels the request.
pub(crate) type ModelStream = BoxStream<'static, Result<ModelEvent, ModelError>>;

// `Debug` shows only the length of what users, models and tools say, so that none of their texts gets into a log.

impl fmt::Debug for ModelRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelRequest")
            .field("model", &self.model)
            .field("messages", &self.messages)
            .field("functions", &self.functions.len())
            .field("choice", &self.choice)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ModelMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(text) => write!(f, "System({} bytes)", text.len()),
            Self::User(text) => write!(f, "User({} bytes)", text.len()),
            Self::Assistant { text, calls } => f
                .debug_struct("Assistant")
                .field("bytes", &text.len())
                .field("calls", calls)
                .finish(),
            Self::Result {
                call_id,
                name,
                text,
                is_error,
            } => f
                .debug_struct("Result")
                .field("call_id", call_id)
                .field("name", name)
                .field("bytes", &text.len())
                .field("is_error", is_error)
                .finish(),
        }
    }
}

impl fmt::Debug for FunctionCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionCall")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ModelEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
            Self::Reasoning(text) => write!(f, "Reasoning({} bytes)", text.len()),
            Self::Call(call) => f.debug_tuple("Call").field(call).finish(),
            Self::Usage(usage) => f.debug_tuple("Usage").field(usage).finish(),
            Self::Finished(reason) => f.debug_tuple("Finished").field(reason).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_was_said_is_in_debug() {
        let canary = || "canary".to_owned();
        let call = || FunctionCall {
            id: "c1".to_owned(),
            name: "look".to_owned(),
            arguments: canary(),
        };
        let request = ModelRequest {
            model: "m".to_owned(),
            messages: vec![
                ModelMessage::System(canary()),
                ModelMessage::User(canary()),
                ModelMessage::Assistant {
                    text: canary(),
                    calls: vec![call()],
                },
                ModelMessage::Result {
                    call_id: "c1".to_owned(),
                    name: "look".to_owned(),
                    text: canary(),
                    is_error: false,
                },
            ],
            functions: Vec::new(),
            choice: FunctionChoice::Auto,
            temperature: None,
            max_output_tokens: None,
        };
        let events = [
            ModelEvent::Text(canary()),
            ModelEvent::Reasoning(canary()),
            ModelEvent::Call(call()),
        ];
        let shown = format!("{request:?} {events:?}");
        assert!(!shown.contains("canary"), "{shown}");
        assert!(shown.contains("look"), "{shown}");
    }
}
