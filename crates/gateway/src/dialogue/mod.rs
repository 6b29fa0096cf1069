//! What a client hears and is asked while something of its runs.
//!
//! ```text
//!  story ──say──▶ Dialogue ──▶ nothing was said: one JSON answer
//!        ──ask──▶   Voice  ──▶ something was: a stream of events, whose last is the answer
//! ```
//!
//! A client hears only what it asked to hear, and a call that says nothing costs no stream. A modern client is never
//! asked here: the answer itself asks it.

mod asking;
mod elicitation;
mod log_level;
mod out;
mod questions;

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
use crate::listen::takes_events;
use crate::mcp::{Door, Meta, Post, Request, Version};
use crate::reply::{Answer, RpcError};
use crate::sse;
use crate::story::Basis;
use crate::streamable::{Expected, Writer};

use self::asking::Respondent;

pub(crate) use self::asking::{Asked, answered};
pub(crate) use self::log_level::LogLevel;
pub(crate) use self::out::{Out, channel, event};
pub(crate) use self::questions::{Audience, Questions, Unaskable};

/// How a client takes part in what runs for it.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) version: Version,
    /// MCP `ClientCapabilities`, an object with members.
    capabilities: Option<Arc<str>>,
    log_level: Option<LogLevel>,
    /// As the client wrote it.
    progress_token: Option<Box<RawValue>>,
    besides: Besides,
    voice: Voice,
    /// The client wants no result any more.
    pub(crate) cancel: CancellationToken,
    /// The trace that the client is in, where it says so in the message alone; as headers.
    pub(crate) trace: HeaderMap,
    /// In a session, it can be asked something.
    respondent: Option<Respondent>,
    /// In a session, it can say so at any gateway while this is kept.
    _cancellable: Option<Expected>,
}

/// Where a client hears what is said before its answer.
#[derive(Debug)]
enum Voice {
    /// On the answer to its POST, which becomes a stream.
    Answer,
    /// The same, in a session, where it is kept for whoever loses it.
    Kept(Box<Writer>),
    /// On the stream of its session of HTTP+SSE.
    Stream(Arc<sse::Session>),
    /// Nowhere: one request has one answer.
    Nowhere,
}

impl Terms {
    /// Those of the client of one request.
    pub(crate) fn of(
        gateway: &Arc<Gateway>,
        post: &Post,
        request: &Request<'_>,
        meta: &Meta<'_>,
        version: Version,
    ) -> Result<Self, RpcError> {
        let can_stream = post.door == Door::Mcp && takes_events(&post.headers) && !post.is_batch();
        let voice = match (&post.session, &post.streamable) {
            (Some(session), _) => Voice::Stream(Arc::clone(session)),
            (None, Some(session)) if can_stream => {
                let writer = Writer::new(gateway, &post.caller, session, request.id);
                Voice::Kept(Box::new(writer))
            }
            (None, None) if can_stream => Voice::Answer,
            (None, _) => Voice::Nowhere,
        };
        // Where nothing is heard, nothing can be asked of an older client.
        let can_be_asked = version.is_modern() || !matches!(voice, Voice::Nowhere);
        let capabilities = post.client_capabilities(meta, version);
        let capabilities = capabilities.filter(|_| can_be_asked);
        let log_level = match (&post.streamable, &post.session) {
            _ if version.is_modern() => meta.log_level()?,
            _ if matches!(voice, Voice::Nowhere) => None,
            (Some(session), _) => session.log_level,
            (None, Some(session)) => session.log_level(),
            (None, None) => None,
        };
        let name = post.session_name().filter(|_| !version.is_modern());
        let respondent = name.map(|name| Respondent::new(gateway, &post.caller, name));
        let session = post.streamable.as_ref();
        let cancellable = session.map(|session| gateway.mailbox().begin(session, request.id));
        let cancel = cancellable.as_ref().map(|call| call.is_there.clone());
        Ok(Self {
            version,
            capabilities: capabilities.map(Into::into),
            log_level,
            progress_token: meta.progress_token()?.map(ToOwned::to_owned),
            besides: besides(post, request, version),
            voice,
            cancel: cancel.unwrap_or_default(),
            trace: if post.headers.contains_key("traceparent") {
                HeaderMap::new()
            } else {
                meta.trace_context()
            },
            respondent,
            _cancellable: cancellable,
        })
    }

    /// Those of an answer that another gateway began as a stream.
    pub(crate) fn of_stream(
        gateway: &Arc<Gateway>,
        caller: &Arc<Caller>,
        writer: Writer,
        request: &RawValue,
    ) -> Self {
        let session = Arc::clone(writer.session());
        let cancellable = gateway.mailbox().begin(&session, request);
        Self {
            version: session.version,
            capabilities: session.declared.to_json().map(Into::into),
            log_level: session.log_level,
            progress_token: None,
            besides: Besides::default(),
            voice: Voice::Kept(Box::new(writer)),
            cancel: cancellable.is_there.clone(),
            // The request that named one came to the gateway that is gone.
            trace: HeaderMap::new(),
            respondent: Some(Respondent::new(gateway, caller, session.name())),
            _cancellable: Some(cancellable),
        }
    }

    /// Those of a client that gets an answer and nothing else.
    pub(crate) fn deaf(version: Version) -> Self {
        Self::told_later(version, None)
    }

    /// Those of a client with such `capabilities` that listens, and is told of the answer when it is there.
    pub(crate) fn told_later(version: Version, capabilities: Option<Arc<str>>) -> Self {
        Self {
            version,
            capabilities,
            log_level: None,
            progress_token: None,
            besides: Besides::default(),
            voice: Voice::Nowhere,
            cancel: CancellationToken::new(),
            trace: HeaderMap::new(),
            respondent: None,
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
pub(crate) enum Unanswered {
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

impl Unanswered {
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
pub(crate) enum Interrupted {
    Cancelled,
    Panicked,
}

/// One client, while something of its runs.
#[derive(Debug)]
pub(crate) struct Dialogue {
    terms: Terms,
    out: Out<Answer>,
    /// The last progress it heard of.
    progress: f64,
}

impl Dialogue {
    /// What the client can be asked for, as MCP `ClientCapabilities`; none: nothing.
    pub(crate) fn capabilities(&self) -> Option<Arc<str>> {
        self.terms.capabilities.clone()
    }

    /// Whether the client speaks a version before 2026-07-28.
    pub(crate) fn is_legacy(&self) -> bool {
        !self.terms.version.is_modern()
    }

    /// What its request says besides.
    pub(crate) fn besides(&self) -> Besides {
        self.terms.besides.clone()
    }

    /// The MCP level from which on it hears log messages.
    pub(crate) fn log_level(&self) -> Option<&'static str> {
        let heard = !matches!(self.terms.voice, Voice::Nowhere);
        let level = self.terms.log_level.filter(|_| heard);
        level.map(LogLevel::as_str)
    }

    /// What there is to say of `event`; nothing where the client did not ask to hear of it.
    pub(crate) fn notice(&mut self, event: &CallEvent) -> Option<String> {
        if matches!(self.terms.voice, Voice::Nowhere) {
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
        let token = self.terms.progress_token.as_ref()?;
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
        if !progress.message.is_empty() && self.terms.version.has_progress_messages() {
            let message = Value::from(progress.message.as_str());
            let _ = write!(text, r#","message":{message}"#);
        }
        text.push_str("}}");
        Some(text)
    }

    fn of_log(&self, log: &LogMessage) -> Option<String> {
        let level = LogLevel::named(&log.level)?;
        if level < self.terms.log_level? {
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
        let version = self.terms.version;
        let knows = version.has_url_elicitation() && !version.is_modern();
        knows.then(|| {
            let id = Value::from(id);
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{{"elicitationId":{id}}}}}"#
            )
        })
    }

    /// On what the answer is given, if anything is kept of it; asked once, before the first word.
    pub(crate) fn stands_on(&mut self, basis: impl FnOnce() -> Option<Basis>) {
        if let Voice::Kept(writer) = &mut self.terms.voice
            && !writer.has_begun()
        {
            writer.stands_on(basis());
        }
    }

    /// Says `notification`, a JSON-RPC message.
    pub(crate) async fn say(&mut self, notification: &str) {
        match &mut self.terms.voice {
            Voice::Kept(writer) => {
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
            Voice::Answer => {
                if let Out::Silent(_) = self.out {
                    self.out.begin(Answer::events);
                }
                self.out.say(event(None, None, notification)).await;
            }
            Voice::Stream(session) => session.say(notification).await,
            Voice::Nowhere => {}
        }
    }

    /// Asks a client of an older version `input_requests`, an MCP object of that name, and gives what it answered by
    /// the same keys.
    ///
    /// `onward` is what another gateway needs to wait for the answers in its place.
    pub(crate) async fn ask(
        &mut self,
        input_requests: &str,
        onward: impl FnOnce(&Asked) -> Option<Vec<u8>>,
    ) -> Result<Bytes, Unanswered> {
        if matches!(self.terms.voice, Voice::Answer | Voice::Nowhere) {
            return Err(Unanswered::NoWay);
        }
        let respondent = self.terms.respondent.as_ref();
        let requests = respondent.and_then(|client| client.requests(input_requests));
        let (asked, messages) = requests.ok_or(Unanswered::NoWay)?;
        for message in messages {
            self.say(&message).await;
        }
        if let Voice::Kept(writer) = &mut self.terms.voice
            && let Some(story) = onward(&asked)
        {
            writer.wait(&story).await;
        }
        self.answers(&asked).await
    }

    /// Waits for the answers to what the client was asked, here or at a gateway that is gone.
    pub(crate) async fn answers(&mut self, asked: &Asked) -> Result<Bytes, Unanswered> {
        let Terms {
            respondent,
            voice,
            cancel,
            ..
        } = &mut self.terms;
        let respondent = respondent.as_ref().ok_or(Unanswered::NoWay)?;
        let answers = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Unanswered::Cancelled),
            answers = respondent.answers(asked) => answers,
            () = respondent.stopping() => Err(Unanswered::Stopping),
        };
        let Voice::Kept(writer) = voice else {
            return answers;
        };
        match answers {
            Err(Unanswered::Stopping) if writer.hand_over().await => Err(Unanswered::HandedOver),
            // Whoever goes on must be the only one.
            answers if writer.go_on().await => answers,
            _ => Err(Unanswered::HandedOver),
        }
    }

    /// Waits for `doing`, unless the client wants no result any more, or what is done in this process panics: that ends
    /// the call, not its record.
    pub(crate) async fn unless_cancelled<T>(
        &mut self,
        doing: impl Future<Output = T>,
    ) -> Result<T, Interrupted> {
        tokio::select! {
            // First, so that nothing is started for a client that is already gone.
            biased;
            () = self.cancelled() => Err(Interrupted::Cancelled),
            done = AssertUnwindSafe(doing).catch_unwind() => done.map_err(|_| Interrupted::Panicked),
        }
    }

    /// Waits until the client wants no result any more. Of the older ones none says so by hanging up.
    async fn cancelled(&mut self) {
        let Self { terms, out, .. } = self;
        tokio::select! {
            () = terms.cancel.cancelled() => {}
            () = out.gone(), if terms.version.cancels_on_disconnect() => {}
        }
    }

    /// Gives the answer; nothing follows it.
    pub(crate) async fn answer(mut self, answer: Answer) {
        match &mut self.terms.voice {
            // The stream has no end here; its client comes for the rest of it.
            Voice::Kept(writer) if writer.is_handed_over() => {}
            Voice::Kept(writer) if writer.has_begun() => {
                let message = answer.into_text().unwrap_or_default();
                let event = writer.keep(&message, true).await;
                self.out.end(event).await;
            }
            _ => self.out.finish(answer).await,
        }
    }
}

/// A dialogue whose client hears what is kept of it.
pub(crate) fn go_on(terms: Terms) -> Dialogue {
    Dialogue {
        terms,
        out: Out::Over,
        progress: f64::NEG_INFINITY,
    }
}

/// A dialogue on these terms, and what its client gets first: all of it where nothing is said before the answer.
pub(crate) fn open(terms: Terms) -> (Dialogue, oneshot::Receiver<Answer>) {
    let (out, answer) = channel();
    let dialogue = Dialogue {
        terms,
        out,
        progress: f64::NEG_INFINITY,
    };
    (dialogue, answer)
}
