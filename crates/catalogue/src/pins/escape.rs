//! Text of an upstream, made safe to show.

use std::fmt::{self, Write as _};

use wardgate_domain::is_invisible;

/// Longest piece that a report shows, in characters.
const SHORT: usize = 160;

/// Shows a text so that a terminal or a log can neither be steered nor deceived by it: what does not show
/// becomes `\u{…}`, line ends and tabs become `\n`, `\r` and `\t`, and what is long is cut.
pub struct EscapedText<'a> {
    text: &'a str,
    longest: usize,
}

impl<'a> EscapedText<'a> {
    /// Cut where it is too long for a line.
    pub(crate) fn short(text: &'a str) -> Self {
        Self {
            text,
            longest: SHORT,
        }
    }

    /// Cut nowhere.
    pub(crate) fn whole(text: &'a str) -> Self {
        Self {
            text,
            longest: usize::MAX,
        }
    }
}

impl fmt::Display for EscapedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, character) in self.text.chars().enumerate() {
            if position == self.longest {
                return f.write_char('…');
            }
            match character {
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                _ if is_invisible(character) => write!(f, "\\u{{{:x}}}", u32::from(character))?,
                _ => f.write_char(character)?,
            }
        }
        Ok(())
    }
}
