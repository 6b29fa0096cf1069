//! Requests and answers as messages of the OpenTelemetry GenAI semantic conventions, for traces. Used only if the
//! configuration enables it.

use serde_json::{Value, json};
use tracing::Span;
use wardgate_telemetry::{contents, names};

use crate::model::{FinishReason, FunctionCall, ModelEvent, ModelMessage, ModelRequest};

/// The content of an answer as far as it was received.
#[derive(Default)]
pub(super) struct Contents {
    text: String,
    calls: Vec<FunctionCall>,
    finish: Option<FinishReason>,
}

impl Contents {
    /// Adds the messages of `request` to the span and returns the empty content of the answer.
    pub(super) fn record_request(request: &ModelRequest, span: &Span) -> Self {
        let input: Value = request.messages.iter().map(message).collect();
        contents::release(span, names::GENAI_INPUT_MESSAGES, input.to_string());
        Self::default()
    }

    pub(super) fn record_event(&mut self, event: &ModelEvent) {
        match event {
            ModelEvent::Text(text) => self.text.push_str(text),
            ModelEvent::Call(call) => self.calls.push(call.clone()),
            ModelEvent::Finished(reason) => self.finish = Some(reason.clone()),
            ModelEvent::Reasoning(_) | ModelEvent::Usage(_) => {}
        }
    }

    /// Adds the content that was received to the span.
    pub(super) fn end(&self, span: &Span) {
        let output = json!([self.answer()]);
        contents::release(span, names::GENAI_OUTPUT_MESSAGES, output.to_string());
    }

    fn answer(&self) -> Value {
        let reason = match &self.finish {
            Some(FinishReason::Stop) => "stop",
            Some(FinishReason::Calls) => "tool_call",
            Some(FinishReason::Length) => "length",
            Some(FinishReason::Filtered) => "content_filter",
            Some(FinishReason::Other(word)) => word,
            None => "error",
        };
        json!({
            "role": "assistant",
            "parts": parts(&self.text, &self.calls),
            "finish_reason": reason,
        })
    }
}

fn message(message: &ModelMessage) -> Value {
    match message {
        ModelMessage::System(text) => json!({ "role": "system", "parts": parts(text, &[]) }),
        ModelMessage::User(text) => json!({ "role": "user", "parts": parts(text, &[]) }),
        ModelMessage::Assistant { text, calls } => {
            json!({ "role": "assistant", "parts": parts(text, calls) })
        }
        ModelMessage::Result { call_id, text, .. } => {
            let part = json!({ "type": "tool_call_response", "id": call_id, "response": text });
            json!({ "role": "tool", "parts": [part] })
        }
    }
}

fn parts(text: &str, calls: &[FunctionCall]) -> Value {
    let text = (!text.is_empty()).then(|| json!({ "type": "text", "content": text }));
    let calls = calls.iter().map(|call| {
        // Arguments that are not JSON are included as a string.
        let read = serde_json::from_str(&call.arguments);
        let arguments: Value = read.unwrap_or_else(|_| call.arguments.clone().into());
        json!({ "type": "tool_call", "id": call.id, "name": call.name, "arguments": arguments })
    });
    text.into_iter().chain(calls).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(arguments: &str) -> FunctionCall {
        FunctionCall {
            id: "c1".to_owned(),
            name: "look_up".to_owned(),
            arguments: arguments.to_owned(),
        }
    }

    #[test]
    fn messages_are_written_as_the_conventions_have_them() {
        let messages = [
            ModelMessage::System("Help.".to_owned()),
            ModelMessage::User("Who?".to_owned()),
            ModelMessage::Assistant {
                text: String::new(),
                calls: vec![call(r#"{"n":1}"#), call("{n")],
            },
            ModelMessage::Result {
                call_id: "c1".to_owned(),
                name: "look_up".to_owned(),
                text: "Ada".to_owned(),
                is_error: false,
            },
        ];
        let written: Value = messages.iter().map(message).collect();
        let called = |arguments: Value| json!({ "type": "tool_call", "id": "c1", "name": "look_up", "arguments": arguments });
        assert_eq!(
            written,
            json!([
                { "role": "system", "parts": [{ "type": "text", "content": "Help." }] },
                { "role": "user", "parts": [{ "type": "text", "content": "Who?" }] },
                { "role": "assistant", "parts": [called(json!({ "n": 1 })), called(json!("{n"))] },
                { "role": "tool", "parts": [{ "type": "tool_call_response", "id": "c1", "response": "Ada" }] },
            ])
        );
    }

    #[test]
    fn an_answer_says_how_it_ended_and_thoughts_are_no_part_of_it() {
        let mut contents = Contents::default();
        for event in [
            ModelEvent::Reasoning("Hm.".to_owned()),
            ModelEvent::Text("It ".to_owned()),
            ModelEvent::Text("is Ada.".to_owned()),
        ] {
            contents.record_event(&event);
        }
        assert_eq!(contents.answer()["finish_reason"], "error", "so far");
        contents.record_event(&ModelEvent::Finished(FinishReason::Stop));
        assert_eq!(
            contents.answer(),
            json!({
                "role": "assistant",
                "parts": [{ "type": "text", "content": "It is Ada." }],
                "finish_reason": "stop",
            })
        );
    }
}
