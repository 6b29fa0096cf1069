//! The arguments of a call as policies see them: strings by name, and values of the types that the schema declares.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use cedar_policy::RestrictedExpression;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;
use wardgate_domain::InvalidMessage;

use crate::entities::text;
use crate::fault::DecisionFault;
use crate::schema_shape::{Record, Type};

/// The arguments of a call by name.
pub(crate) type Arguments = BTreeMap<String, Value>;

/// Parses one JSON object. A duplicate name is an error; otherwise the policy could see another value than the tool
/// uses.
pub(crate) fn parse_arguments(json: &[u8]) -> Result<Arguments, InvalidMessage> {
    let invalid = |error: serde_json::Error| {
        InvalidMessage::field(
            "arguments_json",
            format!("is not a single JSON object: {}", category(&error)),
        )
    };
    let mut from = serde_json::Deserializer::from_slice(json);
    let arguments = from.deserialize_map(ArgumentsVisitor).map_err(invalid)?;
    from.end().map_err(invalid)?;
    Ok(arguments)
}

/// Returns the kind and position of an error. It leaves out the message, because the message may contain an argument.
fn category(error: &serde_json::Error) -> String {
    format!(
        "{:?} error at line {} column {}",
        error.classify(),
        error.line(),
        error.column()
    )
}

struct ArgumentsVisitor;

impl<'de> Visitor<'de> for ArgumentsVisitor {
    type Value = Arguments;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut arguments = BTreeMap::new();
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            let Entry::Vacant(free) = arguments.entry(name) else {
                return Err(A::Error::custom("a name occurs twice"));
            };
            free.insert(value);
        }
        Ok(arguments)
    }
}

/// Returns the value of an argument that a call leaves out. `default` is a string, or JSON if the declared type is not
/// a string.
pub(crate) fn default_value(default: &str, declared: Option<&Type>) -> Value {
    let typed = match declared {
        None | Some(Type::Text) => None,
        Some(_) => serde_json::from_str(default).ok(),
    };
    typed.unwrap_or_else(|| Value::String(default.to_owned()))
}

/// Returns the tag of an argument: a string as it is, any other value as compact JSON.
pub(crate) fn tag(value: &Value) -> String {
    match value {
        Value::String(value) => value.clone(),
        other => other.to_string(),
    }
}

/// Returns the attributes for the arguments in `declared`, with the declared types. `null` counts as absent. A value of
/// another type is a fault, because a `forbid` policy that reads the attribute would not apply if it were left out.
pub(crate) fn attributes(
    arguments: &Arguments,
    declared: &Record,
) -> Result<Vec<(String, RestrictedExpression)>, DecisionFault> {
    let mut attributes = Vec::new();
    for (name, attribute) in declared {
        let value = arguments.get(name).filter(|value| !value.is_null());
        if let Some(value) = value {
            let value = convert_value(value, &attribute.r#type)
                .ok_or_else(|| DecisionFault::UnfitArgument(name.clone()))?;
            attributes.push((name.clone(), value));
        }
    }
    Ok(attributes)
}

/// Converts `value` to the declared type. Returns `None` if it has another type, or more digits than the type can hold.
fn convert_value(value: &Value, declared: &Type) -> Option<RestrictedExpression> {
    match (declared, value) {
        (Type::Text, Value::String(value)) => Some(text(value)),
        (Type::Integer, Value::Number(number)) => {
            number.as_i64().map(RestrictedExpression::new_long)
        }
        (Type::Boolean, Value::Bool(value)) => Some(RestrictedExpression::new_bool(*value)),
        (Type::Decimal, Value::Number(number)) => {
            decimal(&number.to_string()).map(RestrictedExpression::new_decimal)
        }
        (Type::Set(element), Value::Array(items)) => {
            let items = items.iter().map(|item| convert_value(item, element));
            let items: Option<Vec<_>> = items.collect();
            items.map(RestrictedExpression::new_set)
        }
        (Type::Record(members), Value::Object(values)) => {
            let mut fields = Vec::new();
            for (name, member) in members {
                match values.get(name).filter(|value| !value.is_null()) {
                    Some(value) => {
                        fields.push((name.clone(), convert_value(value, &member.r#type)?));
                    }
                    None if member.required => return None,
                    None => {}
                }
            }
            RestrictedExpression::new_record(fields).ok()
        }
        _ => None,
    }
}

/// Converts a JSON number to the form of a Cedar `decimal`: one to four digits after the point, no exponent. Returns
/// `None` if the number does not fit.
fn decimal(number: &str) -> Option<String> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = whole.strip_prefix('-').unwrap_or(whole);
    let plain =
        |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let fraction = match fraction.trim_end_matches('0') {
        "" => "0",
        fraction => fraction,
    };
    if !plain(digits) || !plain(fraction) || fraction.len() > 4 {
        return None;
    }
    let written = format!("{whole}.{fraction}");
    // A Cedar decimal is a 64-bit number of ten-thousandths.
    let scaled = format!("{whole}{fraction:0<4}");
    scaled.parse::<i64>().ok().map(|_| written)
}

/// Collects the names of argument attributes that a policy may read. It includes attributes of every expression that is
/// not clearly the principal or the resource, because an expression such as `(if … then context.arguments else
/// …).limit` reads arguments too.
pub(crate) fn collect_names(policy: &Value, names: &mut BTreeSet<String>) {
    match policy {
        Value::Object(members) => {
            let left = members.get("left").unwrap_or(&Value::Null);
            let path = path_of(members.get("attr")).map(str::to_owned);
            match left["Var"].as_str() {
                Some("principal" | "resource") => {}
                // The first name is an attribute of the context itself, such as `time`.
                Some("context") => names.extend(path.skip(1)),
                _ if is_local_time(left) => {}
                _ => names.extend(path),
            }
            members
                .values()
                .for_each(|member| collect_names(member, names));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_names(item, names)),
        _ => {}
    }
}

/// Returns whether an expression is `context.local`.
pub(crate) fn is_local_time(expression: &Value) -> bool {
    let get = &expression["."];
    get["left"]["Var"] == "context" && get["attr"] == "local"
}

/// Returns the attributes that an operation names: a single one, or those on the path of `has filter.days`.
pub(crate) fn path_of(attributes: Option<&Value>) -> impl Iterator<Item = &str> {
    let list = attributes.and_then(Value::as_array);
    let one = attributes.and_then(Value::as_str);
    let of_list = list.into_iter().flatten().filter_map(Value::as_str);
    one.into_iter().chain(of_list)
}

/// Returns the name of the argument that an operation of a policy reads, as a tag or as an attribute.
pub(crate) fn argument_name<'a>(operator: &str, operands: &'a Value) -> Option<&'a str> {
    match operator {
        "hasTag" | "getTag" => operands["right"]["Value"].as_str(),
        "has" | "." => {
            let arguments = &operands["left"]["."];
            let is_arguments =
                arguments["left"]["Var"] == "context" && arguments["attr"] == "arguments";
            path_of(operands.get("attr"))
                .next()
                .filter(|_| is_arguments)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_stay_and_the_rest_is_json_text() {
        let read = parse_arguments(
            br#" {"s": "a\u0041", "n": 10, "f": 1.5, "b": true, "z": null, "l": [1, {"k": "v"}]} "#,
        );
        let shown: Vec<_> = read
            .unwrap()
            .into_iter()
            .map(|(name, value)| format!("{name}={}", tag(&value)))
            .collect();
        assert_eq!(
            shown,
            [
                "b=true",
                "f=1.5",
                r#"l=[1,{"k":"v"}]"#,
                "n=10",
                "s=aA",
                "z=null"
            ]
        );
    }

    #[test]
    fn a_number_of_json_is_a_decimal_where_it_has_one_exactly() {
        for (number, written) in [
            ("1", Some("1.0")),
            ("-0.5", Some("-0.5")),
            ("12.340000", Some("12.34")),
            ("0.0001", Some("0.0001")),
            ("0.00001", None),
            ("1e3", None),
            ("1.5E2", None),
            ("922337203685477.5807", Some("922337203685477.5807")),
            ("922337203685477.5808", None),
            ("123456789012345678901234567890", None),
        ] {
            assert_eq!(decimal(number).as_deref(), written, "{number}");
        }
    }

    #[test]
    fn a_policy_reads_arguments_however_it_gets_at_them_and_not_what_others_have() {
        let policy = "forbid (principal, action, resource) when { (if principal.a then context.arguments else \
                      context.arguments).limit > 1 && context.arguments has filter.days && principal has ward && \
                      resource.owner == \"x\" && context has arguments.amount && context.local.date == \"x\" };";
        let policy: cedar_policy::Policy = policy.parse().unwrap();
        let mut names = BTreeSet::new();
        collect_names(&policy.to_json().unwrap(), &mut names);
        for (name, is_read) in [
            ("limit", true),
            ("filter", true),
            ("amount", true),
            ("ward", false),
            ("owner", false),
            ("local", false),
            ("date", false),
        ] {
            assert_eq!(names.contains(name), is_read, "{name}: {names:?}");
        }
    }

    #[test]
    fn what_is_not_one_object_is_refused_without_repeating_it() {
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
        let bad = [
            "",
            "[]",
            "\"secret\"",
            "{\"secret\":1,}",
            "{} {}",
            "{\"secret\":1,\"secret\":2}",
            "{\"a\":secret}",
            &deep,
        ];
        for json in bad {
            let error = parse_arguments(json.as_bytes()).unwrap_err().to_string();
            assert!(
                error.starts_with("field `arguments_json`") && !error.contains("secret"),
                "{error}"
            );
        }
    }
}
