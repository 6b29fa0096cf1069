//! What is known of the text so far: where its line, its code fence and its thoughts stand.

use super::cursor::is_in_name;
use super::reading::StartPosition;

/// Where the text stands that was decided on.
#[derive(Debug)]
pub(super) struct ParserState {
    last: Option<char>,
    /// The last character that is not white space.
    last_visible: Option<char>,
    /// Nothing but spaces since the line began.
    pub(super) line_start: bool,
    /// Backticks that began the line.
    ticks: u8,
    pub(super) fence: Fence,
    pub(super) after_call: bool,
    /// After a call, and before what ends a series of calls.
    continues: bool,
    /// Where no call is looked for before one of these.
    pub(super) quiet: Option<&'static [&'static str]>,
}

/// Whether the text is in a code fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fence {
    None,
    /// Its opening is text.
    Shown,
    /// Its opening went with a call, and so does its end.
    Dropped,
}

impl ParserState {
    /// Before all text.
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

    /// More text.
    pub(super) fn note(&mut self, text: &str) {
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

    /// Calls were read, up to here.
    pub(super) fn called(&mut self, fenced: bool) {
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

    /// In a code fence, or after a backtick.
    pub(super) fn is_quoted(&self) -> bool {
        self.fence != Fence::None || self.last == Some('`')
    }

    /// First on its line, or after a sentence, a colon or a tag.
    pub(super) fn is_announced(&self) -> bool {
        self.line_start || matches!(self.last_visible, Some(':' | '.' | '!' | '?' | '>'))
    }

    /// The series of calls is over.
    pub(super) fn end_series(&mut self) {
        self.continues = false;
    }

    /// Whether another call may follow without its opening.
    pub(super) fn continues(&self) -> bool {
        self.continues
    }

    /// Whether signs that could mean anything may open a call here, or a name without any signs before it.
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
