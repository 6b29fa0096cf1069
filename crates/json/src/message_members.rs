//! Access to the members of a JSON message by name, in one pass over its text.
//!
//! The objects whose members may be accessed are parsed in this pass. Every other value is not parsed, however large it is.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The names of members whose values are parsed if they are objects, at any of the parsed levels.
const OPENED: [&str; 5] = ["params", "result", "_meta", "notifications", "ref"];

/// The only member of the object that `serde_json` passes on in place of a number that does not fit into 64 bits (its
/// feature `arbitrary_precision`).
const NUMBER: &str = "$serde_json::private::Number";

/// Number of levels below the message at which objects are parsed.
const DEPTH: usize = 2;

/// The error for JSON that two parsers may read differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AmbiguousJson;

/// The members of an object, in their order.
#[derive(Default)]
pub struct MessageMembers<'a>(Vec<(Cow<'a, str>, Member<'a>)>);

enum Member<'a> {
    Unread(&'a RawValue),
    Object(MessageMembers<'a>),
    /// A value that is not an object, under a name whose object would be parsed.
    Other,
}

impl<'a> MessageMembers<'a> {
    /// Parses the members of `text`, or returns `None` if it is not an object.
    pub fn parse(text: &'a str) -> Option<Self> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let read = deserializer
            .deserialize_map(MembersVisitor { depth: DEPTH })
            .ok()?;
        deserializer.end().ok()?;
        Some(read)
    }

    /// Returns whether the object has a member `name`.
    pub fn has(&self, name: &str) -> Result<bool, AmbiguousJson> {
        Ok(self.find(name)?.is_some())
    }

    /// Returns the text of the member `name`. Not for the names whose objects are parsed.
    pub fn get(&self, name: &str) -> Result<Option<&'a RawValue>, AmbiguousJson> {
        Ok(match self.find(name)? {
            Some(Member::Unread(value)) => Some(value),
            Some(Member::Object(_) | Member::Other) | None => None,
        })
    }

    /// Returns the string value of the member `name`.
    pub fn text(&self, name: &str) -> Result<Option<String>, AmbiguousJson> {
        let member = self.get(name)?;
        Ok(member.and_then(|member| serde_json::from_str(member.get()).ok()))
    }

    /// Returns the parsed object of the member `name`. Only for the names whose objects are parsed.
    pub fn object(&self, name: &str) -> Result<Option<&Self>, AmbiguousJson> {
        Ok(match self.find(name)? {
            Some(Member::Object(members)) => Some(members),
            Some(Member::Unread(_) | Member::Other) | None => None,
        })
    }

    /// Returns the member `name`. An object with a second member of this name, or of a name that differs only in case, is
    /// refused, because some parsers do not distinguish `name` from `Name` and take the last of them, so that they would
    /// use a different value than the one returned here.
    fn find(&self, name: &str) -> Result<Option<&Member<'a>>, AmbiguousJson> {
        let mut found = None;
        for (own, value) in &self.0 {
            if own == name && found.is_none() {
                found = Some(value);
            } else if fold_case(own).eq(fold_case(name)) {
                return Err(AmbiguousJson);
            }
        }
        Ok(found)
    }
}

/// A visitor that reads one object.
struct MembersVisitor {
    /// Number of levels below the object that are parsed.
    depth: usize,
}

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = MessageMembers<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        #[derive(Deserialize)]
        #[serde(transparent)]
        struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
        let mut members = Vec::new();
        while let Some(Name(name)) = map.next_key()? {
            if name == NUMBER {
                map.next_value::<IgnoredAny>()?;
                members.push((name, Member::Other));
                continue;
            }
            let value = match self.depth.checked_sub(1) {
                Some(depth) if OPENED.contains(&&*name) => {
                    map.next_value_seed(MemberSeed { depth })?
                }
                _ => Member::Unread(map.next_value()?),
            };
            members.push((name, value));
        }
        Ok(MessageMembers(members))
    }
}

/// Reads a value that may be an object.
struct MemberSeed {
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for MemberSeed {
    type Value = Member<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for MemberSeed {
    type Value = Member<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let depth = self.depth;
        let members = MembersVisitor { depth }.visit_map(map)?;
        let is_number = matches!(members.0.as_slice(), [(name, Member::Other)] if name == NUMBER);
        Ok(if is_number {
            Member::Other
        } else {
            Member::Object(members)
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Member::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Member::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Member::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Member::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Member::Other)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Member::Other)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Member::Other)
    }
}

/// Returns the characters of a name folded to ignore case, including those that Unicode folds to an ASCII letter, such
/// as U+017F to `s`.
fn fold_case(name: &str) -> impl Iterator<Item = char> + '_ {
    name.chars()
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_readers_could_take_for_another_is_refused() {
        let plain = MessageMembers::parse(r#"{"name":"a","other":1.10,"n":null}"#).unwrap();
        assert_eq!(plain.text("name"), Ok(Some("a".to_owned())));
        assert_eq!(plain.get("other").unwrap().unwrap().get(), "1.10");
        assert_eq!(plain.get("n").unwrap().unwrap().get(), "null");
        assert!(plain.get("absent").unwrap().is_none());
        for odd in [
            r#"{"name":"a","name":"b"}"#,
            r#"{"name":"a","Name":"b"}"#,
            r#"{"NAME":"b"}"#,
            r#"{"name":"a","n\u0061me":"b"}"#,
        ] {
            let odd = MessageMembers::parse(odd).unwrap();
            assert_eq!(odd.text("name"), Err(AmbiguousJson));
        }
        let folded = MessageMembers::parse(r#"{"params":{},"param\u017f":{}}"#).unwrap();
        assert_eq!(folded.get("params").unwrap_err(), AmbiguousJson);
        assert!(MessageMembers::parse("[]").is_none());
    }

    #[test]
    fn the_objects_that_somebody_looks_into_are_read_with_the_message_and_no_others() {
        let text = r#"{"params":{"_meta":{"a":1},"arguments":{"_meta":{}},"ref":7},"result":[{}],"error":{}}"#;
        let message = MessageMembers::parse(text).unwrap();
        let params = message.object("params").unwrap().unwrap();
        let meta = params.object("_meta").unwrap().unwrap();
        assert_eq!(meta.get("a").unwrap().unwrap().get(), "1");
        let arguments = params.get("arguments").unwrap().unwrap();
        assert_eq!(arguments.get(), r#"{"_meta":{}}"#);
        assert_eq!(params.has("ref"), Ok(true));
        assert!(params.object("ref").unwrap().is_none());
        assert_eq!(message.has("result"), Ok(true));
        assert!(message.object("result").unwrap().is_none());
        assert!(message.object("error").unwrap().is_none());
        let number =
            MessageMembers::parse(r#"{"params":1.5,"result":18446744073709551616}"#).unwrap();
        assert!(number.object("params").unwrap().is_none());
        assert!(number.object("result").unwrap().is_none());
        assert!(MessageMembers::parse(r#"{"params":{}} {}"#).is_none());
        let deep = format!("{{{}1{}", r#""params":{"#.repeat(200), "}".repeat(200));
        assert!(MessageMembers::parse(&deep).is_none());
    }
}
