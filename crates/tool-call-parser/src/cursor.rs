//! A cursor that parses a model's text from left to right and distinguishes "no match" from "incomplete".
//!
//! All forms are built from the few methods of the cursor. The end of the text affects their results only by
//! [`ParseStop::Incomplete`], so any other result stays the same however the text continues. The results therefore do not depend
//! on how a stream is split into pieces.

use std::cell::Cell;

/// The reason why parsing stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParseStop {
    /// The text ends here, and more text is required for a decision.
    Incomplete,
    /// The text does not match, whatever follows.
    No,
}

/// A parsed value, or the reason why there is none.
pub(super) type ParseResult<T> = Result<T, ParseStop>;

/// Maximum length of a name or key in [`Cursor::longest_run`], in bytes.
const MAX_RUN: usize = 128;

/// A position in a text.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    /// The number of bytes parsed by this cursor and its clones, counting bytes that were parsed repeatedly every time.
    steps: &'a Cell<usize>,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str, steps: &'a Cell<usize>) -> Self {
        Self { text, at: 0, steps }
    }

    /// Returns the number of bytes from the start of the text.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Returns the rest of the text that has arrived so far.
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Advances by `bytes`, which must not exceed the rest of the text.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.at += bytes;
        self.steps.set(self.steps.get() + bytes);
    }

    pub(super) fn peek(&self) -> ParseResult<char> {
        self.rest().chars().next().ok_or(ParseStop::Incomplete)
    }

    pub(super) fn next(&mut self) -> ParseResult<char> {
        let next = self.peek()?;
        self.advance(next.len_utf8());
        Ok(next)
    }

    /// Parses exactly `literal`.
    pub(super) fn literal(&mut self, literal: &str) -> ParseResult<()> {
        if self.optional(literal)? {
            Ok(())
        } else {
            Err(ParseStop::No)
        }
    }

    /// Parses `literal` if it is next, and returns whether it was.
    pub(super) fn optional(&mut self, literal: &str) -> ParseResult<bool> {
        let rest = self.rest();
        if rest.starts_with(literal) {
            self.advance(literal.len());
            Ok(true)
        } else if literal.starts_with(rest) {
            Err(ParseStop::Incomplete)
        } else {
            Ok(false)
        }
    }

    /// Parses the first of `literals` that is next. A literal must precede its own prefixes.
    pub(super) fn any_of<'l>(&mut self, literals: &[&'l str]) -> ParseResult<&'l str> {
        for literal in literals {
            if self.optional(literal)? {
                return Ok(literal);
            }
        }
        Err(ParseStop::No)
    }

    /// Skips white space, including line ends.
    pub(super) fn blanks(&mut self) {
        self.take_while(char::is_whitespace);
    }

    /// Skips white space within a line.
    pub(super) fn spaces(&mut self) {
        self.take_while(|c| matches!(c, ' ' | '\t' | '\u{a0}'));
    }

    /// Parses spaces, a line end, and the white space after it.
    pub(super) fn line_end(&mut self) -> ParseResult<()> {
        self.spaces();
        match self.peek()? {
            '\n' | '\r' => {
                self.blanks();
                Ok(())
            }
            _ => Err(ParseStop::No),
        }
    }

    /// Skips all characters that match.
    pub(super) fn skip(&mut self, matches: impl Fn(char) -> bool) {
        self.take_while(matches);
    }

    fn take_while(&mut self, matches: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !matches(c)).unwrap_or(rest.len());
        self.advance(end);
        &rest[..end]
    }

    /// Parses at least one matching character, up to a character that does not match.
    pub(super) fn run_of(&mut self, matches: impl Fn(char) -> bool) -> ParseResult<&'a str> {
        let run = self.take_while(matches);
        self.peek()?;
        if run.is_empty() {
            Err(ParseStop::No)
        } else {
            Ok(run)
        }
    }

    /// Parses the longest run of matching characters after which `rest` succeeds.
    pub(super) fn longest_run<T>(
        &mut self,
        matches: impl Fn(char) -> bool,
        rest: impl Fn(&mut Self, &str) -> ParseResult<T>,
    ) -> ParseResult<T> {
        let start = self.clone();
        let run = self.run_of(matches)?;
        if run.len() > MAX_RUN {
            return Err(ParseStop::No);
        }
        let ends = run.char_indices().map(|(at, c)| at + c.len_utf8());
        for end in ends.rev() {
            let mut attempt = start.clone();
            attempt.advance(end);
            match rest(&mut attempt, &run[..end]) {
                Err(ParseStop::No) => {}
                decided => {
                    *self = attempt;
                    return decided;
                }
            }
        }
        Err(ParseStop::No)
    }

    /// Parses the name of a tool: letters, digits and `_ - . / :`.
    pub(super) fn name(&mut self) -> ParseResult<&'a str> {
        self.run_of(is_in_name)
    }

    /// Parses everything up to the first of `ends`, which is consumed, and returns it with the end that was found. All `ends`
    /// must start with the same character.
    pub(super) fn until<'l>(&mut self, ends: &[&'l str]) -> ParseResult<(&'a str, &'l str)> {
        let from = self.at;
        let first = ends
            .first()
            .and_then(|end| end.chars().next())
            .ok_or(ParseStop::No)?;
        loop {
            self.take_while(|c| c != first);
            match self.any_of(ends) {
                Ok(end) => return Ok((&self.text[from..self.at - end.len()], end)),
                Err(ParseStop::No) => self.next()?,
                Err(ParseStop::Incomplete) => return Err(ParseStop::Incomplete),
            };
        }
    }

    /// Moves back over a literal that was just parsed.
    pub(super) fn back(&mut self, literal: &str) {
        self.at -= literal.len();
    }

    /// Returns whether the text ends here. Only for complete texts, because a stream may continue.
    pub(super) fn is_done(&self) -> bool {
        self.rest().is_empty()
    }
}

/// Returns whether `c` may occur in a tool name.
pub(super) fn is_in_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':')
}
