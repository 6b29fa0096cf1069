//! A strict scan of JSON from outside, before it is parsed.
//!
//! Every parser reads a text that passes in the same way: it is valid JSON (RFC 8259) in UTF-8 without a byte order
//! mark, with no duplicate keys in an object, no NUL, no lone surrogate, and no deeper nesting than allowed. The scan
//! takes one pass and builds no tree.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::Value;

/// The reason why a body was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// The body is not UTF-8.
    #[error("the body is not UTF-8")]
    NotUtf8,
    /// The body is not valid JSON from this byte on.
    #[error("the body is not valid JSON, at byte {0}")]
    Syntax(usize),
    /// The body is nested deeper than this number of levels.
    #[error("the body is nested deeper than {0} levels")]
    TooDeep(usize),
    /// An object has the same key twice. The second key begins at this byte.
    #[error("an object has the same key twice, at byte {0}")]
    DuplicateKey(usize),
    /// A string contains a NUL character, escaped or not.
    #[error("a string contains a NUL character, at byte {0}")]
    Nul(usize),
    /// A string contains an escape of half a surrogate pair (RFC 8259, section 8.2).
    #[error("a string contains an unpaired surrogate, at byte {0}")]
    LoneSurrogate(usize),
    /// An object has the key of the object that `serde_json` passes on in place of a number (its feature
    /// `arbitrary_precision`). `serde_json` would read the object as a number.
    #[error("an object has a key that is reserved, at byte {0}")]
    ReservedKey(usize),
}

/// The key of the object that represents a number between `serde_json` and `serde`.
const NUMBER: &str = "$serde_json::private::Number";

/// Maximum depth of nesting that [`parse_strict`] accepts, which is also the limit of `serde_json`.
const MAX_DEPTH: usize = 127;

/// Checks `body` and returns it as text.
pub fn scan(body: &[u8], max_depth: usize) -> Result<&str, ScanError> {
    let text = std::str::from_utf8(body).map_err(|_| ScanError::NotUtf8)?;
    let mut scanner = Scanner {
        text,
        bytes: body,
        at: 0,
        max_depth,
    };
    scanner.document()?;
    Ok(text)
}

/// Returns whether [`parse_strict`] accepts `text`.
pub fn is_strict(text: &str) -> bool {
    scan(text.as_bytes(), MAX_DEPTH).is_ok()
}

/// Parses `bytes`, if every parser reads them in the same way and they have at most 127 levels of nesting. Numbers keep
/// their digits.
pub fn parse_strict(bytes: &[u8]) -> Result<Value, ScanError> {
    let text = scan(bytes, MAX_DEPTH)?;
    serde_json::from_str(text).map_err(|error| ScanError::Syntax(error.column()))
}

struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    max_depth: usize,
}

/// An array or object that contains the current value.
enum Frame<'a> {
    Array,
    Object(Keys<'a>),
}

impl<'a> Scanner<'a> {
    fn document(&mut self) -> Result<(), ScanError> {
        // The stack is explicit, because a deeply nested body must not overflow the stack of the thread.
        let mut frames: Vec<Frame<'a>> = Vec::new();
        'value: loop {
            self.space();
            match self.peek() {
                Some(open @ (b'{' | b'[')) => {
                    if frames.len() == self.max_depth {
                        return Err(ScanError::TooDeep(self.max_depth));
                    }
                    self.at += 1;
                    self.space();
                    let close = if open == b'{' { b'}' } else { b']' };
                    if self.peek() == Some(close) {
                        self.at += 1;
                    } else {
                        frames.push(if open == b'{' {
                            let mut keys = Keys::default();
                            self.key(&mut keys)?;
                            Frame::Object(keys)
                        } else {
                            Frame::Array
                        });
                        continue 'value;
                    }
                }
                Some(b'"') => {
                    self.string()?;
                }
                Some(b't') => self.word("true")?,
                Some(b'f') => self.word("false")?,
                Some(b'n') => self.word("null")?,
                Some(b'-' | b'0'..=b'9') => self.number()?,
                _ => return Err(self.syntax()),
            }
            // A value has ended: close the arrays and objects that end with it.
            loop {
                self.space();
                match (frames.last_mut(), self.peek()) {
                    (None, None) => return Ok(()),
                    (Some(Frame::Array), Some(b',')) => {
                        self.at += 1;
                        continue 'value;
                    }
                    (Some(Frame::Object(keys)), Some(b',')) => {
                        self.at += 1;
                        self.space();
                        self.key(keys)?;
                        continue 'value;
                    }
                    (Some(Frame::Array), Some(b']')) | (Some(Frame::Object(_)), Some(b'}')) => {
                        self.at += 1;
                        frames.pop();
                    }
                    _ => return Err(self.syntax()),
                }
            }
        }
    }

    fn key(&mut self, keys: &mut Keys<'a>) -> Result<(), ScanError> {
        let start = self.at;
        if self.peek() != Some(b'"') {
            return Err(self.syntax());
        }
        let key = self.string()?;
        if key == NUMBER {
            return Err(ScanError::ReservedKey(start));
        }
        if !keys.insert(key) {
            return Err(ScanError::DuplicateKey(start));
        }
        self.space();
        self.expect(b':')
    }

    /// Reads a string and returns its content.
    fn string(&mut self) -> Result<Cow<'a, str>, ScanError> {
        self.at += 1;
        let start = self.at;
        let mut decoded: Option<String> = None;
        let mut copied = start;
        loop {
            match self.peek() {
                Some(b'"') => {
                    let rest = &self.text[copied..self.at];
                    self.at += 1;
                    return Ok(match decoded {
                        Some(decoded) => Cow::Owned(decoded + rest),
                        None => Cow::Borrowed(rest),
                    });
                }
                Some(b'\\') => {
                    let decoded = decoded.get_or_insert_default();
                    decoded.push_str(&self.text[copied..self.at]);
                    decoded.push(self.escape()?);
                    copied = self.at;
                }
                Some(0) => return Err(ScanError::Nul(self.at)),
                None | Some(..0x20) => return Err(self.syntax()),
                Some(_) => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Result<char, ScanError> {
        let start = self.at;
        self.at += 1;
        let letter = self.peek().ok_or_else(|| self.syntax())?;
        self.at += 1;
        Ok(match letter {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let unit = self.four_digits()?;
                let code = match unit {
                    0 => return Err(ScanError::Nul(start)),
                    0xD800..=0xDBFF => {
                        if self.peek() != Some(b'\\') || self.bytes.get(self.at + 1) != Some(&b'u')
                        {
                            return Err(ScanError::LoneSurrogate(start));
                        }
                        self.at += 2;
                        let low = self.four_digits()?;
                        if !(0xDC00..=0xDFFF).contains(&low) {
                            return Err(ScanError::LoneSurrogate(start));
                        }
                        0x1_0000 + ((unit - 0xD800) << 10) + (low - 0xDC00)
                    }
                    unit => unit,
                };
                char::from_u32(code).ok_or(ScanError::LoneSurrogate(start))?
            }
            _ => return Err(ScanError::Syntax(start)),
        })
    }

    fn four_digits(&mut self) -> Result<u32, ScanError> {
        let digits = self
            .bytes
            .get(self.at..self.at + 4)
            .ok_or_else(|| self.syntax())?;
        let mut code = 0;
        for digit in digits {
            let value = char::from(*digit)
                .to_digit(16)
                .ok_or_else(|| self.syntax())?;
            code = code * 16 + value;
        }
        self.at += 4;
        Ok(code)
    }

    fn number(&mut self) -> Result<(), ScanError> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits()?,
            _ => return Err(self.syntax()),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), ScanError> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start {
            Err(self.syntax())
        } else {
            Ok(())
        }
    }

    fn word(&mut self, word: &str) -> Result<(), ScanError> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(self.syntax());
        }
        self.at += word.len();
        Ok(())
    }

    fn expect(&mut self, byte: u8) -> Result<(), ScanError> {
        if self.peek() != Some(byte) {
            return Err(self.syntax());
        }
        self.at += 1;
        Ok(())
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn syntax(&self) -> ScanError {
        ScanError::Syntax(self.at)
    }
}

/// The keys of one object. A few keys are compared one by one, and further keys are put into a set, so that the cost of
/// a large object is linear in its size.
#[derive(Default)]
struct Keys<'a> {
    few: Vec<Cow<'a, str>>,
    many: HashSet<Cow<'a, str>>,
}

impl<'a> Keys<'a> {
    const FEW: usize = 16;

    /// Adds a key, and returns false if it already exists.
    fn insert(&mut self, key: Cow<'a, str>) -> bool {
        if self.few.contains(&key) {
            return false;
        }
        if self.few.len() < Self::FEW {
            self.few.push(key);
            return true;
        }
        self.many.insert(key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn verdict(text: &str) -> Result<(), ScanError> {
        scan(text.as_bytes(), 64).map(|_| ())
    }

    #[test]
    fn ordinary_json_passes() {
        for text in [
            "null",
            " [ ] ",
            r#"{"a":[1,-0.5e+3,true,false,null,"x\n\u00e9\ud83d\ude00"],"b":{}}"#,
            r#"{"a":{"a":{"a":1}},"b":[{"a":1},{"a":2}]}"#,
        ] {
            assert_eq!(verdict(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_parsers_read_differently_is_refused() {
        let cases: [(&str, &str); 24] = [
            ("", "Syntax"),
            ("\u{feff}{}", "Syntax"),
            (r#"{"a":1,"a":2}"#, "DuplicateKey"),
            (r#"{"a":1,"\u0061":2}"#, "DuplicateKey"),
            (r#"{"x":{"method":1,"metho\u0064":2}}"#, "DuplicateKey"),
            ("\"a\u{0}b\"", "Nul"),
            (r#""\u0000""#, "Nul"),
            (r#""\ud800""#, "LoneSurrogate"),
            (r#""\ud800\u0041""#, "LoneSurrogate"),
            (r#""\udc00""#, "LoneSurrogate"),
            ("\"a\nb\"", "Syntax"),
            ("{'a':1}", "Syntax"),
            ("[1,]", "Syntax"),
            (r#"{"a":1,}"#, "Syntax"),
            ("[1 2]", "Syntax"),
            ("01", "Syntax"),
            ("1.", "Syntax"),
            (".5", "Syntax"),
            ("+1", "Syntax"),
            ("NaN", "Syntax"),
            ("{} {}", "Syntax"),
            (r#""\x41""#, "Syntax"),
            ("[1", "Syntax"),
            ("// c\n1", "Syntax"),
        ];
        for (text, expected) in cases {
            let error = format!("{:?}", verdict(text).unwrap_err());
            assert!(error.starts_with(expected), "{text:?}: {error}");
        }
        assert_eq!(scan(b"\"\xff\"", 64).unwrap_err(), ScanError::NotUtf8);
    }

    #[test]
    fn depth_is_bounded_and_a_million_brackets_do_no_harm() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(verdict(&nested(64)), Ok(()));
        assert_eq!(verdict(&nested(65)), Err(ScanError::TooDeep(64)));
        assert_eq!(verdict(&"[".repeat(1_000_000)), Err(ScanError::TooDeep(64)));
        assert_eq!(
            verdict(&"{\"a\":".repeat(1_000_000)),
            Err(ScanError::TooDeep(64))
        );
    }

    #[test]
    fn many_keys_are_checked_too() {
        let members: Vec<String> = (0..20_000).map(|n| format!("\"k{n}\":{n}")).collect();
        assert_eq!(verdict(&format!("{{{}}}", members.join(","))), Ok(()));
        let twice = format!("{{{},\"k19999\":1}}", members.join(","));
        assert!(matches!(verdict(&twice), Err(ScanError::DuplicateKey(_))));
        let early = format!("{{{},\"k3\":1}}", members.join(","));
        assert!(matches!(verdict(&early), Err(ScanError::DuplicateKey(_))));
    }

    #[test]
    fn what_is_strict_is_what_is_read_and_no_more() {
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for (text, expected) in [
            (r#"{"a":[1,-1,1.5,true,null,"\u00e9"],"b":{"a":{}}}"#, true),
            (r#"{"a":1,"a":2}"#, false),
            (r#"[{"a":1,"\u0061":2}]"#, false),
            (r#"{"\u0000":1}"#, false),
            (r#""\u0000""#, false),
            (r#""\ud800""#, false),
            ("[1e999,-0.10,12345678901234567890123]", true),
            (&deep(127), true),
            (&deep(128), false),
            (r#"{"$serde_json::private::Number":"1"}"#, false),
            (r#"{"$serde_json::private::\u004eumber":"1"}"#, false),
            (r#"{"a":1,"$serde_json::private::Number":1}"#, false),
            ("{} {}", false),
            ("", false),
        ] {
            assert_eq!(is_strict(text), expected, "{text}");
            assert_eq!(parse_strict(text.as_bytes()).is_ok(), expected, "{text}");
        }
    }

    #[test]
    fn numbers_keep_their_digits() {
        let text =
            r#"[12345678901234567890123,0.10,-99999999999999.99,{"a":18446744073709551616}]"#;
        let read = parse_strict(text.as_bytes()).unwrap();
        assert_eq!(read.to_string(), text);
    }

    proptest! {
        #[test]
        fn whatever_passes_serde_reads_too(text in r#"[\[\]{}:,"\\a-c0-2 untrefalse.eE+-]{0,40}"#) {
            if verdict(&text).is_ok() {
                prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
            }
        }

        #[test]
        fn whatever_serde_writes_passes(keys in proptest::collection::hash_set(".{0,6}", 0..8)) {
            let object: serde_json::Map<String, serde_json::Value> = keys
                .into_iter()
                .filter(|key| !key.contains('\0'))
                .map(|key| (key.clone(), key.into()))
                .collect();
            let text = serde_json::Value::Object(object).to_string();
            prop_assert_eq!(verdict(&text), Ok(()));
        }
    }
}
