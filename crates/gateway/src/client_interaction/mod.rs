//! The exchange with the client of a running call: notifications, requests for input, and the answer.
//!
//! ```text
//!  governed_call ──send_message──▶ ClientInteraction ──▶ no message before the answer: one JSON response
//!                ──request_input─▶   ResponseMode    ──▶ otherwise: a stream of events, whose last is the answer
//! ```
//!
//! A client gets only the notifications that it asked for. A modern client gets requests for input in the answer
//! (`input_required`); an older client gets them on the stream.

mod input_responder;
mod response_sender;

use std::fmt::Write;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::http::HeaderMap;
use bytes::Bytes;
use futures::FutureExt;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use wardgate_domain::{Caller, Reason};
use wardgate_mcp::Version;
use wardgate_mcp_server::{
    JsonRpcRequest, LogLevel, McpResponse, RequestMeta, RpcError, StreamAcceptance, format_event,
};
use wardgate_rpc::client::{CallEvent, CallProgress, LogMessage, PassthroughMeta};

use crate::post::Post;
use crate::replica_inbox::ExpectedMessage;
use crate::session::SseSession;
use crate::stored_stream::{StreamStore, StreamWriter};

use self::input_responder::InputResponder;

pub(crate) use self::input_responder::{PendingInput, ResponseRouter};
pub(crate) use self::response_sender::{ResponseSender, response_channel};

/// The channel to the client of one call: its version, its capabilities, and how messages before the answer are sent.
#[derive(Debug)]
pub(crate) struct ClientChannel {
    pub(crate) version: Version,
    /// MCP `ClientCapabilities`, an object with members.
    capabilities: Option<Arc<str>>,
    log_level: Option<LogLevel>,
    /// The progress token, as the client wrote it.
    progress_token: Option<Box<RawValue>>,
    passthrough: PassthroughMeta,
    /// Whether the stream begins before there is a message to send on it.
    prefers_stream: bool,
    response_mode: ResponseMode,
    /// Cancelled when the client cancels the call.
    pub(crate) cancel: CancellationToken,
    /// The trace context of the message, as headers. Empty if the HTTP request has its own trace context.
    pub(crate) trace: HeaderMap,
    /// The sender of requests for input to an older client, or `None` outside a session.
    responder: Option<InputResponder>,
    /// Receives a cancellation from any replica for as long as this value exists.
    _cancellable: Option<ExpectedMessage>,
}

/// How messages are sent to a client before the answer.
#[derive(Debug)]
enum ResponseMode {
    /// On the response to the client's POST, which becomes a stream.
    Streamable,
    /// On the response to the client's POST in a session. The events are stored so that the stream can be resumed.
    Resumable(Box<StreamWriter>),
    /// On the stream of its HTTP+SSE session.
    SseStream(Arc<SseSession>),
    /// Not at all: the response holds the answer only.
    ResponseOnly,
}

/// Opens the channels to the clients of calls.
pub(crate) struct ClientChannels {
    stream_store: Arc<StreamStore>,
    router: Arc<ResponseRouter>,
}

impl ClientChannels {
    pub(crate) fn new(stream_store: Arc<StreamStore>, router: ResponseRouter) -> Self {
        Self {
            stream_store,
            router: Arc::new(router),
        }
    }

    /// Returns the router of responses to the calls that wait for them.
    pub(crate) fn router(&self) -> &ResponseRouter {
        &self.router
    }

    /// Returns the channel to the client of `request`.
    pub(crate) fn for_request(
        &self,
        post: &Post,
        request: &JsonRpcRequest<'_>,
        meta: &RequestMeta<'_>,
        version: Version,
    ) -> Result<ClientChannel, RpcError> {
        let can_stream = post.accepts_stream != StreamAcceptance::Refused;
        let response_mode = match (&post.session, &post.streamable) {
            (Some(session), _) => ResponseMode::SseStream(Arc::clone(session)),
            (None, Some(session)) if can_stream => {
                let streams = self.stream_store.of_session(&post.caller, session);
                let writer = StreamWriter::new(streams, request.id);
                ResponseMode::Resumable(Box::new(writer))
            }
            (None, None) if can_stream => ResponseMode::Streamable,
            (None, _) => ResponseMode::ResponseOnly,
        };
        // An older client without a stream cannot be asked for input.
        let can_be_asked =
            version.is_modern() || !matches!(response_mode, ResponseMode::ResponseOnly);
        let capabilities = post.client_capabilities(meta, version);
        let capabilities = capabilities.filter(|_| can_be_asked);
        let log_level = match (&post.streamable, &post.session) {
            _ if version.is_modern() => meta.log_level()?,
            _ if matches!(response_mode, ResponseMode::ResponseOnly) => None,
            (Some(session), _) => session.log_level,
            (None, Some(session)) => session.log_level(),
            (None, None) => None,
        };
        let name = post.session_name().filter(|_| !version.is_modern());
        let responder = name.map(|name| InputResponder::new(&self.router, &post.caller, name));
        let session = post.streamable.as_ref();
        let inbox = &self.router.replica_inbox;
        let cancellable = session.map(|session| inbox.begin(session, request.id));
        let cancel = cancellable.as_ref().map(|call| call.is_there.clone());
        Ok(ClientChannel {
            version,
            capabilities: capabilities.map(Into::into),
            log_level,
            progress_token: meta.progress_token()?.map(ToOwned::to_owned),
            passthrough: passthrough_meta(post, request, version),
            prefers_stream: post.accepts_stream == StreamAcceptance::Preferred,
            response_mode,
            cancel: cancel.unwrap_or_default(),
            trace: if post.headers.contains_key("traceparent") {
                HeaderMap::new()
            } else {
                meta.trace_context()
            },
            responder,
            _cancellable: cancellable,
        })
    }

    /// Returns the channel to a client that resumes a stream that another replica began.
    pub(crate) fn for_resumed_stream(
        &self,
        caller: &Arc<Caller>,
        writer: StreamWriter,
        request: &RawValue,
    ) -> ClientChannel {
        let session = Arc::clone(writer.session());
        let cancellable = self.router.replica_inbox.begin(&session, request);
        ClientChannel {
            version: session.version,
            capabilities: session.declared.to_json().map(Into::into),
            log_level: session.log_level,
            progress_token: None,
            passthrough: PassthroughMeta::default(),
            prefers_stream: false,
            response_mode: ResponseMode::Resumable(Box::new(writer)),
            cancel: cancellable.is_there.clone(),
            // The request with the trace context went to the replica that began the stream.
            trace: HeaderMap::new(),
            responder: Some(InputResponder::new(&self.router, caller, session.name())),
            _cancellable: Some(cancellable),
        }
    }
}

impl ClientChannel {
    /// Returns the channel to a client that receives the answer and no message before it.
    pub(crate) fn response_only(version: Version) -> Self {
        Self::response_only_with(version, None)
    }

    /// Returns the channel to a client with `capabilities` that receives the answer and no message before it.
    pub(crate) fn response_only_with(version: Version, capabilities: Option<Arc<str>>) -> Self {
        Self {
            version,
            capabilities,
            log_level: None,
            progress_token: None,
            passthrough: PassthroughMeta::default(),
            prefers_stream: false,
            response_mode: ResponseMode::ResponseOnly,
            cancel: CancellationToken::new(),
            trace: HeaderMap::new(),
            responder: None,
            _cancellable: None,
        }
    }
}

/// Returns the `_meta` and the unsolicited input responses of `request`, which the upstream server receives unchanged.
fn passthrough_meta(
    post: &Post,
    request: &JsonRpcRequest<'_>,
    version: Version,
) -> PassthroughMeta {
    let of_body = |raw: Option<&RawValue>| {
        let object = raw.filter(|raw| raw.get().starts_with('{'));
        object.map_or_else(Bytes::new, |raw| post.body.slice_ref(raw.get().as_bytes()))
    };
    // If the request has a `requestState`, its responses answer requests of this gateway.
    let responses = request.params.input_responses;
    let can_be_unasked = version.is_modern() && request.params.request_state.is_none();
    PassthroughMeta {
        meta: of_body(request.params.meta),
        unsolicited_responses: of_body(responses.filter(|_| can_be_unasked)),
    }
}

/// The reason for which a client gave no input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputError {
    /// There is no stream to send the request on.
    NoStream,
    /// The client did not respond in time.
    TimedOut,
    /// The client responded with an error, or with an invalid result.
    Refused,
    /// The client cancelled the call.
    Cancelled,
    /// Another replica waits for the input now.
    HandedOver,
    /// This replica shuts down, and no other can wait for the input.
    ShuttingDown,
}

impl InputError {
    /// Returns the reason for the record.
    pub(crate) fn reason(self) -> Reason {
        match self {
            Self::NoStream => Reason::CLIENT_CANNOT_BE_ASKED,
            Self::TimedOut => Reason::CLIENT_DID_NOT_ANSWER,
            Self::Refused => Reason::CLIENT_REFUSED,
            Self::Cancelled => Reason::CANCELLED,
            Self::HandedOver => Reason::HANDED_OVER,
            Self::ShuttingDown => Reason::GATEWAY_STOPPING,
        }
    }

    /// Returns the message for the client.
    pub(crate) fn in_words(self) -> &'static str {
        match self {
            Self::NoStream => {
                "Input from the client is required, and no stream to the client is available."
            }
            Self::TimedOut => "The client did not provide the requested input in time.",
            Self::Refused => "The client answered the request for input with an error.",
            Self::Cancelled => "The call was cancelled.",
            Self::HandedOver => "The call continues at another gateway.",
            Self::ShuttingDown => {
                "Input from the client is required, and the gateway is shutting down. Call again."
            }
        }
    }
}

/// The reason for which a run was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interruption {
    Cancelled,
    /// The process exits.
    Exiting,
    Panicked,
}

/// The exchange with the client of one running call.
#[derive(Debug)]
pub(crate) struct ClientInteraction {
    channel: ClientChannel,
    out: ResponseSender<McpResponse>,
    /// The last progress value that was sent.
    progress: f64,
}

impl ClientInteraction {
    /// Returns the MCP `ClientCapabilities` of the client, or `None` if it declared none.
    pub(crate) fn capabilities(&self) -> Option<Arc<str>> {
        self.channel.capabilities.clone()
    }

    /// Returns whether the client speaks a version before 2026-07-28.
    pub(crate) fn is_legacy(&self) -> bool {
        !self.channel.version.is_modern()
    }

    /// Returns the parts of the request that the upstream server receives unchanged.
    pub(crate) fn passthrough(&self) -> PassthroughMeta {
        self.channel.passthrough.clone()
    }

    /// Returns the lowest MCP level of the log messages that the client receives, or `None` if it receives none.
    pub(crate) fn log_level(&self) -> Option<&'static str> {
        let has_stream = !matches!(self.channel.response_mode, ResponseMode::ResponseOnly);
        let level = self.channel.log_level.filter(|_| has_stream);
        level.map(LogLevel::as_str)
    }

    /// Returns the notification for `event`, or `None` if the client did not ask for it.
    pub(crate) fn notification_for(&mut self, event: &CallEvent) -> Option<String> {
        if matches!(self.channel.response_mode, ResponseMode::ResponseOnly) {
            return None;
        }
        match event {
            CallEvent::Progress(progress) => self.progress_notification(progress),
            CallEvent::Log(log) => self.log_notification(log),
            CallEvent::Completed(elicitation) => self.elicitation_notification(elicitation),
            CallEvent::StreamClosed
            | CallEvent::Result(_)
            | CallEvent::InputRequired(_)
            | CallEvent::Task(_) => None,
        }
    }

    /// Returns a progress notification with the client's token. Its values must increase (MCP, basic/utilities/progress).
    fn progress_notification(&mut self, progress: &CallProgress) -> Option<String> {
        let token = self.channel.progress_token.as_ref()?;
        let done = progress.done;
        if !done.is_finite() || done <= self.progress {
            return None;
        }
        self.progress = done;
        let mut text = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{done}"#
        );
        // Writing to a string cannot fail.
        if let Some(total) = progress.total.filter(|total| total.is_finite()) {
            let _ = write!(text, r#","total":{total}"#);
        }
        if !progress.message.is_empty() && self.channel.version.has_progress_messages() {
            let message = Value::from(progress.message.as_str());
            let _ = write!(text, r#","message":{message}"#);
        }
        text.push_str("}}");
        Some(text)
    }

    fn log_notification(&self, log: &LogMessage) -> Option<String> {
        let level = LogLevel::from_name(&log.level)?;
        if level < self.channel.log_level? {
            return None;
        }
        let mut text = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"{}","#,
            level.as_str()
        );
        if let Some(logger) = &log.logger {
            let _ = write!(text, r#""logger":{},"#, Value::from(logger.as_str()));
        }
        let _ = write!(text, r#""data":{}}}}}"#, log.data_json);
        Some(text)
    }

    /// Returns the notification that an elicitation is complete, in the versions that have such a notification.
    fn elicitation_notification(&self, id: &str) -> Option<String> {
        let version = self.channel.version;
        let knows = version.has_url_elicitation() && !version.is_modern();
        knows.then(|| {
            let id = Value::from(id);
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{{"elicitationId":{id}}}}}"#
            )
        })
    }

    /// Sets the serialized grant that authorizes a resumed stream. `replay_grant` is called once, before the first message.
    pub(crate) fn set_replay_grant(&mut self, replay_grant: impl FnOnce() -> Option<Vec<u8>>) {
        if let ResponseMode::Resumable(writer) = &mut self.channel.response_mode
            && !writer.has_begun()
        {
            writer.set_replay_grant(replay_grant());
        }
    }

    /// Returns whether the stream begins at once, with an event from which the client can resume it.
    pub(crate) fn begins_with_primer(&self) -> bool {
        matches!(&self.channel.response_mode, ResponseMode::Resumable(writer)
            if self.channel.prefers_stream && writer.version().primes_streams())
    }

    /// Begins the stream of a session's client.
    pub(crate) async fn begin_stream(&mut self) {
        if let ResponseMode::Resumable(writer) = &mut self.channel.response_mode {
            begin_stream(writer, &mut self.out).await;
        }
    }

    /// Closes the stream of a client that prefers streams, if the stream began with an event from which the client can resume it.
    pub(crate) fn close_stream(&mut self) {
        if let ResponseMode::Resumable(writer) = &self.channel.response_mode
            && self.channel.prefers_stream
            && writer.is_resumable()
        {
            self.out = ResponseSender::Closed;
        }
    }

    /// Sends `notification`, a JSON-RPC message, and begins the stream if it is the first.
    pub(crate) async fn send_message(&mut self, notification: &str) {
        match &mut self.channel.response_mode {
            ResponseMode::Resumable(writer) => {
                begin_stream(writer, &mut self.out).await;
                let event = writer.store_event(notification, false).await;
                self.out.send_event(event).await;
            }
            ResponseMode::Streamable => {
                if let ResponseSender::Unsent(_) = self.out {
                    self.out.start_stream(McpResponse::events);
                }
                self.out
                    .send_event(format_event(None, None, notification))
                    .await;
            }
            ResponseMode::SseStream(session) => session.send_message(notification).await,
            ResponseMode::ResponseOnly => {}
        }
    }

    /// Requests the input `input_requests`, an MCP object of that name, from an older client, and returns its responses by the
    /// same keys.
    ///
    /// `suspended` is the state with which another replica can wait for the responses instead.
    pub(crate) async fn request_input(
        &mut self,
        input_requests: &str,
        suspended: impl FnOnce(&PendingInput) -> Option<Vec<u8>>,
    ) -> Result<Bytes, InputError> {
        if matches!(
            self.channel.response_mode,
            ResponseMode::Streamable | ResponseMode::ResponseOnly
        ) {
            return Err(InputError::NoStream);
        }
        let responder = self.channel.responder.as_ref();
        let requests = responder.and_then(|client| client.build_requests(input_requests));
        let (pending, messages) = requests.ok_or(InputError::NoStream)?;
        for message in messages {
            self.send_message(&message).await;
        }
        if let ResponseMode::Resumable(writer) = &mut self.channel.response_mode
            && let Some(suspended) = suspended(&pending)
        {
            writer.store_suspended_call(&suspended).await;
        }
        self.await_input(&pending).await
    }

    /// Waits for the responses to requests that were sent by this replica, or by one that is gone.
    pub(crate) async fn await_input(
        &mut self,
        pending: &PendingInput,
    ) -> Result<Bytes, InputError> {
        let ClientChannel {
            responder,
            response_mode,
            cancel,
            ..
        } = &mut self.channel;
        let responder = responder.as_ref().ok_or(InputError::NoStream)?;
        let answers = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(InputError::Cancelled),
            answers = responder.await_responses(pending) => answers,
            () = responder.shutting_down() => Err(InputError::ShuttingDown),
        };
        let ResponseMode::Resumable(writer) = response_mode else {
            return answers;
        };
        match answers {
            Err(InputError::ShuttingDown) if writer.hand_over().await => {
                Err(InputError::HandedOver)
            }
            // Only one replica may continue.
            answers if writer.continue_here().await => answers,
            _ => Err(InputError::HandedOver),
        }
    }

    /// Waits for `doing`, unless the client cancels the call or `doing` panics. A panic ends the call, but not its record.
    pub(crate) async fn unless_cancelled<T>(
        &mut self,
        doing: impl Future<Output = T>,
    ) -> Result<T, Interruption> {
        tokio::select! {
            // The cancellation is polled first, so that nothing is started for a client that is gone.
            biased;
            () = self.cancelled() => Err(Interruption::Cancelled),
            done = AssertUnwindSafe(doing).catch_unwind() => done.map_err(|_| Interruption::Panicked),
        }
    }

    /// Waits until the client cancels the call. In older versions a disconnect is not a cancellation.
    async fn cancelled(&mut self) {
        let Self { channel, out, .. } = self;
        tokio::select! {
            () = channel.cancel.cancelled() => {}
            () = out.disconnected(), if channel.version.cancels_on_disconnect() => {}
        }
    }

    /// Sends the answer and ends the response.
    pub(crate) async fn send_answer(mut self, answer: McpResponse) {
        match &mut self.channel.response_mode {
            // The stream does not end here: the client resumes it at the other replica.
            ResponseMode::Resumable(writer) if writer.is_handed_over() => {}
            ResponseMode::Resumable(writer) if writer.has_begun() => {
                let message = answer.into_text().unwrap_or_default();
                let event = Box::pin(writer.store_event(&message, true)).await;
                self.out.send_last_event(event).await;
            }
            _ => self.out.send_answer(answer).await,
        }
    }
}

/// Begins the stream of `writer`, if it has not begun.
async fn begin_stream(writer: &mut StreamWriter, out: &mut ResponseSender<McpResponse>) {
    if !writer.has_begun() {
        let first = writer.begin().await;
        out.start_stream(McpResponse::events);
        if let Some(first) = first {
            out.send_event(first).await;
        }
    }
}

/// Creates the interaction with a client that reads the stored events of a resumed stream.
pub(crate) fn resume(channel: ClientChannel) -> ClientInteraction {
    ClientInteraction {
        channel,
        out: ResponseSender::Closed,
        progress: f64::NEG_INFINITY,
    }
}

/// Creates the interaction over `channel`, and the receiver of the response: all of it if nothing is sent before the answer.
pub(crate) fn open(channel: ClientChannel) -> (ClientInteraction, oneshot::Receiver<McpResponse>) {
    let (out, answer) = response_channel();
    let interaction = ClientInteraction {
        channel,
        out,
        progress: f64::NEG_INFINITY,
    };
    (interaction, answer)
}
