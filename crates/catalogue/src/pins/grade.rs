//! Grades of changes of a definition: how carefully an approver must look at them.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Serialize, Serializer};
use wardgate_json::Json;

/// The grade of a change, from the least to the most severe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grade {
    /// The change only rewords the definition, or accepts less than was approved.
    Harmless,
    /// The definition accepts more than was approved, or something else.
    Wider,
    /// The definition has text that may be meant to mislead the model or the reader.
    Suspicious,
}

impl Grade {
    /// Returns the name of the grade.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Harmless => "harmless",
            Self::Wider => "wider",
            Self::Suspicious => "suspicious",
        }
    }
}

impl fmt::Display for Grade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Grade {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A grade and the reason for it.
pub(super) type GradedTool = (Grade, &'static str);

/// Maximum number of characters by which a text may grow for the change to count as a rewording.
const MODEST: usize = 500;

/// Maximum size of the icons, in bytes.
const MAX_ICONS: usize = 16 * 1024;

/// Maximum length of a new string argument that counts as narrow.
const SHORT_TEXT: f64 = 64.0;

/// Grades a change of descriptive text by its length. Misleading content is detected by [`super::suspicion`].
pub(super) fn of_text(was: Option<&Json>, is: Option<&Json>) -> GradedTool {
    let length = |json: &Json| json.canonical().chars().count();
    let grown = is.map_or(0, length) > was.map_or(0, length) + MODEST;
    if grown {
        return (Grade::Wider, "much longer text");
    }
    (Grade::Harmless, "other words")
}

pub(super) fn of_icons(is: Option<&Json>) -> GradedTool {
    let plain = |icon: &Json| {
        let source = icon.get("src").and_then(Json::as_text).unwrap_or_default();
        let kind = icon
            .get("mimeType")
            .and_then(Json::as_text)
            .unwrap_or_default();
        let picture = [
            "data:image/png;",
            "data:image/jpeg;",
            "data:image/webp;",
            "data:image/gif;",
        ];
        !kind.contains("svg")
            && (source.starts_with("https://") && !source.to_ascii_lowercase().contains(".svg")
                || picture.iter().any(|start| source.starts_with(start)))
    };
    match is {
        Some(icons) if icons.canonical().len() > MAX_ICONS || !icons.items().iter().all(plain) => (
            Grade::Wider,
            "icons that are large, active or not from https",
        ),
        _ => (Grade::Harmless, "other icons"),
    }
}

/// Grades a change of a keyword of the input schema that is neither text nor a schema.
pub(super) fn of_keyword(keyword: &str, was: Option<&Json>, is: Option<&Json>) -> GradedTool {
    let narrower = match keyword {
        "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties" => {
            is_tightened(was, is, |was, is| is > was)
        }
        "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties" => {
            is_tightened(was, is, |was, is| is < was)
        }
        "enum" => was
            .zip(is)
            .is_some_and(|(was, is)| is.items().iter().all(|item| was.items().contains(item))),
        "type" => is.is_some_and(|is| was.is_none_or(|was| within(&types(is), &types(was)))),
        "required" => set(was) == set(is),
        "format" | "items" => was.is_none(),
        "uniqueItems" => is.and_then(Json::as_boolean) == Some(true),
        "additionalProperties" => {
            is == Some(&Json::Boolean(false)) || was.is_none_or(|was| *was == Json::Boolean(true))
        }
        _ => false,
    };
    match (narrower, keyword) {
        (true, _) => (Grade::Harmless, "accepts the same or fewer values"),
        (false, "required") => (Grade::Wider, "the required arguments changed"),
        (false, "default") => (Grade::Wider, "the default value changed"),
        (false, "const" | "enum" | "pattern") => (Grade::Wider, "other values"),
        (false, _) => (Grade::Wider, "may accept more"),
    }
}

/// Grades a new argument.
pub(super) fn of_new_argument(schema: &Json, required: bool) -> GradedTool {
    if required {
        return (Grade::Wider, "a new required argument");
    }
    let names: Vec<&str> = schema
        .get("type")
        .map(types)
        .unwrap_or_default()
        .into_iter()
        .collect();
    let short = schema
        .get("maxLength")
        .and_then(number)
        .is_some_and(|most| most <= SHORT_TEXT);
    let narrow = match names.as_slice() {
        ["boolean" | "integer" | "number" | "null"] => true,
        ["string"] => short || schema.get("enum").is_some(),
        _ => false,
    };
    if narrow {
        (Grade::Harmless, "a new optional argument with few values")
    } else {
        (Grade::Wider, "a new argument that accepts many values")
    }
}

/// Grades the removal of an argument. `closed` is whether the schema rejects arguments that it does not define.
pub(super) fn of_lost_argument(closed: bool) -> GradedTool {
    if closed {
        (Grade::Harmless, "an argument was removed")
    } else {
        (Grade::Wider, "the argument is no longer validated")
    }
}

/// Returns whether `was` and `is` are the same number in different notations.
pub(super) fn is_same_number(was: &Json, is: &Json) -> bool {
    let (Json::Number(was), Json::Number(is)) = (was, is) else {
        return false;
    };
    match (was.parse::<i128>(), is.parse::<i128>()) {
        (Ok(was), Ok(is)) => was == is,
        _ => exact(was)
            .zip(exact(is))
            .is_some_and(|(was, is)| was.total_cmp(&is).is_eq()),
    }
}

/// Parses a number, or returns `None` if it has more than 15 digits, because a double cannot distinguish such numbers.
fn exact(digits: &str) -> Option<f64> {
    let number: f64 = digits.parse().ok()?;
    (number.is_finite() && digits.len() <= 15).then_some(number)
}

fn number(json: &Json) -> Option<f64> {
    match json {
        Json::Number(digits) => digits
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite()),
        _ => None,
    }
}

/// Returns whether a limit was added or tightened. Limits that are equal as doubles are not tighter.
fn is_tightened(was: Option<&Json>, is: Option<&Json>, tighter: fn(f64, f64) -> bool) -> bool {
    match (was.map(number), is.map(number)) {
        (None, Some(Some(_))) => true,
        (Some(Some(was)), Some(Some(is))) => tighter(was, is),
        _ => false,
    }
}

/// Returns the names of types in a `type` keyword.
fn types(json: &Json) -> BTreeSet<&str> {
    let names = json.as_text().into_iter();
    names
        .chain(json.items().iter().filter_map(Json::as_text))
        .collect()
}

fn within(inner: &BTreeSet<&str>, outer: &BTreeSet<&str>) -> bool {
    inner
        .iter()
        .all(|name| outer.contains(name) || (*name == "integer" && outer.contains("number")))
}

fn set(list: Option<&Json>) -> BTreeSet<String> {
    list.map_or(&[][..], Json::items)
        .iter()
        .map(Json::canonical)
        .collect()
}
