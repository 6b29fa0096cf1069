//! The state of the parser: its position in a line, in a code fence, and in sections without calls.

use super::cursor::is_in_name;
use super::reading::StartPosition;

/// The state after the decided text.
#[derive(Debug)]
pub(super) struct ParserState {
    last: Option<char>,
    /// The last character that is not white space.
    last_visible: Option<char>,
    /// Whether only spaces precede the position in its line.
    pub(super) line_start: bool,
    /// The number of backticks at the start of the line.
    ticks: u8,
    pub(super) fence: Fence,
    pub(super) after_call: bool,
    /// Whether the position is after a call and before a token that ends a series of calls.
    continues: bool,
    /// The tokens that end the current section without calls, or `None` outside such sections.
    pub(super) quiet: Option<&'static [&'static str]>,
}

/// Whether the position is in a code fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fence {
    None,
    /// In a fence whose opening is part of the text.
    Shown,
    /// In a fence whose opening was removed together with a call, as its end will be.
    Dropped,
}

impl ParserState {
    /// Creates the state before any text.
    pub(super) fn new() -> Self {
        Self {
            last: None,
            last_visible: None,
            line_start: true,
            ticks: 0,
            fence: Fence::None,
            after_call: false,
            continues: false,
            quiet: None,
        }
    }

    /// Advances the state over `text`.
    pub(super) fn advance_over_text(&mut self, text: &str) {
        self.after_call = false;
        self.continues = false;
        for c in text.chars() {
            match c {
                '\n' => {
                    self.line_start = true;
                    self.ticks = 0;
                }
                ' ' | '\t' | '\r' => self.ticks = 0,
                '`' if self.line_start || self.ticks > 0 => {
                    self.line_start = false;
                    self.ticks += 1;
                    if self.ticks == 3 {
                        self.ticks = 0;
                        self.fence = match self.fence {
                            Fence::None => Fence::Shown,
                            Fence::Shown | Fence::Dropped => Fence::None,
                        };
                    }
                }
                _ => {
                    self.line_start = false;
                    self.ticks = 0;
                }
            }
            if !c.is_whitespace() {
                self.last_visible = Some(c);
            }
            self.last = Some(c);
        }
    }

    /// Advances the state over calls.
    pub(super) fn advance_over_calls(&mut self, fenced: bool) {
        self.last = None;
        self.last_visible = None;
        self.line_start = true;
        self.ticks = 0;
        self.after_call = true;
        self.continues = true;
        if fenced && self.fence == Fence::None {
            self.fence = Fence::Dropped;
        }
    }

    /// Returns whether the position is in a code fence or after a backtick.
    pub(super) fn is_quoted(&self) -> bool {
        self.fence != Fence::None || self.last == Some('`')
    }

    /// Returns whether the position is at the start of a line or after a sentence, a colon or a tag.
    pub(super) fn is_announced(&self) -> bool {
        self.line_start || matches!(self.last_visible, Some(':' | '.' | '!' | '?' | '>'))
    }

    /// Ends the series of calls.
    pub(super) fn end_series(&mut self) {
        self.continues = false;
    }

    /// Returns whether another call may follow without an opening.
    pub(super) fn continues(&self) -> bool {
        self.continues
    }

    /// Returns whether ambiguous characters may open a call here, or, if `has_none`, a name without any opening.
    pub(super) fn admits_signs(&self, has_none: bool) -> bool {
        if has_none {
            self.line_start
        } else {
            self.admits(StartPosition::Word) && self.is_announced()
        }
    }

    pub(super) fn admits(&self, place: StartPosition) -> bool {
        match place {
            StartPosition::Anywhere => true,
            StartPosition::Word => self.last.is_none_or(|it| !is_in_name(it)),
            StartPosition::Line => self.line_start,
        }
    }
}
