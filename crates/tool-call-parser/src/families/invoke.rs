//! `<invoke name="…"><parameter name="…">value</parameter></invoke>`, which several families enclose in tags of their own.

use super::super::cursor::{Cursor, ParseResult, ParseStop};
use super::super::json::{self, Json};
use super::super::reading::{CallCertainty, FormReader, FoundCalls};
use super::qwen_coder::without_line_ends;

/// The tags as a family writes them.
pub(super) struct Tags {
    /// Optional tags that enclose all calls.
    pub(super) around: &'static [&'static str],
    /// The start of the tag, up to its attributes.
    pub(super) invoke: &'static str,
    pub(super) parameter: &'static str,
    pub(super) parameter_end: &'static str,
    pub(super) invoke_end: &'static str,
}

pub(super) fn read_calls(
    cursor: &mut Cursor,
    reading: &FormReader,
    tags: &Tags,
) -> ParseResult<FoundCalls> {
    for around in tags.around {
        if cursor.optional(around)? {
            cursor.blanks();
            break;
        }
    }
    cursor.literal(tags.invoke)?;
    let attributes = attributes(cursor)?;
    let name = reading.resolve(name_of(&attributes)?, CallCertainty::Unmistakable)?;
    let mut members = Vec::new();
    loop {
        cursor.blanks();
        if cursor.optional(tags.invoke_end)? {
            let call = reading.call(name, &Json::Object(members), CallCertainty::Unmistakable)?;
            return Ok(call.into());
        }
        cursor.literal(tags.parameter)?;
        let attributes = self::attributes(cursor)?;
        let key = name_of(&attributes)?.to_owned();
        let (value, _) = cursor.until(&[tags.parameter_end])?;
        // DeepSeek marks explicitly whether a value is a string.
        let value = match attribute(&attributes, "string") {
            Some("true") => Json::Text(value.to_owned()),
            Some("false") => json::whole(value).ok_or(ParseStop::No)?,
            _ => reading
                .tools
                .parse_typed_value(name, &key, without_line_ends(value)),
        };
        members.push((key, value));
    }
}

type Attributes<'a> = Vec<(&'a str, &'a str)>;

/// Parses the attributes of a tag and its end.
fn attributes<'a>(cursor: &mut Cursor<'a>) -> ParseResult<Attributes<'a>> {
    let mut attributes = Vec::new();
    loop {
        cursor.blanks();
        if cursor.optional(">")? {
            return Ok(attributes);
        }
        let name = cursor.run_of(|c| c.is_ascii_alphabetic())?;
        cursor.literal("=")?;
        let value = if cursor.optional("\"")? {
            cursor.until(&["\""])?.0
        } else {
            cursor.name()?
        };
        attributes.push((name, value));
    }
}

fn attribute<'a>(attributes: &Attributes<'a>, name: &str) -> Option<&'a str> {
    attributes.iter().find(|it| it.0 == name).map(|it| it.1)
}

fn name_of<'a>(attributes: &Attributes<'a>) -> ParseResult<&'a str> {
    attribute(attributes, "name").ok_or(ParseStop::No)
}
