//! A text as words that can be compared, whatever was done to its letters.

use unicode_normalization::UnicodeNormalization;
use unicode_security::skeleton;
use wardgate_domain::is_invisible;

/// A word, folded: lower case, compatibility forms and look-alike letters replaced by their plain ones,
/// apostrophes and characters that do not show left out.
#[derive(Debug)]
pub(super) struct Word {
    pub(super) folded: String,
    /// Bytes of the text it was made from.
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Splits at everything but letters and digits, in a name also before a capital after a small letter. In a
/// text an address is one word.
pub(super) fn words(text: &str, is_name: bool) -> Vec<Word> {
    let mut words = Vec::new();
    let mut start = 0;
    for part in text.split_inclusive(char::is_whitespace) {
        let kind = address(part.trim_end()).filter(|_| !is_name);
        match kind {
            Some(kind) => words.push(Word {
                folded: kind.to_owned(),
                start,
                end: start + part.trim_end().len(),
            }),
            None => split(part, start, is_name, &mut words),
        }
        start += part.len();
    }
    words
}

/// What stands for an address among words.
fn address(part: &str) -> Option<&'static str> {
    let bare = part.trim_start_matches(|c: char| !c.is_alphanumeric());
    let lower = bare.get(..8).unwrap_or(bare).to_ascii_lowercase();
    if ["http://", "https://", "ftp://"]
        .iter()
        .any(|scheme| lower.starts_with(scheme))
    {
        return Some("url:");
    }
    let (user, host) = bare.split_once('@')?;
    let is_mail = user.ends_with(char::is_alphanumeric)
        && host.starts_with(char::is_alphanumeric)
        && host.trim_end_matches('.').contains('.');
    is_mail.then_some("email:")
}

/// The words of `part`, which begins at byte `offset` of its text.
fn split(part: &str, offset: usize, is_name: bool, words: &mut Vec<Word>) {
    let mut open = false;
    let mut small = false;
    for (at, character) in part.char_indices() {
        let apostrophe = open && matches!(character, '\'' | '’' | '`');
        if apostrophe || is_invisible(character) {
            continue;
        }
        if !character.is_alphanumeric() {
            open = false;
            continue;
        }
        if !open || (is_name && small && character.is_uppercase()) {
            words.push(Word {
                folded: String::new(),
                start: offset + at,
                end: offset + at,
            });
        }
        small = character.is_lowercase();
        open = true;
        if let Some(word) = words.last_mut() {
            fold(character, &mut word.folded);
            word.end = offset + at + character.len_utf8();
        }
    }
}

fn fold(character: char, out: &mut String) {
    if character.is_ascii() {
        return out.push(character.to_ascii_lowercase());
    }
    for plain in std::iter::once(character).nfkc() {
        if plain.is_ascii() {
            out.push(plain.to_ascii_lowercase());
        } else {
            let mut bytes = [0; 4];
            out.extend(skeleton(plain.encode_utf8(&mut bytes)).flat_map(char::to_lowercase));
        }
    }
}

/// Words written letter by letter, as `i g n o r e`, put together.
pub(super) fn spelled_out(words: Vec<Word>) -> Vec<Word> {
    let mut out: Vec<Word> = Vec::with_capacity(words.len());
    let mut letters: Vec<Word> = Vec::new();
    let join = |letters: &mut Vec<Word>, out: &mut Vec<Word>| {
        if let (4.., Some(first), Some(last)) = (letters.len(), letters.first(), letters.last()) {
            out.push(Word {
                folded: letters.iter().map(|word| word.folded.as_str()).collect(),
                start: first.start,
                end: last.end,
            });
            letters.clear();
        } else {
            out.append(letters);
        }
    };
    for word in words {
        if word.folded.chars().count() == 1 {
            letters.push(word);
        } else {
            join(&mut letters, &mut out);
            out.push(word);
        }
    }
    join(&mut letters, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(text: &str, is_name: bool) -> Vec<String> {
        let words = spelled_out(words(text, is_name));
        words.into_iter().map(|word| word.folded).collect()
    }

    #[test]
    fn letters_in_disguise_are_read_as_what_they_stand_for() {
        for text in [
            "Ignore previous",
            "IGN\u{200b}ORE pre\u{e0041}vious",
            "Ｉｇｎｏｒｅ 𝐩𝐫𝐞𝐯𝐢𝐨𝐮𝐬",
            "Ignоrе рrеviоus",
            "i g n o r e previous",
            "Ignore, previous",
        ] {
            assert_eq!(folded(text, false), ["ignore", "previous"], "{text:?}");
        }
        assert_eq!(folded("don't don’t", false), ["dont", "dont"]);
    }

    #[test]
    fn names_fall_into_their_words() {
        assert_eq!(
            folded("chat_historyDump", true),
            ["chat", "history", "dump"]
        );
        assert_eq!(folded("GitHub", false), ["github"]);
    }

    #[test]
    fn an_address_is_one_word() {
        assert_eq!(
            folded(
                "Mail <a.b@mail.example>, see (HTTPS://x.example/y_z).",
                false
            ),
            ["mail", "email:", "see", "url:"]
        );
        assert_eq!(
            folded("@ user@ @param a@b", false),
            ["user", "param", "a", "b"]
        );
    }
}
