//! A turn as a single, complete response.

use futures::StreamExt;
use serde_json::{Value, json};

use super::super::Problem;
use super::{CompletionHead, finish_reason, usage};
use crate::{AgentEvent, EventBody, EventStream, FinishReason};

/// Waits for the end of the turn and returns the completion. Dropping the future cancels the turn.
pub(super) async fn reply(mut events: EventStream, head: CompletionHead) -> Result<Value, Problem> {
    let mut text = String::new();
    let mut tokens = (0, 0);
    let mut extension: Vec<AgentEvent> = Vec::new();
    while let Some(event) = events.next().await {
        match &event.body {
            EventBody::Token { text: more } => text.push_str(more),
            EventBody::Usage {
                input_tokens,
                output_tokens,
            } => tokens = (*input_tokens, *output_tokens),
            _ => {}
        }
        if is_extension(&event.body) {
            extension.push(event);
        }
    }
    let Some(AgentEvent {
        body:
            EventBody::Done {
                finish_reason: reason,
                conversation_id,
                ..
            },
        ..
    }) = extension.last()
    else {
        return Err(Problem::of_failed_turn(
            extension.iter().map(|event| &event.body),
        ));
    };
    if *reason == FinishReason::Error {
        return Err(Problem::of_failed_turn(
            extension.iter().map(|event| &event.body),
        ));
    }
    Ok(json!({
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": [{
            "index": 0,
            "message": { "role": "assistant", "content": text },
            "finish_reason": finish_reason(*reason),
        }],
        "usage": usage(tokens.0, tokens.1),
        "system_fingerprint": conversation_id.clone().or(head.chat_id),
        "wardgate": extension,
    }))
}

/// Returns whether an event belongs in the extension member `wardgate`, because OpenAI's format cannot express it.
fn is_extension(event: &EventBody) -> bool {
    match event {
        EventBody::ToolCall { .. }
        | EventBody::ToolResult { .. }
        | EventBody::ApprovalRequired { .. }
        | EventBody::ApprovalPending { .. }
        | EventBody::Error { .. }
        | EventBody::Done { .. } => true,
        EventBody::Token { .. } | EventBody::Usage { .. } => false,
    }
}
