//! Characters in a tool definition that mislead whoever reads it.
//!
//! ```text
//!   every text and name ─▶ hidden · bidi · control characters · letters of several scripts that look alike
//! ```
//!
//! A finding is a reason for a person to look, no verdict. What protects is that nothing is offered before
//! somebody approved it.

use std::fmt;

use serde::{Serialize, Serializer};
use unicode_security::MixedScript;
use unicode_security::is_potential_mixed_script_confusable_char;
use wardgate_domain::{InvisibleKind, find_invisible};
use wardgate_json::Json;

use super::escape::EscapedText;
use super::pointer::Pointer;

/// More findings about one tool add nothing.
const MAX_FINDINGS: usize = 50;

/// Characters shown before and after what was found.
const AROUND: usize = 40;

/// One thing to look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Where in the definition, as a JSON pointer, safe to show.
    pub pointer: String,
    /// What it is.
    pub kind: SuspicionKind,
    /// The place, safe to show.
    pub excerpt: String,
}

/// How a text misleads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SuspicionKind {
    /// Has characters that do not show.
    HiddenCharacters,
    /// Has characters that turn the order of the text around.
    BidiControls,
    /// Has characters that steer a terminal.
    ControlCharacters,
    /// Has words of letters from several scripts that look alike.
    LookAlikes,
}

impl SuspicionKind {
    /// The kind in a word or two.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HiddenCharacters => "hidden_characters",
            Self::BidiControls => "bidi_controls",
            Self::ControlCharacters => "control_characters",
            Self::LookAlikes => "look_alikes",
        }
    }
}

impl Serialize for SuspicionKind {
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
#[derive(Default)]
pub(crate) struct SuspicionScan {
    findings: Vec<Finding>,
}

impl SuspicionScan {
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
                    self.text(&at, name);
                    self.value(&at, value);
                }
            }
            Json::Null | Json::Boolean(_) | Json::Number(_) => {}
        }
    }

    /// A text, or the name of a member.
    pub(crate) fn text(&mut self, at: &Pointer<'_>, text: &str) {
        self.characters(at, text);
        let mixed = words(text).find(|(_, word)| is_mixed(word));
        if let Some((start, word)) = mixed {
            self.add(
                at,
                SuspicionKind::LookAlikes,
                text,
                start,
                start + word.len(),
            );
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
                InvisibleKind::Hidden => SuspicionKind::HiddenCharacters,
                InvisibleKind::Bidi => SuspicionKind::BidiControls,
                InvisibleKind::Control => SuspicionKind::ControlCharacters,
            };
            self.add(at, kind, text, found.offset, found.offset);
        }
    }

    fn add(&mut self, at: &Pointer<'_>, kind: SuspicionKind, text: &str, start: usize, end: usize) {
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
            pointer: EscapedText::short(&at.to_string()).to_string(),
            kind,
            excerpt: EscapedText::short(&text[start..end]).to_string(),
        });
    }
}

/// True for a word of several scripts with a letter that looks like one of another script.
fn is_mixed(word: &str) -> bool {
    !word.is_ascii()
        && !word.is_single_script()
        && word.chars().any(is_potential_mixed_script_confusable_char)
}

/// Every run of letters and digits with the byte it begins at.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let parts = text.split(|character: char| !character.is_alphanumeric());
    let start = text.as_ptr().addr();
    parts
        .filter(|part| !part.is_empty())
        .map(move |part| (part.as_ptr().addr() - start, part))
}
