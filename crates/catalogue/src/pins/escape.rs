//! Escaping of text from an upstream for display.

use std::fmt::{self, Write as _};

use wardgate_domain::is_invisible;

/// Maximum number of characters of a text that a report shows.
const SHORT: usize = 160;

/// Displays a text so that it can neither control nor deceive a terminal or a log: invisible characters become `\u{…}`,
/// line ends and tabs become `\n`, `\r` and `\t`, and long texts are truncated.
pub struct EscapedText<'a> {
    text: &'a str,
    longest: usize,
}

impl<'a> EscapedText<'a> {
    /// Creates a display of the text that is truncated to [`SHORT`] characters.
    pub(crate) fn short(text: &'a str) -> Self {
        Self {
            text,
            longest: SHORT,
        }
    }

    /// Creates a display of the whole text.
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
