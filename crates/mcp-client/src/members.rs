//! Members of JSON objects, which are kept byte for byte.

use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_json::Members;

/// Returns an object of these members, whose values are JSON.
pub(super) fn object<'a>(members: impl Iterator<Item = (&'a str, String)>) -> String {
    let members: Vec<_> = members
        .map(|(name, value)| format!("{}:{value}", Value::from(name)))
        .collect();
    format!("{{{}}}", members.join(","))
}

/// Returns the members of `object` that are not left out, as an object, or `None` if there are none.
pub(super) fn members_except(
    object: &RawValue,
    is_left_out: impl Fn(&str) -> bool,
) -> serde_json::Result<Option<String>> {
    let Members(mut members) = serde_json::from_str::<Members<'_>>(object.get())?;
    members.retain(|(name, _)| !is_left_out(name));
    if members.is_empty() {
        return Ok(None);
    }
    let members = members.iter();
    Ok(Some(self::object(members.map(|(name, value)| {
        (name.as_str(), value.get().to_owned())
    }))))
}
