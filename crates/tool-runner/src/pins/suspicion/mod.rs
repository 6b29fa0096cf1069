//! What in a tool definition may be meant for the model rather than for people.
//!
//! ```text
//!   every text and name ─┬─ characters   hidden, bidi, control, look-alike letters, walls of white space
//!    of the definition   ├─ markup       comments, tags of prompts, encoded text
//!                        ├─ phrases      orders, secrecy, secrets, sending away, steering
//!                        └─ other tools  names of tools of other sources, next to a word that steers
//! ```
//!
//! A finding is a reason for a person to look, no verdict; and a text without findings may still be
//! poisoned. What protects is that nothing is offered before somebody approved it.

mod markup;
mod phrases;
mod words;

use std::fmt;

use serde::{Serialize, Serializer};
use unicode_security::MixedScript;
use unicode_security::is_potential_mixed_script_confusable_char;
use wardgate_domain::{InvisibleKind, find_invisible};
use wardgate_json::Json;

use super::escape::Escape;
use super::pointer::Pointer;
use words::Word;

/// More findings about one tool add nothing.
const MAX_FINDINGS: usize = 50;

/// Characters shown before and after what was found.
const AROUND: usize = 40;

/// Longer texts hide things by their length alone.
const MAX_TEXT: usize = 8_000;

/// White space that pushes text out of sight.
const MAX_SPACE: usize = 60;

/// Words that make one tool's description speak about the use of another.
const STEERING: [&str; 27] = [
    "instead",
    "before",
    "prior",
    "after",
    "when",
    "whenever",
    "rather",
    "replaces",
    "never",
    "avoid",
    "dont",
    "not",
    "deprecated",
    "must",
    "always",
    "first",
    "unsafe",
    "bug",
    "broken",
    "override",
    "overrides",
    "recipient",
    "change",
    "redirect",
    "via",
    "also",
    "prefer",
];

/// Words around a tool's name that are looked at.
const NEAR: usize = 12;

/// One thing to look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Where in the definition, as a JSON pointer, safe to show.
    pub pointer: String,
    /// What it is.
    pub kind: Kind,
    /// The place, safe to show.
    pub excerpt: String,
}

/// What a text may try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Gives the model orders or sets aside those it has.
    Instruction,
    /// Wants something kept from the user.
    Concealment,
    /// Wants keys, passwords or files that hold them.
    Secret,
    /// Wants data sent somewhere.
    Exfiltration,
    /// Wants a say in when and how other tools are used.
    Steering,
    /// Speaks of a tool of another source.
    OtherTool,
    /// Has characters that do not show.
    HiddenCharacters,
    /// Has characters that turn the order of the text around.
    BidiControls,
    /// Has characters that steer a terminal.
    ControlCharacters,
    /// Has words of letters from several scripts that look alike.
    LookAlikes,
    /// Pushes text out of sight with white space.
    Padding,
    /// Has a comment or an element that a page would not show.
    HiddenMarkup,
    /// Has the marks that separate the parts of a prompt.
    PromptMarkup,
    /// Has text in an encoding that people do not read.
    Encoded,
    /// Is longer than people read.
    TooLong,
}

impl Kind {
    /// The kind in a word or two.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Instruction => "instruction",
            Self::Concealment => "concealment",
            Self::Secret => "secret",
            Self::Exfiltration => "exfiltration",
            Self::Steering => "steering",
            Self::OtherTool => "other_tool",
            Self::HiddenCharacters => "hidden_characters",
            Self::BidiControls => "bidi_controls",
            Self::ControlCharacters => "control_characters",
            Self::LookAlikes => "look_alikes",
            Self::Padding => "padding",
            Self::HiddenMarkup => "hidden_markup",
            Self::PromptMarkup => "prompt_markup",
            Self::Encoded => "encoded",
            Self::TooLong => "too_long",
        }
    }
}

impl Kind {
    /// The kind of a phrase, by its word.
    fn of_phrases(word: &str) -> Option<Self> {
        let kinds = [
            Self::Instruction,
            Self::Concealment,
            Self::Secret,
            Self::Exfiltration,
            Self::Steering,
        ];
        kinds.into_iter().find(|kind| kind.as_str() == word)
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pointer,
            kind,
            excerpt,
        } = self;
        write!(f, "{pointer}: {} \"{excerpt}\"", kind.as_str())
    }
}

/// Looks through texts and collects what it finds.
pub(crate) struct Scan<'a> {
    /// Names of other sources' tools.
    foreign: &'a [String],
    findings: Vec<Finding>,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(foreign: &'a [String]) -> Self {
        Self {
            foreign,
            findings: Vec::new(),
        }
    }

    /// What was found.
    pub(crate) fn into_findings(self) -> Vec<Finding> {
        self.findings
    }

    /// Everything in `value`.
    pub(crate) fn value(&mut self, at: &Pointer<'_>, value: &Json) {
        match value {
            Json::Text(text) => self.text(at, text),
            Json::List(items) => {
                for (position, item) in items.iter().enumerate() {
                    self.value(&at.item(position), item);
                }
            }
            Json::Object(members) => {
                for (name, value) in members {
                    let at = at.member(name);
                    self.name(&at, name);
                    self.value(&at, value);
                }
            }
            Json::Null | Json::Boolean(_) | Json::Number(_) => {}
        }
    }

    /// The name of a member: of an argument, most of the time.
    pub(crate) fn name(&mut self, at: &Pointer<'_>, name: &str) {
        self.look(at, name, true);
    }

    fn text(&mut self, at: &Pointer<'_>, text: &str) {
        // An icon may be its own picture.
        if text.starts_with("data:image/") && !text.contains(char::is_whitespace) {
            return;
        }
        self.look(at, text, false);
    }

    fn look(&mut self, at: &Pointer<'_>, text: &str, is_name: bool) {
        self.characters(at, text);
        self.padding(at, text);
        if text.chars().count() > MAX_TEXT {
            self.add(at, Kind::TooLong, text, 0, 0);
        }
        for (kind, start, end) in markup::find(text) {
            self.add(at, kind, text, start, end);
        }
        let words = words::spelled_out(words::words(text, is_name));
        for (kind, first, last) in phrases::find(&words, is_name) {
            self.add(at, kind, text, words[first].start, words[last].end);
        }
        if let Some(word) = words
            .iter()
            .find(|word| is_mixed(&text[word.start..word.end]))
        {
            self.add(at, Kind::LookAlikes, text, word.start, word.end);
        }
        if !is_name {
            self.other_tools(at, text, &words);
        }
    }

    fn characters(&mut self, at: &Pointer<'_>, text: &str) {
        let mut seen = Vec::new();
        for found in find_invisible(text) {
            if seen.contains(&found.kind) {
                continue;
            }
            seen.push(found.kind);
            let kind = match found.kind {
                InvisibleKind::Hidden => Kind::HiddenCharacters,
                InvisibleKind::Bidi => Kind::BidiControls,
                InvisibleKind::Control => Kind::ControlCharacters,
            };
            self.add(at, kind, text, found.offset, found.offset);
        }
    }

    fn padding(&mut self, at: &Pointer<'_>, text: &str) {
        let mut run = 0;
        for (end, character) in text.char_indices() {
            if !character.is_whitespace() {
                run = 0;
                continue;
            }
            // A line end moves text further out of sight than a space.
            run += if character == '\n' { 6 } else { 1 };
            if run > MAX_SPACE {
                return self.add(at, Kind::Padding, text, end, end);
            }
        }
    }

    /// A name of another source's tool, near a word that steers. A name that is an everyday word counts
    /// only where the text calls it a tool or marks it as code.
    fn other_tools(&mut self, at: &Pointer<'_>, text: &str, words: &[Word]) {
        for name in self.foreign {
            let Some(place) = text
                .match_indices(name.as_str())
                .map(|(at, _)| at)
                .find(|&start| {
                    stands_alone(text, start, start + name.len()) && is_meant(text, start, name)
                })
            else {
                continue;
            };
            let first = words.partition_point(|word| word.end <= place);
            let near = words.iter().skip(first.saturating_sub(NEAR)).take(2 * NEAR);
            if near
                .into_iter()
                .any(|word| STEERING.contains(&word.folded.as_str()))
            {
                return self.add(at, Kind::OtherTool, text, place, place + name.len());
            }
        }
    }

    fn add(&mut self, at: &Pointer<'_>, kind: Kind, text: &str, start: usize, end: usize) {
        if self.findings.len() == MAX_FINDINGS {
            return;
        }
        let start = text[..start]
            .char_indices()
            .rev()
            .nth(AROUND - 1)
            .map_or(0, |(at, _)| at);
        let end = text[end..]
            .char_indices()
            .nth(AROUND)
            .map_or(text.len(), |(at, _)| end + at);
        self.findings.push(Finding {
            pointer: Escape::short(&at.to_string()).to_string(),
            kind,
            excerpt: Escape::short(&text[start..end]).to_string(),
        });
    }
}

/// True for a word of several scripts with a letter that looks like one of another script.
fn is_mixed(word: &str) -> bool {
    !word.is_ascii()
        && !word.is_single_script()
        && word.chars().any(is_potential_mixed_script_confusable_char)
}

fn stands_alone(text: &str, start: usize, end: usize) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    !text[..start].chars().next_back().is_some_and(part_of_name)
        && !text[end..].chars().next().is_some_and(part_of_name)
}

fn is_meant(text: &str, start: usize, name: &str) -> bool {
    let (before, after) = (&text[..start], &text[start + name.len()..]);
    name.contains(['_', '-', '.'])
        || before.ends_with(['`', '\'', '"'])
        || before.trim_end().ends_with("tool")
        || after
            .trim_start_matches(['`', '\'', '"', ' '])
            .starts_with("tool")
}
