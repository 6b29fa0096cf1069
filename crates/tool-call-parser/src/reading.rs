//! What the forms have in common: where they may stand, and what of it becomes a call.

use super::cursor::{Cursor, ParseResult, ParseStop, is_in_name};
use super::json::{self, Json};
use super::shape;
use super::tools::ToolSchemas;

/// Longer than any tool's name is.
const MAX_NAME: usize = 128;

/// A whole call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ParsedCall {
    pub(super) name: String,
    /// JSON text of an object.
    pub(super) arguments: String,
}

/// One way to write calls.
#[derive(Debug)]
pub(super) struct Form {
    /// Characters that it can begin with; empty: any.
    pub(super) starts: &'static str,
    pub(super) place: StartPosition,
    pub(super) read: fn(&mut Cursor, &FormReader) -> ParseResult<FoundCalls>,
}

/// Where a form may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StartPosition {
    /// Its opening is like nothing else.
    Anywhere,
    /// Not within a word.
    Word,
    /// First on its line.
    Line,
}

/// What was read.
#[derive(Debug, Default)]
pub(super) struct FoundCalls {
    /// In order. None: the stretch that was read is text, whatever it looks like inside.
    pub(super) calls: Vec<ParsedCall>,
    /// Whether a code fence was opened and not closed.
    pub(super) fenced: bool,
}

/// How sure the opening makes it that a call is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallCertainty {
    /// A token that means nothing else: a name that no tool has is a call too, so that the model can be told.
    Unmistakable,
    /// It could be anything; the name must be a tool's.
    Common,
}

/// What is known where a form is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct FormReader<'a> {
    /// What is looked for, in order.
    pub(super) forms: &'a [&'static Form],
    pub(super) tools: &'a ToolSchemas,
    /// In a code block or in quotes, where people show what calls look like.
    pub(super) quoted: bool,
    /// First on its line, or after a sentence, a colon or a tag.
    pub(super) announced: bool,
}

impl FormReader<'_> {
    /// The first form that fits what comes next.
    pub(super) fn any_form(
        &self,
        cursor: &mut Cursor,
        admitted: impl Fn(&Form) -> bool,
    ) -> ParseResult<FoundCalls> {
        let forms = self.forms.iter().filter(|form| admitted(form));
        first_of(cursor, forms.map(|form| form.read), self)
    }

    /// A call of that name, if it may be one.
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

    /// The name of the tool that is meant.
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

    /// The calls that a JSON value spells.
    pub(super) fn spelled(&self, value: &Json, opening: CallCertainty) -> ParseResult<FoundCalls> {
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
                // A name alone could be anything.
                (None, CallCertainty::Common) => Err(ParseStop::No),
            })
            .collect();
        Ok(FoundCalls::calls(calls?))
    }

    /// The calls of the JSON value that comes next, after a token.
    pub(super) fn json(&self, cursor: &mut Cursor) -> ParseResult<FoundCalls> {
        cursor.blanks();
        let fenced = maybe_fenced(cursor)?;
        let value = json::value(cursor)?;
        let found = self.spelled(&value, CallCertainty::Unmistakable)?;
        Ok(FoundCalls { fenced, ..found })
    }

    /// A call whose arguments come next, as an object.
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

/// The first of these ways that fits what comes next.
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

/// The opening of a code fence, with a word or without.
pub(super) fn fence(cursor: &mut Cursor) -> ParseResult<()> {
    cursor.literal("```")?;
    while cursor.peek()?.is_alphanumeric() || matches!(cursor.peek()?, '_' | '-') {
        cursor.next()?;
    }
    cursor.blanks();
    Ok(())
}

/// The opening of a code fence, if there is one.
pub(super) fn maybe_fenced(cursor: &mut Cursor) -> ParseResult<bool> {
    let fenced = cursor.peek()? == '`';
    if fenced {
        fence(cursor)?;
    }
    Ok(fenced)
}
