//! Renders chat templates in the same way as Hugging Face `transformers` (`apply_chat_template`).
//!
//! Templates come from third parties. Their size, steps, depth and output are limited, they have access only to the given
//! conversation, and they cannot load other templates.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior};
use serde_json::Value;

use super::TemplateError;

/// Maximum size of a template, in bytes. The largest templates of vendors have 20 KiB.
pub(super) const MAX_TEMPLATE: usize = 256 * 1024;
/// Maximum number of instructions of a rendering. The templates of vendors need a few thousand.
const MAX_STEPS: u64 = 500_000;
/// Maximum nesting depth of macros and includes.
const MAX_DEPTH: usize = 64;
/// Maximum size of a rendering, in bytes.
const MAX_OUTPUT: usize = 1024 * 1024;

const NAME: &str = "chat_template";

/// A chat template with valid syntax.
pub(super) struct ChatTemplate(Environment<'static>);

impl ChatTemplate {
    pub(super) fn parse(source: &str) -> Result<Self, TemplateError> {
        if source.len() > MAX_TEMPLATE {
            return Err(TemplateError::TooLarge);
        }
        let mut environment = Environment::new();
        environment.set_syntax(python_syntax()?);
        environment.set_fuel(Some(MAX_STEPS));
        environment.set_recursion_limit(MAX_DEPTH);
        environment.set_undefined_behavior(UndefinedBehavior::Chainable);
        environment.set_unknown_method_callback(python_method);
        environment.add_filter("tojson", to_json);
        environment.add_function("raise_exception", raise_exception);
        // The current date is not part of a call.
        environment.add_function("strftime_now", |_format: String| "2026-01-01");
        environment
            .add_template_owned(NAME, without_generation_blocks(source))
            .map_err(|error| TemplateError::Syntax(describe(&error)))?;
        Ok(Self(environment))
    }

    /// Renders a conversation in the form that `apply_chat_template` expects.
    pub(super) fn render(&self, conversation: &Value) -> Result<String, TemplateError> {
        let failed = |error: Error| TemplateError::Render(describe(&error));
        let template = self.0.get_template(NAME).map_err(failed)?;
        let values = template_value(conversation);
        let mut output = BoundedOutput(Vec::new());
        template
            .render_captured_to(values, &mut output)
            .map_err(failed)?;
        String::from_utf8(output.0).map_err(|_| TemplateError::NotLearned)
    }
}

/// Converts `value` for templates. Numbers need a conversion here, because `serde_json` keeps their digits and serializes them as
/// a private struct. A number that a template cannot represent becomes a string of its digits.
fn template_value(value: &Value) -> minijinja::Value {
    match value {
        Value::Null => minijinja::Value::from(()),
        Value::Bool(truth) => minijinja::Value::from(*truth),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => minijinja::Value::from(whole),
            (None, Some(real)) => minijinja::Value::from(real),
            (None, None) => minijinja::Value::from(number.to_string()),
        },
        Value::String(text) => minijinja::Value::from(text.as_str()),
        Value::Array(items) => items.iter().map(template_value).collect(),
        Value::Object(members) => {
            let members = members.iter();
            minijinja::Value::from_pairs(
                members.map(|(name, it)| (name.as_str(), template_value(it))),
            )
        }
    }
}

/// Returns a syntax in which blocks remove the line end after them and the indentation before them.
fn python_syntax() -> Result<SyntaxConfig, TemplateError> {
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true);
    let failed = |error: Error| TemplateError::Syntax(describe(&error));
    syntax.build().map_err(failed)
}

/// Calls a method of Python's strings, lists or mappings. Values are immutable here, so `append` has no effect; templates collect
/// ids in such lists in order to check them when results follow.
fn python_method(
    state: &mut State,
    value: &minijinja::Value,
    method: &str,
    arguments: &[minijinja::Value],
) -> Result<minijinja::Value, Error> {
    if method == "append" && value.kind() == ValueKind::Seq {
        return Ok(().into());
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, arguments)
}

/// Returns the message of an error with its line. It may contain words of the template, but not of a conversation.
fn describe(error: &Error) -> String {
    let detail = error.detail().unwrap_or_default();
    let line = error.line().unwrap_or_default();
    format!("{} in line {line}: {detail}", error.kind())
}

/// A writer that fails instead of using too much memory.
struct BoundedOutput(Vec<u8>);

impl std::io::Write for BoundedOutput {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_OUTPUT {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Replaces `{% generation %}` blocks, which mark the text of a training mask and are unknown to Jinja itself.
fn without_generation_blocks(source: &str) -> String {
    let mut text = source.to_owned();
    for (word, instead) in [("endgeneration", "endif"), ("generation", "if true")] {
        for (open, close) in [("{%", "%}"), ("{%-", "-%}"), ("{%-", "%}"), ("{%", "-%}")] {
            let written = format!("{open} {word} {close}");
            text = text.replace(&written, &format!("{open} {instead} {close}"));
        }
    }
    text
}

fn raise_exception(message: String) -> Result<String, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// The filter `tojson` as defined by `transformers`: Python's separators, no HTML escapes, and members in their original order.
#[allow(
    clippy::needless_pass_by_value,
    reason = "filters take their options by value"
)]
fn to_json(
    value: &minijinja::Value,
    positional: Option<usize>,
    options: Kwargs,
) -> Result<String, Error> {
    let value = serde_json::to_value(value)
        .map_err(|_| Error::new(ErrorKind::InvalidOperation, "the value is not JSON"))?;
    let indent = match positional {
        Some(indent) => Some(indent),
        None => options.get::<Option<usize>>("indent")?,
    };
    let separators: Option<Vec<String>> = options.get("separators")?;
    let writer = JsonWriter {
        ensure_ascii: options
            .get::<Option<bool>>("ensure_ascii")?
            .unwrap_or(false),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        indent,
        item: match (&separators, indent) {
            (Some(separators), _) => separators.first().cloned().unwrap_or_default(),
            (None, Some(_)) => ",".to_owned(),
            (None, None) => ", ".to_owned(),
        },
        member: separators
            .and_then(|it| it.get(1).cloned())
            .unwrap_or_else(|| ": ".to_owned()),
    };
    let mut text = String::new();
    writer.write(&value, 0, &mut text);
    Ok(text)
}

/// Writes JSON in the format of Python's `json.dumps`.
struct JsonWriter {
    ensure_ascii: bool,
    sort_keys: bool,
    indent: Option<usize>,
    item: String,
    member: String,
}

impl JsonWriter {
    fn write(&self, value: &Value, depth: usize, out: &mut String) {
        match value {
            Value::Array(items) if !items.is_empty() => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    self.separate(index, depth + 1, out);
                    self.write(item, depth + 1, out);
                }
                self.new_line(depth, out);
                out.push(']');
            }
            Value::Object(members) if !members.is_empty() => {
                let mut members: Vec<_> = members.iter().collect();
                if self.sort_keys {
                    members.sort_by(|one, other| one.0.cmp(other.0));
                }
                out.push('{');
                for (index, (name, value)) in members.into_iter().enumerate() {
                    self.separate(index, depth + 1, out);
                    self.text(&Value::from(name.as_str()).to_string(), out);
                    out.push_str(&self.member);
                    self.write(value, depth + 1, out);
                }
                self.new_line(depth, out);
                out.push('}');
            }
            value => self.text(&value.to_string(), out),
        }
    }

    fn separate(&self, index: usize, depth: usize, out: &mut String) {
        if index > 0 {
            out.push_str(&self.item);
        }
        self.new_line(depth, out);
    }

    fn new_line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = self.indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }

    fn text(&self, json: &str, out: &mut String) {
        if !self.ensure_ascii {
            out.push_str(json);
            return;
        }
        for c in json.chars() {
            if c.is_ascii() {
                out.push(c);
            } else {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
}
