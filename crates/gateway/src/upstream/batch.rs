//! Batches of 2025-03-26: each message is a request of its own, under its own right and with its own record.
//!
//! ```text
//!   [a, b, c] ─▶ a ─▶ answer ┐
//!                b ─▶ answer ├▶ [answer, answer]     one after the other; the server gets each by itself
//!                c ─▶ 202    ┘
//!
//!   once the server answers one with a stream, or the answers are long: all as events of one stream
//! ```

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use axum::body::to_bytes;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::StreamExt;
use serde::Deserialize;
use serde_json::value::RawValue;
use wardgate_json::scan;
use wardgate_mcp::header::SESSION_ID;
use wardgate_rpc::client::{RelayContent, RelayHead};

use super::answer;
use super::{
    HttpVerb, RouteRequest, forward_message, may_connect, refuse, refuse_unreadable,
    upstream_request,
};
use crate::Gateway;
use crate::answer_pace;
use crate::catalogue::Source;
use crate::client_interaction::{self, ResponseSender};
use crate::mcp::{BATCH, named_version};
use crate::reply::Answer;
use crate::rpc_error::RpcError;

/// The most bytes of answers that are held for one array.
const HELD: usize = 1 << 20;

/// One message, and the id that its answer has to have.
pub(super) struct BatchEntry {
    message: Bytes,
    id: Option<Box<RawValue>>,
}

/// Whether `body` is a batch.
pub(super) fn is_batch(body: &[u8]) -> bool {
    body.trim_ascii_start().starts_with(b"[")
}

/// Answers the batch `body`.
pub(super) async fn run(
    gateway: &Arc<Gateway>,
    source: Arc<Source>,
    route_request: RouteRequest,
    body: &Bytes,
) -> Response {
    let entries = match entries(gateway, &route_request, body) {
        Ok(entries) => entries,
        Err(error) => return refuse_unreadable(gateway, &source, &route_request, None, &error),
    };
    if let Err(error) = may_connect(gateway, &source, &route_request).await {
        return refuse(gateway, &route_request, None, &error);
    }
    let (out, response) = client_interaction::response_channel();
    let batch_run = BatchRun {
        gateway: Arc::clone(gateway),
        source,
        route_request,
        out,
        session: None,
        answers: Vec::new(),
        held: 0,
        unanswered: Vec::new(),
    };
    // In a task of its own, so that all messages are carried out even if the client hangs up.
    gateway.calls.spawn(batch_run.all(entries));
    response.await.unwrap_or_else(|_| {
        let error = RpcError::internal("panic", "Internal error.");
        Answer::error(None, &error).into_response()
    })
}

/// The messages of a batch that may be run.
pub(super) fn entries(
    gateway: &Gateway,
    route_request: &RouteRequest,
    body: &Bytes,
) -> Result<Vec<BatchEntry>, RpcError> {
    #[derive(Deserialize)]
    struct EntryHead<'a> {
        #[serde(borrow, default)]
        id: Option<&'a RawValue>,
        #[serde(borrow, default)]
        method: Option<&'a RawValue>,
    }
    let text = scan(body, gateway.limits().depth)
        .map_err(|error| RpcError::parse(error.reason(), error.to_string()))?;
    let version = named_version(&route_request.headers)?;
    // Clients of that version do not name it.
    if version.is_some_and(|version| !version.has_batches()) {
        let why = "batches exist only in protocol version 2025-03-26";
        return Err(RpcError::invalid_request(why));
    }
    let messages: Vec<&RawValue> =
        serde_json::from_str(text).map_err(|_| RpcError::invalid_request("not a batch"))?;
    if messages.is_empty() || messages.len() > BATCH {
        let why = format!("a batch holds 1 to {BATCH} messages");
        return Err(RpcError::invalid_request(why));
    }
    // One that is over is over for all of them.
    upstream_request::session(gateway, route_request, version)?;
    let mut ids = HashSet::new();
    let mut entries = Vec::with_capacity(messages.len());
    for message in messages {
        let text = message.get();
        let head = serde_json::from_str::<EntryHead<'_>>(text).ok();
        let method = head.as_ref().and_then(|head| head.method);
        if method.is_some_and(|method| method.get() == r#""initialize""#) {
            let why = "`initialize` must not be part of a batch";
            return Err(RpcError::invalid_request(why));
        }
        let id = head.and_then(|head| head.id).filter(|_| method.is_some());
        if id.is_some_and(|id| !ids.insert(id.get())) {
            let why = "two requests of the batch have the same `id`";
            return Err(RpcError::invalid_request(why));
        }
        entries.push(BatchEntry {
            message: body.slice_ref(text.as_bytes()),
            id: id.map(ToOwned::to_owned),
        });
    }
    Ok(entries)
}

/// The progress of one batch.
struct BatchRun {
    gateway: Arc<Gateway>,
    source: Arc<Source>,
    route_request: RouteRequest,
    out: ResponseSender<Response>,
    session: Option<HeaderValue>,
    /// Answers that are not sent yet.
    answers: Vec<String>,
    held: usize,
    /// Requests to which the server said a status and no more.
    unanswered: Vec<(Box<RawValue>, StatusCode)>,
}

impl BatchRun {
    async fn all(mut self, entries: Vec<BatchEntry>) {
        for BatchEntry { message, id } in entries {
            let route_request = self.route_request.with_verb(HttpVerb::Post(message));
            let arrived = Instant::now();
            let response =
                forward_message(&self.gateway, Arc::clone(&self.source), route_request, true).await;
            if answer_pace::has_to_wait(&response) {
                answer_pace::wait_for_step(arrived).await;
            }
            self.one(id, response).await;
        }
        let is_silent = matches!(self.out, ResponseSender::Unsent(_));
        let first = self.unanswered.first().map(|(_, status)| *status);
        if let Some(status) = first.filter(|_| is_silent && self.answers.is_empty()) {
            return self.end(status.into_response());
        }
        for (id, status) in std::mem::take(&mut self.unanswered) {
            let why = format!("The server answered with status {}.", status.as_u16());
            let error = RpcError::internal("upstream_failed", why);
            let answer = Answer::error(Some(&id), &error).into_text();
            self.answer(answer.unwrap_or_default()).await;
        }
        if is_silent && matches!(self.out, ResponseSender::Unsent(_)) {
            let response = match &*self.answers {
                [] => StatusCode::ACCEPTED.into_response(),
                answers => {
                    let json = HeaderValue::from_static("application/json");
                    let array = format!("[{}]", answers.join(","));
                    ([(header::CONTENT_TYPE, json)], array).into_response()
                }
            };
            self.end(response);
        }
    }

    /// Adds the response to one message.
    async fn one(&mut self, id: Option<Box<RawValue>>, response: Response) {
        let (head, body) = response.into_parts();
        if self.session.is_none() {
            self.session = head.headers.get(SESSION_ID).cloned();
        }
        let kind = head.headers.get(header::CONTENT_TYPE);
        if kind.is_some_and(|kind| kind == "text/event-stream") {
            self.begin().await;
            let mut events = body.into_data_stream();
            while let Some(Ok(event)) = events.next().await {
                self.out.send_event(event).await;
            }
            return;
        }
        // The tool-runner bounds the length of an answer.
        let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
        let message = String::from_utf8(body.into()).unwrap_or_default();
        match id {
            _ if !message.is_empty() => self.answer(message).await,
            Some(id) => self.unanswered.push((id, head.status)),
            None => {}
        }
    }

    /// Holds an answer for the array, or sends it on the stream.
    async fn answer(&mut self, answer: String) {
        if !matches!(self.out, ResponseSender::Unsent(_)) {
            return self
                .out
                .send_event(client_interaction::format_event(None, None, &answer))
                .await;
        }
        self.held += answer.len();
        self.answers.push(answer);
        if self.held > HELD {
            self.begin().await;
        }
    }

    /// Begins the stream with the answers held so far.
    async fn begin(&mut self) {
        if !matches!(self.out, ResponseSender::Unsent(_)) {
            return;
        }
        let head = RelayHead {
            status: StatusCode::OK.as_u16(),
            session: None,
            content: RelayContent::Events,
            retry_after: None,
        };
        let session = self.session.as_ref().and_then(|id| id.to_str().ok());
        self.out
            .start_stream(|events| answer::stream(&head, session, events));
        for answer in std::mem::take(&mut self.answers) {
            self.out
                .send_event(client_interaction::format_event(None, None, &answer))
                .await;
        }
    }

    fn end(mut self, mut response: Response) {
        if let Some(session) = self.session.take() {
            response.headers_mut().insert(SESSION_ID, session);
        }
        self.out.send_response(response);
    }
}
