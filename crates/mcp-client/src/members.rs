//! Members of JSON objects, each kept byte for byte.

use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_json::Members;

/// An object of these members, each already JSON.
pub(super) fn object<'a>(members: impl Iterator<Item = (&'a str, String)>) -> String {
    let members: Vec<_> = members
        .map(|(name, value)| format!("{}:{value}", Value::from(name)))
        .collect();
    format!("{{{}}}", members.join(","))
}

/// The members of `object` that are not left out, as an object; none where none are left.
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
