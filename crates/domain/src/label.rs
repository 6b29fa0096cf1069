//! Labels: names that operators give to configured objects.

/// Maximum length of a label, in characters.
const MAX_LABEL: usize = 64;

/// Returns whether `text` consists of 1 to 64 lower-case letters, digits and hyphens.
pub fn is_label(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=MAX_LABEL).contains(&text.len()) && text.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_short_and_plain() {
        assert!(is_label("soc-1") && is_label(&"a".repeat(64)));
        for other in ["", "A", "a b", "a_b", "\u{e4}", &"a".repeat(65)] {
            assert!(!is_label(other), "{other}");
        }
    }
}
