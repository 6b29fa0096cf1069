//! The Anthropic Messages API: content in blocks, and tool results inside user messages.

use serde_json::{Map, Value, json};

use super::answer::AnswerAssembly;
use super::calls::{ArgumentsPiece, CallPiece};
use super::failure;
use crate::model::{
    FinishReason, Function, FunctionCall, FunctionChoice, ModelError, ModelMessage, ModelRequest,
};

/// The value of `max_tokens` if the request has no limit. The API requires one, and every model supports this value.
const DEFAULT_MAX_OUTPUT_TOKENS: u32 = 4_096;

/// Returns the body of a request. All system messages of the conversation are moved to the top-level `system` member,
/// because the API has no other place for them.
pub(super) fn body(request: &ModelRequest) -> Value {
    let mut body = json!({
        "model": request.model,
        "max_tokens": request.max_output_tokens.unwrap_or(DEFAULT_MAX_OUTPUT_TOKENS),
        "messages": messages(&request.messages),
        "stream": true,
    });
    let system: Vec<_> = request
        .messages
        .iter()
        .filter_map(|message| match message {
            ModelMessage::System(text) if !text.is_empty() => Some(text.as_str()),
            _ => None,
        })
        .collect();
    if !system.is_empty() {
        body["system"] = json!(system.join("\n\n"));
    }
    if !request.functions.is_empty() {
        body["tools"] = request.functions.iter().map(tool).collect();
        body["tool_choice"] = match request.choice {
            FunctionChoice::Auto => json!({"type": "auto"}),
            FunctionChoice::None => json!({"type": "none"}),
        };
    }
    if let Some(temperature) = request.temperature {
        body["temperature"] = json!(temperature);
    }
    body
}

/// Converts messages. Adjacent messages of one role are merged, because the API requires all results of an answer's calls in the
/// next message.
fn messages(messages: &[ModelMessage]) -> Vec<Value> {
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in messages {
        let (role, blocks) = match message {
            ModelMessage::System(_) => continue,
            ModelMessage::User(text) => ("user", text_block(text).into_iter().collect()),
            ModelMessage::Assistant { text, calls } => {
                let blocks = text_block(text).into_iter().chain(calls.iter().map(call));
                ("assistant", blocks.collect())
            }
            ModelMessage::Result {
                call_id,
                text,
                is_error,
                ..
            } => {
                let result = json!({"type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": is_error});
                ("user", vec![result])
            }
        };
        match turns.last_mut() {
            Some((last, known)) if *last == role => known.extend(blocks),
            _ => turns.push((role, blocks)),
        }
    }
    turns
        .into_iter()
        .filter(|(_, blocks)| !blocks.is_empty())
        .map(|(role, blocks)| json!({"role": role, "content": blocks}))
        .collect()
}

/// Returns a text block, or `None` for blank text, because the API rejects empty text blocks.
fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text}))
}

/// Converts a call. Arguments that are not an object become `{}`, because the API accepts only objects; the result of the call
/// tells the model what was wrong.
fn call(call: &FunctionCall) -> Value {
    let input: Map<String, Value> = serde_json::from_str(&call.arguments).unwrap_or_default();
    json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input})
}

fn tool(function: &Function) -> Value {
    json!({
        "name": function.name,
        "description": function.description,
        "input_schema": function.parameters,
    })
}

/// Reads one event of a stream, or the complete message of a server that does not stream.
pub(super) fn parse_frame(frame: &str, answer: &mut AnswerAssembly) -> Result<(), ModelError> {
    let Ok(Value::Object(event)) = serde_json::from_str(frame) else {
        return Err(ModelError::Unreadable);
    };
    let index = event.get("index").and_then(Value::as_u64);
    match event.get("type").and_then(Value::as_str) {
        Some("error") => {
            let error = event.get("error").unwrap_or(&Value::Null);
            return Err(failure::of_object(error));
        }
        Some("message_start") => {
            let message = event.get("message");
            usage(message.and_then(|message| message.get("usage")), answer);
        }
        Some("content_block_start") => {
            block(
                event.get("content_block").unwrap_or(&Value::Null),
                index,
                answer,
            )?;
        }
        Some("content_block_delta") => {
            delta(event.get("delta").unwrap_or(&Value::Null), index, answer)?;
        }
        Some("message_delta") => {
            usage(event.get("usage"), answer);
            record_stop_reason(
                event
                    .get("delta")
                    .and_then(|delta| delta.get("stop_reason")),
                answer,
            );
        }
        Some("message_stop") => answer.record_stream_end(),
        Some("message") => {
            let content = event.get("content").and_then(Value::as_array);
            for (index, content) in (0..).zip(content.into_iter().flatten()) {
                block(content, Some(index), answer)?;
            }
            usage(event.get("usage"), answer);
            record_stop_reason(event.get("stop_reason"), answer);
        }
        // Pings, ends of blocks and unknown event types are ignored.
        _ => {}
    }
    Ok(())
}

/// Reads the start of a block, or a complete block. The start of a tool call has an empty object as its input, which the
/// following deltas replace.
fn block(block: &Value, index: Option<u64>, answer: &mut AnswerAssembly) -> Result<(), ModelError> {
    let text = |key: &str| block.get(key).and_then(Value::as_str);
    match text("type") {
        Some("text") => answer.push_text(text("text").unwrap_or_default()),
        Some("thinking") => answer.push_reasoning(text("thinking").unwrap_or_default()),
        Some("tool_use") => {
            let input = block.get("input").and_then(Value::as_object);
            let whole = input
                .filter(|input| !input.is_empty())
                .and_then(|_| block.get("input"));
            answer.push_call_piece(&CallPiece {
                index,
                id: text("id"),
                name: text("name"),
                arguments: whole.map(ArgumentsPiece::Whole),
            })
        }
        _ => Ok(()),
    }
}

fn delta(delta: &Value, index: Option<u64>, answer: &mut AnswerAssembly) -> Result<(), ModelError> {
    let text = |key: &str| delta.get(key).and_then(Value::as_str).unwrap_or_default();
    match text("type") {
        "text_delta" => answer.push_text(text("text")),
        "thinking_delta" => answer.push_reasoning(text("thinking")),
        "input_json_delta" => answer.push_call_piece(&CallPiece {
            index,
            arguments: Some(ArgumentsPiece::More(text("partial_json"))),
            ..CallPiece::default()
        }),
        _ => Ok(()),
    }
}

/// Reads token counts. Input tokens that were written to or read from a cache count as input too.
fn usage(usage: Option<&Value>, answer: &mut AnswerAssembly) {
    let count = |key: &str| usage?.get(key)?.as_u64();
    let cached = ["cache_creation_input_tokens", "cache_read_input_tokens"]
        .into_iter()
        .filter_map(count)
        .fold(0, u64::saturating_add);
    let input = count("input_tokens").map(|input| input.saturating_add(cached));
    answer.record_usage(input, count("output_tokens"));
}

fn record_stop_reason(reason: Option<&Value>, answer: &mut AnswerAssembly) {
    let Some(reason) = reason.and_then(Value::as_str) else {
        return;
    };
    answer.record_finish_reason(match reason {
        "end_turn" | "stop_sequence" => FinishReason::Stop,
        "tool_use" => FinishReason::Calls,
        "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
        "refusal" => FinishReason::Filtered,
        other => FinishReason::Other(other.chars().take(64).collect()),
    });
}

#[cfg(test)]
mod tests;
