//! Extraction of the words of a text for the search.
//!
//! Words are compared without case, accents or compatibility forms: `Đau`, `dau` and `ＤＡＵ` are the same word. There is
//! no stemming: `tooth` does not match `teeth`.

use std::collections::BTreeSet;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;
use unicode_segmentation::UnicodeSegmentation;

use crate::sealing::WordKey;

/// Maximum number of different words that are indexed for one message. Later words of a very long text cannot be found.
const MAX_WORDS: usize = 10_000;

/// Maximum number of characters of a word. The rest of a longer word is ignored.
const MAX_LENGTH: usize = 64;

/// Maximum number of words of a search query.
pub(crate) const MAX_SEARCH_WORDS: usize = 32;

/// Returns the index terms for the words of `text`, each once, at most [`MAX_WORDS`].
pub(crate) fn blind(text: &str, key: &WordKey) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    for word in text.unicode_words() {
        if seen.len() == MAX_WORDS {
            break;
        }
        let word = fold_word(word);
        if !word.is_empty() {
            seen.insert(word);
        }
    }
    seen.iter().map(|word| key.blind(word)).collect()
}

/// Folds a word: decomposes its characters and removes the accents, and replaces the few letters that Unicode does not
/// decompose.
fn fold_word(word: &str) -> String {
    word.nfkd()
        .filter(|character| !is_combining_mark(*character))
        .flat_map(char::to_lowercase)
        // Conversion to lower case can create combining marks again, for example for `İ`.
        .filter(|character| !is_combining_mark(*character))
        .flat_map(|character| {
            let plain = match character {
                'đ' | 'ð' => "d",
                'ø' => "o",
                'ł' => "l",
                'ı' => "i",
                'ß' => "ss",
                'æ' => "ae",
                'œ' => "oe",
                'þ' => "th",
                other => return FoldedChar::Itself(std::iter::once(other)),
            };
            FoldedChar::Letters(plain.chars())
        })
        .take(MAX_LENGTH)
        .collect()
}

/// A character after folding: the character itself, or the letters that replace it.
enum FoldedChar {
    Itself(std::iter::Once<char>),
    Letters(std::str::Chars<'static>),
}

impl Iterator for FoldedChar {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        match self {
            Self::Itself(character) => character.next(),
            Self::Letters(letters) => letters.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::Owner;
    use crate::sealing::MasterKey;

    fn key() -> WordKey {
        MasterKey::from_bytes(&[7; 32]).word_key(&Owner {
            tenant: String::new(),
            issuer: String::new(),
            subject: String::new(),
        })
    }

    #[test]
    fn case_accents_and_forms_make_no_difference() {
        for (one, other) in [
            ("Đau RĂNG", "dau rang"),
            ("ＤＡＵ", "dau"),
            ("İstanbul", "istanbul"),
            ("Straße", "STRASSE"),
            ("e\u{301}tude", "étude"),
            ("ﬁle", "file"),
        ] {
            assert_eq!(blind(one, &key()), blind(other, &key()), "{one}");
        }
        assert_ne!(blind("tooth", &key()), blind("teeth", &key()));
    }

    #[test]
    fn what_is_no_word_is_left_out_and_each_word_counts_once() {
        assert!(blind(" … !? \u{301} ", &key()).is_empty());
        assert_eq!(blind("Tooth, tooth; TOOTH!", &key()).len(), 1);
        assert_eq!(blind("歯が痛い", &key()), blind("痛い 歯 が", &key()));
    }

    #[test]
    fn the_words_of_one_text_are_bounded() {
        let words: Vec<_> = (0..20_000).map(|n| format!("w{n}")).collect();
        assert_eq!(blind(&words.join(" "), &key()).len(), MAX_WORDS);
        let long = "x".repeat(100_000);
        assert_eq!(blind(&long, &key()), blind(&long[..MAX_LENGTH], &key()));
    }
}
