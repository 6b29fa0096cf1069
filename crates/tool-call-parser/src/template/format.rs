//! A call format learned from a template, and the parser for it.

use std::cell::Cell;

use super::super::cursor::{Cursor, ParseResult, ParseStop, is_in_name};
use super::super::json::{self, Json};
use super::super::reading::{CallCertainty as Certainty, FormReader, FoundCalls, ParsedCall};
use super::super::shape;
use super::super::state::ParserState;
use super::pattern::{Pattern, PatternSlots};
use super::values::{ListedArguments, read_listed};

/// The format in which a model writes calls, according to its chat template.
#[derive(Debug, Clone)]
pub(crate) struct CallFormat {
    /// The texts that can precede a call. One of them is required.
    pub(super) openings: Vec<Pattern>,
    /// The text before a call that directly follows another call.
    pub(super) continuation: Option<Pattern>,
    pub(super) body: CallBody,
    /// Tokens that follow a call.
    pub(super) closings: Vec<String>,
    /// Tokens that follow the last call.
    pub(super) endings: Vec<String>,
}

/// The content of a call after its opening.
#[derive(Debug, Clone)]
pub(super) enum CallBody {
    /// A JSON object with the name and the arguments.
    Object(ObjectShape),
    /// The name, followed by some text and the arguments.
    Named(NamedArguments),
}

/// The positions of the name and the arguments in a JSON object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ObjectShape {
    /// At the end of these paths of keys, from the outermost to the innermost.
    Members {
        name: Vec<String>,
        arguments: Vec<String>,
    },
    /// The only key is the name, and its value is the arguments.
    NameIsKey,
}

/// The notation of arguments after a name.
#[derive(Debug, Clone)]
pub(super) enum NamedArguments {
    /// One JSON object, or a JSON string that contains one.
    Json { between: Pattern },
    /// One argument after the other.
    Listed(Box<ListedArguments>),
}

impl CallFormat {
    /// Returns the characters that a call can begin with, unless it begins with a name.
    pub(crate) fn starts(&self) -> impl Iterator<Item = char> {
        let is_object = matches!(self.body, CallBody::Object(_)).then_some('{');
        let patterns = self.openings.iter().chain(&self.continuation);
        patterns.filter_map(Pattern::first).chain(is_object)
    }

    /// Returns the tokens that may follow a call, each with whether it ends a series of calls.
    pub(crate) fn tokens_after(&self) -> impl Iterator<Item = (&str, bool)> {
        let closings = self.closings.iter().map(|it| (it.as_str(), false));
        closings.chain(self.endings.iter().map(|it| (it.as_str(), true)))
    }

    /// Returns the text after an unmistakable opening, if `text` begins with one.
    pub(crate) fn after_opening<'a>(&self, text: &'a str) -> Option<&'a str> {
        let mut openings = self.openings.iter().filter(|it| it.is_unmistakable());
        openings.find_map(|opening| {
            let steps = Cell::new(0);
            let mut cursor = Cursor::new(text, &steps);
            opening.matches(&mut cursor, PatternSlots::default()).ok()?;
            Some(&text[cursor.at()..])
        })
    }

    /// Parses a call.
    pub(crate) fn parse_call(
        &self,
        cursor: &mut Cursor,
        reading: &FormReader,
        state: &ParserState,
    ) -> ParseResult<FoundCalls> {
        let mut reached = cursor.clone();
        let continuation = self.continuation.iter().filter(|_| state.continues());
        let openings = continuation.map(|it| (it, true));
        for (opening, continues) in openings.chain(self.openings.iter().map(|it| (it, false))) {
            let is_token = opening.is_unmistakable();
            let admitted = continues || is_token || state.admits_signs(opening.is_empty());
            if !admitted {
                continue;
            }
            let mut attempt = cursor.clone();
            let result = self.call(&mut attempt, reading, opening);
            if attempt.at() > reached.at() {
                reached = attempt.clone();
            }
            match result {
                Err(ParseStop::No) => {}
                decided => {
                    *cursor = attempt;
                    return decided.map(FoundCalls::from);
                }
            }
        }
        *cursor = reached;
        Err(ParseStop::No)
    }

    fn call(
        &self,
        cursor: &mut Cursor,
        reading: &FormReader,
        opening: &Pattern,
    ) -> ParseResult<ParsedCall> {
        opening.matches(cursor, PatternSlots::default())?;
        cursor.blanks();
        let certainty = |between: Option<&Pattern>| {
            if opening.is_unmistakable() || between.is_some_and(Pattern::is_unmistakable) {
                Certainty::Unmistakable
            } else {
                Certainty::Common
            }
        };
        match &self.body {
            CallBody::Object(shape) => {
                let value = json::object(cursor)?;
                let (name, arguments) = shape.parts(&value).ok_or(ParseStop::No)?;
                reading.call(&name, &arguments, certainty(None))
            }
            CallBody::Named(NamedArguments::Json { between }) => {
                parse_name_then(cursor, |cursor, name| {
                    between.matches(cursor, slots(name))?;
                    cursor.blanks();
                    let value = json::value(cursor)?;
                    let arguments = shape::arguments(&value).ok_or(ParseStop::No)?;
                    reading.call(name, &arguments, certainty(Some(between)))
                })
            }
            CallBody::Named(NamedArguments::Listed(listed)) => {
                parse_name_then(cursor, |cursor, name| {
                    let certainty = certainty(Some(&listed.first));
                    let tool = reading.resolve(name, certainty)?;
                    let members = read_listed(listed, cursor, reading, tool)?;
                    reading.call(tool, &Json::Object(members), certainty)
                })
            }
        }
    }
}

fn slots(name: &str) -> PatternSlots<'_> {
    PatternSlots { name, key: "" }
}

/// Parses a name and what follows it. A name may contain characters that what follows begins with, so the longest matching name
/// is used.
fn parse_name_then<T>(
    cursor: &mut Cursor,
    rest: impl Fn(&mut Cursor, &str) -> ParseResult<T>,
) -> ParseResult<T> {
    cursor.longest_run(is_in_name, rest)
}

impl ObjectShape {
    /// Returns the name and the arguments of a call with this shape, or `None` if `value` has a different shape.
    pub(super) fn parts(&self, value: &Json) -> Option<(String, Json)> {
        let follow = |path: &[String]| {
            path.iter()
                .try_fold(value, |value, key| value.member(key))
                .cloned()
        };
        match self {
            Self::NameIsKey => match value {
                Json::Object(members) if members.len() == 1 => {
                    let (name, arguments) = members.first()?;
                    Some((name.clone(), shape::arguments(arguments)?))
                }
                _ => None,
            },
            Self::Members { name, arguments } => {
                let name = follow(name)?.as_text()?.to_owned();
                let arguments = shape::arguments(&follow(arguments)?)?;
                Some((name, arguments))
            }
        }
    }
}
