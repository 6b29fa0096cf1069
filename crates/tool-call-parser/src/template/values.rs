//! Parses arguments that are written one after the other, in tags or in Python notation.

use super::super::cursor::{Cursor, ParseResult, ParseStop};
use super::super::json::{self, Json};
use super::super::reading::FormReader;
use super::pattern::{Pattern, PatternSlots};

/// Maximum nesting depth of a value.
const MAX_DEPTH: usize = 64;

/// The notation of arguments that are listed after a name.
#[derive(Debug, Clone)]
pub(super) struct ListedArguments {
    /// The text from the name to the first key.
    pub(super) first: Pattern,
    /// The text from the name to the end of a call without arguments.
    pub(super) empty: Option<Pattern>,
    /// The styles of values.
    pub(super) styles: Vec<ValueStyle>,
    /// The text from a value to the next key.
    pub(super) between: Pattern,
    /// The text from the last value to the end of the call.
    pub(super) end: Pattern,
    /// Whether strings may be enclosed in `<![CDATA[…]]>`.
    pub(super) has_cdata: bool,
}

/// The style in which a value is written.
#[derive(Debug, Clone)]
pub(super) struct ValueStyle {
    /// The text from the key to the value.
    pub(super) before: Pattern,
    pub(super) kind: ValueKind,
}

/// The notation of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ValueKind {
    /// JSON or Python.
    Encoded,
    /// Strings stand unchanged in these quotes; any other value is JSON that contains such strings.
    Quoted { open: String, close: String },
    /// The value is written unchanged. The tool's schema determines its type.
    Plain,
    /// The value is a string and written unchanged.
    Text,
    /// The value is JSON.
    Value,
}

/// What follows a value.
enum ListContinuation {
    Another,
    End,
}

/// Parses the arguments after the name of `tool`, and the end of the call.
pub(super) fn read_listed(
    listed: &ListedArguments,
    cursor: &mut Cursor,
    reading: &FormReader,
    tool: &str,
) -> ParseResult<Vec<(String, Json)>> {
    let mut attempt = cursor.clone();
    let members = listed
        .first
        .matches(&mut attempt, slots(tool, ""))
        .and_then(|()| {
            let mut members = Vec::new();
            loop {
                let (key, value, after) = listed.argument(&mut attempt, reading, tool)?;
                members.push((key, value));
                if let ListContinuation::End = after {
                    return Ok(members);
                }
            }
        });
    match (members, &listed.empty) {
        (Err(ParseStop::No), Some(empty)) => {
            empty.matches(cursor, slots(tool, ""))?;
            Ok(Vec::new())
        }
        (members, _) => {
            *cursor = attempt;
            members
        }
    }
}

fn slots<'a>(name: &'a str, key: &'a str) -> PatternSlots<'a> {
    PatternSlots { name, key }
}

fn is_in_key(c: char) -> bool {
    !c.is_whitespace() && !"<>\"'(){}[],=｜|".contains(c)
}

impl ListedArguments {
    fn argument(
        &self,
        cursor: &mut Cursor,
        reading: &FormReader,
        tool: &str,
    ) -> ParseResult<(String, Json, ListContinuation)> {
        cursor.blanks();
        cursor.longest_run(is_in_key, |cursor, key| {
            // A key with a slash is the end of a tag.
            if key.starts_with('/') {
                return Err(ParseStop::No);
            }
            let start = cursor.clone();
            for style in &self.styles {
                let mut attempt = start.clone();
                let slots = slots(tool, key);
                let result = style
                    .before
                    .matches_before_value(&mut attempt, slots)
                    .and_then(|()| self.value(&mut attempt, reading, style, slots));
                match result {
                    Err(ParseStop::No) => {}
                    decided => {
                        *cursor = attempt;
                        let (value, after) = decided?;
                        return Ok((key.to_owned(), value, after));
                    }
                }
            }
            Err(ParseStop::No)
        })
    }

    fn value(
        &self,
        cursor: &mut Cursor,
        reading: &FormReader,
        style: &ValueStyle,
        slots: PatternSlots,
    ) -> ParseResult<(Json, ListContinuation)> {
        match &style.kind {
            ValueKind::Encoded => {
                cursor.blanks();
                let value = json::value(cursor)?;
                Ok((value, self.after(cursor, slots)?))
            }
            ValueKind::Quoted { open, close } => {
                if cursor.optional(open)? {
                    let (text, after) = self.until_after(cursor, slots, close)?;
                    return Ok((Json::Text(text.to_owned()), after));
                }
                let value = if matches!(open.as_str(), "\"" | "'") {
                    json::value(cursor)?
                } else {
                    value_with_quotes(cursor, &[(open.as_str(), close.as_str())], 0)?
                };
                Ok((value, self.after(cursor, slots)?))
            }
            kind => {
                let (text, after) = self.until_after(cursor, slots, "")?;
                let text = self.without_cdata(self.without_blanks(text, &after));
                let value = match kind {
                    ValueKind::Text => Json::Text(text.to_owned()),
                    ValueKind::Value => json::whole(text).ok_or(ParseStop::No)?,
                    _ => reading.tools.parse_typed_value(slots.name, slots.key, text),
                };
                Ok((value, after))
            }
        }
    }

    /// Parses what follows a value.
    fn after(&self, cursor: &mut Cursor, slots: PatternSlots) -> ParseResult<ListContinuation> {
        let mut attempt = cursor.clone();
        attempt.blanks();
        match self.end.matches(&mut attempt, slots) {
            Err(ParseStop::No) => {}
            Err(ParseStop::Incomplete) => return Err(ParseStop::Incomplete),
            Ok(()) => {
                *cursor = attempt;
                return Ok(ListContinuation::End);
            }
        }
        cursor.blanks();
        self.between.matches(cursor, slots)?;
        // A text that looks like the end of a value does not end it unless a key and a value follow.
        let mut ahead = cursor.clone();
        ahead.blanks();
        ahead.longest_run(is_in_key, |cursor, key| {
            if key.starts_with('/') {
                return Err(ParseStop::No);
            }
            let slots = PatternSlots { key, ..slots };
            let styles = self.styles.iter();
            let mut matches = styles.map(|it| it.before.matches(&mut cursor.clone(), slots));
            matches
                .find(|it| *it != Err(ParseStop::No))
                .unwrap_or(Err(ParseStop::No))
        })?;
        Ok(ListContinuation::Another)
    }

    /// Parses a text up to the first position where `close` and what follows a value stand.
    fn until_after<'a>(
        &self,
        cursor: &mut Cursor<'a>,
        slots: PatternSlots,
        close: &str,
    ) -> ParseResult<(&'a str, ListContinuation)> {
        let begin = cursor.rest();
        let from = cursor.at();
        let firsts: Vec<char> = match close.chars().next() {
            Some(first) => vec![first],
            None => [&self.end, &self.between]
                .iter()
                .filter_map(|it| it.first())
                .collect(),
        };
        loop {
            cursor.skip(|c| !firsts.contains(&c));
            let end = cursor.at();
            let mut attempt = cursor.clone();
            match attempt
                .literal(close)
                .and_then(|()| self.after(&mut attempt, slots))
            {
                Err(ParseStop::No) => cursor.next()?,
                Err(ParseStop::Incomplete) => return Err(ParseStop::Incomplete),
                Ok(after) => {
                    *cursor = attempt;
                    return Ok((&begin[..end - from], after));
                }
            };
        }
    }

    /// Removes the white space that the template renders between a value and what follows.
    fn without_blanks<'a>(&self, text: &'a str, after: &ListContinuation) -> &'a str {
        let blanks = match after {
            ListContinuation::Another => self.between.blanks_before(),
            ListContinuation::End => self.end.blanks_before(),
        };
        text.strip_suffix(blanks).unwrap_or_else(|| {
            text.strip_suffix(blanks.trim_start_matches(' '))
                .unwrap_or(text)
        })
    }

    fn without_cdata<'a>(&self, text: &'a str) -> &'a str {
        let inner = text.strip_prefix("<![CDATA[");
        let inner = inner.and_then(|it| it.strip_suffix("]]>"));
        inner.filter(|_| self.has_cdata).unwrap_or(text)
    }
}

/// Parses a value whose strings stand between such quotes, and whose keys are quoted or bare.
pub(in super::super) fn value_with_quotes(
    cursor: &mut Cursor,
    quotes: &[(&str, &str)],
    depth: usize,
) -> ParseResult<Json> {
    if depth > MAX_DEPTH {
        return Err(ParseStop::No);
    }
    if let Some(text) = quoted_text(cursor, quotes)? {
        return Ok(Json::Text(text));
    }
    match cursor.peek()? {
        '{' => members_with_quotes(cursor, quotes, depth),
        '[' => {
            cursor.literal("[")?;
            let mut items = Vec::new();
            loop {
                cursor.blanks();
                if cursor.optional("]")? {
                    return Ok(Json::List(items));
                }
                items.push(value_with_quotes(cursor, quotes, depth + 1)?);
                comma(cursor, ']')?;
            }
        }
        _ => json::value(cursor),
    }
}

/// Parses an object of such values.
pub(in super::super) fn members_with_quotes(
    cursor: &mut Cursor,
    quotes: &[(&str, &str)],
    depth: usize,
) -> ParseResult<Json> {
    cursor.literal("{")?;
    let mut members = Vec::new();
    loop {
        cursor.blanks();
        if cursor.optional("}")? {
            return Ok(Json::Object(members));
        }
        let key = match quoted_text(cursor, quotes)? {
            Some(key) => key,
            None if matches!(cursor.peek()?, '"' | '\'') => json::text(cursor)?,
            None => cursor
                .run_of(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))?
                .to_owned(),
        };
        cursor.blanks();
        cursor.literal(":")?;
        cursor.blanks();
        members.push((key, value_with_quotes(cursor, quotes, depth + 1)?));
        comma(cursor, '}')?;
    }
}

fn comma(cursor: &mut Cursor, close: char) -> ParseResult<()> {
    cursor.blanks();
    if cursor.peek()? == close {
        Ok(())
    } else {
        cursor.literal(",")
    }
}

/// Parses a text between a pair of quotes, or returns `None` if there is no opening quote.
fn quoted_text(cursor: &mut Cursor, quotes: &[(&str, &str)]) -> ParseResult<Option<String>> {
    for (open, close) in quotes {
        if cursor.optional(open)? {
            return Ok(Some(cursor.until(&[close])?.0.to_owned()));
        }
    }
    Ok(None)
}
