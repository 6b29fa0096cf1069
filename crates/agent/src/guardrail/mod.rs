//! Guardrails: checks of messages, a guardrail model, checks of answers, and screening of tool results.
//!
//! ```text
//!   message ─▶ input checks ─▶ guardrail model ─▶ the turn        result ─▶ screening ─▶ the model
//!                   │               │ NO, or it failed
//!                   └── refusal ────┘ in the user's language; no tool runs, nothing is stored
//! ```

pub(crate) mod screening;

use serde::Deserialize;

use crate::assistant::{Assistant, Check, Guardrail, Language};
use crate::clients::in_words;
use crate::model::{FunctionChoice, ModelError, ModelMessage, ModelRequest};

/// Number of bytes after which the rest of a reply is ignored. The verdict is the first word.
const MAX_REPLY: usize = 4_096;

/// The refusal of a message, with the text that is sent instead of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) text: String,
    /// Whether the guardrail failed to give a verdict.
    pub(crate) because_it_failed: bool,
}

/// Returns the refusal of a message, or `None` if it may be answered. The guardrail model is not asked about messages that the
/// configuration turns into commands.
pub(crate) async fn refusal(
    assistant: &Assistant,
    message: &str,
    language: Option<Language>,
    is_command: bool,
) -> Option<Refusal> {
    if let Some(text) = find_refusal(&assistant.input, message) {
        return Some(Refusal {
            text: text.to_owned(),
            because_it_failed: false,
        });
    }
    let guardrail = assistant.guardrail.as_ref().filter(|_| !is_command)?;
    let because_it_failed = match guardrail.verdict(message, language).await {
        Ok(true) => return None,
        Ok(false) => false,
        Err(cause) => {
            tracing::warn!(assistant = assistant.name, %cause, "the guardrail returned no verdict; the message is refused");
            true
        }
    };
    Some(Refusal {
        text: guardrail
            .refusals
            .for_language(language)
            .cloned()
            .unwrap_or_default(),
        because_it_failed,
    })
}

/// Returns the refusal text of the first check that matches `text`.
pub(crate) fn find_refusal<'c>(checks: &'c [Check], text: &str) -> Option<&'c str> {
    checks
        .iter()
        .find(|check| check.pattern.is_match(text))
        .map(|check| check.refusal.as_str())
}

/// The reason why a guardrail has no verdict.
#[derive(Debug, thiserror::Error)]
enum VerdictError {
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error("its model is not configured")]
    NotConfigured,
    #[error("its prompt cannot be created")]
    Question,
    #[error("its reply begins with neither yes nor no")]
    Reply,
}

impl Guardrail {
    async fn verdict(
        &self,
        message: &str,
        language: Option<Language>,
    ) -> Result<bool, VerdictError> {
        let client = self
            .model
            .client
            .as_ref()
            .map_err(|_| VerdictError::NotConfigured)?;
        let question = self
            .questions
            .for_language(language)
            .ok_or(VerdictError::Question)?;
        let values = std::collections::BTreeMap::from([("message", message)]);
        let question = question
            .render(&values)
            .map_err(|_| VerdictError::Question)?;
        let request = ModelRequest {
            model: self.model.model.clone(),
            messages: vec![ModelMessage::User(question)],
            functions: Vec::new(),
            choice: FunctionChoice::None,
            temperature: self.model.temperature,
            max_output_tokens: self.model.max_output_tokens,
        };
        let reply = in_words(client.as_ref(), request, MAX_REPLY).await?;
        yes_or_no(&reply).ok_or(VerdictError::Reply)
    }
}

/// Parses the first word of the reply, or of its JSON member `verdict`, as yes or no.
fn yes_or_no(reply: &str) -> Option<bool> {
    #[derive(Deserialize)]
    struct StructuredReply {
        verdict: String,
    }
    let reply = reply.trim();
    let structured = serde_json::from_str(reply).map(|StructuredReply { verdict }| verdict);
    let text = structured.unwrap_or_else(|_| reply.to_owned());
    let word = text
        .split(|c: char| !c.is_alphanumeric())
        .find(|word| !word.is_empty())?;
    match word.to_lowercase().as_str() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_is_the_first_word_and_nothing_later() {
        for (reply, verdict) in [
            ("YES", Some(true)),
            ("**Yes**, it is.", Some(true)),
            ("NO, though one might say YES", Some(false)),
            (r#"{"verdict": "no", "why": "YES"}"#, Some(false)),
            ("Well, YES", None),
            ("YESTERDAY", None),
            ("", None),
        ] {
            assert_eq!(yes_or_no(reply), verdict, "{reply}");
        }
    }
}
