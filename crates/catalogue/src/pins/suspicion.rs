//! Detection of characters in a tool definition that mislead its readers.
//!
//! ```text
//!   every text and name ─▶ hidden characters · bidi controls · control characters · look-alike letters of several scripts
//! ```
//!
//! A finding is a reason for a person to look, not a verdict. The protection is that nothing is offered before it is
//! approved.

use std::fmt;

use serde::{Serialize, Serializer};
use unicode_security::MixedScript;
use unicode_security::is_potential_mixed_script_confusable_char;
use wardgate_domain::{InvisibleKind, find_invisible};
use wardgate_json::Json;

use super::escape::EscapedText;
use super::pointer::Pointer;

/// Maximum number of findings about one tool.
const MAX_FINDINGS: usize = 50;

/// Number of characters that an excerpt shows before and after a finding.
const AROUND: usize = 40;

/// One suspicious part of a definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The location in the definition, as a JSON pointer that is safe to display.
    pub pointer: String,
    /// The kind of finding.
    pub kind: SuspicionKind,
    /// An excerpt of the text, safe to display.
    pub excerpt: String,
}

/// The way in which a text misleads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SuspicionKind {
    /// The text has invisible characters.
    HiddenCharacters,
    /// The text has characters that reverse the direction of text.
    BidiControls,
    /// The text has characters that control a terminal.
    ControlCharacters,
    /// The text has words that mix similar letters of several scripts.
    LookAlikes,
}

impl SuspicionKind {
    /// Returns the name of the kind.
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

/// A scan of texts that collects findings.
#[derive(Default)]
pub(crate) struct SuspicionScan {
    findings: Vec<Finding>,
}

impl SuspicionScan {
    /// Returns the findings.
    pub(crate) fn into_findings(self) -> Vec<Finding> {
        self.findings
    }

    /// Scans all names and texts in `value`.
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

    /// Scans a text or the name of a member.
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

/// Returns whether a word mixes scripts and has a letter that looks like a letter of another script.
fn is_mixed(word: &str) -> bool {
    !word.is_ascii()
        && !word.is_single_script()
        && word.chars().any(is_potential_mixed_script_confusable_char)
}

/// Returns every run of letters and digits, with its byte offset.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let parts = text.split(|character: char| !character.is_alphanumeric());
    let start = text.as_ptr().addr();
    parts
        .filter(|part| !part.is_empty())
        .map(move |part| (part.as_ptr().addr() - start, part))
}
