//! Detection of characters that a reader does not see, or that change what a reader sees of the text around them.
//!
//! ```text
//!  untrusted text ─▶ find_invisible ─┬─▶ mark_invisible          for pages, terminals and logs: ‹U+202E›
//!                                    ├─▶ escape_invisible_json   for JSON on terminals and in logs: \u202e, the same value
//!                                    └─▶ the review of tool definitions
//! ```
//!
//! This is the only definition of such characters. It covers Unicode's category Cf as far as its characters have no
//! glyph, the default ignorable code points (UAX #44, `Default_Ignorable_Code_Point`), the bidirectional controls of
//! UAX #9, the C0 and C1 controls, line and paragraph separators, characters that are blank without being white space,
//! noncharacters, and private use characters.
//!
//! Some of these are part of ordinary text in certain positions: the variation selector and the joiner of an emoji
//! sequence (UTS #51), a joiner between two letters of a cursive or Indic script, and the carriage return before a line
//! feed. [`find_invisible`] and the functions built on it ignore such occurrences.

use std::borrow::Cow;

/// The effect of an invisible character on the text around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvisibleKind {
    /// The character takes no space or shows nothing: zero-width characters, fillers, tags, variation selectors,
    /// private use.
    Hidden,
    /// The character changes the order in which the text around it is displayed.
    Bidi,
    /// The character controls a terminal, or has no meaning in a text.
    Control,
}

/// An invisible character and its position in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvisibleCharacter {
    /// The byte offset in the text.
    pub offset: usize,
    /// The character.
    pub character: char,
    /// The effect of the character.
    pub kind: InvisibleKind,
}

/// Returns the kind of `c` if it is invisible, or `None` if it is visible, a line feed or a tab.
fn invisible_kind(c: char) -> Option<InvisibleKind> {
    match c {
        '\t' | '\n' => None,
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' => Some(InvisibleKind::Control),
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            Some(InvisibleKind::Bidi)
        }
        '\u{ad}'
        | '\u{34f}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200d}'
        | '\u{2028}'..='\u{2029}'
        | '\u{2060}'..='\u{2065}'
        | '\u{206a}'..='\u{206f}'
        | '\u{2800}'
        | '\u{3164}'
        | '\u{e000}'..='\u{f8ff}'
        | '\u{fdd0}'..='\u{fdef}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{13430}'..='\u{1343f}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        // Tags and supplementary variation selectors.
        | '\u{e0000}'..='\u{e0fff}'
        // Private use planes.
        | '\u{f0000}'..='\u{10ffff}' => Some(InvisibleKind::Hidden),
        // The last two code points of every plane are noncharacters.
        c if u32::from(c) & 0xfffe == 0xfffe => Some(InvisibleKind::Hidden),
        _ => None,
    }
}

/// Returns whether a reader does not see the character, or the character changes how its neighbours are displayed. Line
/// feed and tab do not count as invisible.
pub fn is_invisible(c: char) -> bool {
    invisible_kind(c).is_some()
}

/// Returns the invisible characters of `text`, except those that are part of ordinary text in their position.
pub fn find_invisible(text: &str) -> impl Iterator<Item = InvisibleCharacter> {
    let (mut earlier, mut previous) = (None, None);
    text.char_indices().filter_map(move |(offset, character)| {
        let (second_last, last) = (earlier, previous);
        (earlier, previous) = (previous, Some(character));
        let kind = invisible_kind(character)?;
        let next = || text[offset + character.len_utf8()..].chars().next();
        let found = InvisibleCharacter {
            offset,
            character,
            kind,
        };
        (!belongs(second_last, last, character, next)).then_some(found)
    })
}

/// Replaces every invisible character of `text` by a visible mark such as `‹U+202E›`. Line feeds and tabs are kept.
pub fn mark_invisible(text: &str) -> Cow<'_, str> {
    replace_invisible(text, |marked, found| {
        marked.push_str(&format!("‹U+{:04X}›", u32::from(found.character)));
    })
}

/// Removes the invisible characters of `text`. Line feeds and tabs are kept.
pub fn remove_invisible(text: &str) -> Cow<'_, str> {
    replace_invisible(text, |_, _| {})
}

/// Replaces every invisible character in the strings of `json`, which must be valid JSON, by a `\u` escape. The value
/// stays the same, and a terminal neither executes nor hides any part of it.
pub fn escape_invisible_json(json: &str) -> Cow<'_, str> {
    replace_invisible(json, |escaped, found| {
        if found.character < ' ' {
            // Valid JSON has such a character only between its tokens, where it is white space.
            return escaped.push(' ');
        }
        let mut units = [0; 2];
        for unit in found.character.encode_utf16(&mut units) {
            escaped.push_str(&format!("\\u{unit:04x}"));
        }
    })
}

fn replace_invisible(
    text: &str,
    mut replace: impl FnMut(&mut String, InvisibleCharacter),
) -> Cow<'_, str> {
    if is_visible_ascii(text) {
        return Cow::Borrowed(text);
    }
    let mut found = find_invisible(text).peekable();
    if found.peek().is_none() {
        return Cow::Borrowed(text);
    }
    let mut replaced = String::with_capacity(text.len() + 64);
    let mut rest = 0;
    for invisible in found {
        replaced.push_str(&text[rest..invisible.offset]);
        replace(&mut replaced, invisible);
        rest = invisible.offset + invisible.character.len_utf8();
    }
    replaced.push_str(&text[rest..]);
    Cow::Owned(replaced)
}

/// Returns whether `text` contains nothing but visible ASCII characters, line feeds and tabs. Most texts do, such as lines
/// of logs, and bytes are compared faster than characters are classified.
fn is_visible_ascii(text: &str) -> bool {
    text.bytes()
        .all(|byte| matches!(byte, b'\t' | b'\n' | b' '..=b'~'))
}

/// Returns whether `character` is part of ordinary text after the two characters before it and before the character
/// that `next` returns.
fn belongs(
    earlier: Option<char>,
    previous: Option<char>,
    character: char,
    next: impl Fn() -> Option<char>,
) -> bool {
    let is = |of: Option<char>, class: fn(char) -> bool| of.is_some_and(class);
    match character {
        '\r' => next() == Some('\n'),
        // These select the coloured or plain form of the previous character. In a keycap sequence, that is a digit, `#`
        // or `*`.
        '\u{fe0e}' | '\u{fe0f}' => {
            is(previous, is_pictograph) || (is(previous, is_keycap) && next() == Some('\u{20e3}'))
        }
        '\u{200c}' | '\u{200d}' if is(previous, is_joining) => is(next(), is_joining),
        '\u{200d}' => {
            let selected = previous == Some('\u{fe0f}') && is(earlier, is_pictograph);
            (selected || is(previous, is_pictograph)) && is(next(), is_pictograph)
        }
        _ => false,
    }
}

fn is_keycap(c: char) -> bool {
    matches!(c, '#' | '*' | '0'..='9')
}

/// Returns whether the character can be part of an emoji sequence (UTS #51). Some other symbols are included as well.
pub fn is_pictograph(c: char) -> bool {
    matches!(
        c,
        '\u{a9}'
            | '\u{ae}'
            | '\u{203c}'
            | '\u{2049}'
            | '\u{2100}'..='\u{27bf}'
            | '\u{2900}'..='\u{2bff}'
            | '\u{3030}'..='\u{303d}'
            | '\u{3297}'..='\u{3299}'
            | '\u{1f000}'..='\u{1faff}'
    )
}

/// Returns whether the character is a letter or mark of a script whose letters join: Arabic, Syriac, N'Ko, Mongolian,
/// and the scripts of South Asia. In these, a joiner has a visible effect because it changes the shape of its
/// neighbours.
pub fn is_joining(c: char) -> bool {
    (c.is_alphabetic() || is_virama(c))
        && matches!(
            c,
            '\u{620}'..='\u{7ff}' | '\u{840}'..='\u{dff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{18af}'
        )
}

/// Returns whether the character is a virama, the vowel-killer sign next to which Indic scripts use joiners.
fn is_virama(c: char) -> bool {
    matches!(
        c,
        '\u{94d}'
            | '\u{9cd}'
            | '\u{a4d}'
            | '\u{acd}'
            | '\u{b4d}'
            | '\u{bcd}'
            | '\u{c4d}'
            | '\u{ccd}'
            | '\u{d4d}'
            | '\u{dca}'
            | '\u{1039}'
            | '\u{17d2}'
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_person_does_not_see_is_marked() {
        for (text, marked) in [
            (
                "give \u{202e}drazzah on\u{202c} now",
                "give ‹U+202E›drazzah on‹U+202C› now",
            ),
            (
                "\u{2066}a\u{2069}\u{200e}\u{200f}\u{61c}",
                "‹U+2066›a‹U+2069›‹U+200E›‹U+200F›‹U+061C›",
            ),
            (
                "a\u{200b}\u{feff}\u{2060}\u{ad}b",
                "a‹U+200B›‹U+FEFF›‹U+2060›‹U+00AD›b",
            ),
            ("\u{e0041}\u{e007f}", "‹U+E0041›‹U+E007F›"),
            ("a\u{fe0f}\u{e0100}", "a‹U+FE0F›‹U+E0100›"),
            (
                "\u{1b}[2J\u{9b}2J\u{7f}\u{0}",
                "‹U+001B›[2J‹U+009B›2J‹U+007F›‹U+0000›",
            ),
            (
                "\ta\u{1b}[2J\u{7f}\u{0}\r\r\n",
                "\ta‹U+001B›[2J‹U+007F›‹U+0000›‹U+000D›\r\n",
            ),
            ("a\u{2028}b\u{2029}c\rd", "a‹U+2028›b‹U+2029›c‹U+000D›d"),
            (
                "\u{3164}\u{115f}\u{1160}\u{ffa0}\u{2800}",
                "‹U+3164›‹U+115F›‹U+1160›‹U+FFA0›‹U+2800›",
            ),
            ("1\u{200d}2\u{fe0f}3", "1‹U+200D›2‹U+FE0F›3"),
            (
                "\u{1f600}\u{200d}x \u{200d}\u{1f600}",
                "\u{1f600}‹U+200D›x ‹U+200D›\u{1f600}",
            ),
            ("a\u{200c}b", "a‹U+200C›b"),
            ("\u{1ffff}\u{fdd0}", "‹U+1FFFF›‹U+FDD0›"),
        ] {
            assert_eq!(mark_invisible(text), marked, "{text:?}");
        }
    }

    #[test]
    fn ordinary_writing_stays_as_it_is() {
        for text in [
            "",
            "Two lines,\r\n\tone tab.\n",
            "Bệnh án NUGWI: sốt 38 °C, “ổn định” – 2×500 mg",
            "דוח רפואי، تقرير طبي، 検査結果、ผลตรวจ",
            "❤\u{fe0f} ✔\u{fe0e} 1\u{fe0f}\u{20e3} ©\u{fe0f}",
            "👩\u{200d}⚕\u{fe0f} 🏳\u{fe0f}\u{200d}🌈 👍🏽",
            "می\u{200c}خواهم क्\u{200d}ष ක්\u{200d}ෂ",
            "no\u{a0}break, thin\u{2009}space",
        ] {
            assert!(
                matches!(mark_invisible(text), Cow::Borrowed(same) if same == text),
                "{text:?}"
            );
        }
    }

    #[test]
    fn escaped_json_is_the_same_value_and_shows_all_of_it() {
        let json = "{\"a\u{202e}\":\r\"\u{e0041}\u{9b}\u{1b}\"}".replace('\u{1b}', "\\u001b");
        let escaped = escape_invisible_json(&json);
        assert_eq!(escaped, r#"{"a\u202e": "\udb40\udc41\u009b\u001b"}"#);
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&escaped), value(&json));
    }

    proptest! {
        #[test]
        fn nothing_invisible_is_left_in_what_was_marked(text in "\\PC{0,8}[\\x00-\\u{ff}\\u{2000}-\\u{206f}\\u{fe0e}-\\u{fe0f}a👩]{0,40}") {
            let marked = mark_invisible(&text);
            prop_assert_eq!(find_invisible(&marked).count(), 0);
            prop_assert_eq!(mark_invisible(&marked), marked.as_ref());
            let removed = remove_invisible(&marked);
            prop_assert_eq!(removed, marked.as_ref());
        }

        #[test]
        fn any_string_is_the_same_value_when_its_json_is_escaped(text in any::<String>()) {
            let json = serde_json::to_string(&text).unwrap();
            let escaped = escape_invisible_json(&json);
            prop_assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
            prop_assert_eq!(find_invisible(&escaped).count(), 0);
        }
    }
}
