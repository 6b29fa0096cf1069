//! `POST /v1/chat/completions`: OpenAI's Chat Completions API.
//!
//! The assistant's configuration sets the prompt, tools and sampling; those of a request are ignored. `chat_id` names the
//! conversation. Without it, the earlier messages of the request are the history, and none of them is stored.

mod chunks;
mod request;
mod whole;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use futures::stream;
use http::header;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use wardgate_domain::CallId;

use super::admission::AdmittedRequest;
use super::{Endpoints, Problem, response_body};
use crate::{AgentEvent, EventBody, EventStream, FinishReason};
use chunks::ChunkWriter;
use request::Completion;

/// How long a stream waits for its first event, so that an early failure is reported with an HTTP status.
const OPENING: Duration = Duration::from_secs(2);

pub(super) async fn post(
    here: Arc<Endpoints>,
    request: AdmittedRequest,
) -> Result<Response, Problem> {
    let Completion {
        chat,
        stream,
        include_usage,
    } = Completion::parse(&request.body, &request.parts.headers)?;
    let model = chat.model.clone().or_else(|| {
        let mut models = here.agent.models(&request.caller).into_iter();
        models.next().map(|model| model.name)
    });
    let head = CompletionHead {
        id: format!("chatcmpl-{}", CallId::new(&here.ambient)),
        created: here.ambient.now().as_seconds(),
        model: model.unwrap_or_default(),
        chat_id: chat.conversation_id.clone(),
    };
    let events = here.agent.chat(request.caller, request.token, chat);
    if stream {
        stream_reply(events, head, include_usage).await
    } else {
        let body = whole::reply(events, head).await?;
        let media = [(header::CONTENT_TYPE, "application/json")];
        Ok((media, body.to_string()).into_response())
    }
}

/// The members that every chunk and every complete reply start with.
struct CompletionHead {
    id: String,
    created: i64,
    model: String,
    chat_id: Option<String>,
}

async fn stream_reply(
    mut events: EventStream,
    head: CompletionHead,
    include_usage: bool,
) -> Result<Response, Problem> {
    let opening = read_opening(&mut events).await?;
    let events = stream::iter(opening).chain(events).boxed();
    let mut chunks = ChunkWriter::new(head, include_usage);
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        response_body::UNBUFFERED,
    ];
    let body = response_body::body(events, ": alive\n\n", move |event| chunks.render(&event));
    Ok((headers, body).into_response())
}

/// Returns the first events, up to one that shows that the answer began, or an error if the turn fails before that.
async fn read_opening(events: &mut EventStream) -> Result<Vec<AgentEvent>, Problem> {
    let until = Instant::now() + OPENING;
    let mut first_events = Vec::new();
    while let Ok(Some(event)) = timeout_at(until, events.next()).await {
        let begun = match &event.body {
            EventBody::Error { .. } | EventBody::Usage { .. } => false,
            EventBody::Done { finish_reason, .. } if *finish_reason == FinishReason::Error => {
                return Err(Problem::of_failed_turn(
                    first_events.iter().map(|event: &AgentEvent| &event.body),
                ));
            }
            _ => true,
        };
        first_events.push(event);
        if begun {
            break;
        }
    }
    Ok(first_events)
}

/// Returns OpenAI's finish reason.
fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        // A call that waits for an approval is not a call that the client has to run.
        FinishReason::Stop | FinishReason::ApprovalRequired | FinishReason::Error => "stop",
        FinishReason::Length => "length",
        FinishReason::ContentFilter | FinishReason::Refused => "content_filter",
    }
}

fn usage(input: u64, output: u64) -> Value {
    json!({ "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output })
}
