//! Values of claims: names, texts and attributes, of limited length and in visible characters. Entries of API keys have
//! the same values.

use std::ops::RangeInclusive;

use serde_json::Value;
use wardgate_domain::{AttributeValue, is_invisible};

/// Maximum length of a subject, tenant, role or token id, in characters.
pub(super) const MAX_NAME: usize = 256;
/// Maximum length of an attribute text, in characters.
const MAX_TEXT: usize = 1_024;
/// Maximum number of roles, of scopes, and of texts in an attribute.
pub(super) const MAX_ITEMS: usize = 256;

/// Converts a JSON value to an attribute that policies may use. Returns `None` if the type of the value is not
/// supported.
pub fn attribute_value(value: &Value) -> Option<AttributeValue> {
    match value {
        Value::String(text) => plain(text, 0..=MAX_TEXT).map(AttributeValue::Text),
        Value::Number(number) => number.as_i64().map(AttributeValue::Integer),
        Value::Bool(truth) => Some(AttributeValue::Boolean(*truth)),
        Value::Array(items) => texts(items, 0..=MAX_TEXT).map(AttributeValue::List),
        Value::Null | Value::Object(_) => None,
    }
}

/// Returns the texts of a list, like [`plain`], or `None` if it has more than [`MAX_ITEMS`].
pub(super) fn texts(items: &[Value], length: RangeInclusive<usize>) -> Option<Vec<String>> {
    if items.len() > MAX_ITEMS {
        return None;
    }
    items
        .iter()
        .map(|item| plain(item.as_str()?, length.clone()))
        .collect()
}

/// Returns whether `text` can be the name of a subject, tenant, role, scope or token.
pub fn is_name(text: &str) -> bool {
    plain(text, 1..=MAX_NAME).is_some()
}

/// Returns `text` if its number of characters is in the range `length` and all of them are visible. Invisible
/// characters are refused so that two different callers never look the same on a page or in the record.
pub(super) fn plain(text: &str, length: RangeInclusive<usize>) -> Option<String> {
    let hides = |c: char| c.is_control() || is_invisible(c);
    let fits = length.contains(&text.chars().count()) && !text.chars().any(hides);
    fits.then(|| text.to_owned())
}
