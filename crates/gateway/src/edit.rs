//! The result of an answer, and members put into its `_meta` that leave every other byte of it as it is.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use wardgate_json::{present, range_of};

use crate::mcp::object;

/// The result of a JSON-RPC response.
#[derive(Deserialize)]
pub(crate) struct ResponseResult<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    pub(crate) result: Option<&'a RawValue>,
}

impl<'a> ResponseResult<'a> {
    pub(crate) fn parse(message: &'a str) -> Option<Self> {
        object(message)
    }
}

/// The members of `_meta` that only the gateway writes begin so.
const OWN: &str = "dev.wardgate/";

/// Where members go into the `_meta` of an answer's result, found in one pass over it.
pub(crate) enum MetaInsertion {
    /// There is no place for them.
    None,
    /// Here, as a `_meta` of their own.
    New(usize),
    /// Into the one that there is.
    Into(Range<usize>),
}

/// The result has two `_meta`, and one of them could say what only the gateway says.
#[derive(Debug)]
pub(crate) struct DuplicateMeta;

impl MetaInsertion {
    pub(crate) fn find(message: &str) -> Result<Self, DuplicateMeta> {
        #[derive(Deserialize)]
        struct ResponseOutline<'a> {
            #[serde(borrow, default)]
            result: Option<ResultOutline<'a>>,
        }
        let answer: Option<ResponseOutline<'_>> = object(message);
        let Some(outline) = answer.and_then(|answer| answer.result) else {
            return Ok(Self::None);
        };
        Ok(match outline {
            ResultOutline { metas: 2.., .. } => return Err(DuplicateMeta),
            ResultOutline {
                meta: Some(meta), ..
            } if meta.get().starts_with('{') => Self::Into(range_of(message, meta.get())),
            ResultOutline { meta: Some(_), .. } => Self::None,
            ResultOutline {
                last: Some(last), ..
            } => Self::New(range_of(message, last.get()).end),
            // An empty one.
            ResultOutline { .. } => {
                match ResponseResult::parse(message).and_then(|reply| reply.result) {
                    Some(result) => Self::New(range_of(message, result.get()).start + 1),
                    None => Self::None,
                }
            }
        })
    }

    /// Puts them in, and takes out what an upstream made up of the gateway's own.
    pub(crate) fn put(self, message: &mut String, members: &str) {
        match self {
            Self::None => {}
            Self::New(at) => {
                let comma = if message[..at].ends_with('{') {
                    ""
                } else {
                    ","
                };
                insert(message, at, &format!(r#"{comma}"_meta":{{{members}}}"#));
            }
            Self::Into(Range { start, end }) => {
                if let Some(honest) = without_own(&message[start..end]) {
                    message.replace_range(start..end, &honest);
                }
                let rest = message[start + 1..].trim_start();
                let comma = if rest.starts_with('}') { "" } else { "," };
                insert(message, start + 1, &format!("{members}{comma}"));
            }
        }
    }
}

/// A long message has no room to spare: what grows by doubling would be held three times over.
fn insert(message: &mut String, at: usize, new: &str) {
    message.reserve_exact(new.len());
    message.insert_str(at, new);
}

/// `meta` without what only the gateway writes, if there is any in it.
fn without_own(meta: &str) -> Option<String> {
    let mut members: BTreeMap<String, &RawValue> = object(meta)?;
    let all = members.len();
    members.retain(|name, _| !name.starts_with(OWN));
    (members.len() < all)
        .then(|| serde_json::to_string(&members).ok())
        .flatten()
}

/// The members of a result, as far as a place among them is looked for.
#[derive(Default)]
struct ResultOutline<'a> {
    last: Option<&'a RawValue>,
    meta: Option<&'a RawValue>,
    metas: usize,
}

impl<'de: 'a, 'a> Deserialize<'de> for ResultOutline<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ResultVisitor;

        impl<'de> Visitor<'de> for ResultVisitor {
            type Value = ResultOutline<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                #[derive(Deserialize)]
                struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);
                let mut outline = ResultOutline::default();
                while let Some((MemberName(name), value)) = map.next_entry()? {
                    outline.last = Some(value);
                    if name == "_meta" {
                        outline.meta = Some(value);
                        outline.metas += 1;
                    }
                }
                Ok(outline)
            }
        }

        deserializer.deserialize_map(ResultVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_meta(message: &str) -> String {
        let insertion = MetaInsertion::find(message).unwrap();
        let mut message = message.to_owned();
        insertion.put(&mut message, r#""k":1"#);
        message
    }

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
                r#"{"id":1,"result":{"b":2,"_meta":{"k":1}}}"#,
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
            assert_eq!(with_meta(before), after);
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
            assert_eq!(with_meta(message), message);
        }
        let twice = r#"{"id":1,"result":{"_meta":{"dev.wardgate/a":1},"_m\u0065ta":{}}}"#;
        assert!(MetaInsertion::find(twice).is_err());
    }
}
