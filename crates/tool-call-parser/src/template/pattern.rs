//! Patterns of the text between the parts of a call: literal text with placeholders for ids and numbers.

use super::super::cursor::{Cursor, ParseResult, is_in_name};

/// A part of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PatternPart {
    /// Text without white space.
    Text(String),
    /// White space as the template renders it. Because models vary, any amount of white space matches, including none.
    Blanks(String),
    /// The id of the call.
    Id,
    /// The number of the call in its message.
    Number,
    /// Another occurrence of the tool name.
    Name,
    /// Another occurrence of the argument name, as in a closing tag.
    Key,
}

/// The values of the placeholders of a pattern.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PatternSlots<'a> {
    pub(super) name: &'a str,
    pub(super) key: &'a str,
}

/// A sequence of parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pattern(Vec<PatternPart>);

impl Pattern {
    /// Creates the pattern of rendered text, in which each text of `slots` stands for its part.
    pub(super) fn from_rendered(rendered: &str, slots: &[(&str, PatternPart)]) -> Self {
        let mut pattern = Self::default();
        let mut rest = rendered;
        while !rest.is_empty() {
            let found = slots
                .iter()
                .filter_map(|(text, part)| Some((rest.find(text)?, *text, part)))
                .min_by_key(|(at, _, _)| *at);
            let Some((at, text, part)) = found else {
                pattern.literal(rest);
                break;
            };
            pattern.literal(&rest[..at]);
            pattern.0.push(part.clone());
            rest = &rest[at + text.len()..];
        }
        pattern
    }

    fn literal(&mut self, text: &str) {
        let mut before = None;
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let is_blank = first.is_whitespace();
            let is_digit = |c: char| c.is_ascii_digit();
            let end =
                |matches: &dyn Fn(char) -> bool| rest.find(|c| !matches(c)).unwrap_or(rest.len());
            let length = if is_blank {
                end(&char::is_whitespace)
            } else if is_digit(first) {
                end(&is_digit)
            } else {
                end(&|c| !c.is_whitespace() && !is_digit(c))
            };
            let (part, next) = rest.split_at(length);
            let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            if is_blank {
                self.0.push(PatternPart::Blanks(part.to_owned()));
            } else if is_digit(first) && !is_word(before) && !is_word(next.chars().next()) {
                self.0.push(PatternPart::Number);
            } else if let Some(PatternPart::Text(text)) = self.0.last_mut() {
                text.push_str(part);
            } else {
                self.0.push(PatternPart::Text(part.to_owned()));
            }
            before = part.chars().last();
            rest = next;
        }
    }

    /// Returns the pattern without leading and trailing white space.
    pub(super) fn trim(mut self) -> Self {
        self = self.trim_end();
        let blanks = self
            .0
            .iter()
            .take_while(|it| matches!(it, PatternPart::Blanks(_)));
        self.0.drain(..blanks.count());
        self
    }

    /// Returns the pattern without trailing white space.
    pub(super) fn trim_end(mut self) -> Self {
        while let Some(PatternPart::Blanks(_)) = self.0.last() {
            self.0.pop();
        }
        self
    }

    /// Returns the pattern after the last `part`, or `None` if there is none.
    pub(super) fn after_last(&self, part: &PatternPart) -> Option<Self> {
        let at = self.0.iter().rposition(|it| it == part)?;
        Some(Self(self.0[at + 1..].to_vec()).trim())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the first character that is not white space, or `None` if any character may be the first.
    pub(super) fn first(&self) -> Option<char> {
        let mut parts = self
            .0
            .iter()
            .filter(|it| !matches!(it, PatternPart::Blanks(_)));
        match parts.next()? {
            PatternPart::Text(text) => text.chars().next(),
            _ => None,
        }
    }

    /// Returns the white space at the start.
    pub(super) fn blanks_before(&self) -> &str {
        match self.0.first() {
            Some(PatternPart::Blanks(blanks)) => blanks,
            _ => "",
        }
    }

    /// Returns whether the pattern contains a token that can only mean a call, and not just characters that occur in any text.
    pub(super) fn is_unmistakable(&self) -> bool {
        self.0.iter().any(|part| match part {
            PatternPart::Text(text) => {
                let letters = text.chars().filter(|c| c.is_alphabetic()).count();
                letters > 1 && text.contains(['<', '｜', '[', '|'])
            }
            _ => false,
        })
    }

    /// Matches the pattern at the cursor.
    pub(super) fn matches(&self, cursor: &mut Cursor, slots: PatternSlots) -> ParseResult<()> {
        for part in &self.0 {
            match part {
                PatternPart::Text(text) => cursor.literal(text)?,
                PatternPart::Blanks(_) => cursor.blanks(),
                PatternPart::Id => cursor.skip(is_in_name),
                PatternPart::Number => cursor.skip(|c| c.is_ascii_digit()),
                PatternPart::Name => cursor.literal(slots.name)?,
                PatternPart::Key => cursor.literal(slots.key)?,
            }
        }
        Ok(())
    }

    /// Matches the pattern before a value that is written unchanged. Of the trailing white space, only what the template renders
    /// is consumed, because more white space belongs to the value.
    pub(super) fn matches_before_value(
        &self,
        cursor: &mut Cursor,
        slots: PatternSlots,
    ) -> ParseResult<()> {
        let Some((PatternPart::Blanks(blanks), parts)) = self.0.split_last() else {
            return self.matches(cursor, slots);
        };
        Self(parts.to_vec()).matches(cursor, slots)?;
        cursor.optional(blanks)?;
        Ok(())
    }
}

/// Returns the tokens of rendered text: tags, words in brackets, and single symbols. Other words are ignored.
pub(super) fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '<' => rest.find('>').map(|end| end + 1),
            '[' => rest
                .find(']')
                .filter(|end| rest[1..*end].chars().any(char::is_alphabetic))
                .map(|end| end + 1)
                .or_else(|| rest.find(char::is_whitespace).or(Some(rest.len()))),
            '`' => rest.find(|c| c != '`').or(Some(rest.len())),
            _ => None,
        };
        let (token, next) = rest.split_at(length.unwrap_or(first.len_utf8()));
        if !first.is_alphanumeric() {
            tokens.push(token.to_owned());
        }
        rest = next.trim_start();
    }
    tokens
}

/// Returns the common prefix of two texts, without an incomplete tag at its end.
pub(super) fn common_start<'a>(one: &'a str, other: &str) -> &'a str {
    let same = one.chars().zip(other.chars()).take_while(|(a, b)| a == b);
    let length: usize = same.map(|(c, _)| c.len_utf8()).sum();
    let common = &one[..length];
    let is_open = |open: char, close: char| {
        let at = common.rfind(open)?;
        (!common[at..].contains(close)).then_some(at)
    };
    let end = is_open('<', '>').unwrap_or(length);
    &common[..end]
}
