//! A turn as a stream of completion chunks (server-sent events).

use bytes::Bytes;
use serde_json::{Value, json};

use super::super::Problem;
use super::{CompletionHead, finish_reason, usage};
use crate::{AgentEvent, EventBody, FinishReason};

/// Renders the events of a turn as chunks of a completion.
pub(super) struct ChunkWriter {
    head: CompletionHead,
    include_usage: bool,
    begun: bool,
    usage: (u64, u64),
    /// The last error event, which becomes the error of a failed turn.
    failure: Option<EventBody>,
}

impl ChunkWriter {
    pub(super) fn new(head: CompletionHead, include_usage: bool) -> Self {
        Self {
            head,
            include_usage,
            begun: false,
            usage: (0, 0),
            failure: None,
        }
    }

    /// Returns the server-sent events for one event of the turn; empty for some events.
    pub(super) fn render(&mut self, event: &AgentEvent) -> Bytes {
        let mut out = String::new();
        if !self.begun {
            self.begun = true;
            let delta = json!({ "role": "assistant", "content": "" });
            push_data(&mut out, &self.chunk(&delta, None));
        }
        match &event.body {
            EventBody::Token { text } => {
                push_data(&mut out, &self.chunk(&json!({ "content": text }), None));
            }
            EventBody::Usage {
                input_tokens,
                output_tokens,
            } => {
                self.usage = (*input_tokens, *output_tokens);
            }
            EventBody::Done {
                finish_reason,
                conversation_id,
                ..
            } => {
                if conversation_id.is_some() {
                    self.head.chat_id.clone_from(conversation_id);
                }
                self.end(&mut out, event, *finish_reason);
            }
            other => {
                if let EventBody::Error { .. } = other {
                    self.failure = Some(other.clone());
                }
                push_data(&mut out, &self.chunk_with_event(&json!({}), None, event));
            }
        }
        out.into()
    }

    fn end(&self, out: &mut String, event: &AgentEvent, reason: FinishReason) {
        if reason == FinishReason::Error {
            push_data(out, &Problem::of_failed_turn(&self.failure).body());
        } else {
            push_data(
                out,
                &self.chunk_with_event(&json!({}), Some(finish_reason(reason)), event),
            );
        }
        if self.include_usage {
            let mut chunk = self.chunk(&Value::Null, None);
            chunk["choices"] = json!([]);
            chunk["usage"] = usage(self.usage.0, self.usage.1);
            push_data(out, &chunk);
        }
        out.push_str("data: [DONE]\n\n");
    }

    fn chunk(&self, delta: &Value, finish_reason: Option<&str>) -> Value {
        let mut chunk = json!({
            "id": self.head.id,
            "object": "chat.completion.chunk",
            "created": self.head.created,
            "model": self.head.model,
            "system_fingerprint": self.head.chat_id,
            "choices": [{ "index": 0, "delta": delta, "finish_reason": finish_reason }],
        });
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    /// Returns a chunk with the event in the extension member `wardgate`, for content that OpenAI's format cannot express.
    fn chunk_with_event(
        &self,
        delta: &Value,
        finish_reason: Option<&str>,
        event: &AgentEvent,
    ) -> Value {
        let mut chunk = self.chunk(delta, finish_reason);
        chunk["wardgate"] = json!(event);
        chunk
    }
}

fn push_data(out: &mut String, data: &Value) {
    out.push_str("data: ");
    out.push_str(&data.to_string());
    out.push_str("\n\n");
}
