//! The call format that was learned from a template, and how text is read by it.

use std::cell::Cell;

use super::super::cursor::{Cursor, ParseResult, ParseStop, is_in_name};
use super::super::json::{self, Json};
use super::super::reading::{CallCertainty as Certainty, FormReader, FoundCalls, ParsedCall};
use super::super::shape;
use super::super::state::ParserState;
use super::pattern::{Pattern, PatternSlots};
use super::values::{ListedArguments, read_listed};

/// Longer names are none.
const MAX_NAME: usize = 128;

/// How a model writes its calls, as its chat template prints them.
#[derive(Debug, Clone)]
pub(crate) struct CallFormat {
    /// What stands before a call. One of them is enough.
    pub(super) openings: Vec<Pattern>,
    /// What stands before a call that follows another one directly.
    pub(super) continuation: Option<Pattern>,
    pub(super) body: CallBody,
    /// Tokens that follow a call.
    pub(super) closings: Vec<String>,
    /// Tokens that follow the last call.
    pub(super) endings: Vec<String>,
}

/// What a call consists of, after its opening.
#[derive(Debug, Clone)]
pub(super) enum CallBody {
    /// A JSON object that holds the name and the arguments.
    Object(ObjectShape),
    /// The name, what stands after it, and the arguments.
    Named(NamedArguments),
}

/// Where in a JSON object the name and the arguments stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ObjectShape {
    /// Under these keys, from the outermost to the innermost.
    Members {
        name: Vec<String>,
        arguments: Vec<String>,
    },
    /// The only key is the name, and its value the arguments.
    NameIsKey,
}

/// How arguments follow a name.
#[derive(Debug, Clone)]
pub(super) enum NamedArguments {
    /// One JSON object, or JSON text that holds one.
    Json { between: Pattern },
    /// Argument by argument.
    Listed(Box<ListedArguments>),
}

impl CallFormat {
    /// The characters that a call can begin with. None of them: a name.
    pub(crate) fn starts(&self) -> impl Iterator<Item = char> {
        let is_object = matches!(self.body, CallBody::Object(_)).then_some('{');
        let patterns = self.openings.iter().chain(&self.continuation);
        patterns.filter_map(Pattern::first).chain(is_object)
    }

    /// The tokens that may follow a call, and whether each ends the series of calls.
    pub(crate) fn tokens_after(&self) -> impl Iterator<Item = (&str, bool)> {
        let closings = self.closings.iter().map(|it| (it.as_str(), false));
        closings.chain(self.endings.iter().map(|it| (it.as_str(), true)))
    }

    /// What follows in `text` an opening that means nothing but a call, if `text` begins with one.
    pub(crate) fn after_opening<'a>(&self, text: &'a str) -> Option<&'a str> {
        let mut openings = self.openings.iter().filter(|it| it.is_unmistakable());
        openings.find_map(|opening| {
            let steps = Cell::new(0);
            let mut cursor = Cursor::new(text, &steps);
            opening.matches(&mut cursor, PatternSlots::default()).ok()?;
            Some(&text[cursor.at()..])
        })
    }

    /// Reads a call.
    pub(crate) fn read(
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
            CallBody::Named(NamedArguments::Json { between }) => named(cursor, |cursor, name| {
                between.matches(cursor, slots(name))?;
                cursor.blanks();
                let value = json::value(cursor)?;
                let arguments = shape::arguments(&value).ok_or(ParseStop::No)?;
                reading.call(name, &arguments, certainty(Some(between)))
            }),
            CallBody::Named(NamedArguments::Listed(listed)) => named(cursor, |cursor, name| {
                let certainty = certainty(Some(&listed.first));
                let tool = reading.resolve(name, certainty)?;
                let members = read_listed(listed, cursor, reading, tool)?;
                reading.call(tool, &Json::Object(members), certainty)
            }),
        }
    }
}

fn slots(name: &str) -> PatternSlots<'_> {
    PatternSlots { name, key: "" }
}

/// Reads a name and what follows it. A name can hold signs that what follows begins with; the longest name that fits
/// is it.
fn named<T>(
    cursor: &mut Cursor,
    rest: impl Fn(&mut Cursor, &str) -> ParseResult<T>,
) -> ParseResult<T> {
    longest(cursor, is_in_name, rest)
}

/// Reads the longest run of such characters with which `rest` goes on.
pub(super) fn longest<T>(
    cursor: &mut Cursor,
    matches: impl Fn(char) -> bool,
    rest: impl Fn(&mut Cursor, &str) -> ParseResult<T>,
) -> ParseResult<T> {
    let start = cursor.clone();
    let run = cursor.run_of(matches)?;
    if run.len() > MAX_NAME {
        return Err(ParseStop::No);
    }
    let ends = run.char_indices().map(|(at, c)| at + c.len_utf8());
    for end in ends.rev() {
        let mut attempt = start.clone();
        attempt.take(end);
        match rest(&mut attempt, &run[..end]) {
            Err(ParseStop::No) => {}
            decided => {
                *cursor = attempt;
                return decided;
            }
        }
    }
    Err(ParseStop::No)
}

impl ObjectShape {
    /// The name and the arguments of a call that is written so; none if it is something else.
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
