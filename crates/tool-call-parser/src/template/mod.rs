//! Learns call formats from chat templates of models.
//!
//! A chat template (in Jinja, published with a model in `tokenizer_config.json` or `chat_template.jinja`) renders the calls of a
//! conversation exactly as the model was trained to write them.
//!
//! ```text
//!  template ─▶ probe: renders calls with unique words
//!                └▶ learn: finds the text before, between and after the words ─▶ CallFormat
//!                                                                                 └▶ read: a model's text by it
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

/// The reason why no call format can be learned from a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The template is too large.
    #[error("the chat template is larger than {} KiB", render::MAX_TEMPLATE / 1024)]
    TooLarge,
    /// The template is not valid Jinja.
    #[error("the chat template cannot be parsed: {0}")]
    Syntax(String),
    /// The template rejects every conversation with a tool call, or exceeds a limit.
    #[error("the chat template failed to render a tool call: {0}")]
    Render(String),
    /// The template omits calls.
    #[error("the chat template renders no tool calls; set the family of the model instead")]
    NoCalls,
    /// The template renders calls in an unknown way.
    #[error(
        "the call format of the chat template is not supported; set the family of the model instead"
    )]
    NotLearned,
}

impl CallFormat {
    /// Learns the call format of a chat template.
    pub(crate) fn from_template(source: &str) -> Result<Self, TemplateError> {
        learn_with_variant(source).map(|(format, _)| format)
    }
}

/// Learns the call format and the form in which calls have to be passed to the template.
fn learn_with_variant(source: &str) -> Result<(CallFormat, TemplateVariant), TemplateError> {
    let template = ChatTemplate::parse(source)?;
    let mut first_error = None;
    for variant in VARIANTS {
        let prober = Prober::new(&template, source, variant);
        match learn::learn_format(&prober) {
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
