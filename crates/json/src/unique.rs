//! Detection of duplicate members in JSON of any depth.

use std::borrow::Cow;
use std::collections::HashSet;

/// Returns whether no object in `json`, which must be valid JSON, has two members of the same name. Values are not
/// checked: numbers may be of any size, nesting of any depth, and strings may contain any escape (RFC 8259, section
/// 8.2).
pub fn has_unique_members(json: &str) -> bool {
    let bytes = json.as_bytes();
    // The names of each open object, or `None` for an array.
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
                    && !names.insert(decode_string(&text[..length]))
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

/// Returns the number of bytes of `text` before the quote that ends it.
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

/// Returns the content of a JSON string without its quotes, as UTF-8. Half a surrogate pair becomes the three bytes
/// that UTF-8 would encode it with.
fn decode_string(text: &[u8]) -> Cow<'_, [u8]> {
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

/// Moves the UTF-16 `units` to the end of `bytes`, as UTF-8.
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
}
