//! The input of a model: the assistant's prompt, the conversation so far, and the caller's tools.

use crate::assistant::{Calls, ModelChoice, PromptFacts};
use crate::event::Cap;
use crate::model::{Function, FunctionChoice, ModelMessage, ModelRequest};
use crate::request::HistoryMessage;

use super::TurnSetup;
use super::context::{self, CallNotation, ConversationEntry};
use super::failure::TurnFailure;
use super::journal::Journal;
use super::offered_tools::OfferedTools;

/// The input of a turn's model. It is fetched when first needed, because replaying a turn from its journal does not need it.
pub(super) struct ModelInput {
    pub(super) offered_tools: OfferedTools,
    pub(super) functions: Vec<Function>,
    dialect: CallNotation,
    prompt: String,
    summary: Option<String>,
    pub(super) before: Vec<ConversationEntry>,
    pub(super) uncovered: u64,
}

impl ModelInput {
    /// Fetches the caller's tools and the earlier conversation.
    pub(super) async fn fetch(
        setup: &TurnSetup,
        journal: &Journal,
        history: Vec<HistoryMessage>,
    ) -> Result<Self, TurnFailure> {
        let assistant = &setup.assistant;
        let window = assistant.context;
        let (tools, window) = futures::future::try_join(
            setup.gateway.tools(&assistant.tools.toolsets),
            journal
                .conversation()
                .window(window.messages, window.tokens),
        )
        .await?;
        let language = assistant.language(journal.question());
        let summary = window.summary.as_ref().map(|it| it.content.clone());
        let summary = summary.filter(|text| !text.is_empty());
        let template = assistant
            .prompts
            .for_language(language)
            .ok_or(TurnFailure::Request(
                "the assistant has no prompt".to_owned(),
            ))?;
        let prompt = template
            .render(&PromptFacts {
                caller: &setup.caller,
                summary: summary.as_deref().unwrap_or_default(),
                now: setup.ambient.now(),
                language,
            })
            .map_err(|why| TurnFailure::Request(format!("the assistant's prompt: {why}")))?;
        let carries = matches!(&assistant.model.client, Ok(client) if client.carries_calls());
        let offered_tools = OfferedTools::select(tools, &assistant.tools);
        let uncovered = window.uncovered;
        let mut before = context::window_entries(window);
        before.extend(context::history_entries(history));
        context::merge(&mut before, journal.question());
        Ok(Self {
            functions: offered_tools.functions(),
            offered_tools,
            dialect: if carries && assistant.calls == Calls::Native {
                CallNotation::Native
            } else {
                CallNotation::Text
            },
            summary: summary.filter(|_| !template.shows_summary()),
            prompt,
            before,
            uncovered,
        })
    }

    /// Returns the request to the model. Once a limit is reached, the model must answer with text.
    pub(super) fn request(
        &self,
        model: &ModelChoice,
        entries: &[ConversationEntry],
        cap: Option<Cap>,
    ) -> ModelRequest {
        let (dialect, functions) = (self.dialect, &self.functions);
        // In text notation, the only way to withdraw tools is not to describe them.
        let described: &[Function] = match dialect {
            CallNotation::Text if cap.is_some() => &[],
            _ => functions,
        };
        let summary = self.summary.as_deref();
        let mut messages = vec![context::system(&self.prompt, summary, described, dialect)];
        messages.extend(context::messages(&self.before, dialect));
        messages.extend(context::messages(entries, dialect));
        let functions = match dialect {
            CallNotation::Native => functions.clone(),
            CallNotation::Text => Vec::new(),
        };
        ModelRequest {
            model: model.model.clone(),
            messages,
            choice: if cap.is_some() || functions.is_empty() {
                FunctionChoice::None
            } else {
                FunctionChoice::Auto
            },
            functions,
            temperature: model.temperature,
            max_output_tokens: model.max_output_tokens,
        }
    }
}

/// Returns the length of a request in characters, for providers that do not report token counts.
pub(super) fn characters(request: &ModelRequest) -> usize {
    request.messages.iter().map(of_message).sum()
}

fn of_message(message: &ModelMessage) -> usize {
    match message {
        ModelMessage::System(text)
        | ModelMessage::User(text)
        | ModelMessage::Result { text, .. } => text.chars().count(),
        ModelMessage::Assistant { text, calls } => {
            let calls: usize = calls.iter().map(|call| call.arguments.len()).sum();
            text.chars().count() + calls
        }
    }
}
