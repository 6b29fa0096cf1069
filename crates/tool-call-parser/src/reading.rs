//! The common parts of all forms: where a form may begin, and how its content becomes a call.

use super::cursor::{Cursor, ParseResult, ParseStop, is_in_name};
use super::json::{self, Json};
use super::shape;
use super::tools::ToolSchemas;

/// Maximum length of a tool name, in bytes.
const MAX_NAME: usize = 128;

/// A complete call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ParsedCall {
    pub(super) name: String,
    /// The arguments as JSON text of an object.
    pub(super) arguments: String,
}

/// A notation of calls.
#[derive(Debug)]
pub(super) struct Form {
    /// The characters that the form can begin with. Empty means any character.
    pub(super) starts: &'static str,
    pub(super) place: StartPosition,
    pub(super) read_calls: fn(&mut Cursor, &FormReader) -> ParseResult<FoundCalls>,
}

/// A position where a form may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StartPosition {
    /// Anywhere, because the opening of the form is unique.
    Anywhere,
    /// Not within a word.
    Word,
    /// At the start of a line.
    Line,
}

/// The calls that a form yielded.
#[derive(Debug, Default)]
pub(super) struct FoundCalls {
    /// The calls, in order. If there are none, the parsed stretch is plain text, and no call is looked for inside it.
    pub(super) calls: Vec<ParsedCall>,
    /// Whether the form opened a code fence without closing it.
    pub(super) fenced: bool,
}

/// The certainty, given an opening, that a call is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallCertainty {
    /// The opening is a token with no other meaning. A call with an unknown name is also returned, so that the model can be told.
    Unmistakable,
    /// The opening can mean anything, so the name must be that of a tool.
    Common,
}

/// The context in which a form is parsed.
#[derive(Debug, Clone, Copy)]
pub(super) struct FormReader<'a> {
    /// The forms to try, in order.
    pub(super) forms: &'a [&'static Form],
    pub(super) tools: &'a ToolSchemas,
    /// Whether the position is in a code block or in quotes, where calls are often only examples.
    pub(super) quoted: bool,
    /// Whether the position is at the start of a line or after a sentence, a colon or a tag.
    pub(super) announced: bool,
}

impl FormReader<'_> {
    /// Parses the first admitted form that matches at the cursor.
    pub(super) fn any_form(
        &self,
        cursor: &mut Cursor,
        admitted: impl Fn(&Form) -> bool,
    ) -> ParseResult<FoundCalls> {
        let forms = self.forms.iter().filter(|form| admitted(form));
        first_of(cursor, forms.map(|form| form.read_calls), self)
    }

    /// Returns a call with this name and these arguments if both are acceptable.
    pub(super) fn call(
        &self,
        name: &str,
        arguments: &Json,
        opening: CallCertainty,
    ) -> ParseResult<ParsedCall> {
        let name = self.resolve(name, opening)?;
        if !matches!(arguments, Json::Object(_)) {
            return Err(ParseStop::No);
        }
        Ok(ParsedCall {
            name: name.to_owned(),
            arguments: arguments.to_json(),
        })
    }

    /// Returns the name of the tool that `name` refers to.
    pub(super) fn resolve<'n>(
        &self,
        name: &'n str,
        opening: CallCertainty,
    ) -> ParseResult<&'n str> {
        let name = name.trim();
        if self.tools.knows(name) {
            return Ok(name);
        }
        let short = name.strip_prefix("functions.").unwrap_or(name);
        let must_be_known = opening == CallCertainty::Common || self.quoted;
        let looks_right =
            !short.is_empty() && short.len() <= MAX_NAME && short.chars().all(is_in_name);
        if self.tools.knows(short) || (looks_right && !must_be_known) {
            Ok(short)
        } else {
            Err(ParseStop::No)
        }
    }

    /// Returns the calls that a JSON value represents.
    pub(super) fn calls_from_json(
        &self,
        value: &Json,
        opening: CallCertainty,
    ) -> ParseResult<FoundCalls> {
        let shaped = shape::calls(value).ok_or(ParseStop::No)?;
        if shaped.is_empty() {
            return Err(ParseStop::No);
        }
        let none = Json::Object(Vec::new());
        let calls: ParseResult<Vec<ParsedCall>> = shaped
            .iter()
            .map(|it| match (&it.arguments, opening) {
                (Some(arguments), _) => self.call(&it.name, arguments, opening),
                (None, CallCertainty::Unmistakable) => self.call(&it.name, &none, opening),
                // A name without arguments could be anything.
                (None, CallCertainty::Common) => Err(ParseStop::No),
            })
            .collect();
        Ok(FoundCalls::calls(calls?))
    }

    /// Parses the JSON value after a token and returns its calls.
    pub(super) fn json(&self, cursor: &mut Cursor) -> ParseResult<FoundCalls> {
        cursor.blanks();
        let fenced = maybe_fenced(cursor)?;
        let value = json::value(cursor)?;
        let found = self.calls_from_json(&value, CallCertainty::Unmistakable)?;
        Ok(FoundCalls { fenced, ..found })
    }

    /// Parses an object with the arguments of a call to `name`.
    pub(super) fn object(
        &self,
        cursor: &mut Cursor,
        name: &str,
        opening: CallCertainty,
    ) -> ParseResult<ParsedCall> {
        let arguments = json::object(cursor)?;
        self.call(name, &arguments, opening)
    }
}

impl FoundCalls {
    pub(super) fn calls(calls: Vec<ParsedCall>) -> Self {
        Self {
            calls,
            fenced: false,
        }
    }

    pub(super) fn text() -> Self {
        Self::default()
    }
}

impl From<ParsedCall> for FoundCalls {
    fn from(call: ParsedCall) -> Self {
        Self::calls(vec![call])
    }
}

/// Returns the result of the first of these parsers that matches at the cursor.
pub(super) fn first_of<T>(
    cursor: &mut Cursor,
    ways: impl IntoIterator<Item = fn(&mut Cursor, &FormReader) -> ParseResult<T>>,
    reading: &FormReader,
) -> ParseResult<T> {
    let mut reached = cursor.clone();
    for way in ways {
        let mut attempt = cursor.clone();
        let result = way(&mut attempt, reading);
        if attempt.at() > reached.at() {
            reached = attempt.clone();
        }
        match result {
            Err(ParseStop::No) => {}
            decided => {
                *cursor = attempt;
                return decided;
            }
        }
    }
    *cursor = reached;
    Err(ParseStop::No)
}

/// Parses the opening of a code fence, with or without an info string.
pub(super) fn fence(cursor: &mut Cursor) -> ParseResult<()> {
    cursor.literal("```")?;
    while cursor.peek()?.is_alphanumeric() || matches!(cursor.peek()?, '_' | '-') {
        cursor.next()?;
    }
    cursor.blanks();
    Ok(())
}

/// Parses the opening of a code fence if there is one, and returns whether there was.
pub(super) fn maybe_fenced(cursor: &mut Cursor) -> ParseResult<bool> {
    let fenced = cursor.peek()? == '`';
    if fenced {
        fence(cursor)?;
    }
    Ok(fenced)
}
