//! Calls that a model certainly meant but that cannot be parsed. They are not run, but the model has to be told.

use super::cursor::is_in_name;
use super::json;
use super::shape;
use super::template::CallFormat;

/// Maximum length of an unreadable call's text that is shown to the model again, in bytes.
const MAX_SHOWN: usize = 2 * 1024;

/// Tokens that can only mean a call if JSON follows.
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

/// A call that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableCall {
    /// The name as the model wrote it, or `null` if there is none.
    pub name: String,
    /// The text after the name, or the complete text of the call.
    pub written: String,
}

/// Returns the unreadable call at the start of `text`, if a call is certainly meant there. `is_whole` states that no text
/// follows.
pub(super) fn parse_unreadable_call(
    text: &str,
    format: Option<&CallFormat>,
    knows: impl Fn(&str) -> bool,
    is_whole: bool,
) -> Option<UnreadableCall> {
    tool_parameters(text, knows, is_whole)
        .or_else(|| after_token(text, format))
        .or_else(|| nameless(text))
}

/// Matches `TOOL:` in capitals, followed by `PARAMETERS:` on a later line, or by the end of the text for a known tool.
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
        written: truncate_text(written),
    })
}

/// Returns the text after a keyword and its colon.
fn keyword<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let rest = text.trim_start_matches('*').strip_prefix(word)?;
    let rest = rest.trim_start_matches(['*', ' ', '\t']);
    Some(rest.strip_prefix(':')?.trim_start_matches('*'))
}

fn after_token(text: &str, format: Option<&CallFormat>) -> Option<UnreadableCall> {
    let opening = OPENINGS.iter().find_map(|it| text.strip_prefix(it));
    let opening = opening.or_else(|| format?.after_opening(text));
    let rest = opening?.trim_start();
    // A token alone may occur in an explanation, so JSON has to follow.
    rest.starts_with(['{', '[']).then(|| UnreadableCall {
        name: name_in(rest),
        written: truncate_text(rest),
    })
}

/// Matches JSON of one or several calls of which one has the name `null` or an empty name.
fn nameless(text: &str) -> Option<UnreadableCall> {
    if !text.starts_with(['{', '[']) {
        return None;
    }
    let (value, length) = json::value_at_start(text)?;
    shape::lacks_name(&value).then(|| UnreadableCall {
        name: "null".to_owned(),
        written: truncate_text(&text[..length]),
    })
}

/// Returns the name in JSON that may be invalid.
fn name_in(text: &str) -> String {
    let name = text.split_once("\"name\"").and_then(|(_, rest)| {
        let rest = rest.trim_start().strip_prefix(':')?.trim_start();
        let rest = rest.strip_prefix('"')?;
        Some(rest.split('"').next()?.to_owned())
    });
    let name = name.filter(|it| !it.is_empty() && it.chars().all(is_in_name));
    name.unwrap_or_else(|| "null".to_owned())
}

fn truncate_text(text: &str) -> String {
    let text = text.trim();
    let mut end = text.len().min(MAX_SHOWN);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
