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

use super::cursor::{Cursor, Parsed, Stop, is_in_name};
use super::reading::{Form, Found, Place, Reading};
use super::tools::Tools;
use super::{Family, Piece};
use crate::model::Function;

/// A call longer than this is none. Bounds what is held back.
const MAX_CALL: usize = 256 * 1024;

/// How much may be read again for each byte, and what is free.
const AGAIN_PER_BYTE: usize = 16;
const AGAIN_FREE: usize = 64 * 1024;

/// Thoughts: no call is looked for before one of the words that end them.
const THOUGHTS: [(&str, &[&str]); 8] = [
    ("<think>", &["</think>"]),
    ("<thinking>", &["</thinking>"]),
    ("<reasoning>", &["</reasoning>"]),
    ("<seed:think>", &["</seed:think>"]),
    ("[THINK]", &["[/THINK]"]),
    ("<|START_THINKING|>", &["<|END_THINKING|>"]),
    ("◁think▷", &["◁/think▷"]),
    (
        "<|channel|>analysis<|message|>",
        &["<|end|>", "<|start|>", "<|return|>", "<|call|>"],
    ),
];

/// What follows a call and belongs to it. It needs not be there: servers cut at such tokens.
const CLOSINGS: [&str; 42] = [
    "</tool_call>",
    "</tool_calls>",
    "</function_call>",
    "</function_calls>",
    "</function>",
    "</tools>",
    "</toolcall>",
    "</TOOLCALL>",
    "</minimax:tool_call>",
    "</seed:tool_call>",
    "</longcat_tool_call>",
    "</steptml:tool_calls>",
    "</｜DSML｜function_calls>",
    "</｜DSML｜tool_calls>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "<｜end▁of▁sentence｜>",
    "<｜tool_call_end｜>",
    "<｜tool_calls_end｜>",
    "<|tool_call_end|>",
    "<|tool_calls_section_end|>",
    "<|tool_calls_end|>",
    "<|/tool_call|>",
    "<|/tool_calls|>",
    "<|tools_suffix|>",
    "<|END_ACTION|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|action_end|>",
    "<|python_end|>",
    "<|call|>",
    "<|end|>",
    "<|im_end|>",
    "<|eot|>",
    "</json>",
    "</tool>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<end_function_call>",
    "<end_of_turn>",
    "<tool_call|>",
    ";",
];

/// Parts a model's text into text and calls.
#[derive(Debug)]
pub(crate) struct Extractor {
    forms: Vec<&'static Form>,
    tools: Tools,
    /// Not yet decided.
    pending: String,
    /// White space after a call: dropped if nothing but calls or the end follows.
    blanks: String,
    state: State,
    /// What may be spent on reading unfinished forms again.
    waiting: usize,
    /// Bytes decided on, and bytes of forms that ended in nothing.
    decided: usize,
    failed: usize,
    /// Bytes read, in all.
    steps: Cell<usize>,
}

/// Where the text stands that was decided on.
#[derive(Debug)]
struct State {
    last: Option<char>,
    /// The last character that is not white space.
    last_visible: Option<char>,
    /// Nothing but spaces since the line began.
    line_start: bool,
    /// Backticks that began the line.
    ticks: u8,
    fence: Fence,
    after_call: bool,
    /// In thoughts, which end with one of these.
    thoughts: Option<&'static [&'static str]>,
}

/// Whether the text is in a code fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fence {
    None,
    /// Its opening is text.
    Shown,
    /// Its opening went with a call, and so does its end.
    Dropped,
}

/// What comes next.
enum Next {
    /// So many bytes of text.
    Text(usize),
    /// White space that goes if the calls go on.
    Blanks(usize),
    /// Closing tokens of a call.
    Closing(usize),
    Found(usize, Found),
    /// Only more text can tell.
    Undecided,
}

impl Extractor {
    /// For what a model of this family writes that may call these functions.
    pub(crate) fn new(family: Family, functions: &[Function]) -> Self {
        Self {
            forms: family.forms(),
            tools: Tools::of(functions),
            pending: String::new(),
            blanks: String::new(),
            state: State {
                last: None,
                last_visible: None,
                line_start: true,
                ticks: 0,
                fence: Fence::None,
                after_call: false,
                thoughts: None,
            },
            waiting: AGAIN_FREE,
            decided: 0,
            failed: 0,
            steps: Cell::new(0),
        }
    }

    /// Takes more text; gives what is decided by it.
    pub(crate) fn push(&mut self, text: &str) -> Vec<Piece> {
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
    pub(crate) fn finish(mut self) -> Vec<Piece> {
        let mut pieces = self.decide();
        let rest = std::mem::take(&mut self.pending);
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
        let pending = std::mem::take(&mut self.pending);
        let mut pieces = Vec::new();
        let (mut shown, mut at) = (0, 0);
        while at < pending.len() {
            let passed = match self.next(&pending[at..]) {
                Next::Text(bytes) => {
                    self.state.note(&pending[at..at + bytes]);
                    self.decided += bytes;
                    at += bytes;
                    continue;
                }
                Next::Undecided => break,
                passed => passed,
            };
            self.show(&pending[shown..at], &mut pieces);
            let bytes = match passed {
                Next::Blanks(bytes) => {
                    self.blanks.push_str(&pending[at..at + bytes]);
                    bytes
                }
                Next::Found(bytes, found) => {
                    self.blanks.clear();
                    self.state.called(found.fenced);
                    let calls = found.calls.into_iter();
                    pieces.extend(calls.map(|it| Piece::Call {
                        name: it.name,
                        arguments: it.arguments,
                    }));
                    bytes
                }
                Next::Closing(bytes) | Next::Text(bytes) => {
                    self.blanks.clear();
                    bytes
                }
                Next::Undecided => break,
            };
            self.decided += bytes;
            at += bytes;
            shown = at;
        }
        self.show(&pending[shown..at], &mut pieces);
        self.pending = if at == 0 {
            pending
        } else {
            pending[at..].to_owned()
        };
        pieces
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

    /// Decides on what begins here.
    fn next(&mut self, rest: &str) -> Next {
        let Some(first) = rest.chars().next() else {
            return Next::Undecided;
        };
        if let Some(ends) = self.state.thoughts {
            return self.thoughts(rest, ends);
        }
        if self.state.after_call {
            let blanks = rest.len() - rest.trim_start().len();
            if blanks > 0 {
                return Next::Blanks(blanks);
            }
            match self.closing(rest) {
                Ok(bytes) => return Next::Closing(bytes),
                Err(Stop::Incomplete) => return Next::Undecided,
                Err(Stop::No) => {}
            }
        }
        if !self.may_start(first) {
            return Next::Text(first.len_utf8());
        }
        match self.opened_thoughts(rest) {
            Ok(bytes) => return Next::Text(bytes),
            Err(Stop::Incomplete) => return Next::Undecided,
            Err(Stop::No) => {}
        }
        self.read(rest, first)
    }

    /// Text of thoughts, up to where they end.
    fn thoughts(&mut self, rest: &str, ends: &[&str]) -> Next {
        for (at, _) in rest.char_indices() {
            let mut cursor = Cursor::new(&rest[at..], &self.steps);
            match cursor.any_of(ends) {
                Ok(end) => {
                    self.state.thoughts = None;
                    return Next::Text(at + end.len());
                }
                Err(Stop::Incomplete) if at == 0 => return Next::Undecided,
                Err(Stop::Incomplete) => return Next::Text(at),
                Err(Stop::No) => {}
            }
        }
        Next::Text(rest.len())
    }

    fn opened_thoughts(&mut self, rest: &str) -> Parsed<usize> {
        if self.state.is_quoted() {
            return Err(Stop::No);
        }
        for (open, ends) in THOUGHTS {
            let mut cursor = Cursor::new(rest, &self.steps);
            if cursor.optional(open)? {
                self.state.thoughts = Some(ends);
                return Ok(open.len());
            }
        }
        Err(Stop::No)
    }

    /// A token that closes what called.
    fn closing(&mut self, rest: &str) -> Parsed<usize> {
        let mut cursor = Cursor::new(rest, &self.steps);
        if self.state.fence == Fence::Dropped && cursor.optional("```")? {
            self.state.fence = Fence::None;
            return Ok(3);
        }
        cursor.any_of(&CLOSINGS).map(str::len)
    }

    fn may_start(&self, first: char) -> bool {
        self.forms.iter().any(|form| {
            self.state.admits(form.place) && (form.starts.is_empty() || form.starts.contains(first))
        }) || THOUGHTS.iter().any(|it| it.0.starts_with(first))
    }

    /// Reads a form that may begin here.
    fn read(&mut self, rest: &str, first: char) -> Next {
        let mut window = MAX_CALL.min(rest.len());
        while !rest.is_char_boundary(window) {
            window -= 1;
        }
        let reading = Reading {
            forms: &self.forms,
            tools: &self.tools,
            quoted: self.state.is_quoted(),
            announced: self.state.is_announced(),
        };
        let mut cursor = Cursor::new(&rest[..window], &self.steps);
        let admitted = |form: &Form| {
            self.state.admits(form.place) && (form.starts.is_empty() || form.starts.contains(first))
        };
        let reached = match reading.any_form(&mut cursor, admitted) {
            Ok(found) if found.calls.is_empty() => return Next::Text(cursor.at()),
            Ok(found) => return Next::Found(cursor.at(), found),
            Err(Stop::Incomplete) if window == rest.len() => return Next::Undecided,
            Err(Stop::Incomplete) => window,
            Err(Stop::No) => cursor.at(),
        };
        // It may begin anew inside what was read, but not for ever.
        self.failed += reached;
        if self.failed > AGAIN_FREE + self.decided * AGAIN_PER_BYTE {
            Next::Text(reached.max(first.len_utf8()))
        } else {
            Next::Text(first.len_utf8())
        }
    }
}

impl State {
    fn note(&mut self, text: &str) {
        self.after_call = false;
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
    fn called(&mut self, fenced: bool) {
        self.last = None;
        self.last_visible = None;
        self.line_start = true;
        self.ticks = 0;
        self.after_call = true;
        if fenced && self.fence == Fence::None {
            self.fence = Fence::Dropped;
        }
    }

    fn is_quoted(&self) -> bool {
        self.fence != Fence::None || self.last == Some('`')
    }

    fn is_announced(&self) -> bool {
        self.line_start || self.last_visible == Some(':')
    }

    fn admits(&self, place: Place) -> bool {
        match place {
            Place::Anywhere => true,
            Place::Word => self.last.is_none_or(|it| !is_in_name(it)),
            Place::Line => self.line_start,
        }
    }
}
