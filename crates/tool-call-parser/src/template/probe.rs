//! Renders conversations with unique words by a template.

use serde_json::{Map, Value, json};

use super::TemplateError;
use super::pattern::{Pattern, PatternPart, common_start};
use super::render::ChatTemplate;

/// Words that occur in no template and are not contained in each other.
pub(super) const NAMES: [&str; 2] = ["zqfirstname", "zqothername"];
/// Call ids. Mistral's templates require nine letters and digits.
pub(super) const IDS: [&str; 2] = ["zqidaaaa1", "zqidbbbb2"];
pub(super) const KEYS: [&str; 2] = ["zqkeyone", "zqkeytwo"];
pub(super) const TEXTS: [&str; 2] = ["zqtextone", "zqtexttwo"];
pub(super) const NUMBERS: [&str; 2] = ["7310731", "7420742"];
/// A string that reveals how strings are quoted.
pub(super) const HARD_TEXT: &str = "zq \"a\" 'b' \\ c\nd";
const CONTENT: &str = "zqcontentzq";

/// The form in which calls are passed to a template. Templates expect different forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TemplateVariant {
    /// Whether arguments are passed as JSON text instead of an object.
    pub(super) arguments_as_text: bool,
    pub(super) content: NoContent,
}

/// The content of a message that consists only of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoContent {
    Empty,
    Null,
    Absent,
}

/// All variants, the most common ones first.
pub(super) const VARIANTS: [TemplateVariant; 6] = {
    const fn variant(arguments_as_text: bool, content: NoContent) -> TemplateVariant {
        TemplateVariant {
            arguments_as_text,
            content,
        }
    }
    [
        variant(false, NoContent::Empty),
        variant(true, NoContent::Empty),
        variant(false, NoContent::Null),
        variant(true, NoContent::Null),
        variant(false, NoContent::Absent),
        variant(true, NoContent::Absent),
    ]
};

/// A call to render.
#[derive(Debug, Clone)]
pub(super) struct ProbeCall<'a> {
    pub(super) name: &'a str,
    pub(super) id: &'a str,
    pub(super) arguments: Value,
}

impl ProbeCall<'_> {
    /// Creates the first or the second call of a message.
    pub(super) fn new(index: usize, arguments: Value) -> Self {
        Self {
            name: NAMES[index],
            id: IDS[index],
            arguments,
        }
    }
}

/// Renders messages of the assistant.
pub(super) struct Prober<'a> {
    template: &'a ChatTemplate,
    source: &'a str,
    variant: TemplateVariant,
    /// The rendered conversation up to the content of the assistant's message.
    header: String,
}

impl<'a> Prober<'a> {
    pub(super) fn new(
        template: &'a ChatTemplate,
        source: &'a str,
        variant: TemplateVariant,
    ) -> Self {
        let mut prober = Self {
            template,
            source,
            variant,
            header: String::new(),
        };
        let words = json!({ "role": "assistant", "content": CONTENT });
        if let Ok(text) = prober.render(&words)
            && let Some((before, _)) = text.rsplit_once(CONTENT)
        {
            before.clone_into(&mut prober.header);
        }
        prober
    }

    /// Returns whether the source of the template contains `text`.
    pub(super) fn mentions(&self, text: &str) -> bool {
        self.source.contains(text)
    }

    /// Renders a message that consists only of calls, and returns the text after the header of the message.
    pub(super) fn calls(&self, calls: &[ProbeCall]) -> Result<String, TemplateError> {
        let mut message = self.message(calls);
        match self.variant.content {
            NoContent::Empty => message["content"] = json!(""),
            NoContent::Null => message["content"] = Value::Null,
            NoContent::Absent => {}
        }
        let text = self.render(&message)?;
        let header = common_start(&text, &self.header).len();
        Ok(text[header..].to_owned())
    }

    /// Renders a message with text and calls, and returns what follows the text.
    pub(super) fn calls_after_words(&self, calls: &[ProbeCall]) -> Option<String> {
        let mut message = self.message(calls);
        message["content"] = json!(CONTENT);
        let text = self.render(&message).ok()?;
        Some(text.rsplit_once(CONTENT)?.1.to_owned())
    }

    fn message(&self, calls: &[ProbeCall]) -> Value {
        let calls: Vec<Value> = calls
            .iter()
            .map(|call| {
                let arguments = if self.variant.arguments_as_text {
                    Value::from(call.arguments.to_string())
                } else {
                    call.arguments.clone()
                };
                json!({
                    "id": call.id,
                    "type": "function",
                    "function": { "name": call.name, "arguments": arguments },
                })
            })
            .collect();
        json!({ "role": "assistant", "tool_calls": calls })
    }

    fn render(&self, message: &Value) -> Result<String, TemplateError> {
        let tool = |name: &str| {
            json!({
                "type": "function",
                "function": {
                    "name": name,
                    "description": "A tool.",
                    "parameters": { "type": "object", "properties": Map::new() },
                },
            })
        };
        let tools: Vec<Value> = NAMES.into_iter().map(tool).collect();
        self.template.render(&json!({
            "messages": [{ "role": "user", "content": "Hello" }, message],
            "tools": tools,
            "add_generation_prompt": false,
            "datetime": "2026-01-01",
            "bos_token": "<|bos|>",
            "eos_token": "<|eos|>",
        }))
    }
}

/// Returns the pattern of rendered text around names, ids and numbers.
pub(super) fn pattern(rendered: &str) -> Pattern {
    Pattern::from_rendered(
        rendered,
        &[
            (IDS[0], PatternPart::Id),
            (IDS[1], PatternPart::Id),
            (NAMES[0], PatternPart::Name),
            (NAMES[1], PatternPart::Name),
        ],
    )
}
