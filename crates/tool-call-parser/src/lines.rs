//! A filter of JSON lines that extracts the calls from texts.

use std::collections::HashMap;
use std::io::{self, BufRead, Read};

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::template::TemplateError;
use super::{CallSyntax, Extractor, Family, Piece};
use crate::Function;

/// Maximum length of a line, in bytes. Longer lines are rejected.
const MAX_LINE: u64 = 16 * 1024 * 1024;

/// The number of lines that were rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedLines(pub usize);

/// The reason why a line is rejected. Error messages do not repeat any content of the line.
#[derive(Debug, thiserror::Error)]
enum LineFault {
    #[error("the line is longer than 16 MiB")]
    TooLong,
    #[error("the line is not UTF-8")]
    NotUtf8,
    #[error("the line is not JSON (column {0})")]
    NotJson(usize),
    #[error("the line must be an object")]
    NoObject,
    #[error("\"id\" is missing")]
    NoId,
    #[error("\"text\" must be a string")]
    NoText,
    #[error("\"tools\" must be a list")]
    NoList,
    #[error("tool {0} must be an object with \"function\": {{\"name\": …}}")]
    NoFunction(usize),
    #[error("\"family\" must be a string")]
    NoFamily,
    #[error(transparent)]
    UnknownFamily(#[from] super::UnknownFamily),
    #[error("\"template\" must be a string")]
    NoTemplate,
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error("the arguments of a call cannot be written")]
    Unwritable,
}

#[derive(Serialize)]
struct ExtractedLine<'a> {
    id: &'a Value,
    calls: Vec<ExtractedCall>,
    text: String,
}

#[derive(Serialize)]
struct ExtractedCall {
    name: String,
    /// The arguments, with the digits of numbers unchanged.
    arguments: Box<RawValue>,
}

#[derive(Serialize)]
struct RefusedLine<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a Value>,
    error: String,
}

/// Reads lines `{"id", "text", "tools", "family"?, "template"?}`, with tools in the format of the Chat Completions API. For each
/// line, calls `write_line` with a line `{"id", "calls": [{"name", "arguments"}], "text"}`, or `{"id", "error"}` if the line is
/// rejected, without a line feed at its end. `syntax` applies to lines that contain neither a family nor a template.
pub fn extract_calls(
    input: &mut impl BufRead,
    syntax: &CallSyntax,
    mut write_line: impl FnMut(&str) -> io::Result<()>,
) -> io::Result<FailedLines> {
    let mut templates = LearnedTemplates::default();
    let mut failed = 0;
    while let Some(line) = next_line(input)? {
        let parsed = line.and_then(|it| parse(&it));
        let id = parsed.as_ref().ok().and_then(|it| it.get("id"));
        let extracted = match &parsed {
            Ok(line) => {
                extract_line(line, syntax, &mut templates).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        let answer = match extracted {
            Ok(extracted) => serde_json::to_string(&extracted)?,
            Err(error) => {
                failed += 1;
                serde_json::to_string(&RefusedLine { id, error })?
            }
        };
        write_line(&answer)?;
    }
    Ok(FailedLines(failed))
}

/// Returns the next line that is not blank.
fn next_line(input: &mut impl BufRead) -> io::Result<Option<Result<Vec<u8>, LineFault>>> {
    loop {
        let mut line = Vec::new();
        let read = input
            .by_ref()
            .take(MAX_LINE + 1)
            .read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(None);
        }
        if line.len() as u64 > MAX_LINE && !line.ends_with(b"\n") {
            input.skip_until(b'\n')?;
            return Ok(Some(Err(LineFault::TooLong)));
        }
        if !line.trim_ascii().is_empty() {
            return Ok(Some(Ok(line)));
        }
    }
}

fn parse(line: &[u8]) -> Result<Value, LineFault> {
    let line = std::str::from_utf8(line).map_err(|_| LineFault::NotUtf8)?;
    let value: Value =
        serde_json::from_str(line).map_err(|error| LineFault::NotJson(error.column()))?;
    if value.is_object() {
        Ok(value)
    } else {
        Err(LineFault::NoObject)
    }
}

/// A cache of the call formats learned from templates, because many lines contain the same template.
#[derive(Default)]
struct LearnedTemplates(HashMap<String, Result<CallSyntax, TemplateError>>);

/// Maximum number of cached templates.
const MAX_TEMPLATES: usize = 64;

impl LearnedTemplates {
    fn learn_syntax(&mut self, source: &str) -> Result<CallSyntax, TemplateError> {
        if let Some(learned) = self.0.get(source) {
            return learned.clone();
        }
        if self.0.len() == MAX_TEMPLATES {
            self.0.clear();
        }
        let learned = CallSyntax::default().with_template(source);
        self.0.insert(source.to_owned(), learned.clone());
        learned
    }
}

fn extract_line<'l>(
    line: &'l Value,
    syntax: &CallSyntax,
    templates: &mut LearnedTemplates,
) -> Result<ExtractedLine<'l>, LineFault> {
    let id = line.get("id").ok_or(LineFault::NoId)?;
    let text = line
        .get("text")
        .and_then(Value::as_str)
        .ok_or(LineFault::NoText)?;
    let functions = match line.get("tools") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(tools)) => tools
            .iter()
            .enumerate()
            .map(|(index, tool)| function(tool).ok_or(LineFault::NoFunction(index + 1)))
            .collect::<Result<_, _>>()?,
        Some(_) => return Err(LineFault::NoList),
    };
    let family: Option<Family> = match line.get("family") {
        None | Some(Value::Null) => None,
        Some(named) => Some(named.as_str().ok_or(LineFault::NoFamily)?.parse()?),
    };
    let syntax = match (line.get("template"), family) {
        (None | Some(Value::Null), None) => syntax.clone(),
        (None | Some(Value::Null), Some(family)) => family.into(),
        (Some(template), family) => templates
            .learn_syntax(template.as_str().ok_or(LineFault::NoTemplate)?)?
            .with_family(family.unwrap_or_default()),
    };
    let mut extractor = Extractor::new(syntax, &functions);
    let mut pieces = extractor.push(text);
    pieces.extend(extractor.finish());
    let mut extracted = ExtractedLine {
        id,
        calls: Vec::new(),
        text: String::new(),
    };
    for piece in pieces {
        match piece {
            Piece::Text(text) => extracted.text.push_str(&text),
            Piece::Unreadable(_) => {}
            Piece::Call { name, arguments } => extracted.calls.push(ExtractedCall {
                name,
                arguments: RawValue::from_string(arguments).map_err(|_| LineFault::Unwritable)?,
            }),
        }
    }
    Ok(extracted)
}

/// Converts a tool of the Chat Completions API, or only its `function` member.
fn function(tool: &Value) -> Option<Function> {
    let function = tool.get("function").unwrap_or(tool);
    let text = |key| function.get(key).and_then(Value::as_str);
    Some(Function {
        name: text("name")?.to_owned(),
        description: text("description").unwrap_or_default().to_owned(),
        parameters: function.get("parameters").cloned().unwrap_or_default(),
    })
}
