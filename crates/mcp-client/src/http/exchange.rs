//! Requests and their responses over HTTP.
//!
//! ```text
//!   POST ─▶ JSON:         the response
//!        ─▶ event stream: progress, other messages, … the response; legacy: interrupted ─▶ GET after the last event
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::ACCEPT;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use url::Url;
use wardgate_egress::{EgressClient, EgressResponse, ResponseBody};
use wardgate_mcp::Era;
use wardgate_mcp::event_stream::EventReader;
use wardgate_mcp::header::{self, EVENT_STREAM, JSON, JSON_OR_EVENT_STREAM};

use crate::error::{RequestResult, UpstreamError};
use crate::events::Events;
use crate::listen::ListenTransport;
use crate::message::{self, IncomingMessage, MemberValue, UpstreamRequest};
use crate::open_requests::{MESSAGE_QUEUE, OpenRequests};
use crate::server_message::{self, Listener, ServerMessage, ServerRequest};

/// Time after a response during which messages about the request may still arrive on the standalone stream.
const LATE_MESSAGE_TIMEOUT: Duration = Duration::from_millis(100);

/// Maximum time to send a message without a response.
const NOTICE_LIMIT: Duration = Duration::from_secs(5);

/// Maximum time until a server ends a stream after the response.
const STREAM_END_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of consecutive resumptions of a stream without an event in between.
const MAX_RESUMPTIONS: u32 = 5;

/// Delay before a stream is resumed, unless the server specifies one.
const RESUME_AFTER: Duration = Duration::from_secs(1);
/// Maximum delay that the server may specify.
const RESUME_AFTER_AT_MOST: Duration = Duration::from_secs(10);

/// A server, with the negotiated version and session.
pub(super) struct Exchange {
    pub(super) client: Arc<EgressClient>,
    pub(super) url: Url,
    /// Maximum size of one message in bytes.
    pub(super) max_bytes: usize,
    pub(super) events: Arc<Events>,
    pub(super) tasks: TaskTracker,
    pub(super) era: Era,
    /// The version, or `None` before it is negotiated.
    pub(super) version: Option<&'static str>,
    pub(super) session: Option<HeaderValue>,
    /// Whether at least one request succeeded in the session.
    pub(super) proven: AtomicBool,
    pub(super) next_id: AtomicU64,
    /// The open requests that a legacy server may send messages about outside of responses.
    pub(super) open: Mutex<OpenRequests>,
}

impl Exchange {
    /// Sends a request, and waits for the response without a time limit. Dropping the future cancels the request: at a modern
    /// server by closing the stream, at a legacy server by a notification.
    pub(super) async fn request(
        self: &Arc<Self>,
        request: &UpstreamRequest<'_>,
        listener: Option<Listener<'_>>,
    ) -> RequestResult {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let body = request.encode(id, self.era, listener.is_some())?;
        let mut place = PendingRequest {
            exchange: self,
            id,
            is_told: request.opens() || self.era == Era::Modern,
        };
        let outcome = if self.era == Era::Legacy && request.is_talked_about() {
            let outcome = self.request_to_legacy(id, body, listener).await;
            if matches!(outcome, Err(UpstreamError::Broken(_))) {
                self.open().given_up(id);
            } else {
                self.open().remove_answered(id);
            }
            outcome
        } else {
            self.exchange(id, body, self.describe(request), listener)
                .await
        };
        place.is_told = true;
        if outcome.is_ok() {
            self.proven.store(true, Ordering::Relaxed);
        }
        outcome
    }

    async fn exchange(
        &self,
        id: u64,
        body: Vec<u8>,
        headers: Vec<(HeaderName, HeaderValue)>,
        listener: Option<Listener<'_>>,
    ) -> RequestResult {
        let response = self.post(body, headers).await?;
        self.answer(response, id, listener).await
    }

    /// Sends a request to a legacy server, which may also send messages about the request on its standalone stream.
    async fn request_to_legacy(
        self: &Arc<Self>,
        id: u64,
        body: Vec<u8>,
        listener: Option<Listener<'_>>,
    ) -> RequestResult {
        let Some(listener) = listener else {
            self.open().begin(id, None);
            return self.exchange(id, body, Vec::new(), None).await;
        };
        let (messages, mut received) = mpsc::channel(MESSAGE_QUEUE);
        self.open().begin(id, Some(messages));
        let listener = Mutex::new(listener);
        let deliver = |message| {
            let mut listener = listener.lock().unwrap_or_else(PoisonError::into_inner);
            listener(message)
        };
        let mut on_its_own_stream = deliver;
        let exchange = self.exchange(id, body, Vec::new(), Some(&mut on_its_own_stream));
        let mut exchange = std::pin::pin!(exchange);
        let mut was_talked_about = false;
        let take = |message: ServerMessage| {
            let refusal = message.refusal();
            if !deliver(message)
                && let Some(refusal) = refusal
            {
                self.send_message_later(refusal);
            }
        };
        let outcome = loop {
            tokio::select! {
                biased;
                Some(message) = received.recv() => {
                    was_talked_about = true;
                    take(message);
                }
                outcome = &mut exchange => break outcome,
            }
        };
        // The order of messages on different streams is undefined, so a message that was sent before the
        // response may arrive after it.
        while was_talked_about
            && let Ok(Some(message)) = timeout(LATE_MESSAGE_TIMEOUT, received.recv()).await
        {
            take(message);
        }
        outcome
    }

    fn open(&self) -> MutexGuard<'_, OpenRequests> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request like [`Self::request`], and also returns the headers of the response.
    pub(super) async fn first_request(
        &self,
        request: &UpstreamRequest<'_>,
    ) -> Result<(Box<RawValue>, HeaderMap), UpstreamError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let body = request.encode(id, self.era, false)?;
        let response = self.post(body, self.describe(request)).await?;
        let headers = response.headers.clone();
        Ok((self.answer(response, id, None).await?, headers))
    }

    /// Sends a notification.
    pub(super) async fn notify(
        &self,
        method: &str,
        members: &[(&'static str, MemberValue<'_>)],
    ) -> Result<(), UpstreamError> {
        self.send_message(message::notification(method, members)?)
            .await
    }

    /// Ends the session at the server, if there is one.
    pub(super) async fn end_session(&self) -> Result<(), UpstreamError> {
        if self.session.is_some() {
            let request = wardgate_egress::EgressRequest::new(Method::DELETE, self.url.clone());
            self.client.send(self.with_terms(request), None).await?;
        }
        Ok(())
    }

    /// Returns the headers in which 2026-07-28 repeats parts of the body.
    fn describe(&self, request: &UpstreamRequest<'_>) -> Vec<(HeaderName, HeaderValue)> {
        if self.era == Era::Legacy {
            return Vec::new();
        }
        let name = request
            .subject()
            .map(|subject| (header::NAME, header::encode_value(subject)));
        [(header::METHOD, HeaderValue::from_static(request.method))]
            .into_iter()
            .chain(name)
            .chain(request.headers.iter().cloned())
            .collect()
    }

    async fn post(
        &self,
        body: Vec<u8>,
        headers: Vec<(HeaderName, HeaderValue)>,
    ) -> Result<EgressResponse, UpstreamError> {
        let accept = HeaderValue::from_static(JSON_OR_EVENT_STREAM);
        let request = wardgate_egress::EgressRequest::new(Method::POST, self.url.clone())
            .body(JSON, body)
            .header(ACCEPT, accept)
            .open_ended();
        let request = headers.into_iter().fold(request, |request, (name, value)| {
            request.header(name, value)
        });
        let response = self.client.send(self.with_terms(request), None).await?;
        self.check_status(response).await
    }

    /// Opens the standalone stream of the server, or resumes a stream after the event `last`.
    async fn get(&self, last: Option<&str>) -> Result<EgressResponse, UpstreamError> {
        let mut request = wardgate_egress::EgressRequest::new(Method::GET, self.url.clone())
            .header(ACCEPT, HeaderValue::from_static(EVENT_STREAM))
            .open_ended();
        if let Some(last) = last.and_then(|last| HeaderValue::from_str(last).ok()) {
            request = request.header(header::LAST_EVENT_ID, last);
        }
        let response = self.client.send(self.with_terms(request), None).await?;
        let response = self.check_status(response).await?;
        if !header::has_media_type(&response.headers, EVENT_STREAM) {
            return Err(UpstreamError::BadResult("it is not an event stream"));
        }
        Ok(response)
    }

    pub(super) async fn send_message(&self, body: Vec<u8>) -> Result<(), UpstreamError> {
        timeout(NOTICE_LIMIT, self.post(body, Vec::new()))
            .await
            .map_err(|_| UpstreamError::Timeout)?
            .map(drop)
    }

    /// Sends a request in the background and ignores the response.
    pub(super) fn request_later(self: &Arc<Self>, request: &UpstreamRequest<'_>) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        if let Ok(body) = request.encode(id, self.era, false) {
            self.send_message_later(body);
        }
    }

    pub(super) fn send_message_later(self: &Arc<Self>, body: Vec<u8>) {
        // Without a runtime, the program is ending and its connections are closed anyway.
        if let Ok(runtime) = Handle::try_current() {
            let exchange = Arc::clone(self);
            let telling = async move { exchange.send_message(body).await };
            self.tasks.spawn_on(telling, &runtime);
        }
    }

    fn with_terms(
        &self,
        mut request: wardgate_egress::EgressRequest,
    ) -> wardgate_egress::EgressRequest {
        // 2025-03-26 does not define this header.
        if let Some(version) = self.version.filter(|version| *version > "2025-03-26") {
            request = request.header(header::PROTOCOL_VERSION, HeaderValue::from_static(version));
        }
        if let Some(session) = &self.session {
            request = request.header(header::SESSION_ID, session.clone());
        }
        request
    }

    /// Returns the response if its status is a success, and an error otherwise.
    async fn check_status(
        &self,
        response: EgressResponse,
    ) -> Result<EgressResponse, UpstreamError> {
        let status = response.status.as_u16();
        if response.status.is_success() {
            return Ok(response);
        }
        // Some servers respond with 400 to an unknown session.
        let forgot = status == 404 || status == 400 && self.proven.load(Ordering::Relaxed);
        if forgot && self.session.is_some() {
            return Err(UpstreamError::Gone);
        }
        let is_json = header::has_media_type(&response.headers, JSON);
        let body = response.body.bytes().await;
        if let Ok(body) = body
            && is_json
            && let Ok(messages) = message::read_messages(&body)
        {
            for message in messages {
                if let IncomingMessage::Response {
                    outcome: Err(error @ UpstreamError::Rpc(_)),
                    ..
                } = message
                {
                    return Err(error);
                }
            }
        }
        Err(UpstreamError::Status(status))
    }

    /// Reads the response to request `id`, as JSON or from an event stream.
    async fn answer(
        &self,
        response: EgressResponse,
        id: u64,
        mut listener: Option<Listener<'_>>,
    ) -> RequestResult {
        if header::has_media_type(&response.headers, EVENT_STREAM) {
            return self.follow(response.body, Some(id), listener).await;
        }
        if !header::has_media_type(&response.headers, JSON) {
            return Err(UpstreamError::BadResult(
                "it is neither JSON nor an event stream",
            ));
        }
        let body = response.body.bytes().await?;
        let answer = self.handle_messages(&body, Some(id), &mut listener).await;
        answer
            .map_err(UpstreamError::BadResult)?
            .unwrap_or(Err(UpstreamError::BadResult(
                "it is not a response to the request",
            )))
    }

    /// Reads an event stream up to the response to request `id`, or to its end.
    async fn follow(
        &self,
        mut body: ResponseBody,
        id: Option<u64>,
        mut listener: Option<Listener<'_>>,
    ) -> RequestResult {
        let mut events = EventReader::new(self.max_bytes);
        let mut resumptions = 0;
        loop {
            let (cause, is_closed) = match body.chunk().await {
                Ok(Some(chunk)) => {
                    events.feed(&chunk).map_err(|_| UpstreamError::TooLarge)?;
                    while let Some(data) = events.next_event() {
                        resumptions = 0;
                        // An event with empty data only sets the id.
                        if data.is_empty() {
                            continue;
                        }
                        match self.handle_messages(&data, id, &mut listener).await {
                            Ok(None) => {}
                            Ok(Some(answer)) => {
                                self.tasks
                                    .spawn(timeout(STREAM_END_TIMEOUT, read_out(body)));
                                return answer;
                            }
                            Err(why) => self.events.log_ignored(why),
                        }
                    }
                    continue;
                }
                Ok(None) => ("it closed the stream before the response".to_owned(), true),
                Err(error) => (error.to_string(), false),
            };
            // A legacy server may close the stream, so that the client resumes it to get the response.
            let can_resume =
                self.era == Era::Legacy && id.is_some() && resumptions < MAX_RESUMPTIONS;
            let Some(last) = events.last_id().filter(|_| can_resume) else {
                return Err(UpstreamError::Broken(cause));
            };
            if let Some(listener) = listener.as_mut().filter(|_| is_closed) {
                listener(ServerMessage::StreamClosed);
            }
            resumptions += 1;
            let pause = events.retry().unwrap_or(RESUME_AFTER);
            tokio::time::sleep(pause.min(RESUME_AFTER_AT_MOST)).await;
            let resumed = self.get(Some(last)).await;
            body = resumed.map_err(UpstreamError::after_acceptance)?.body;
            events = events.into_resumed();
        }
    }

    /// Handles the messages in `text`, and returns the response to request `id` if it is among them. The error is the
    /// reason why `text` cannot be read.
    async fn handle_messages(
        &self,
        text: &[u8],
        id: Option<u64>,
        listener: &mut Option<Listener<'_>>,
    ) -> Result<Option<RequestResult>, &'static str> {
        for message in message::read_messages(text)? {
            if let Some(answer) = self.handle_message(message, id, listener).await {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    async fn handle_message(
        &self,
        message: IncomingMessage<'_>,
        id: Option<u64>,
        listener: &mut Option<Listener<'_>>,
    ) -> Option<RequestResult> {
        match message {
            // An error without an id can only be the response to the request that the HTTP response belongs to.
            IncomingMessage::Response {
                id: answered,
                outcome,
            } if id.is_some()
                && (answered == id
                    || answered.is_none() && matches!(outcome, Err(UpstreamError::Rpc(_)))) =>
            {
                return Some(outcome.map(ToOwned::to_owned));
            }
            IncomingMessage::Notification { method, params }
                if method == "notifications/progress" =>
            {
                if let Some(listener) = listener
                    && let Some((token, report)) = server_message::read_progress(params)
                    && Some(token) == id
                {
                    listener(ServerMessage::Progress(report));
                }
            }
            // Messages on the stream of a request are about that request.
            IncomingMessage::Notification { method, params }
                if method == "notifications/message" =>
            {
                if let Some(log) = server_message::read_log(params) {
                    match listener {
                        Some(listener) => drop(listener(ServerMessage::Log(log))),
                        None if id.is_none() => {
                            drop(self.open().deliver_to_only(ServerMessage::Log(log)));
                        }
                        None => {}
                    }
                }
            }
            IncomingMessage::Notification { method, params }
                if method == server_message::COMPLETED =>
            {
                if let Some(elicitation) = server_message::read_completed(params) {
                    self.open().deliver_completed(&elicitation);
                }
            }
            IncomingMessage::Request {
                id: request_id,
                method,
                params,
            } if self.era == Era::Legacy => {
                let answer = match (
                    listener,
                    ServerRequest::from_parts(request_id, &method, params),
                ) {
                    (Some(listener), Some(question)) => {
                        let message = ServerMessage::Question(question);
                        let refusal = message.refusal();
                        refusal.filter(|_| !listener(message))
                    }
                    (None, Some(question)) if id.is_none() => self.open().ask_only(question),
                    _ => message::answer(request_id, &method).ok(),
                };
                if let Some(answer) = answer {
                    // It does not matter whether the server accepts the response.
                    let _ = self.send_message(answer).await;
                }
            }
            // A server of 2026-07-28 cannot get a response to a request, so it would wait forever.
            IncomingMessage::Request { .. } if id.is_some() => {
                return Some(Err(UpstreamError::AsksOutOfTurn));
            }
            other => self.events.handle_unsolicited(&other),
        }
        None
    }

    /// Reads the standalone stream of the server until its end. Calls `begun` once the stream is open.
    pub(super) async fn read_standalone_stream(
        &self,
        begun: impl FnOnce() + Send,
    ) -> Result<(), UpstreamError> {
        let response = self.get(None).await?;
        begun();
        match self.follow(response.body, None, None).await {
            Err(UpstreamError::Broken(_)) => Ok(()),
            outcome => outcome.map(drop),
        }
    }
}

impl ListenTransport for Arc<Exchange> {
    async fn send_request(&self, request: &UpstreamRequest<'_>) -> RequestResult {
        self.request(request, None).await
    }

    async fn read_standalone_stream(&self) -> Result<(), UpstreamError> {
        let begun = || self.events.subscriptions.record_stream_start();
        Exchange::read_standalone_stream(self, begun).await
    }
}

/// Reads a body to its end, so that its connection can be reused.
async fn read_out(mut body: ResponseBody) {
    while let Ok(Some(_)) = body.chunk().await {}
}

/// A request that waits for its response. If it is dropped before, a legacy server is notified of the cancellation.
struct PendingRequest<'a> {
    exchange: &'a Arc<Exchange>,
    id: u64,
    is_told: bool,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        if self.is_told {
            return;
        }
        self.exchange.open().given_up(self.id);
        if let Ok(message) = message::cancelled_notification(self.id) {
            self.exchange.send_message_later(message);
        }
    }
}
