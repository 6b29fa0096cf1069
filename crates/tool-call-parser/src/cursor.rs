//! Reads what a model wrote from left to right, and tells "not so" from "not so far".
//!
//! Everything that reads calls is built of these few moves. None of them ever looks at where the text ends other
//! than to say [`ParseStop::Incomplete`]; so an answer, once given, stays the same however the text goes on. That is why
//! it does not matter how a stream was cut into pieces.

use std::cell::Cell;

/// Why reading stopped before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParseStop {
    /// The text ends here; more of it may decide.
    Incomplete,
    /// It is something else, whatever follows.
    No,
}

/// What was read, or why nothing was.
pub(super) type ParseResult<T> = Result<T, ParseStop>;

/// A place in a text.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    /// Bytes read so far by this cursor and its clones, again and again ones included.
    steps: &'a Cell<usize>,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str, steps: &'a Cell<usize>) -> Self {
        Self { text, at: 0, steps }
    }

    /// Bytes from the start.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// What is left, as far as it is known.
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// So many bytes, which are known to be there.
    pub(super) fn take(&mut self, bytes: usize) {
        self.advance(bytes);
    }

    fn advance(&mut self, bytes: usize) {
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

    /// Exactly this.
    pub(super) fn literal(&mut self, literal: &str) -> ParseResult<()> {
        if self.optional(literal)? {
            Ok(())
        } else {
            Err(ParseStop::No)
        }
    }

    /// This, if it is next.
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

    /// The first of these that is next. A literal that another one starts with comes after it.
    pub(super) fn any_of<'l>(&mut self, literals: &[&'l str]) -> ParseResult<&'l str> {
        for literal in literals {
            if self.optional(literal)? {
                return Ok(literal);
            }
        }
        Err(ParseStop::No)
    }

    /// White space, line ends included.
    pub(super) fn blanks(&mut self) {
        self.take_while(char::is_whitespace);
    }

    /// White space of one line.
    pub(super) fn spaces(&mut self) {
        self.take_while(|c| matches!(c, ' ' | '\t' | '\u{a0}'));
    }

    /// The end of a line, after spaces, and blanks after it.
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

    /// All of such characters.
    pub(super) fn skip(&mut self, matches: impl Fn(char) -> bool) {
        self.take_while(matches);
    }

    fn take_while(&mut self, matches: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !matches(c)).unwrap_or(rest.len());
        self.advance(end);
        &rest[..end]
    }

    /// At least one such character, and the one that ends them is known.
    pub(super) fn run_of(&mut self, matches: impl Fn(char) -> bool) -> ParseResult<&'a str> {
        let run = self.take_while(matches);
        self.peek()?;
        if run.is_empty() {
            Err(ParseStop::No)
        } else {
            Ok(run)
        }
    }

    /// The name of a tool: letters, digits and `_ - . / :`.
    pub(super) fn name(&mut self) -> ParseResult<&'a str> {
        self.run_of(is_in_name)
    }

    /// Everything before the first of these, which is consumed, and which one it was. They all start with the same
    /// character.
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

    /// Moves back over a literal that was just read.
    pub(super) fn back(&mut self, literal: &str) {
        self.at -= literal.len();
    }

    /// Whether the text ends here. Only for whole texts: in a stream it may go on.
    pub(super) fn is_done(&self) -> bool {
        self.rest().is_empty()
    }
}

/// Whether a tool's name may hold this.
pub(super) fn is_in_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':')
}
