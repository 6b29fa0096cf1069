//! A scripted model.

use std::collections::VecDeque;
use std::sync::Mutex;

use futures::future::{self, BoxFuture};
use futures::{FutureExt, StreamExt, stream};

use crate::clients::ModelClient;
use crate::model::{
    FinishReason, FunctionCall, ModelError, ModelEvent, ModelMessage, ModelRequest, ModelStream,
    TokenUsage,
};

pub(crate) type ScriptedAnswer = Vec<Result<ModelEvent, ModelError>>;

/// A model that returns its scripted answers one after the other and records its requests.
#[derive(Default)]
pub(crate) struct ScriptedModel {
    answers: Mutex<VecDeque<ScriptedAnswer>>,
    requests: Mutex<Vec<ModelRequest>>,
    pub(crate) speaks_text_only: bool,
    /// Whether the answer depends only on the round, so that repeated requests for a round get the same answer.
    answers_by_round: bool,
}

impl ScriptedModel {
    pub(crate) fn new(answers: impl IntoIterator<Item = ScriptedAnswer>) -> Self {
        Self {
            answers: Mutex::new(answers.into_iter().collect()),
            ..Self::default()
        }
    }

    /// Creates a model that returns the answer of each round, however often it is requested.
    pub(crate) fn by_round(answers: impl IntoIterator<Item = ScriptedAnswer>) -> Self {
        Self {
            answers_by_round: true,
            ..Self::new(answers)
        }
    }

    pub(crate) fn then(&self, answer: ScriptedAnswer) {
        self.answers.lock().unwrap().push_back(answer);
    }

    /// Replaces the script.
    pub(crate) fn rewind(&self, answers: Vec<ScriptedAnswer>) {
        *self.answers.lock().unwrap() = answers.into();
    }

    pub(crate) fn requests(&self) -> Vec<ModelRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// Returns whether any message to the model contained `words`.
    pub(crate) fn was_told(&self, words: &str) -> bool {
        let requests = self.requests();
        let mut messages = requests.iter().flat_map(|request| &request.messages);
        messages.any(|message| match message {
            ModelMessage::System(text)
            | ModelMessage::User(text)
            | ModelMessage::Result { text, .. } => text.contains(words),
            ModelMessage::Assistant { text, calls } => {
                text.contains(words) || calls.iter().any(|call| call.arguments.contains(words))
            }
        })
    }

    /// Returns the texts of the results in the last request.
    pub(crate) fn last_results(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        let messages = requests.last().map(|request| request.messages.clone());
        messages
            .into_iter()
            .flatten()
            .filter_map(|message| match message {
                ModelMessage::Result { text, .. } => Some(text),
                _ => None,
            })
            .collect()
    }
}

impl ModelClient for ScriptedModel {
    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        let round = request
            .messages
            .iter()
            .filter(|it| asks_for_tools(it))
            .count();
        self.requests.lock().unwrap().push(request);
        let mut answers = self.answers.lock().unwrap();
        let answer = if self.answers_by_round {
            answers.get(round).cloned()
        } else {
            answers.pop_front()
        };
        let answer = answer.unwrap_or_else(|| vec![Err(ModelError::Failed { status: 599 })]);
        future::ready(match answer.first() {
            Some(Err(error)) => Err(error.clone()),
            _ => Ok(stream::iter(answer).boxed()),
        })
        .boxed()
    }

    fn carries_calls(&self) -> bool {
        !self.speaks_text_only
    }
}

fn asks_for_tools(message: &ModelMessage) -> bool {
    matches!(message, ModelMessage::Assistant { calls, .. } if !calls.is_empty())
}

/// Returns a text answer that arrives word by word.
pub(crate) fn words(text: &str) -> ScriptedAnswer {
    let mut answer: ScriptedAnswer = text
        .split_inclusive(' ')
        .map(|piece| Ok(ModelEvent::Text(piece.to_owned())))
        .collect();
    answer.push(Ok(ModelEvent::Usage(TokenUsage {
        input: 10,
        output: 5,
    })));
    answer.push(Ok(ModelEvent::Finished(FinishReason::Stop)));
    answer
}

/// Returns an answer with calls.
pub(crate) fn says(text: &str, calls: &[FunctionCall]) -> ScriptedAnswer {
    let mut answer = Vec::new();
    if !text.is_empty() {
        answer.push(Ok(ModelEvent::Text(text.to_owned())));
    }
    answer.extend(calls.iter().cloned().map(|call| Ok(ModelEvent::Call(call))));
    answer.push(Ok(ModelEvent::Finished(FinishReason::Calls)));
    answer
}

/// Returns a call as a model writes it.
pub(crate) fn call(id: &str, name: &str, arguments: &str) -> FunctionCall {
    FunctionCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    }
}
