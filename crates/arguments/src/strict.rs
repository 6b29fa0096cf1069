//! JSON that means the same to every reader: no NUL, no half surrogate pair, no member given twice. Numbers keep
//! their digits.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

/// The members of a JSON object in their order, names given twice included, their values unread.
#[derive(Debug)]
pub struct Members<'a>(
    /// Names and values.
    pub Vec<(String, &'a RawValue)>,
);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(MembersVisitor)
    }
}

/// A JSON value without NUL characters and without members given twice; reading any other fails.
#[derive(Debug, Clone, PartialEq)]
pub struct Strict(
    /// What was read.
    pub Value,
);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictSeed).map(Self)
    }
}

/// The only member of what `serde_json` hands on in place of a number that neither 64 bits nor a double is sure to
/// hold (its feature `arbitrary_precision`).
const NUMBER: &str = "$serde_json::private::Number";

/// Reads the digits of such a number. The parser hands them on as a text of its own; a document that has a member of
/// this name has a text that is borrowed or copied, and is refused.
struct DigitsSeed;

impl<'de> DeserializeSeed<'de> for DigitsSeed {
    type Value = Number;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Number, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for DigitsSeed {
    type Value = Number;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the digits of a number")
    }

    fn visit_string<E: de::Error>(self, digits: String) -> Result<Number, E> {
        digits.parse().map_err(E::custom)
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<Number, E> {
        Err(E::custom("a member has a reserved name"))
    }
}

#[derive(Clone, Copy)]
struct StrictSeed;

fn without_nul<E: de::Error>(text: &str) -> Result<(), E> {
    if text.contains('\0') {
        return Err(E::custom("NUL"));
    }
    Ok(())
}

impl<'de> DeserializeSeed<'de> for StrictSeed {
    type Value = Value;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictSeed {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, truth: bool) -> Result<Value, E> {
        Ok(Value::Bool(truth))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
        without_nul(text)?;
        Ok(Value::from(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut seen = HashSet::new();
        let mut members = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            if name == NUMBER {
                return access.next_value_seed(DigitsSeed).map(Value::Number);
            }
            without_nul(&name)?;
            if !seen.insert(name.clone()) {
                return Err(de::Error::custom("member"));
            }
            members.insert(name, access.next_value_seed(self)?);
        }
        Ok(Value::Object(members))
    }
}

/// Whether `text` is a JSON value that [`Strict`] would read. Nothing of it is kept.
pub fn is_strict(text: &str) -> bool {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    CheckSeed.deserialize(&mut deserializer).is_ok() && deserializer.end().is_ok()
}

/// Whether no object in `json`, which is JSON already, has two members of one name. Values are not looked at: numbers may
/// be of any size, nesting of any depth, and texts may hold whatever can be escaped (RFC 8259, section 8.2).
pub fn has_unique_members(json: &str) -> bool {
    let bytes = json.as_bytes();
    // The names of each open object; none for a list.
    let mut open: Vec<Option<HashSet<Cow<'_, [u8]>>>> = Vec::new();
    let mut names_follow = false;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'{' => {
                open.push(Some(HashSet::new()));
                names_follow = true;
            }
            b'[' => {
                open.push(None);
                names_follow = false;
            }
            b'}' | b']' => {
                open.pop();
                names_follow = false;
            }
            b',' => names_follow = matches!(open.last(), Some(Some(_))),
            b'"' => {
                let text = &bytes[at..];
                let length = text_length(text);
                if names_follow
                    && let Some(Some(names)) = open.last_mut()
                    && !names.insert(decoded(&text[..length]))
                {
                    return false;
                }
                names_follow = false;
                at += length + 1;
            }
            _ => {}
        }
    }
    true
}

/// How many bytes of `text` are before the quote that ends it.
fn text_length(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

/// The content of a JSON text without its quotes, as UTF-8; half a surrogate pair as the three bytes that UTF-8 would
/// have for it.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'\\') {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut units = Vec::new();
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let unit = match (byte, after.split_first()) {
            (b'\\', Some((b'u', digits))) => {
                let (digits, after) = digits.split_at(digits.len().min(4));
                rest = after;
                let digits = std::str::from_utf8(digits).unwrap_or_default();
                units.push(u16::from_str_radix(digits, 16).unwrap_or_default());
                continue;
            }
            (b'\\', Some((escaped, after))) => {
                rest = after;
                match escaped {
                    b'b' => 8,
                    b'f' => 12,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    other => *other,
                }
            }
            _ => {
                rest = after;
                byte
            }
        };
        write_units(&mut bytes, &mut units);
        bytes.push(unit);
    }
    write_units(&mut bytes, &mut units);
    Cow::Owned(bytes)
}

/// Moves UTF-16 `units` to the end of `bytes`.
fn write_units(bytes: &mut Vec<u8>, units: &mut Vec<u16>) {
    for character in char::decode_utf16(units.drain(..)) {
        match character {
            Ok(character) => {
                bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            Err(half) => {
                let [high, low] = half.unpaired_surrogate().to_be_bytes();
                bytes.extend([
                    0xe0 | (high >> 4),
                    0x80 | ((high & 0x0f) << 2) | (low >> 6),
                    0x80 | (low & 0x3f),
                ]);
            }
        }
    }
}

#[derive(Clone, Copy)]
struct CheckSeed;

impl<'de> DeserializeSeed<'de> for CheckSeed {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for CheckSeed {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        without_nul(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        while access.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        #[derive(Deserialize)]
        #[serde(transparent)]
        struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
        let mut seen = HashSet::new();
        while let Some(Name(name)) = access.next_key()? {
            if name == NUMBER {
                return access.next_value_seed(DigitsSeed).map(drop);
            }
            without_nul(&name)?;
            if !seen.insert(name) {
                return Err(de::Error::custom("member"));
            }
            access.next_value_seed(self)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_given_twice_is_found_however_it_is_written_and_nothing_else_is_refused() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for unique in [
            r#"{"a":{"a":[{"a":1},{"a":"a"}]},"b":1E400,"c":12345678901234567890123,"d":"\u0000\ud800"}"#,
            r#"{"\ud800":1,"\udc00":2,"\ud83d\ude00":3,"a\"b":4,"a\\":5}"#,
            r#"["a","a"]"#,
            &deep,
        ] {
            assert!(has_unique_members(unique), "{unique:.80}");
        }
        for twice in [
            r#"{"a":1,"b":{"a":2},"a":3}"#,
            r#"[{"b":[{"a":1,"\u0061":2}]}]"#,
            r#"{"\ud83d\ude00":1,"😀":2}"#,
            r#"{"\ud800":1,"\uD800":2}"#,
            r#"{"\n":1,"\u000a":2}"#,
            r#"{"\/":1,"/":2}"#,
        ] {
            assert!(!has_unique_members(twice), "{twice}");
        }
    }

    #[test]
    fn what_is_strict_is_what_is_read_and_no_more() {
        for (text, expected) in [
            (r#"{"a":[1,-1,1.5,true,null,"\u00e9"],"b":{"a":{}}}"#, true),
            (r#"{"a":1,"a":2}"#, false),
            (r#"[{"a":1,"\u0061":2}]"#, false),
            (r#"{"\u0000":1}"#, false),
            (r#""\u0000""#, false),
            (r#""\ud800""#, false),
            ("[1e999,-0.10,12345678901234567890123]", true),
            (r#"{"$serde_json::private::Number":"1"}"#, false),
            (r#"{"$serde_json::private::\u004eumber":"1"}"#, false),
            (r#"{"a":1,"$serde_json::private::Number":1}"#, false),
            ("{} {}", false),
            ("", false),
        ] {
            assert_eq!(is_strict(text), expected, "{text}");
            let read = serde_json::from_str::<Strict>(text);
            assert_eq!(read.is_ok(), expected, "{text}");
        }
    }

    #[test]
    fn numbers_keep_their_digits() {
        let text =
            r#"[12345678901234567890123,0.10,-99999999999999.99,{"a":18446744073709551616}]"#;
        let Strict(read) = serde_json::from_str(text).unwrap();
        assert_eq!(read.to_string(), text);
    }
}
