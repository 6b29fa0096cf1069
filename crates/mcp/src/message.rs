//! JSON-RPC messages (JSON-RPC 2.0, sections 4 and 5): the envelope, without parsing of parameters and results.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_json::parse_object;

/// The members of a message, as written. A member that is `null` counts as absent.
#[derive(Debug, Default, Deserialize)]
pub struct Envelope<'a> {
    /// The id, which should be a string or a number but is not checked.
    #[serde(borrow, default)]
    pub id: Option<&'a RawValue>,
    /// The method of a request or a notification.
    #[serde(borrow, default)]
    pub method: Option<Cow<'a, str>>,
    /// The parameters of a request or a notification.
    #[serde(borrow, default)]
    pub params: Option<&'a RawValue>,
    /// The result of a successful response.
    #[serde(borrow, default)]
    pub result: Option<&'a RawValue>,
    /// The error of a failed response.
    #[serde(borrow, default)]
    pub error: Option<&'a RawValue>,
}

impl<'a> Envelope<'a> {
    /// Parses the envelope of a single message, or returns `None` if `text` is not one JSON object of this form.
    pub fn parse(text: &'a str) -> Option<Self> {
        parse_object(text)
    }
}

/// A request, or a notification if it has no id.
#[derive(Debug, Serialize)]
pub struct OutgoingMessage<'a, P> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<P>,
}

impl<'a, P> OutgoingMessage<'a, P> {
    /// Creates a request of `method`, or a notification if `id` is `None`.
    pub fn new(id: Option<u64>, method: &'a str, params: Option<P>) -> Self {
        Self {
            jsonrpc: "2.0",
            id,
            method,
            params,
        }
    }
}

/// The error of a response.
#[derive(Debug, Clone, Deserialize)]
pub struct ErrorObject {
    /// The error code: one from [`crate::error_code`], or one that the server defines.
    pub code: i64,
    /// The error message of the server.
    #[serde(default)]
    pub message: String,
    /// Additional data of the server, or `null`.
    #[serde(default)]
    pub data: Value,
}

/// Returns the outcome of the request with this id if `text` is the response to it. An error without an id counts as a response
/// to it, because a server that refuses a request before reading it does not know the id.
pub fn read_outcome(text: &str, id: u64) -> Option<Result<Box<RawValue>, ErrorObject>> {
    let response = Envelope::parse(text)?;
    let is_answer = response.id.map(|answered| answered.get().parse() == Ok(id));
    match (response.error, response.result) {
        (Some(error), _) if is_answer != Some(false) => {
            Some(Err(serde_json::from_str(error.get()).ok()?))
        }
        (None, Some(result)) if is_answer == Some(true) => Some(Ok(result.to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_that_of_the_request_with_its_id() {
        let result = read_outcome(r#"{"jsonrpc":"2.0","id":7,"result":{ "n":1.10 }}"#, 7);
        assert_eq!(result.unwrap().unwrap().get(), r#"{ "n":1.10 }"#);
        for error in [r#""id":7"#, r#""id":null"#, r#""jsonrpc":"2.0""#] {
            let text = format!(r#"{{{error},"error":{{"code":-32700}}}}"#);
            assert_eq!(read_outcome(&text, 7).unwrap().unwrap_err().code, -32700);
        }
        for other in [
            r#"{"id":8,"result":{}}"#,
            r#"{"id":"7","result":{}}"#,
            r#"{"id":8,"error":{"code":1}}"#,
            r#"{"result":{}}"#,
            r#"{"id":7}"#,
            r#"{"id":7,"error":"no"}"#,
            r#"{"method":"notifications/progress","params":{}}"#,
            "<html>",
            "[]",
        ] {
            assert!(read_outcome(other, 7).is_none(), "{other}");
        }
    }
}
