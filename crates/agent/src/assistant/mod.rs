//! Assistants: `assistants.yaml`, parsed, completely validated, and converted to the form that a turn uses.

mod command;
mod fault;
mod language;
mod load;
mod prompt;
mod secret_files;
mod settings;
mod variables;

use std::collections::BTreeSet;
use std::sync::Arc;

use regex::Regex;

pub(crate) use command::{Command, ConfiguredCall, MessageOpening, resolve_opening};
pub(crate) use language::{ByLanguage, Language, detect};
pub(crate) use load::{OpenProvider, Text, parse, texts};
pub(crate) use prompt::{Prompt, PromptFacts, Template};
pub(crate) use secret_files::SecretFiles;
pub(crate) use settings::{Approval, Calls, CommandAnswer, Context, ToolSelection, TurnLimits};

use crate::clients::ModelClient;
use crate::request::Model;
use wardgate_tool_call_parser::CallSyntax;

/// All assistants, in the order of their files.
#[derive(Debug, Default)]
pub(crate) struct Assistants(Vec<Arc<Assistant>>);

/// An assistant.
#[derive(Debug)]
pub(crate) struct Assistant {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) model: ModelChoice,
    pub(crate) calls: Calls,
    /// The syntax in which the assistant's model writes calls as text.
    pub(crate) syntax: CallSyntax,
    pub(crate) tools: ToolSelection,
    pub(crate) prompts: ByLanguage<Prompt>,
    pub(crate) context: Context,
    pub(crate) limits: TurnLimits,
    pub(crate) guardrail: Option<Guardrail>,
    /// Checks of the user's messages.
    pub(crate) input: Vec<Check>,
    /// Checks of the model's answers.
    pub(crate) output: Vec<Check>,
    pub(crate) approval: Approval,
    pub(crate) commands: Vec<Command>,
    pub(crate) opening: Option<ConfiguredCall>,
}

/// A model and the client that reaches it.
#[derive(Clone)]
pub(crate) struct ModelChoice {
    pub(crate) client: Result<Arc<dyn ModelClient>, MissingVariables>,
    /// The provider's name of the model.
    pub(crate) model: String,
    pub(crate) temperature: Option<f64>,
    pub(crate) max_output_tokens: Option<u32>,
}

impl std::fmt::Debug for ModelChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelChoice")
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

/// The variables that are not set but required for a model. An assistant without a model can still be loaded, so that examples
/// start without these variables; the missing names are reported when the assistant is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MissingVariables(pub(crate) BTreeSet<String>);

/// A guardrail: a question to a model about every message.
#[derive(Debug)]
pub(crate) struct Guardrail {
    pub(crate) model: ModelChoice,
    pub(crate) questions: ByLanguage<Template>,
    pub(crate) refusals: ByLanguage<String>,
}

/// A forbidden pattern, and the text that is sent instead.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) pattern: Regex,
    pub(crate) refusal: String,
}

impl Assistants {
    /// Returns the assistant with the public name `name`, or the first assistant if `name` is `None`.
    pub(crate) fn find(&self, name: Option<&str>) -> Option<&Arc<Assistant>> {
        self.0
            .iter()
            .find(|assistant| name.is_none_or(|name| assistant.name == name))
    }

    pub(crate) fn models(&self) -> Vec<Model> {
        self.0
            .iter()
            .map(|assistant| assistant.to_model())
            .collect()
    }
}

impl Assistant {
    fn to_model(&self) -> Model {
        Model {
            name: self.name.clone(),
            description: self.description.clone(),
            missing: match &self.model.client {
                Ok(_) => Vec::new(),
                Err(MissingVariables(names)) => names.iter().cloned().collect(),
            },
        }
    }

    /// Returns the language of a message, or `None` if it cannot be determined.
    pub(crate) fn language(&self, message: &str) -> Option<Language> {
        let guardrail = self.guardrail.iter().flat_map(|it| it.refusals.codes());
        detect(message, self.prompts.codes().chain(guardrail))
    }
}

#[cfg(test)]
mod tests;
