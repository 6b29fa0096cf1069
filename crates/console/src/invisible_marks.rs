//! Invisible characters in pages: every text node of a page shows them as visible marks. The script does the same.
//!
//! Attributes and the contents of text areas remain unchanged, because forms send some of them back. Attributes that
//! people read are marked where they are rendered.

use std::borrow::Cow;

use wardgate_domain::{is_invisible, is_joining, is_pictograph, mark_invisible};

const FIELD: &str = "<textarea";

/// Marks the invisible characters in the text nodes of `html`. The input must come from a template, so that `<` and `>`
/// occur only in tags.
pub(crate) fn mark_text_nodes(html: String) -> String {
    if matches!(mark_invisible(&html), Cow::Borrowed(_)) {
        return html;
    }
    let mut marked = String::with_capacity(html.len() + 256);
    let mut in_field = false;
    let mut rest = html.as_str();
    while let Some(start) = rest.find('<') {
        let (text, tag) = rest.split_at(start);
        let (tag, after) = tag.split_at(tag.find('>').map_or(tag.len(), |end| end + 1));
        push_text(&mut marked, text, in_field);
        marked.push_str(tag);
        in_field = tag.starts_with(FIELD);
        rest = after;
    }
    push_text(&mut marked, rest, in_field);
    marked
}

fn push_text(marked: &mut String, text: &str, in_field: bool) {
    if in_field {
        marked.push_str(text);
    } else {
        marked.push_str(&mark_invisible(text));
    }
}

/// Fills in the character classes in the regular expression of `script`, from the same definition that Rust code uses.
pub(crate) fn with_character_classes(script: &str) -> String {
    script
        .replace("{{INVISIBLE}}", &class(is_invisible))
        .replace("{{PICTOGRAPH}}", &class(is_pictograph))
        .replace("{{JOINING}}", &class(is_joining))
}

/// Returns the characters for which `is` holds as the inside of a character class of a JavaScript regular expression
/// with the flag `u`, escaped for a string literal.
fn class(is: fn(char) -> bool) -> String {
    let mut class = String::new();
    let mut range: Option<(char, char)> = None;
    let mut end = |range: Option<(char, char)>| {
        if let Some((first, last)) = range {
            let (first, last) = (u32::from(first), u32::from(last));
            class.push_str(&format!("\\\\u{{{first:x}}}-\\\\u{{{last:x}}}"));
        }
    };
    for c in ('\0'..=char::MAX).filter(|c| is(*c)) {
        range = match range {
            Some((first, last)) if u32::from(last) + 1 == u32::from(c) => Some((first, c)),
            ended => {
                end(ended);
                Some((c, c))
            }
        };
    }
    end(range);
    class
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_nodes_are_marked_and_what_forms_send_back_is_not() {
        let html = "<p title=\"a\u{202e}b\">give \u{202e}drazzah on\u{202c} now</p>\
                    <textarea name=\"x\">a\u{200b}b</textarea><b>c\u{200b}d</b>\u{7f}";
        assert_eq!(
            mark_text_nodes(html.to_owned()),
            "<p title=\"a\u{202e}b\">give ‹U+202E›drazzah on‹U+202C› now</p>\
             <textarea name=\"x\">a\u{200b}b</textarea><b>c‹U+200B›d</b>‹U+007F›"
        );
    }

    #[test]
    fn the_script_gets_every_class() {
        let script = with_character_classes("{{INVISIBLE}} {{PICTOGRAPH}} {{JOINING}}");
        for range in [
            r"\\u{0}-\\u{8}",
            r"\\u{2028}-\\u{202e}",
            r"-\\u{e0fff}",
            r"\\u{1f000}-\\u{1faff}",
            r"\\u{a9}-\\u{a9}",
        ] {
            assert!(script.contains(range), "{range}: {script}");
        }
        assert!(!script.contains("{{"), "{script}");
    }
}
