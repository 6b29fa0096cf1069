//! Changes to the text of a message that leave every other byte of it as it is.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::mcp::{object, present};

/// What is read of an answer.
#[derive(Deserialize)]
pub(crate) struct Reply<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    pub(crate) result: Option<&'a RawValue>,
}

impl<'a> Reply<'a> {
    pub(crate) fn read(message: &'a str) -> Option<Self> {
        object(message)
    }
}

/// Whether `message` is an answer with a result.
pub(crate) fn is_result(message: &str) -> bool {
    Reply::read(message).is_some_and(|reply| reply.result.is_some())
}

/// `whole` with `new` in the place of `part`, which was read out of it by reference.
pub(crate) fn replaced(whole: &str, part: &str, new: &str) -> String {
    exchanged(whole, vec![(part, new.to_owned())])
}

/// The same of several parts, none of them within another.
pub(crate) fn exchanged(whole: &str, parts: Vec<(&str, String)>) -> String {
    let placed = parts
        .into_iter()
        .map(|(part, new)| (place(whole, part), new));
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

/// The members of `_meta` that only the gateway writes begin so.
const OWN: &str = "dev.wardgate/";

/// `message`, an answer with a result, with further `members` in the result's `_meta`, and without what an upstream
/// made up of the gateway's own. None where it has no result.
pub(crate) fn with_meta(message: &str, members: &str) -> Option<String> {
    let result = Reply::read(message)?.result?.get();
    let of_result: BTreeMap<String, &RawValue> = object(result)?;
    let Some(meta) = of_result.get("_meta").map(|meta| meta.get()) else {
        let members = format!(r#""_meta":{{{members}}}"#);
        return Some(replaced(message, result, &begun(result, &members)?));
    };
    let mut of_meta: BTreeMap<String, &RawValue> = object(meta)?;
    let all = of_meta.len();
    of_meta.retain(|name, _| !name.starts_with(OWN));
    let honest = if of_meta.len() == all {
        Cow::Borrowed(meta)
    } else {
        Cow::Owned(serde_json::to_string(&of_meta).ok()?)
    };
    Some(replaced(message, meta, &begun(&honest, members)?))
}

/// `object` with `members` before its own.
fn begun(object: &str, members: &str) -> Option<String> {
    let rest = object.strip_prefix('{')?;
    let is_empty = rest.trim_start().starts_with('}');
    let comma = if is_empty { "" } else { "," };
    Some(format!("{{{members}{comma}{rest}"))
}

fn place(whole: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    start..start + part.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_added_and_every_other_byte_stays() {
        let cases = [
            (
                r#"{"jsonrpc":"2.0", "id":1,"result":{ "a" : 1.10, "_meta" : {"x":1e2} },"z":0}"#,
                r#"{"jsonrpc":"2.0", "id":1,"result":{ "a" : 1.10, "_meta" : {"k":1,"x":1e2} },"z":0}"#,
            ),
            (
                r#"{"id":1,"result":{"_meta":{ }}}"#,
                r#"{"id":1,"result":{"_meta":{"k":1 }}}"#,
            ),
            (
                r#"{"id":1,"result":{}}"#,
                r#"{"id":1,"result":{"_meta":{"k":1}}}"#,
            ),
            (
                r#"{"id":1,"result":{"b":2}}"#,
                r#"{"id":1,"result":{"_meta":{"k":1},"b":2}}"#,
            ),
            (
                r#"{"id":1,"result":{"_meta":{"dev.wardgate/a":1,"x":1.10,"dev.\u0077ardgate/b":2}}}"#,
                r#"{"id":1,"result":{"_meta":{"k":1,"x":1.10}}}"#,
            ),
            (
                r#"{"id":1,"result":{"_meta":{"dev.wardgate/a":1}}}"#,
                r#"{"id":1,"result":{"_meta":{"k":1}}}"#,
            ),
        ];
        for (before, after) in cases {
            assert_eq!(with_meta(before, r#""k":1"#).as_deref(), Some(after));
        }
    }

    #[test]
    fn what_has_no_place_for_them_is_left_alone() {
        for message in [
            r#"{"id":1,"error":{"code":1}}"#,
            r#"{"id":1,"result":[1]}"#,
            r#"{"id":1,"result":{"_meta":null}}"#,
            "[]",
            "",
        ] {
            assert_eq!(with_meta(message, r#""k":1"#), None, "{message}");
        }
    }
}
