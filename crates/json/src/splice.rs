//! Changes to the text of a document that leave every other byte of it as it is.

use std::ops::Range;

/// `whole` with `new` in the place of `part`, which was read out of it by reference.
pub fn replace_part(whole: &str, part: &str, new: &str) -> String {
    replace_parts(whole, vec![(part, new.to_owned())])
}

/// The same of several parts, none of them within another.
pub fn replace_parts(whole: &str, parts: Vec<(&str, String)>) -> String {
    let placed = parts
        .into_iter()
        .map(|(part, new)| (range_of(whole, part), new));
    let mut placed: Vec<_> = placed.collect();
    placed.sort_by_key(|(place, _)| place.start);
    let mut text = String::with_capacity(whole.len());
    let mut from = 0;
    for (Range { start, end }, new) in placed {
        text.push_str(&whole[from..start]);
        text.push_str(&new);
        from = end;
    }
    text.push_str(&whole[from..]);
    text
}

/// Where `part`, which was read out of `whole` by reference, stands in it, in bytes.
fn range_of(whole: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    start..start + part.len()
}
