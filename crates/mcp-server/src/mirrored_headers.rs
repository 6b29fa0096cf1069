//! Arguments that a client of 2026-07-28 or later repeats as headers, because the tool's schema marks them with `x-mcp-header`
//! (SEP-2243). Each header must equal the argument in the body.

use axum::http::HeaderMap;
use serde_json::{Number, Value};
use wardgate_mcp::header::PARAM_PREFIX;
use wardgate_mcp::mirrored_header::MirroredHeader;

use crate::meta::decode;
use crate::rpc_error::RpcError;

/// Compares one argument with its header.
fn check_one(
    mirrored: &MirroredHeader,
    arguments: &Value,
    headers: &HeaderMap,
) -> Result<(), RpcError> {
    let differs = |how: &str| {
        let name = mirrored.name.as_str();
        Err(RpcError::header_mismatch(format!(
            "the header {name} {how}"
        )))
    };
    let argument = mirrored.argument(arguments);
    let mut values = headers.get_all(&mirrored.name).iter();
    let said = match (argument, values.next(), values.next()) {
        (_, _, Some(_)) => return differs("is sent more than once"),
        (None | Some(Value::Null), None, None) => return Ok(()),
        (None | Some(Value::Null), Some(_), None) => {
            return differs("repeats an argument that was not sent");
        }
        (Some(_), None, None) => return differs("is missing"),
        (Some(argument), Some(said), None) => (argument, said),
    };
    let (argument, said) = said;
    let Some(said) = said.to_str().ok().and_then(decode) else {
        return differs("is neither plain text nor =?base64?…?=");
    };
    let is_same = match argument {
        Value::String(text) => *text == said,
        Value::Bool(flag) => said == if *flag { "true" } else { "false" },
        Value::Number(number) => is_same_number(number, &said),
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    };
    if is_same {
        return Ok(());
    }
    differs("differs from the body")
}

/// Checks that each of `mirrored_headers` equals its argument in `arguments`, a JSON object.
pub fn check(
    mirrored_headers: &[MirroredHeader],
    arguments: &[u8],
    headers: &HeaderMap,
) -> Result<(), RpcError> {
    if mirrored_headers.is_empty() {
        return Ok(());
    }
    let arguments = serde_json::from_slice(arguments).unwrap_or_default();
    let mut all = mirrored_headers.iter();
    all.try_for_each(|one| check_one(one, &arguments, headers))
}

/// Returns the headers of a request that mirror arguments.
pub fn of_request(headers: &HeaderMap) -> HeaderMap {
    let of_arguments = headers
        .iter()
        .filter(|(name, _)| name.as_str().starts_with(PARAM_PREFIX));
    let of_arguments = of_arguments.map(|(name, value)| (name.clone(), value.clone()));
    let mut kept = HeaderMap::new();
    for (name, value) in of_arguments {
        kept.append(name, value);
    }
    kept
}

/// The largest whole number up to which a double represents every whole number exactly (2^53).
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// Returns whether `said` is a decimal notation of `number`, which the body may write differently.
fn is_same_number(number: &Number, said: &str) -> bool {
    let is_decimal = said
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'-' | b'.'));
    // Beyond the exact range of a double, the digits themselves must be the same.
    let double = number.as_f64().filter(|value| value.abs() <= MAX_EXACT);
    let is_same = said == number.as_str() || double.is_some() && said.parse().ok() == double;
    is_decimal && is_same
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = r#"{"type":"object","properties":{
        "region":{"type":"string","x-mcp-header":"Region"},
        "page":{"type":"object","properties":{"size":{"type":"integer","x-mcp-header":"Size"}}},
        "last":{"type":"boolean","x-mcp-header":"Last"},
        "plain":{"type":"string","description":"x-mcp-header"}
    }}"#;

    fn passes(arguments: &str, headers: &[(&'static str, &str)]) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let mirrored_headers = MirroredHeader::of_tool(&format!(r#"{{"inputSchema":{SCHEMA}}}"#));
        let checked = check(&mirrored_headers, arguments.as_bytes(), &map);
        if let Err(error) = &checked {
            assert_eq!(error.reason().as_str(), "header_mismatch");
        }
        checked.is_ok()
    }

    #[test]
    fn headers_that_repeat_the_arguments_pass() {
        let region = ("mcp-param-region", "=?base64?WsO8cmljaA==?=");
        let arguments = r#"{"region":"Zürich","page":{"size":42.0},"last":true}"#;
        let all = [region, ("mcp-param-size", "42"), ("mcp-param-last", "true")];
        assert!(passes(arguments, &all));
        assert!(passes("{}", &[]));
        assert!(passes(
            r#"{"region":null,"plain":"x"}"#,
            &[("mcp-param-other", "x")]
        ));
        assert!(passes(
            r#"{"page":{"size":-3}}"#,
            &[("mcp-param-size", "-3")]
        ));
    }

    #[test]
    fn every_difference_is_refused() {
        let cases: [(&str, &[(&'static str, &str)]); 9] = [
            (r#"{"region":"a"}"#, &[]),
            (r#"{"region":"a"}"#, &[("mcp-param-region", "b")]),
            (
                r#"{"region":"a"}"#,
                &[("mcp-param-region", "a"), ("mcp-param-region", "a")],
            ),
            (
                r#"{"region":"a"}"#,
                &[("mcp-param-region", "=?base64?YQ=?=")],
            ),
            (r#"{"region":["a"]}"#, &[("mcp-param-region", "a")]),
            ("{}", &[("mcp-param-region", "a")]),
            (r#"{"region":null}"#, &[("mcp-param-region", "null")]),
            (r#"{"page":{"size":42}}"#, &[("mcp-param-size", "4.2e1")]),
            (r#"{"last":true}"#, &[("mcp-param-last", "True")]),
        ];
        for (arguments, headers) in cases {
            assert!(!passes(arguments, headers), "{arguments} {headers:?}");
        }
    }
}
