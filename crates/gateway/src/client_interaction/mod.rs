//! What a client hears and is asked while something of its runs.
//!
//! ```text
//!  story ──say──▶ ClientInteraction ──▶ nothing was said: one JSON answer
//!        ──ask──▶   ResponseMode  ──▶ something was: a stream of events, whose last is the answer
//! ```
//!
//! A client hears only what it asked to hear, and a call that says nothing costs no stream. A modern client is never
//! asked here: the answer itself asks it.

mod elicitation;
mod input_requests;
mod input_responder;
mod log_level;
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
use wardgate_domain::Caller;
use wardgate_rpc::client::{Besides, CallEvent, LogMessage, Progress};

use crate::Gateway;
use crate::governed_call::ReplayGrant;
use crate::listen::takes_events;
use crate::mcp::{Meta, Post, Request, Transport, Version};
use crate::reply::{Answer, RpcError};
use crate::sse;
use crate::streamable::{ExpectedMessage, StreamWriter};

use self::input_responder::InputResponder;

pub(crate) use self::input_requests::{InputRecipient, InputRequestError, InputRequests};
pub(crate) use self::input_responder::{PendingInput, answered};
pub(crate) use self::log_level::LogLevel;
pub(crate) use self::response_sender::{ResponseSender, format_event, response_channel};

/// How a client takes part in what runs for it.
#[derive(Debug)]
pub(crate) struct ClientChannel {
    pub(crate) version: Version,
    /// MCP `ClientCapabilities`, an object with members.
    capabilities: Option<Arc<str>>,
    log_level: Option<LogLevel>,
    /// As the client wrote it.
    progress_token: Option<Box<RawValue>>,
    besides: Besides,
    response_mode: ResponseMode,
    /// The client wants no result any more.
    pub(crate) cancel: CancellationToken,
    /// The trace that the client is in, where it says so in the message alone; as headers.
    pub(crate) trace: HeaderMap,
    /// In a session, it can be asked something.
    responder: Option<InputResponder>,
    /// In a session, it can say so at any gateway while this is kept.
    _cancellable: Option<ExpectedMessage>,
}

/// Where a client hears what is said before its answer.
#[derive(Debug)]
enum ResponseMode {
    /// On the answer to its POST, which becomes a stream.
    Answer,
    /// The same, in a session, where it is kept for whoever loses it.
    Kept(Box<StreamWriter>),
    /// On the stream of its session of HTTP+SSE.
    Stream(Arc<sse::SseSession>),
    /// Nowhere: one request has one answer.
    Nowhere,
}

impl ClientChannel {
    /// Those of the client of one request.
    pub(crate) fn for_request(
        gateway: &Arc<Gateway>,
        post: &Post,
        request: &Request<'_>,
        meta: &Meta<'_>,
        version: Version,
    ) -> Result<Self, RpcError> {
        let can_stream =
            post.transport == Transport::Mcp && takes_events(&post.headers) && !post.is_batch();
        let response_mode = match (&post.session, &post.streamable) {
            (Some(session), _) => ResponseMode::Stream(Arc::clone(session)),
            (None, Some(session)) if can_stream => {
                let writer = StreamWriter::new(gateway, &post.caller, session, request.id);
                ResponseMode::Kept(Box::new(writer))
            }
            (None, None) if can_stream => ResponseMode::Answer,
            (None, _) => ResponseMode::Nowhere,
        };
        // Where nothing is heard, nothing can be asked of an older client.
        let can_be_asked = version.is_modern() || !matches!(response_mode, ResponseMode::Nowhere);
        let capabilities = post.client_capabilities(meta, version);
        let capabilities = capabilities.filter(|_| can_be_asked);
        let log_level = match (&post.streamable, &post.session) {
            _ if version.is_modern() => meta.log_level()?,
            _ if matches!(response_mode, ResponseMode::Nowhere) => None,
            (Some(session), _) => session.log_level,
            (None, Some(session)) => session.log_level(),
            (None, None) => None,
        };
        let name = post.session_name().filter(|_| !version.is_modern());
        let responder = name.map(|name| InputResponder::new(gateway, &post.caller, name));
        let session = post.streamable.as_ref();
        let cancellable = session.map(|session| gateway.replica_inbox().begin(session, request.id));
        let cancel = cancellable.as_ref().map(|call| call.is_there.clone());
        Ok(Self {
            version,
            capabilities: capabilities.map(Into::into),
            log_level,
            progress_token: meta.progress_token()?.map(ToOwned::to_owned),
            besides: besides(post, request, version),
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

    /// Those of an answer that another gateway began as a stream.
    pub(crate) fn for_resumed_stream(
        gateway: &Arc<Gateway>,
        caller: &Arc<Caller>,
        writer: StreamWriter,
        request: &RawValue,
    ) -> Self {
        let session = Arc::clone(writer.session());
        let cancellable = gateway.replica_inbox().begin(&session, request);
        Self {
            version: session.version,
            capabilities: session.declared.to_json().map(Into::into),
            log_level: session.log_level,
            progress_token: None,
            besides: Besides::default(),
            response_mode: ResponseMode::Kept(Box::new(writer)),
            cancel: cancellable.is_there.clone(),
            // The request that named one came to the gateway that is gone.
            trace: HeaderMap::new(),
            responder: Some(InputResponder::new(gateway, caller, session.name())),
            _cancellable: Some(cancellable),
        }
    }

    /// Those of a client that gets an answer and nothing else.
    pub(crate) fn response_only(version: Version) -> Self {
        Self::response_only_with(version, None)
    }

    /// Those of a client with such `capabilities` that listens, and is told of the answer when it is there.
    pub(crate) fn response_only_with(version: Version, capabilities: Option<Arc<str>>) -> Self {
        Self {
            version,
            capabilities,
            log_level: None,
            progress_token: None,
            besides: Besides::default(),
            response_mode: ResponseMode::Nowhere,
            cancel: CancellationToken::new(),
            trace: HeaderMap::new(),
            responder: None,
            _cancellable: None,
        }
    }
}

/// What `request` says besides what it asks for, still as it was written.
fn besides(post: &Post, request: &Request<'_>, version: Version) -> Besides {
    let of_body = |raw: Option<&RawValue>| {
        let object = raw.filter(|raw| raw.get().starts_with('{'));
        object.map_or_else(Bytes::new, |raw| post.body.slice_ref(raw.get().as_bytes()))
    };
    // With a state they are answers to what was asked here.
    let responses = request.params.input_responses;
    let can_be_unasked = version.is_modern() && request.params.request_state.is_none();
    Besides {
        meta: of_body(request.params.meta),
        unasked: of_body(responses.filter(|_| can_be_unasked)),
    }
}

/// Why a client did not answer what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputError {
    /// There is no stream to ask it on.
    NoWay,
    /// It took too long.
    Late,
    /// It answered with an error, or with something that is no answer.
    Refused,
    /// It wants no result any more.
    Cancelled,
    /// Another gateway waits for it now.
    HandedOver,
    /// This gateway stops, and no other can wait for it.
    Stopping,
}

impl InputError {
    /// As records spell it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::NoWay => "client_cannot_be_asked",
            Self::Late => "client_did_not_answer",
            Self::Refused => "client_refused",
            Self::Cancelled => "cancelled",
            Self::HandedOver => "handed_over",
            Self::Stopping => "gateway_stopping",
        }
    }

    /// As the client is told.
    pub(crate) fn in_words(self) -> &'static str {
        match self {
            Self::NoWay => "It asks for input, and there is no stream to ask the client on.",
            Self::Late => "It asked for input, and the client did not answer in time.",
            Self::Refused => "It asked for input, and the client answered with an error.",
            Self::Cancelled => "The call was cancelled.",
            Self::HandedOver => "It goes on at another gateway.",
            Self::Stopping => "It asked for input, and the gateway stops. Call again.",
        }
    }
}

/// Why something did not come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interruption {
    Cancelled,
    Panicked,
}

/// One client, while something of its runs.
#[derive(Debug)]
pub(crate) struct ClientInteraction {
    channel: ClientChannel,
    out: ResponseSender<Answer>,
    /// The last progress it heard of.
    progress: f64,
}

impl ClientInteraction {
    /// What the client can be asked for, as MCP `ClientCapabilities`; none: nothing.
    pub(crate) fn capabilities(&self) -> Option<Arc<str>> {
        self.channel.capabilities.clone()
    }

    /// Whether the client speaks a version before 2026-07-28.
    pub(crate) fn is_legacy(&self) -> bool {
        !self.channel.version.is_modern()
    }

    /// What its request says besides.
    pub(crate) fn besides(&self) -> Besides {
        self.channel.besides.clone()
    }

    /// The MCP level from which on it hears log messages.
    pub(crate) fn log_level(&self) -> Option<&'static str> {
        let heard = !matches!(self.channel.response_mode, ResponseMode::Nowhere);
        let level = self.channel.log_level.filter(|_| heard);
        level.map(LogLevel::as_str)
    }

    /// What there is to say of `event`; nothing where the client did not ask to hear of it.
    pub(crate) fn notice(&mut self, event: &CallEvent) -> Option<String> {
        if matches!(self.channel.response_mode, ResponseMode::Nowhere) {
            return None;
        }
        match event {
            CallEvent::Progress(progress) => self.of_progress(progress),
            CallEvent::Log(log) => self.of_log(log),
            CallEvent::Completed(elicitation) => self.of_elicitation(elicitation),
            CallEvent::Result(_) | CallEvent::InputRequired(_) | CallEvent::Task(_) => None,
        }
    }

    /// Progress under the client's own token. It only rises (MCP, basic/utilities/progress).
    fn of_progress(&mut self, progress: &Progress) -> Option<String> {
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

    fn of_log(&self, log: &LogMessage) -> Option<String> {
        let level = LogLevel::named(&log.level)?;
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

    /// That an elicitation is over, to the versions that know of that.
    fn of_elicitation(&self, id: &str) -> Option<String> {
        let version = self.channel.version;
        let knows = version.has_url_elicitation() && !version.is_modern();
        knows.then(|| {
            let id = Value::from(id);
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{{"elicitationId":{id}}}}}"#
            )
        })
    }

    /// On what the answer is given, if anything is kept of it; asked once, before the first word.
    pub(crate) fn set_replay_grant(&mut self, basis: impl FnOnce() -> Option<ReplayGrant>) {
        if let ResponseMode::Kept(writer) = &mut self.channel.response_mode
            && !writer.has_begun()
        {
            writer.set_replay_grant(basis());
        }
    }

    /// Says `notification`, a JSON-RPC message.
    pub(crate) async fn say(&mut self, notification: &str) {
        match &mut self.channel.response_mode {
            ResponseMode::Kept(writer) => {
                if !writer.has_begun() {
                    let first = writer.begin().await;
                    self.out.begin(Answer::events);
                    if let Some(first) = first {
                        self.out.say(first).await;
                    }
                }
                let event = writer.keep(notification, false).await;
                self.out.say(event).await;
            }
            ResponseMode::Answer => {
                if let ResponseSender::Silent(_) = self.out {
                    self.out.begin(Answer::events);
                }
                self.out.say(format_event(None, None, notification)).await;
            }
            ResponseMode::Stream(session) => session.say(notification).await,
            ResponseMode::Nowhere => {}
        }
    }

    /// Asks a client of an older version `input_requests`, an MCP object of that name, and gives what it answered by
    /// the same keys.
    ///
    /// `onward` is what another gateway needs to wait for the answers in its place.
    pub(crate) async fn ask(
        &mut self,
        input_requests: &str,
        onward: impl FnOnce(&PendingInput) -> Option<Vec<u8>>,
    ) -> Result<Bytes, InputError> {
        if matches!(
            self.channel.response_mode,
            ResponseMode::Answer | ResponseMode::Nowhere
        ) {
            return Err(InputError::NoWay);
        }
        let responder = self.channel.responder.as_ref();
        let requests = responder.and_then(|client| client.requests(input_requests));
        let (asked, messages) = requests.ok_or(InputError::NoWay)?;
        for message in messages {
            self.say(&message).await;
        }
        if let ResponseMode::Kept(writer) = &mut self.channel.response_mode
            && let Some(story) = onward(&asked)
        {
            writer.wait(&story).await;
        }
        self.answers(&asked).await
    }

    /// Waits for the answers to what the client was asked, here or at a gateway that is gone.
    pub(crate) async fn answers(&mut self, asked: &PendingInput) -> Result<Bytes, InputError> {
        let ClientChannel {
            responder,
            response_mode,
            cancel,
            ..
        } = &mut self.channel;
        let responder = responder.as_ref().ok_or(InputError::NoWay)?;
        let answers = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(InputError::Cancelled),
            answers = responder.answers(asked) => answers,
            () = responder.stopping() => Err(InputError::Stopping),
        };
        let ResponseMode::Kept(writer) = response_mode else {
            return answers;
        };
        match answers {
            Err(InputError::Stopping) if writer.hand_over().await => Err(InputError::HandedOver),
            // Whoever goes on must be the only one.
            answers if writer.go_on().await => answers,
            _ => Err(InputError::HandedOver),
        }
    }

    /// Waits for `doing`, unless the client wants no result any more, or what is done in this process panics: that ends
    /// the call, not its record.
    pub(crate) async fn unless_cancelled<T>(
        &mut self,
        doing: impl Future<Output = T>,
    ) -> Result<T, Interruption> {
        tokio::select! {
            // First, so that nothing is started for a client that is already gone.
            biased;
            () = self.cancelled() => Err(Interruption::Cancelled),
            done = AssertUnwindSafe(doing).catch_unwind() => done.map_err(|_| Interruption::Panicked),
        }
    }

    /// Waits until the client wants no result any more. Of the older ones none says so by hanging up.
    async fn cancelled(&mut self) {
        let Self { channel, out, .. } = self;
        tokio::select! {
            () = channel.cancel.cancelled() => {}
            () = out.gone(), if channel.version.cancels_on_disconnect() => {}
        }
    }

    /// Gives the answer; nothing follows it.
    pub(crate) async fn answer(mut self, answer: Answer) {
        match &mut self.channel.response_mode {
            // The stream has no end here; its client comes for the rest of it.
            ResponseMode::Kept(writer) if writer.is_handed_over() => {}
            ResponseMode::Kept(writer) if writer.has_begun() => {
                let message = answer.into_text().unwrap_or_default();
                let event = writer.keep(&message, true).await;
                self.out.end(event).await;
            }
            _ => self.out.finish(answer).await,
        }
    }
}

/// A dialogue whose client hears what is kept of it.
pub(crate) fn resume(channel: ClientChannel) -> ClientInteraction {
    ClientInteraction {
        channel,
        out: ResponseSender::Over,
        progress: f64::NEG_INFINITY,
    }
}

/// A dialogue on these terms, and what its client gets first: all of it where nothing is said before the answer.
pub(crate) fn open(channel: ClientChannel) -> (ClientInteraction, oneshot::Receiver<Answer>) {
    let (out, answer) = response_channel();
    let dialogue = ClientInteraction {
        channel,
        out,
        progress: f64::NEG_INFINITY,
    };
    (dialogue, answer)
}
