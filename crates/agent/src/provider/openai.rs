//! OpenAI's Chat Completions API, which vLLM, llama.cpp, Ollama, LM Studio and many other servers also provide with small
//! differences.

use serde_json::{Map, Value, json};

use super::answer::AnswerAssembly;
use super::calls::{ArgumentsPiece, CallPiece};
use super::failure;
use crate::model::{
    FinishReason, Function, FunctionCall, FunctionChoice, ModelError, ModelMessage, ModelRequest,
};

/// Returns the body of a request. Newer models of OpenAI reject `max_tokens`, which is the only form that other servers know.
pub(super) fn body(request: &ModelRequest, is_openai_itself: bool) -> Value {
    let mut body = json!({
        "model": request.model,
        "messages": request.messages.iter().map(message).collect::<Vec<_>>(),
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    if !request.functions.is_empty() {
        body["tools"] = request.functions.iter().map(tool).collect();
        body["tool_choice"] = match request.choice {
            FunctionChoice::Auto => json!("auto"),
            FunctionChoice::None => json!("none"),
        };
    }
    if let Some(temperature) = request.temperature {
        body["temperature"] = json!(temperature);
    }
    if let Some(limit) = request.max_output_tokens {
        let key = if is_openai_itself {
            "max_completion_tokens"
        } else {
            "max_tokens"
        };
        body[key] = json!(limit);
    }
    body
}

fn message(message: &ModelMessage) -> Value {
    match message {
        ModelMessage::System(text) => json!({"role": "system", "content": text}),
        ModelMessage::User(text) => json!({"role": "user", "content": text}),
        ModelMessage::Assistant { text, calls } if calls.is_empty() => {
            json!({"role": "assistant", "content": text})
        }
        ModelMessage::Assistant { text, calls } => json!({
            "role": "assistant",
            "content": text,
            "tool_calls": calls.iter().map(call).collect::<Vec<_>>(),
        }),
        ModelMessage::Result { call_id, text, .. } => {
            json!({"role": "tool", "tool_call_id": call_id, "content": text})
        }
    }
}

/// Converts a function. `strict` is off, because it would make every optional argument required.
fn tool(function: &Function) -> Value {
    json!({"type": "function", "function": {
        "name": function.name,
        "description": function.description,
        "parameters": function.parameters,
        "strict": false,
    }})
}

/// Converts a call. Arguments that are not an object become `{}`, because servers that render them into a template reject
/// anything else; the result of the call tells the model what was wrong.
fn call(call: &FunctionCall) -> Value {
    let is_object = serde_json::from_str::<Map<String, Value>>(&call.arguments).is_ok();
    let arguments = if is_object { &call.arguments } else { "{}" };
    json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
}

/// Reads one event of a stream, or the complete answer of a server that does not stream.
pub(super) fn parse_frame(frame: &str, answer: &mut AnswerAssembly) -> Result<(), ModelError> {
    let frame = frame.trim();
    if frame == "[DONE]" {
        answer.record_stream_end();
        return Ok(());
    }
    if frame.is_empty() {
        return Ok(());
    }
    let Ok(Value::Object(chunk)) = serde_json::from_str(frame) else {
        return Err(ModelError::Unreadable);
    };
    if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
        return Err(failure::of_object(error));
    }
    let choices = chunk.get("choices").and_then(Value::as_array);
    // The request asks for one choice, so others are ignored.
    let first = choices.and_then(|choices| {
        choices
            .iter()
            .find(|choice| choice.get("index").and_then(Value::as_u64).unwrap_or(0) == 0)
    });
    if let Some(choice) = first {
        read_choice(choice, answer)?;
    }
    if let Some(usage) = chunk.get("usage") {
        let count = |key: &str| usage.get(key).and_then(Value::as_u64);
        answer.record_usage(count("prompt_tokens"), count("completion_tokens"));
    }
    Ok(())
}

fn read_choice(choice: &Value, answer: &mut AnswerAssembly) -> Result<(), ModelError> {
    for key in ["delta", "message"] {
        if let Some(Value::Object(message)) = choice.get(key) {
            read_message(message, answer)?;
        }
    }
    let reason = choice.get("finish_reason").and_then(Value::as_str);
    if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
        answer.record_finish_reason(match reason {
            "stop" | "eos" | "eos_token" | "end_turn" => FinishReason::Stop,
            "tool_calls" | "function_call" => FinishReason::Calls,
            "length" | "max_tokens" => FinishReason::Length,
            "content_filter" => FinishReason::Filtered,
            other => FinishReason::Other(other.chars().take(64).collect()),
        });
    }
    Ok(())
}

fn read_message(
    message: &Map<String, Value>,
    answer: &mut AnswerAssembly,
) -> Result<(), ModelError> {
    // Some servers send the same reasoning under both names.
    let thoughts = ["reasoning_content", "reasoning"]
        .into_iter()
        .find_map(|key| message.get(key)?.as_str());
    answer.push_reasoning(thoughts.unwrap_or_default())?;
    match message.get("content") {
        Some(Value::String(text)) => answer.push_text(text)?,
        Some(Value::Array(parts)) => {
            for text in parts.iter().filter_map(|part| part.get("text")?.as_str()) {
                answer.push_text(text)?;
            }
        }
        _ => {}
    }
    answer.push_text(
        message
            .get("refusal")
            .and_then(Value::as_str)
            .unwrap_or_default(),
    )?;
    let calls = message.get("tool_calls").and_then(Value::as_array);
    for call in calls.into_iter().flatten() {
        read_call(call, answer)?;
    }
    Ok(())
}

fn read_call(call: &Value, answer: &mut AnswerAssembly) -> Result<(), ModelError> {
    let function = call.get("function");
    let arguments = match function.and_then(|function| function.get("arguments")) {
        Some(Value::String(text)) => Some(ArgumentsPiece::More(text)),
        None | Some(Value::Null) => None,
        Some(value) => Some(ArgumentsPiece::Whole(value)),
    };
    answer.push_call_piece(&CallPiece {
        index: call.get("index").and_then(Value::as_u64),
        id: non_empty_text(call.get("id")),
        name: non_empty_text(function.and_then(|function| function.get("name"))),
        arguments,
    })
}

fn non_empty_text(value: Option<&Value>) -> Option<&str> {
    value?.as_str().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
