//! Call formats that are learned from a model's own chat template.
//!
//! A chat template (Jinja, as models ship it in `tokenizer_config.json` or `chat_template.jinja`) prints the calls of a
//! conversation exactly as the model was taught to write them.
//!
//! ```text
//!  template ─▶ probe: renders calls with words that stand nowhere else
//!                └▶ learn: what stands before, between and after the words ─▶ CallFormat
//!                                                                              └▶ read: a model's text by it
//! ```

mod format;
mod learn;
mod learn_values;
mod pattern;
mod probe;
mod render;
mod values;

pub(crate) use format::CallFormat;
pub(super) use values::members_with_quotes;

use probe::{Prober, TemplateVariant, VARIANTS};
use render::ChatTemplate;

/// Why a template tells nothing about calls.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// Longer than what is read.
    #[error("the chat template is larger than {} KiB", render::MAX_TEMPLATE / 1024)]
    TooLarge,
    /// Not Jinja.
    #[error("the chat template cannot be parsed: {0}")]
    Syntax(String),
    /// It refuses every conversation in which a tool is called, or needs too much.
    #[error("the chat template cannot render a tool call: {0}")]
    Render(String),
    /// It leaves calls out.
    #[error("the chat template renders no tool calls; name the model's family instead")]
    NoCalls,
    /// It prints calls in a way that is not understood.
    #[error(
        "the call format of the chat template is not understood; name the model's family instead"
    )]
    NotLearned,
}

impl CallFormat {
    /// Learns the call format of a chat template.
    pub(crate) fn learn(source: &str) -> Result<Self, TemplateError> {
        learn_with_variant(source).map(|(format, _)| format)
    }
}

/// The call format, and how calls are to be handed to the template.
fn learn_with_variant(source: &str) -> Result<(CallFormat, TemplateVariant), TemplateError> {
    let template = ChatTemplate::parse(source)?;
    let mut first_error = None;
    for variant in VARIANTS {
        let prober = Prober::new(&template, source, variant);
        match learn::learn(&prober) {
            Ok(format) => return Ok((format, variant)),
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    Err(first_error.unwrap_or(TemplateError::NoCalls))
}

#[cfg(test)]
mod tests;
