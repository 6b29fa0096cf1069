//! Clients of model providers: each sends a request and returns a stream of events, independent of the provider's API.
//!
//! ```text
//!  ModelRequest ─ body ─▶ Http ─▶ Frames ─ read ─▶ Answer ─▶ ModelEvent …
//!     (openai · anthropic · ollama)  │ server-sent events   │ assembles calls, counts tokens, enforces limits
//!                                    │ or JSON values        └ ends with Finished, or the answer was cut off
//!                      retried after a pause, but only before the first event
//! ```
//!
//! The clients tolerate differences between servers as long as the meaning is clear. An answer that ends early is an error and
//! yields no call. Size and time are limited: per event, per answer, until the first byte, between two events, and in total.
//! Errors and log lines never contain keys, prompts or answers. Traces contain prompts and answers only if the configuration
//! enables it.

mod answer;
mod anthropic;
mod calls;
mod contents;
mod failure;
mod frames;
mod http;
mod ollama;
mod openai;
#[cfg(test)]
mod real_model;
#[cfg(test)]
mod replay;
mod retry;
mod secret;
mod settings;
mod telemetry;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use tokio::time::{Instant, sleep, timeout};
use tracing::{Instrument, info, warn};
use wardgate_domain::Ambient;

use self::answer::AnswerAssembly;
use self::calls::CallIds;
use self::frames::Frames;
use self::http::{Http, ResponseTimeouts};
pub(crate) use self::settings::{ProviderKind, ProviderSettings, SettingsError};
use self::telemetry::AnswerTelemetry;
use crate::model::{ModelError, ModelEvent, ModelMessage, ModelRequest, ModelStream};

/// How long to wait for more frames after the model stopped, because only token counts can follow.
const GRACE: Duration = Duration::from_secs(1);

/// A configured provider, with a pool of connections.
#[derive(Debug)]
pub(crate) struct Provider {
    name: String,
    kind: ProviderKind,
    http: Http,
    is_openai_itself: bool,
    attempts: u32,
    total: Duration,
    max_answer_bytes: usize,
    /// Whether traces contain requests and answers.
    has_contents: bool,
    ambient: Ambient,
}

impl Provider {
    /// Creates a provider without connecting to it. `name` is its key in `providers`.
    pub(crate) fn open(
        name: &str,
        settings: &ProviderSettings,
        ambient: Ambient,
    ) -> Result<Self, SettingsError> {
        let (url, headers) = settings.target(name)?;
        let is_openai_itself = url.host_str() == Some("api.openai.com");
        let limits = ResponseTimeouts {
            first_byte: settings.timeout,
            idle: settings.idle_timeout,
        };
        let network = settings.network(name, &url)?;
        let http = Http::open(url, headers, &network, limits).map_err(|_| {
            let problem =
                "the TLS client cannot be set up: the certificates or the key cannot be used";
            SettingsError::new(name, problem)
        })?;
        Ok(Self {
            name: name.to_owned(),
            kind: settings.kind,
            http,
            is_openai_itself,
            attempts: settings.attempts,
            total: settings.total_timeout,
            max_answer_bytes: settings.max_answer_bytes,
            has_contents: false,
            ambient,
        })
    }

    /// Sets whether traces contain requests and answers.
    pub(crate) fn with_contents(self, has_contents: bool) -> Self {
        Self {
            has_contents,
            ..self
        }
    }

    /// Returns whether the provider's API supports function calls. Otherwise, the prompt has to describe the functions.
    pub(crate) fn carries_calls(&self) -> bool {
        self.kind.carries_calls()
    }

    /// Sends a request and waits until the answer begins. Dropping the future or the stream cancels the request.
    pub(crate) async fn stream(&self, request: &ModelRequest) -> Result<ModelStream, ModelError> {
        let mut watch = AnswerTelemetry::start(self.kind, &request.model);
        if self.has_contents {
            watch.release(request);
        }
        let begun = self.begin(request).instrument(watch.span()).await;
        match begun {
            Ok((first, reading)) => {
                watch.record_event(&first);
                let first = stream::once(async { Ok(first) });
                Ok(first.chain(reading.with_telemetry(watch)).boxed())
            }
            Err(error) => {
                watch.record_failure(&error);
                Err(error)
            }
        }
    }

    async fn begin(
        &self,
        request: &ModelRequest,
    ) -> Result<(ModelEvent, AnswerReader), ModelError> {
        let body = match self.kind {
            ProviderKind::OpenAi => openai::body(request, self.is_openai_itself),
            ProviderKind::Anthropic => anthropic::body(request),
            ProviderKind::Ollama => ollama::body(request),
        };
        let body = Bytes::from(body.to_string());
        let deadline = Instant::now() + self.total;
        let mut made = 0;
        loop {
            made += 1;
            let error = match self.attempt(body.clone(), request, deadline).await {
                Ok(begun) => return Ok(begun),
                Err(error) => error,
            };
            let pause = retry::pause(made, self.attempts, &error, &self.ambient)
                .filter(|pause| Instant::now() + *pause < deadline);
            let Some(pause) = pause else {
                warn!(provider = self.name, attempt = made, %error, "a request to a model failed");
                return Err(error);
            };
            info!(provider = self.name, attempt = made, %error, ?pause, "a request to a model is repeated");
            sleep(pause).await;
        }
    }

    async fn attempt(
        &self,
        body: Bytes,
        request: &ModelRequest,
        deadline: Instant,
    ) -> Result<(ModelEvent, AnswerReader), ModelError> {
        let body = self.http.post(body, deadline).await?;
        let ids = CallIds::new(call_ids(request), self.ambient.clone());
        let mut reading = AnswerReader {
            kind: self.kind,
            frames: Frames::open(body).await?,
            answer: AnswerAssembly::new(self.max_answer_bytes, ids),
            is_done: false,
        };
        let first = reading.next().await?.ok_or(ModelError::Cut)?;
        Ok((first, reading))
    }
}

fn call_ids(request: &ModelRequest) -> HashSet<String> {
    let calls = request.messages.iter().flat_map(|message| match message {
        ModelMessage::Assistant { calls, .. } => calls.as_slice(),
        _ => &[],
    });
    calls.map(|call| call.id.clone()).collect()
}

/// A reader of one answer.
struct AnswerReader {
    kind: ProviderKind,
    frames: Frames,
    answer: AnswerAssembly,
    is_done: bool,
}

impl AnswerReader {
    /// Returns the next event, or `None` after the last.
    async fn next(&mut self) -> Result<Option<ModelEvent>, ModelError> {
        loop {
            if let Some(event) = self.answer.event() {
                return Ok(Some(event));
            }
            if self.is_done {
                return Ok(None);
            }
            if !self.read_frame().await? {
                self.is_done = true;
                self.answer.end()?;
            }
        }
    }

    /// Reads a frame and returns whether another may follow. Errors after the model stopped do not invalidate its answer.
    async fn read_frame(&mut self) -> Result<bool, ModelError> {
        let had_stopped = self.answer.has_stopped();
        let frame = if had_stopped {
            timeout(GRACE, self.frames.next()).await.unwrap_or(Ok(None))
        } else {
            self.frames.next().await
        };
        let is_more = match frame {
            Ok(Some(frame)) => self.parse_frame(&frame).map(|()| !self.answer.is_over()),
            Ok(None) => Ok(false),
            Err(error) => Err(error),
        };
        match is_more {
            Err(_) if had_stopped => Ok(false),
            is_more => is_more,
        }
    }

    fn parse_frame(&mut self, frame: &str) -> Result<(), ModelError> {
        match self.kind {
            ProviderKind::OpenAi => openai::parse_frame(frame, &mut self.answer),
            ProviderKind::Anthropic => anthropic::parse_frame(frame, &mut self.answer),
            ProviderKind::Ollama => ollama::parse_frame(frame, &mut self.answer),
        }
    }

    /// Returns the remaining events, and records each in `watch`.
    fn with_telemetry(
        self,
        watch: AnswerTelemetry,
    ) -> impl Stream<Item = Result<ModelEvent, ModelError>> + Send {
        stream::try_unfold((self, watch), |(mut reading, mut watch)| async move {
            let next = reading.next().instrument(watch.span()).await;
            match &next {
                Ok(Some(event)) => watch.record_event(event),
                Ok(None) => {}
                Err(error) => watch.record_failure(error),
            }
            Ok(next?.map(|event| (event, (reading, watch))))
        })
    }
}
