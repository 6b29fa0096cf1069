//! Ollama's `/api/generate`, which takes a prompt and returns text, line by line or as one document. It supports neither
//! messages nor functions: several messages are written as a dialogue, and the prompt has to describe tools.

use serde_json::{Value, json};

use super::answer::AnswerAssembly;
use super::failure;
use crate::model::{FinishReason, ModelError, ModelMessage, ModelRequest};

/// Returns the body of a request.
pub(super) fn body(request: &ModelRequest) -> Value {
    let mut body = json!({
        "model": request.model,
        "prompt": prompt(&request.messages),
        "stream": true,
    });
    let system: Vec<_> = request
        .messages
        .iter()
        .filter_map(|message| match message {
            ModelMessage::System(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    if !system.is_empty() {
        body["system"] = json!(system.join("\n\n"));
    }
    if let Some(temperature) = request.temperature {
        body["options"]["temperature"] = json!(temperature);
    }
    if let Some(limit) = request.max_output_tokens {
        body["options"]["num_predict"] = json!(limit);
    }
    body
}

/// Returns the prompt: the text of a single user message, or a dialogue of several messages.
fn prompt(messages: &[ModelMessage]) -> String {
    let dialogue: Vec<_> = messages
        .iter()
        .filter_map(|message| match message {
            ModelMessage::System(_) => None,
            ModelMessage::User(text) => Some(("User", text)),
            ModelMessage::Assistant { text, .. } => Some(("Assistant", text)),
            ModelMessage::Result { text, .. } => Some(("Tool Result", text)),
        })
        .collect();
    if let [("User", text)] = dialogue.as_slice() {
        return (*text).clone();
    }
    let mut prompt = String::new();
    for (who, text) in dialogue {
        prompt.push_str(&format!("{who}: {text}\n\n"));
    }
    prompt.push_str("Assistant:");
    prompt
}

/// Reads one line of a stream, or a complete answer.
pub(super) fn parse_frame(frame: &str, answer: &mut AnswerAssembly) -> Result<(), ModelError> {
    let Ok(Value::Object(line)) = serde_json::from_str(frame) else {
        return Err(ModelError::Unreadable);
    };
    if let Some(error) = line.get("error").filter(|error| !error.is_null()) {
        return Err(failure::of_object(error));
    }
    let text = |key: &str| line.get(key).and_then(Value::as_str).unwrap_or_default();
    answer.push_reasoning(text("thinking"))?;
    answer.push_text(text("response"))?;
    if line.get("done").and_then(Value::as_bool) == Some(true) {
        let count = |key: &str| line.get(key).and_then(Value::as_u64);
        answer.record_usage(count("prompt_eval_count"), count("eval_count"));
        answer.record_finish_reason(match text("done_reason") {
            "" | "stop" => FinishReason::Stop,
            "length" => FinishReason::Length,
            other => FinishReason::Other(other.chars().take(64).collect()),
        });
        answer.record_stream_end();
    }
    Ok(())
}

#[cfg(test)]
mod tests;
