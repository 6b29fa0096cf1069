//! Characters that a person does not see, or that make a person see something else than what is there.
//!
//! ```text
//!  untrusted text ─▶ find_invisible ─┬─▶ mark_invisible          for pages and terminals: ‹U+202E›
//!                                    ├─▶ escape_invisible_json   for JSON on a terminal: \u202e, the same value
//!                                    └─▶ the review of tool definitions
//! ```
//!
//! This is the only definition of such characters. It covers Unicode's category Cf as far as it has no
//! glyph, the default ignorable code points (UAX #44, `Default_Ignorable_Code_Point`), the bidirectional
//! controls of UAX #9, the C0 and C1 controls, line and paragraph separators, characters that are blank
//! without being white space, noncharacters, and private use.
//!
//! Some of these belong to ordinary writing where they stand: the variation selector and the joiner of an
//! emoji sequence (UTS #51), a joiner between two letters of a cursive or Indic script, and the carriage
//! return before a line feed. [`find_invisible`] and everything built on it leave those alone.

use std::borrow::Cow;

/// What an invisible character does to the text around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvisibleKind {
    /// Takes no room or shows nothing: zero-width, fillers, tags, variation selectors, private use.
    Hidden,
    /// Changes the order in which the text around it is shown.
    Bidi,
    /// Steers a terminal, or has no meaning in a text.
    Control,
}

/// An invisible character and its place in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvisibleCharacter {
    /// Byte offset in the text.
    pub offset: usize,
    /// The character.
    pub character: char,
    /// What it does.
    pub kind: InvisibleKind,
}

/// The kind of `c` where it is invisible. Line feed and tab are not.
pub fn invisible_kind(c: char) -> Option<InvisibleKind> {
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
        // The private planes.
        | '\u{f0000}'..='\u{10ffff}' => Some(InvisibleKind::Hidden),
        // The last two code points of every plane are noncharacters.
        c if u32::from(c) & 0xfffe == 0xfffe => Some(InvisibleKind::Hidden),
        _ => None,
    }
}

/// True for a character that a person does not see, or that changes what a person sees of its neighbours.
/// Line feed and tab are not.
pub fn is_invisible(c: char) -> bool {
    invisible_kind(c).is_some()
}

/// The invisible characters of `text`, without those that belong to ordinary writing where they stand.
pub fn find_invisible(text: &str) -> impl Iterator<Item = InvisibleCharacter> {
    let (mut earlier, mut previous) = (None, None);
    text.char_indices().filter_map(move |(offset, character)| {
        let before = (earlier, previous);
        (earlier, previous) = (previous, Some(character));
        let kind = invisible_kind(character)?;
        let next = || text[offset + character.len_utf8()..].chars().next();
        let found = InvisibleCharacter {
            offset,
            character,
            kind,
        };
        (!belongs(before, character, next)).then_some(found)
    })
}

/// `text` with every invisible character replaced by a visible mark such as `‹U+202E›`. Line feeds and tabs
/// stay.
pub fn mark_invisible(text: &str) -> Cow<'_, str> {
    replace_invisible(text, |marked, found| {
        marked.push_str(&format!("‹U+{:04X}›", u32::from(found.character)));
    })
}

/// `text` without its invisible characters. Line feeds and tabs stay.
pub fn remove_invisible(text: &str) -> Cow<'_, str> {
    replace_invisible(text, |_, _| {})
}

/// `json`, which is valid JSON, with every invisible character of its strings as a `\u` escape: the same
/// value, and a terminal neither obeys nor hides any of it.
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

/// Whether `character` belongs to ordinary writing after the two characters before it and before what
/// `next` gives.
fn belongs(
    (earlier, previous): (Option<char>, Option<char>),
    character: char,
    next: impl Fn() -> Option<char>,
) -> bool {
    let is = |of: Option<char>, class: fn(char) -> bool| of.is_some_and(class);
    match character {
        '\r' => next() == Some('\n'),
        // The coloured or the plain form of what stands before it; a keycap has a digit there.
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

/// True for a character that emoji sequences are made of (UTS #51), and for some symbols beside them.
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

/// True for a letter or mark of a script whose letters join: Arabic, Syriac, N'Ko, Mongolian, and the
/// scripts of South Asia, where a joiner changes the shape of its neighbours and is seen by that.
pub fn is_joining(c: char) -> bool {
    (c.is_alphabetic() || is_virama(c))
        && matches!(
            c,
            '\u{620}'..='\u{7ff}' | '\u{840}'..='\u{dff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{18af}'
        )
}

/// The signs that take a vowel away, before which and after which Indic scripts write joiners.
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
