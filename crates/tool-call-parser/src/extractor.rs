//! Takes what a model writes, piece by piece, and parts it into text and calls.
//!
//! ```text
//!  push ─▶ pending ──▶ at each place where a form may begin, read it:
//!                        a whole call   ─▶ Call, then closing tokens and blanks are passed over
//!                        not so         ─▶ one character of Text, and on
//!                        not so far     ─▶ wait for more; at the end of all: Text
//! ```
//!
//! What comes out depends on the text alone, not on how it was cut (see [`super::cursor`]); only *when* it comes
//! out does. Work is linear: reading an unfinished form again is paid from what came in since, and forms that end in
//! nothing may be read again from inside only so often.

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

/// A call longer than this is none. Bounds what is held back.
const MAX_CALL: usize = 256 * 1024;

/// How much may be read again for each byte, and what is free.
const AGAIN_PER_BYTE: usize = 8;
const AGAIN_FREE: usize = 64 * 1024;

/// Parts a model's text into text and calls.
#[derive(Debug)]
pub struct Extractor {
    /// What was learned from the model's own template. It is tried first.
    format: Option<Arc<CallFormat>>,
    forms: Vec<&'static Form>,
    /// What a form can begin with, or where none is looked for.
    starts: String,
    tools: ToolSchemas,
    /// Not yet decided.
    pending: String,
    /// White space after a call: dropped if nothing but calls or the end follows.
    blanks: String,
    state: ParserState,
    /// What may be spent on reading unfinished forms again.
    waiting: usize,
    /// Where the last call that cannot be read ends, in bytes decided on.
    unreadable_until: usize,
    /// Bytes decided on, and bytes of forms that ended in nothing.
    decided: usize,
    failed: usize,
    /// Bytes read, in all.
    steps: Cell<usize>,
}

/// The next step through the text.
enum ExtractionStep {
    /// So many bytes of text.
    Text(usize),
    /// So many bytes that are none.
    Passed(usize, PassedText),
    /// So many bytes of text, with which a call begins that cannot be read.
    Unreadable(usize, UnreadableCall),
    /// Only more text can tell.
    Undecided,
}

enum PassedText {
    /// White space after a call.
    Blanks,
    /// A token that closes a call.
    Closing,
    /// Calls.
    Found(FoundCalls),
}

impl Extractor {
    /// For what a model writes that has this syntax and may call these functions.
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
            tools: ToolSchemas::of(functions),
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

    /// Takes more text; gives what is decided by it.
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

    /// The text has ended. What is still undecided is text: half a call is none.
    pub fn finish(mut self) -> Vec<Piece> {
        let mut pieces = self.decide();
        let rest = std::mem::take(&mut self.pending);
        if let Some(unreadable) = self.unreadable(&rest, rest.len(), true) {
            pieces.push(Piece::Unreadable(unreadable));
        }
        self.show(&rest, &mut pieces);
        pieces
    }

    /// Bytes read so far, again and again ones included.
    #[cfg(test)]
    pub(super) fn steps(&self) -> usize {
        self.steps.get()
    }

    /// Bytes held back until more is known.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
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
                    self.state.note(&pending[at..at + bytes]);
                    bytes
                }
                ExtractionStep::Unreadable(bytes, unreadable) => {
                    self.show(&pending[shown..at], &mut pieces);
                    shown = at;
                    pieces.push(Piece::Unreadable(unreadable));
                    self.state.note(&pending[at..at + bytes]);
                    bytes
                }
                ExtractionStep::Passed(bytes, passed) => {
                    self.show(&pending[shown..at], &mut pieces);
                    shown = at + bytes;
                    self.pass(&pending[at..shown], passed, &mut pieces);
                    bytes
                }
            };
            self.decided += bytes;
            at += bytes;
        }
        self.show(&pending[shown..at], &mut pieces);
        pending.drain(..at);
        self.pending = pending;
        pieces
    }

    /// What is no text.
    fn pass(&mut self, stretch: &str, passed: PassedText, pieces: &mut Vec<Piece>) {
        match passed {
            PassedText::Blanks => self.blanks.push_str(stretch),
            PassedText::Closing => self.blanks.clear(),
            PassedText::Found(found) => {
                self.blanks.clear();
                self.state.called(found.fenced);
                pieces.extend(found.calls.into_iter().map(|it| Piece::Call {
                    name: it.name,
                    arguments: it.arguments,
                }));
            }
        }
    }

    /// Text that is decided on, and the blanks before it.
    fn show(&mut self, text: &str, pieces: &mut Vec<Piece>) {
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

    /// The call that surely is meant here and cannot be read. What was read of it in vain holds no other one.
    fn unreadable(&mut self, rest: &str, reached: usize, is_whole: bool) -> Option<UnreadableCall> {
        if self.state.is_quoted()
            || self.state.quiet.is_some()
            || self.decided < self.unreadable_until
        {
            return None;
        }
        let knows = |name: &str| self.tools.knows(name);
        let unreadable =
            unreadable::meant(&rest[..reached], self.format.as_deref(), knows, is_whole)?;
        self.unreadable_until = self.decided + reached;
        Some(unreadable)
    }

    /// Decides on what begins here.
    fn next(&mut self, rest: &str) -> ExtractionStep {
        let Some(first) = rest.chars().next() else {
            return ExtractionStep::Undecided;
        };
        if let Some(ends) = self.state.quiet {
            match self.quiet(rest, ends) {
                // Their end may begin a form.
                ExtractionStep::Text(0) => self.state.quiet = None,
                next => return next,
            }
        }
        if self.state.after_call {
            let blanks = rest.len() - rest.trim_start().len();
            if blanks > 0 {
                return ExtractionStep::Passed(blanks, PassedText::Blanks);
            }
            match self.closing(rest) {
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
        self.read(rest, first)
    }

    /// Text in which no call is looked for, up to where that ends or may end.
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

    /// A token that closes what called.
    fn closing(&mut self, rest: &str) -> ParseResult<usize> {
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
        // A line may begin with the name of a tool.
        self.starts.contains(first) || (self.state.line_start && is_in_name(first))
    }

    /// The length of the text here in which nothing begins.
    fn plain(&self, rest: &str) -> usize {
        let begins = |c: char| c == '\n' || self.starts.contains(c);
        let mut chars = rest.char_indices();
        match chars.next() {
            Some((_, first)) if first == '\n' || self.state.line_start => first.len_utf8(),
            _ => chars.find(|it| begins(it.1)).map_or(rest.len(), |it| it.0),
        }
    }

    /// Reads a form that may begin here.
    fn read(&mut self, rest: &str, first: char) -> ExtractionStep {
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
            Some(format) => format.read(&mut of_format, &reading, &self.state),
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
        // It may begin anew inside what was read, but not for ever.
        self.failed += reached;
        if self.failed > AGAIN_FREE + self.decided * AGAIN_PER_BYTE {
            ExtractionStep::Text(reached.max(first.len_utf8()))
        } else {
            ExtractionStep::Text(first.len_utf8())
        }
    }
}
