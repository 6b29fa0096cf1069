//! The request of a chat completion, and its conversion to a chat request.

use http::HeaderMap;
use serde_json::Value;

use super::super::Problem;
use super::super::fields::JsonFields;
use crate::{ChatRequest, HistoryMessage, Speaker};

/// A chat completion request.
pub(super) struct Completion {
    pub(super) chat: ChatRequest,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
}

impl Completion {
    pub(super) fn parse(body: &[u8], headers: &HeaderMap) -> Result<Self, Problem> {
        let mut fields = JsonFields::parse(body)?;
        refuse_unmeant(&mut fields)?;
        let stream = fields.flag("stream")?;
        let include_usage = match fields.take_field("stream_options") {
            None => false,
            Some(options) => options["include_usage"].as_bool().unwrap_or(false),
        };
        let conversation_id = fields.text("chat_id")?;
        let (history, message) = messages(fields.take_field("messages"))?;
        Ok(Self {
            chat: ChatRequest {
                model: fields.text("model")?,
                message,
                // The idempotency key becomes the message id, so that a repeated request does not repeat its work.
                message_id: conversation_id
                    .as_ref()
                    .and(headers.get("idempotency-key"))
                    .and_then(|key| key.to_str().ok())
                    .map(ToOwned::to_owned),
                history: if conversation_id.is_none() {
                    history
                } else {
                    Vec::new()
                },
                conversation_id,
                after: None,
            },
            stream,
            include_usage,
        })
    }
}

/// Returns an error for parameters whose effect the client would expect in the answer but which are not supported.
fn refuse_unmeant(fields: &mut JsonFields) -> Result<(), Problem> {
    if fields.take_field("n").is_some_and(|n| n != 1) {
        return Err(Problem::field(
            "n",
            "An assistant gives one answer; omit `n`.",
        ));
    }
    let format = fields.take_field("response_format");
    if format.is_some_and(|format| format["type"] != "text") {
        return Err(Problem::field(
            "response_format",
            "An assistant answers in text; omit `response_format`.",
        ));
    }
    Ok(())
}

/// Splits the messages into the history and the last message of the user.
fn messages(messages: Option<Value>) -> Result<(Vec<HistoryMessage>, String), Problem> {
    let wrong = |message: &str| Problem::field("messages", message);
    let Some(Value::Array(messages)) = messages else {
        return Err(wrong(
            "Send `messages`: an array of objects with `role` and `content`.",
        ));
    };
    let mut history = Vec::new();
    for message in &messages {
        // Instructions come from the assistant's configuration, and the results of tools from the assistant itself.
        let speaker = match message["role"].as_str() {
            Some("user") => Speaker::User,
            Some("assistant") => Speaker::Assistant,
            Some("system" | "developer" | "tool" | "function") => continue,
            _ => {
                return Err(wrong(
                    "Every message requires a `role`: user, assistant, system, developer or tool.",
                ));
            }
        };
        let text = text(&message["content"]).ok_or_else(|| {
            wrong("The `content` of a message must be a string, or an array of parts of the type text.")
        })?;
        history.push(HistoryMessage { speaker, text });
    }
    let last = history
        .iter()
        .rposition(|message| message.speaker == Speaker::User);
    let Some(question) = last.map(|last| {
        history.truncate(last + 1);
        history.pop()
    }) else {
        return Err(wrong(
            "`messages` must contain a message with the role user.",
        ));
    };
    Ok((
        history,
        question.map(|message| message.text).unwrap_or_default(),
    ))
}

fn text(content: &Value) -> Option<String> {
    match content {
        // An assistant message that only calls tools has no text.
        Value::Null => Some(String::new()),
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => parts
            .iter()
            .map(|part| (part["type"] == "text").then(|| part["text"].as_str())?)
            .collect(),
        _ => None,
    }
}
