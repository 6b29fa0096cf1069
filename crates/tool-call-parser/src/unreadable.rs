//! Calls that a model surely meant and that cannot be read. They are no calls, but the model has to be told.

use super::cursor::is_in_name;
use super::json;
use super::shape;
use super::template::CallFormat;

/// How much of what was written the model is shown again.
const MAX_SHOWN: usize = 2 * 1024;

/// Tokens that mean nothing but a call, where JSON or a name follows.
const OPENINGS: [&str; 19] = [
    "<tool_call>",
    "<tool_calls>",
    "<function_call>",
    "<function_calls>",
    "<toolcall>",
    "<TOOLCALL>",
    "<seed:tool_call>",
    "<minimax:tool_call>",
    "<longcat_tool_call>",
    "<start_function_call>",
    "<|tool_call|>",
    "<|tool_call>",
    "<|tool_call_start|>",
    "<|tool_call_begin|>",
    "<|tools_prefix|>",
    "<|python_tag|>",
    "<|START_ACTION|>",
    "<｜tool▁calls▁begin｜>",
    "[TOOL_CALLS]",
];

/// A call that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableCall {
    /// As the model wrote it, or `null` where it wrote none.
    pub name: String,
    /// What the model wrote after the name, or all of it.
    pub written: String,
}

/// The call that surely is meant at the start of `text`, which is none that can be read. `is_whole`: nothing follows.
pub(super) fn meant(
    text: &str,
    format: Option<&CallFormat>,
    knows: impl Fn(&str) -> bool,
    is_whole: bool,
) -> Option<UnreadableCall> {
    tool_parameters(text, knows, is_whole)
        .or_else(|| after_token(text, format))
        .or_else(|| nameless(text))
}

/// `TOOL:` in capitals, and `PARAMETERS:` on one of the next lines; or at the end of all, a tool without parameters.
fn tool_parameters(
    text: &str,
    knows: impl Fn(&str) -> bool,
    is_whole: bool,
) -> Option<UnreadableCall> {
    let after_tool = keyword(text, "TOOL")?;
    let (line, rest) = after_tool.split_once('\n').unwrap_or((after_tool, ""));
    let name = line.trim_matches(|c: char| !is_in_name(c));
    let written = match keyword(rest.trim_start(), "PARAMETERS") {
        Some(written) => written,
        None if is_whole && rest.trim().is_empty() && knows(name) => "",
        None => return None,
    };
    Some(UnreadableCall {
        name: if name.is_empty() { "null" } else { name }.to_owned(),
        written: shown(written),
    })
}

/// What follows a keyword and its colon.
fn keyword<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let rest = text.trim_start_matches('*').strip_prefix(word)?;
    let rest = rest.trim_start_matches(['*', ' ', '\t']);
    Some(rest.strip_prefix(':')?.trim_start_matches('*'))
}

fn after_token(text: &str, format: Option<&CallFormat>) -> Option<UnreadableCall> {
    let opening = OPENINGS.iter().find_map(|it| text.strip_prefix(it));
    let opening = opening.or_else(|| format?.after_opening(text));
    let rest = opening?.trim_start();
    // A token alone may be one that a person asked about.
    rest.starts_with(['{', '[']).then(|| UnreadableCall {
        name: name_in(rest),
        written: shown(rest),
    })
}

/// JSON of a call whose name is `null` or empty, or of several calls one of which is such.
fn nameless(text: &str) -> Option<UnreadableCall> {
    if !text.starts_with(['{', '[']) {
        return None;
    }
    let (value, length) = json::value_at_start(text)?;
    shape::lacks_name(&value).then(|| UnreadableCall {
        name: "null".to_owned(),
        written: shown(&text[..length]),
    })
}

/// The name in JSON that may be broken.
fn name_in(text: &str) -> String {
    let name = text.split_once("\"name\"").and_then(|(_, rest)| {
        let rest = rest.trim_start().strip_prefix(':')?.trim_start();
        let rest = rest.strip_prefix('"')?;
        Some(rest.split('"').next()?.to_owned())
    });
    let name = name.filter(|it| !it.is_empty() && it.chars().all(is_in_name));
    name.unwrap_or_else(|| "null".to_owned())
}

fn shown(text: &str) -> String {
    let text = text.trim();
    let mut end = text.len().min(MAX_SHOWN);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
