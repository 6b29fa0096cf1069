//! Splits the text of a model, which arrives in pieces, into text and calls.
//!
//! ```text
//!  push ─▶ pending ──▶ at each position where a form may begin, parse it:
//!                        complete call  ─▶ Call, then skip closing tokens and white space
//!                        no call        ─▶ one character of Text, then continue
//!                        incomplete     ─▶ wait for more; at the end of the text: Text
//! ```
//!
//! The result depends only on the text and not on how it was split into pieces (see [`super::cursor`]), except for *when* each
//! part is returned. The work is linear: parsing an unfinished form again uses up an allowance that grows with the input, and the
//! number of times that a failed form is parsed again from inside is limited.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::cursor::{Cursor, ParseResult, ParseStop, is_in_name};
use super::reading::{Form, FormReader, FoundCalls};
use super::state::{Fence, ParserState};
use super::template::CallFormat;
use super::tokens::{CLOSINGS, QUIET};
use super::tools::ToolSchemas;
use super::unreadable::{self, UnreadableCall};
use super::{CallSyntax, Piece};
use crate::Function;

/// Maximum length of a call, in bytes, which limits how much text is held back. Longer text is not a call.
const MAX_CALL: usize = 256 * 1024;

/// Number of bytes that may be parsed again per byte of input, and an initial allowance.
const AGAIN_PER_BYTE: usize = 8;
const AGAIN_FREE: usize = 64 * 1024;

/// Splits a model's text into text and calls.
#[derive(Debug)]
pub struct Extractor {
    /// The call format learned from the model's chat template. It is tried before the forms of the family.
    format: Option<Arc<CallFormat>>,
    forms: Vec<&'static Form>,
    /// The characters that a form, or a section without calls, can begin with.
    starts: String,
    tools: ToolSchemas,
    /// The text that is not decided yet.
    pending: String,
    /// White space after a call, which is dropped if only calls or the end of the text follow.
    blanks: String,
    state: ParserState,
    /// The remaining allowance, in bytes, for parsing unfinished forms again.
    waiting: usize,
    /// The end of the last unreadable call, as a number of decided bytes.
    unreadable_until: usize,
    /// The number of decided bytes, and the number of bytes of failed forms.
    decided: usize,
    failed: usize,
    /// The total number of bytes parsed.
    steps: Cell<usize>,
}

/// A step through the text.
enum ExtractionStep {
    /// This number of bytes is text.
    Text(usize),
    /// This number of bytes is not text.
    Passed(usize, PassedText),
    /// This number of bytes is text, and an unreadable call begins with it.
    Unreadable(usize, UnreadableCall),
    /// The decision requires more text.
    Undecided,
}

enum PassedText {
    /// White space after a call.
    Blanks,
    /// A token that closes a call.
    Closing,
    /// One or more calls.
    Found(FoundCalls),
}

impl Extractor {
    /// Creates an extractor for a model with this syntax that may call these functions.
    pub fn new(syntax: impl Into<CallSyntax>, functions: &[Function]) -> Self {
        let CallSyntax { family, format } = syntax.into();
        let forms = family.forms();
        let of_forms = forms.iter().flat_map(|it| it.starts.chars());
        let of_format = format.iter().flat_map(|it| it.starts());
        let of_quiet = QUIET.iter().filter_map(|it| it.0.chars().next());
        Self {
            starts: of_forms
                .chain(of_format)
                .chain(of_quiet)
                .collect::<BTreeSet<char>>()
                .into_iter()
                .collect(),
            format: format.clone(),
            forms,
            tools: ToolSchemas::from_functions(functions),
            pending: String::new(),
            blanks: String::new(),
            state: ParserState::new(),
            waiting: AGAIN_FREE,
            unreadable_until: 0,
            decided: 0,
            failed: 0,
            steps: Cell::new(0),
        }
    }

    /// Appends text and returns the pieces that it decides.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        self.pending.push_str(text);
        self.waiting += text.len() * AGAIN_PER_BYTE;
        if self.pending.len() > self.waiting {
            return Vec::new();
        }
        let before = self.steps.get();
        let pieces = self.decide();
        let spent = self.steps.get() - before;
        self.waiting = self.waiting.saturating_sub(spent);
        pieces
    }

    /// Ends the text and returns the remaining pieces. Everything undecided is text, because an incomplete call is not a call.
    pub fn finish(mut self) -> Vec<Piece> {
        let mut pieces = self.decide();
        let rest = std::mem::take(&mut self.pending);
        if let Some(unreadable) = self.unreadable(&rest, rest.len(), true) {
            pieces.push(Piece::Unreadable(unreadable));
        }
        self.append_text(&rest, &mut pieces);
        pieces
    }

    /// Returns the number of bytes parsed so far, counting bytes that were parsed repeatedly every time.
    #[cfg(test)]
    pub(super) fn steps(&self) -> usize {
        self.steps.get()
    }

    /// Returns the number of bytes that are held back.
    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.pending.len()
    }

    fn decide(&mut self) -> Vec<Piece> {
        let mut pending = std::mem::take(&mut self.pending);
        let mut pieces = Vec::new();
        let (mut shown, mut at) = (0, 0);
        while at < pending.len() {
            let bytes = match self.next(&pending[at..]) {
                ExtractionStep::Undecided => break,
                ExtractionStep::Text(bytes) => {
                    self.state.advance_over_text(&pending[at..at + bytes]);
                    bytes
                }
                ExtractionStep::Unreadable(bytes, unreadable) => {
                    self.append_text(&pending[shown..at], &mut pieces);
                    shown = at;
                    pieces.push(Piece::Unreadable(unreadable));
                    self.state.advance_over_text(&pending[at..at + bytes]);
                    bytes
                }
                ExtractionStep::Passed(bytes, passed) => {
                    self.append_text(&pending[shown..at], &mut pieces);
                    shown = at + bytes;
                    self.pass(&pending[at..shown], passed, &mut pieces);
                    bytes
                }
            };
            self.decided += bytes;
            at += bytes;
        }
        self.append_text(&pending[shown..at], &mut pieces);
        pending.drain(..at);
        self.pending = pending;
        pieces
    }

    /// Handles a stretch that is not text.
    fn pass(&mut self, stretch: &str, passed: PassedText, pieces: &mut Vec<Piece>) {
        match passed {
            PassedText::Blanks => self.blanks.push_str(stretch),
            PassedText::Closing => self.blanks.clear(),
            PassedText::Found(found) => {
                self.blanks.clear();
                self.state.advance_over_calls(found.fenced);
                pieces.extend(found.calls.into_iter().map(|it| Piece::Call {
                    name: it.name,
                    arguments: it.arguments,
                }));
            }
        }
    }

    /// Appends decided text, preceded by the white space that was held back.
    fn append_text(&mut self, text: &str, pieces: &mut Vec<Piece>) {
        if text.is_empty() {
            return;
        }
        let mut shown = std::mem::take(&mut self.blanks);
        shown.push_str(text);
        match pieces.last_mut() {
            Some(Piece::Text(before)) => before.push_str(&shown),
            _ => pieces.push(Piece::Text(shown)),
        }
    }

    /// Returns the unreadable call that was certainly meant here, if any. The text that was parsed in vain contains no further
    /// one.
    fn unreadable(&mut self, rest: &str, reached: usize, is_whole: bool) -> Option<UnreadableCall> {
        if self.state.is_quoted()
            || self.state.quiet.is_some()
            || self.decided < self.unreadable_until
        {
            return None;
        }
        let knows = |name: &str| self.tools.knows(name);
        let unreadable = unreadable::parse_unreadable_call(
            &rest[..reached],
            self.format.as_deref(),
            knows,
            is_whole,
        )?;
        self.unreadable_until = self.decided + reached;
        Some(unreadable)
    }

    /// Decides on the beginning of `rest`.
    fn next(&mut self, rest: &str) -> ExtractionStep {
        let Some(first) = rest.chars().next() else {
            return ExtractionStep::Undecided;
        };
        if let Some(ends) = self.state.quiet {
            match self.quiet(rest, ends) {
                // The token that ends the section may also begin a form.
                ExtractionStep::Text(0) => self.state.quiet = None,
                next => return next,
            }
        }
        if self.state.after_call {
            let blanks = rest.len() - rest.trim_start().len();
            if blanks > 0 {
                return ExtractionStep::Passed(blanks, PassedText::Blanks);
            }
            match self.parse_closing(rest) {
                Ok(bytes) => return ExtractionStep::Passed(bytes, PassedText::Closing),
                Err(ParseStop::Incomplete) => return ExtractionStep::Undecided,
                Err(ParseStop::No) => {}
            }
        }
        if !self.may_start(first) {
            return ExtractionStep::Text(self.plain(rest));
        }
        match self.opened_quiet(rest) {
            Ok(bytes) => return ExtractionStep::Text(bytes),
            Err(ParseStop::Incomplete) => return ExtractionStep::Undecided,
            Err(ParseStop::No) => {}
        }
        self.parse_form(rest, first)
    }

    /// Returns the text of a section without calls, up to a token that ends or may end the section.
    fn quiet(&self, rest: &str, ends: &[&str]) -> ExtractionStep {
        for (at, _) in rest.char_indices() {
            let mut cursor = Cursor::new(&rest[at..], &self.steps);
            match cursor.any_of(ends) {
                Err(ParseStop::No) => {}
                Err(ParseStop::Incomplete) if at == 0 => return ExtractionStep::Undecided,
                Ok(_) | Err(ParseStop::Incomplete) => return ExtractionStep::Text(at),
            }
        }
        ExtractionStep::Text(rest.len())
    }

    fn opened_quiet(&mut self, rest: &str) -> ParseResult<usize> {
        if self.state.is_quoted() {
            return Err(ParseStop::No);
        }
        for (open, ends) in QUIET {
            let mut cursor = Cursor::new(rest, &self.steps);
            if cursor.optional(open)? {
                self.state.quiet = Some(ends);
                return Ok(open.len());
            }
        }
        Err(ParseStop::No)
    }

    /// Parses a token that closes a call.
    fn parse_closing(&mut self, rest: &str) -> ParseResult<usize> {
        let mut cursor = Cursor::new(rest, &self.steps);
        if self.state.fence == Fence::Dropped && cursor.optional("```")? {
            self.state.fence = Fence::None;
            return Ok(3);
        }
        for (token, is_ending) in self.format.iter().flat_map(|it| it.tokens_after()) {
            if cursor.optional(token)? {
                if is_ending {
                    self.state.end_series();
                }
                return Ok(token.len());
            }
        }
        cursor.any_of(&CLOSINGS).map(str::len)
    }

    fn may_start(&self, first: char) -> bool {
        // A line may begin with a tool name.
        self.starts.contains(first) || (self.state.line_start && is_in_name(first))
    }

    /// Returns the length of the text in which no form can begin.
    fn plain(&self, rest: &str) -> usize {
        let begins = |c: char| c == '\n' || self.starts.contains(c);
        let mut chars = rest.char_indices();
        match chars.next() {
            Some((_, first)) if first == '\n' || self.state.line_start => first.len_utf8(),
            _ => chars.find(|it| begins(it.1)).map_or(rest.len(), |it| it.0),
        }
    }

    /// Parses a form that may begin here.
    fn parse_form(&mut self, rest: &str, first: char) -> ExtractionStep {
        let mut window = MAX_CALL.min(rest.len());
        while !rest.is_char_boundary(window) {
            window -= 1;
        }
        let reading = FormReader {
            forms: &self.forms,
            tools: &self.tools,
            quoted: self.state.is_quoted(),
            announced: self.state.is_announced(),
        };
        let mut cursor = Cursor::new(&rest[..window], &self.steps);
        let admitted = |form: &Form| {
            self.state.admits(form.place) && (form.starts.is_empty() || form.starts.contains(first))
        };
        let mut of_format = cursor.clone();
        let learned = match &self.format {
            Some(format) => format.parse_call(&mut of_format, &reading, &self.state),
            None => Err(ParseStop::No),
        };
        let found = match learned {
            Err(ParseStop::No) => reading.any_form(&mut cursor, admitted),
            decided => {
                cursor = of_format.clone();
                decided
            }
        };
        let reached = match found {
            Ok(found) if found.calls.is_empty() => {
                let length = cursor.at();
                return match self.unreadable(&rest[..length], length, false) {
                    Some(unreadable) => ExtractionStep::Unreadable(length, unreadable),
                    None => ExtractionStep::Text(length),
                };
            }
            Ok(found) => return ExtractionStep::Passed(cursor.at(), PassedText::Found(found)),
            Err(ParseStop::Incomplete) if window == rest.len() => return ExtractionStep::Undecided,
            Err(ParseStop::Incomplete) => window,
            Err(ParseStop::No) => cursor.at().max(of_format.at()),
        };
        if let Some(unreadable) = self.unreadable(&rest[..window], reached, false) {
            return ExtractionStep::Unreadable(first.len_utf8(), unreadable);
        }
        // Another form may begin inside the text of the failed form, but the number of repetitions is limited.
        self.failed += reached;
        if self.failed > AGAIN_FREE + self.decided * AGAIN_PER_BYTE {
            ExtractionStep::Text(reached.max(first.len_utf8()))
        } else {
            ExtractionStep::Text(first.len_utf8())
        }
    }
}
