//! Telemetry of answers: a span and three metrics, named according to the OpenTelemetry GenAI semantic conventions. They do not
//! contain the content of messages, except for traces if the configuration enables it.

use metrics::{Label, histogram};
use tokio::time::Instant;
use tracing::{Span, field, info_span};
use wardgate_telemetry::names;

use super::contents::Contents;
use super::settings::ProviderKind;
use crate::model::{ModelError, ModelEvent, ModelRequest, TokenUsage};

const CHAT: &str = "chat";

/// The span and the metrics of one answer, from the request to its end, regardless of how it ends.
pub(super) struct AnswerTelemetry {
    started: Instant,
    span: Span,
    labels: Vec<Label>,
    has_begun: bool,
    /// The kind of the failure, or `None` once the answer is complete.
    failure: Option<&'static str>,
    /// The content of the answer, or `None` if traces must not contain it.
    contents: Option<Contents>,
}

impl AnswerTelemetry {
    pub(super) fn start(kind: ProviderKind, model: &str) -> Self {
        let provider = kind.name();
        let span = info_span!(
            "chat",
            otel.name = format!("{CHAT} {model}"),
            otel.kind = "client",
            { names::GENAI_OPERATION } = CHAT,
            { names::GENAI_PROVIDER } = provider,
            { names::GENAI_REQUEST_MODEL } = model,
            { names::GENAI_INPUT_TOKENS } = field::Empty,
            { names::GENAI_OUTPUT_TOKENS } = field::Empty,
            { names::ERROR_TYPE } = field::Empty,
            otel.status_code = field::Empty,
        );
        let labels = vec![
            Label::new(names::GENAI_OPERATION, CHAT),
            Label::new(names::GENAI_PROVIDER, provider),
            Label::new(names::GENAI_REQUEST_MODEL, model.to_owned()),
        ];
        Self {
            started: Instant::now(),
            span,
            labels,
            has_begun: false,
            failure: Some("cancelled"),
            contents: None,
        }
    }

    /// Enables recording of the request and the answer in the trace.
    pub(super) fn release(&mut self, request: &ModelRequest) {
        self.contents = Some(Contents::record_request(request, &self.span));
    }

    pub(super) fn span(&self) -> Span {
        self.span.clone()
    }

    pub(super) fn record_event(&mut self, event: &ModelEvent) {
        if !self.has_begun {
            self.has_begun = true;
            histogram!(names::GENAI_FIRST_CHUNK_SECONDS, self.labels.clone())
                .record(self.started.elapsed());
        }
        if let Some(contents) = &mut self.contents {
            contents.record_event(event);
        }
        match event {
            ModelEvent::Usage(usage) => self.count(*usage),
            ModelEvent::Finished(_) => self.failure = None,
            _ => {}
        }
    }

    pub(super) fn record_failure(&mut self, error: &ModelError) {
        self.failure = Some(error.kind());
    }

    fn count(&self, usage: TokenUsage) {
        for (kind, field, tokens) in [
            ("input", names::GENAI_INPUT_TOKENS, usage.input),
            ("output", names::GENAI_OUTPUT_TOKENS, usage.output),
        ] {
            self.span.record(field, tokens);
            let mut labels = self.labels.clone();
            labels.push(Label::new(names::GENAI_TOKEN_TYPE, kind));
            // No answer has more tokens than a `u32` can hold.
            let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
            histogram!(names::GENAI_TOKENS, labels).record(tokens);
        }
    }
}

impl Drop for AnswerTelemetry {
    fn drop(&mut self) {
        if let Some(contents) = &self.contents {
            contents.end(&self.span);
        }
        let mut labels = std::mem::take(&mut self.labels);
        if let Some(failure) = self.failure {
            self.span.record(names::ERROR_TYPE, failure);
            self.span.record("otel.status_code", "ERROR");
            labels.push(Label::new(names::ERROR_TYPE, failure));
        }
        histogram!(names::GENAI_SECONDS, labels).record(self.started.elapsed());
    }
}
