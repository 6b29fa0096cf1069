//! One digest of several texts.

use wardgate_domain::Digest;

/// Each text behind its length, so that none can take from its neighbour.
pub(crate) fn of_texts(texts: &[&str]) -> Digest {
    let lengths: Vec<_> = texts.iter().map(|text| text.len().to_be_bytes()).collect();
    Digest::of_parts(
        lengths
            .iter()
            .zip(texts)
            .flat_map(|(length, text)| [length.as_slice(), text.as_bytes()]),
    )
}
