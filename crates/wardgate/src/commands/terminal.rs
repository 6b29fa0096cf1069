//! Escaping of untrusted text for a terminal, which must neither execute control sequences nor display the text as
//! something else.

use std::borrow::Cow;

use serde_json::Value;
use wardgate_domain::mark_invisible;

/// Formats `text` as one cell of a table: unchanged if it is printable ASCII without blanks, `-` if it is empty, and
/// otherwise as a quoted JSON string with its invisible characters marked.
pub(crate) fn cell(text: &str) -> Cow<'_, str> {
    match text {
        "" => Cow::Borrowed("-"),
        text if text.chars().all(|c| c.is_ascii_graphic()) => Cow::Borrowed(text),
        text => Cow::Owned(mark_invisible(&Value::from(text).to_string()).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::cell;

    #[test]
    fn a_cell_is_one_line_and_shows_every_character() {
        for (text, shown) in [
            ("", "-"),
            ("nurse.joy", "nurse.joy"),
            ("Joy Ng", "\"Joy Ng\""),
            ("joy\u{202e}rotcod", "\"joy‹U+202E›rotcod\""),
            ("joy\u{200b}", "\"joy‹U+200B›\""),
            ("a\nb\tc", r#""a\nb\tc""#),
            ("\u{1b}[2J\u{9b}2J", "\"\\u001b[2J‹U+009B›2J\""),
        ] {
            assert_eq!(cell(text), shown);
        }
    }
}
