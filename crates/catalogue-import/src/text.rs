//! Conversion of imported texts: names that every client accepts, and descriptions without invisible characters.

use std::collections::HashSet;

use wardgate_domain::remove_invisible;

/// Maximum length of a name. Clients truncate or reject longer names.
const MAX_NAME: usize = 64;

/// A set of names in which each name is assigned once.
#[derive(Debug, Default)]
pub(super) struct UniqueNames(HashSet<String>);

impl UniqueNames {
    /// Creates a set in which the `reserved` names are never assigned.
    pub(super) fn without(reserved: &[&str]) -> Self {
        Self(reserved.iter().map(|&name| name.to_owned()).collect())
    }

    /// Returns `wanted`, which must be ASCII, with a number appended if it is already assigned.
    pub(super) fn unique(&mut self, wanted: &str) -> String {
        let mut name = cut(wanted, MAX_NAME).to_owned();
        let mut number = 2;
        while !self.0.insert(name.clone()) {
            let suffix = format!("_{number}");
            name = format!("{}{suffix}", cut(wanted, MAX_NAME - suffix.len()));
            number += 1;
        }
        name
    }
}

/// Reduces `text` to letters, digits, `_` and `-`. Returns `otherwise` if nothing is left.
pub(super) fn name(text: &str, otherwise: &str) -> String {
    with_only(text, otherwise, |c| {
        c.is_ascii_alphanumeric() || c == '_' || c == '-'
    })
}

/// Converts `text` to an identifier of letters, digits and `_` that does not begin with a digit. Returns `otherwise` if
/// nothing is left.
pub(super) fn identifier(text: &str, otherwise: &str) -> String {
    let name = with_only(text, otherwise, |c| c.is_ascii_alphanumeric() || c == '_');
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        return format!("_{name}");
    }
    name
}

/// Converts `text` to the name of an environment variable.
pub(super) fn variable(text: &str) -> String {
    identifier(text, "secret").to_ascii_uppercase()
}

fn with_only(text: &str, otherwise: &str, is_kept: impl Fn(char) -> bool) -> String {
    let mut name = String::new();
    for c in text.chars() {
        if is_kept(c) {
            name.push(c);
        } else if !name.is_empty() && !name.ends_with('_') {
            name.push('_');
        }
    }
    match name.trim_end_matches('_') {
        "" => otherwise.to_owned(),
        // A trailing `_` of the original text is kept.
        trimmed if text.ends_with('_') => format!("{trimmed}_"),
        trimmed => trimmed.to_owned(),
    }
}

/// Truncates `text` to at most `most` bytes.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// A description for people and models.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Description {
    pub(super) text: String,
    /// Whether invisible characters were removed.
    pub(super) had_hidden: bool,
    pub(super) is_cut: bool,
}

impl Description {
    /// Cleans `text`: removes invisible characters and trailing blanks, merges consecutive blank lines, and truncates the
    /// text to `most` characters.
    pub(super) fn from_text(text: &str, most: usize) -> Self {
        let text = text.replace("\r\n", "\n").replace(['\r', '\t'], " ");
        let visible = remove_invisible(&text);
        let mut clean = String::new();
        let mut blank_lines = 0;
        for line in visible.lines() {
            let line = line.trim_end();
            blank_lines = if line.is_empty() { blank_lines + 1 } else { 0 };
            if blank_lines < 2 {
                clean.push_str(line);
                clean.push('\n');
            }
        }
        let clean = clean.trim();
        let end = clean.char_indices().nth(most).map(|(end, _)| end);
        Self {
            text: match end {
                None => clean.to_owned(),
                Some(end) => format!("{}…", clean[..end].trim_end()),
            },
            had_hidden: visible.len() < text.len(),
            is_cut: end.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_becomes_a_name_that_clients_accept() {
        for (text, wanted) in [
            ("listPets", "listPets"),
            ("repos/list-for-org", "repos_list-for-org"),
            ("a..b", "a_b"),
            ("_private_", "_private_"),
            ("{id}", "id"),
            ("検索", "otherwise"),
            ("", "otherwise"),
            ("a\n\u{202e}b", "a_b"),
        ] {
            assert_eq!(name(text, "otherwise"), wanted, "{text:?}");
        }
        assert_eq!(identifier("page-size", "x"), "page_size");
        assert_eq!(identifier("2nd", "x"), "_2nd");
        assert_eq!(variable("my api-key"), "MY_API_KEY");
    }

    #[test]
    fn names_that_collide_are_numbered_and_stay_short() {
        let mut names = UniqueNames::without(&["row_rule"]);
        let long = "x".repeat(80);
        let given: Vec<_> = ["a", "a", "row_rule", long.as_str(), long.as_str()]
            .iter()
            .map(|wanted| names.unique(wanted))
            .collect();
        let (x64, x62) = ("x".repeat(64), "x".repeat(62));
        assert_eq!(given, ["a", "a_2", "row_rule_2", &x64, &format!("{x62}_2")]);
    }

    #[test]
    fn a_description_shows_all_that_it_holds() {
        let text = "One\u{200b} \r\n\n\n\n  two\u{202e}\u{e0041}\u{0}\tthree  ";
        let description = Description::from_text(text, 100);
        assert_eq!(description.text, "One\n\n  two three");
        assert!(description.had_hidden && !description.is_cut);
        let cut = Description::from_text("äöü", 2);
        assert_eq!((cut.text.as_str(), cut.is_cut), ("äö…", true));
    }
}
