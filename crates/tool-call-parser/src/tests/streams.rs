//! Tests that the result does not depend on how a stream is split, and that a truncated text yields no additional calls.

use proptest::prelude::*;

use super::samples::samples;
use super::{Extractor, Family, Outcome, TOOLS, stream, whole};

/// Splits a text into pieces of `bytes` bytes, without splitting a character, as a reader does that holds back an incomplete one.
fn cut(text: &str, bytes: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut from = 0;
    for end in (bytes..text.len()).step_by(bytes) {
        if text.is_char_boundary(end) {
            pieces.push(&text[from..end]);
            from = end;
        } else {
            pieces.push("");
        }
    }
    pieces.push(&text[from..]);
    pieces
}

fn prefixes(text: &str) -> impl Iterator<Item = &str> {
    let ends = (0..=text.len()).filter(|end| text.is_char_boundary(*end));
    ends.map(|end| &text[..end])
}

#[test]
fn a_sample_cut_at_every_byte_gives_the_same_calls_and_text() {
    for (name, sample) in samples() {
        for family in [name.parse().unwrap(), Family::UNKNOWN] {
            let expected = stream(family, [sample.text.as_str()]);
            for bytes in [1, 2, 3, 7] {
                let outcome = stream(family, cut(&sample.text, bytes));
                assert_eq!(outcome, expected, "{}", sample.text);
            }
            for prefix in prefixes(&sample.text) {
                let rest = &sample.text[prefix.len()..];
                let outcome = stream(family, [prefix, rest]);
                assert_eq!(outcome, expected, "{prefix} | {rest}");
            }
        }
    }
}

#[test]
fn a_truncated_sample_calls_nothing_that_the_whole_does_not() {
    for (name, sample) in samples() {
        for family in [name.parse().unwrap(), Family::UNKNOWN] {
            let expected = stream(family, [sample.text.as_str()]);
            for prefix in prefixes(&sample.text) {
                let outcome = stream(family, [prefix]);
                assert!(expected.calls.starts_with(&outcome.calls), "{prefix}");
            }
        }
    }
}

#[test]
fn a_call_is_given_as_soon_as_it_is_whole() {
    let mut extractor = Extractor::new(Family::UNKNOWN, &TOOLS);
    let mut outcome = Outcome::default();
    let call = "Sure.\n<tool_call>{\"name\": \"list_cities\", \"arguments\": {}}";
    for (end, _) in call.char_indices().skip(1) {
        outcome.add(extractor.push(&call[end - 1..end]));
    }
    assert_eq!(outcome.text, "Sure.\n");
    assert!(outcome.calls.is_empty());
    outcome.add(extractor.push("}"));
    assert_eq!(outcome.calls.len(), 1);
}

#[test]
fn text_is_not_held_back_once_it_can_be_no_call() {
    let mut extractor = Extractor::new(Family::UNKNOWN, &TOOLS);
    let mut outcome = Outcome::default();
    let text = "2 < 3, [1], {x}, a `b` and ``` too. <b>Bold</b> Too: the end";
    outcome.add(extractor.push(text));
    assert_eq!(outcome.text, text);
}

/// Generates fragments of forms, and of the text between forms, in any order.
fn soup() -> impl Strategy<Value = String> {
    let fragments: Vec<String> = samples()
        .iter()
        .flat_map(|(_, sample)| fragments(&sample.text))
        .collect();
    let fragment = prop::sample::select(fragments);
    let piece = prop_oneof![
        6 => fragment,
        1 => "[ -~\n]{0,6}",
        1 => "\\PC{0,3}",
        1 => Just("\"".to_owned()),
        1 => Just("}".to_owned()),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// Splits a text at the boundaries between words and punctuation.
fn fragments(text: &str) -> Vec<String> {
    let mut fragments: Vec<String> = vec![text.to_owned()];
    let mut current = String::new();
    for c in text.chars() {
        let splits = matches!(c, '<' | '{' | '}' | '[' | ']' | '"' | '\n' | '`' | ' ');
        if splits && !current.is_empty() {
            fragments.push(std::mem::take(&mut current));
        }
        current.push(c);
    }
    fragments.push(current);
    fragments
}

/// Generates samples in which a few characters are missing, duplicated or replaced.
fn mutated_samples() -> impl Strategy<Value = String> {
    let texts: Vec<String> = samples().into_iter().map(|it| it.1.text).collect();
    let change = (any::<prop::sample::Index>(), 0..4u8, any::<char>());
    let changes = prop::collection::vec(change, 0..6);
    let pair = prop::collection::vec(prop::sample::select(texts), 1..3);
    (pair, changes).prop_map(|(texts, changes)| {
        let mut text: Vec<char> = texts.concat().chars().collect();
        for (at, kind, other) in changes {
            let at = at.index(text.len());
            match kind {
                0 => {
                    text.remove(at);
                }
                1 => text.insert(at, text[at]),
                2 => text[at] = other,
                _ => text.insert(at, '"'),
            }
            if text.is_empty() {
                break;
            }
        }
        text.into_iter().collect()
    })
}

proptest! {
    // Each case has two texts.
    #![proptest_config(ProptestConfig { cases: 50_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_gives_the_same_however_it_is_cut_and_no_more_when_truncated(
        texts in (soup(), mutated_samples()),
        bytes in 1..9usize,
        end in any::<prop::sample::Index>(),
    ) {
        for text in [&texts.0, &texts.1] {
            let expected = whole(text);
            prop_assert_eq!(&stream(Family::UNKNOWN, cut(text, bytes)), &expected);
            let ends: Vec<&str> = prefixes(text).collect();
            let truncated = whole(ends[end.index(ends.len())]);
            prop_assert!(expected.calls.starts_with(&truncated.calls), "{:?}", truncated);
        }
    }
}
