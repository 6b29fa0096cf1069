//! Replacement of parts of a JSON text that leaves every other byte unchanged.

use std::ops::Range;

/// Returns `whole` with `part` replaced by `new`. `part` must be a subslice of `whole`.
pub fn replace_part(whole: &str, part: &str, new: &str) -> String {
    replace_parts(whole, vec![(part, new.to_owned())])
}

/// Returns `whole` with several parts replaced. They must be subslices of `whole` that do not overlap.
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

/// Returns the byte range of `part` in `whole`, of which it must be a subslice.
fn range_of(whole: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    start..start + part.len()
}
