//! The JSON-RPC envelope of a message. Its members are borrowed from the body, and their values are not parsed here.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use wardgate_json::{parse_object, present};
use wardgate_telemetry::names;

use crate::rpc_error::RpcError;

/// One JSON-RPC message.
#[derive(Debug)]
pub enum JsonRpcMessage<'a> {
    /// A message that expects a response.
    Request(JsonRpcRequest<'a>),
    /// A message without an id, which MCP answers with 202 and no body.
    Notification,
    /// A response to a request of the gateway.
    Response(ClientResponse<'a>),
}

/// A client's response to a request of the gateway.
#[derive(Debug)]
pub struct ClientResponse<'a> {
    /// The id of the request that the client responds to.
    pub id: Option<&'a RawValue>,
    /// The result, or `None` if the response is an error.
    pub result: Option<&'a RawValue>,
}

/// A JSON-RPC request.
#[derive(Debug)]
pub struct JsonRpcRequest<'a> {
    /// The id as written, a string or an integer.
    pub id: &'a RawValue,
    /// The name of the method.
    pub method: Cow<'a, str>,
    /// The members of `params` that the gateway reads.
    pub params: RequestParams<'a>,
    /// The text of the whole message.
    text: &'a str,
}

impl<'a> JsonRpcRequest<'a> {
    /// Returns the whole object `params` as written, for the few methods that need more members than [`RequestParams`] has.
    pub fn raw_params(&self) -> Option<&'a RawValue> {
        #[derive(Deserialize)]
        struct ParamsOnly<'a> {
            #[serde(borrow)]
            params: Option<&'a RawValue>,
        }
        object::<ParamsOnly<'_>>(self.text)?.params
    }
}

/// The members of `params` that the gateway reads. Their values are not parsed yet.
#[derive(Debug, Default, Deserialize)]
pub struct RequestParams<'a> {
    /// `_meta`.
    #[serde(borrow, default, rename = "_meta", deserialize_with = "present")]
    pub meta: Option<&'a RawValue>,
    /// The name of a tool or a prompt.
    #[serde(borrow, default, deserialize_with = "present")]
    pub name: Option<&'a RawValue>,
    /// The arguments of a tool or a prompt.
    #[serde(borrow, default, deserialize_with = "present")]
    pub arguments: Option<&'a RawValue>,
    /// The cursor from which a list continues.
    #[serde(borrow, default, deserialize_with = "present")]
    pub cursor: Option<&'a RawValue>,
    /// The URI of a resource.
    #[serde(borrow, default, deserialize_with = "present")]
    pub uri: Option<&'a RawValue>,
    /// The id of a task.
    #[serde(borrow, default, rename = "taskId", deserialize_with = "present")]
    pub task_id: Option<&'a RawValue>,
    /// The state that the client received in an `input_required` result.
    #[serde(borrow, default, rename = "requestState", deserialize_with = "present")]
    pub request_state: Option<&'a RawValue>,
    /// The responses to the input requests of that result, by key.
    #[serde(
        borrow,
        default,
        rename = "inputResponses",
        deserialize_with = "present"
    )]
    pub input_responses: Option<&'a RawValue>,
    /// The notifications that `subscriptions/listen` asks for.
    #[serde(borrow, default, deserialize_with = "present")]
    pub notifications: Option<&'a RawValue>,
    /// The protocol version that `initialize` proposes.
    #[serde(
        borrow,
        default,
        rename = "protocolVersion",
        deserialize_with = "present"
    )]
    pub protocol_version: Option<&'a RawValue>,
    /// Whether `params` is a number and not an object. With its feature `arbitrary_precision`, `serde_json` presents a number
    /// that does not fit into 64 bits as a map with this one member.
    #[serde(
        default,
        rename = "$serde_json::private::Number",
        deserialize_with = "is_present"
    )]
    is_number: bool,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default)]
    params: ParamsMember<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// The member `params`. It is parsed in the same pass as the envelope because arguments can be large.
#[derive(Default)]
enum ParamsMember<'a> {
    #[default]
    Nothing,
    Object(RequestParams<'a>),
    Other,
}

impl<'de: 'a, 'a> Deserialize<'de> for ParamsMember<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ParamsVisitor;

        impl<'de> Visitor<'de> for ParamsVisitor {
            type Value = ParamsMember<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any JSON value")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                RequestParams::deserialize(MapAccessDeserializer::new(map)).map(|params| {
                    if params.is_number {
                        ParamsMember::Other
                    } else {
                        ParamsMember::Object(params)
                    }
                })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(ParamsMember::Other)
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(ParamsMember::Other)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
                Ok(ParamsMember::Other)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
                Ok(ParamsMember::Other)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
                Ok(ParamsMember::Other)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
                Ok(ParamsMember::Other)
            }

            fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
                Ok(ParamsMember::Other)
            }
        }

        deserializer.deserialize_any(ParamsVisitor)
    }
}

/// Returns true for a member with any value.
fn is_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| true)
}

impl<'a> JsonRpcMessage<'a> {
    /// Parses a body that was scanned before. An error comes with the id of the message if the id is usable, so that the
    /// error response can carry it.
    pub fn parse(text: &'a str) -> Result<Self, (Option<&'a RawValue>, RpcError)> {
        let no_id = |what: &str| (None, RpcError::invalid_request(what));
        let envelope: Envelope<'a> =
            object(text).ok_or_else(|| no_id("a message must be a JSON object"))?;
        let id = match envelope.id {
            Some(id) if is_id(id) => Some(id),
            Some(_) => return Err(no_id("`id` must be a string or an integer")),
            None => None,
        };
        let wrong = |error| (id, error);
        if envelope.jsonrpc.map(RawValue::get) != Some(r#""2.0""#) {
            return Err(wrong(RpcError::invalid_request(
                "`jsonrpc` must be \"2.0\"",
            )));
        }
        let Some(method) = envelope.method else {
            if envelope.result.is_some() || envelope.error.is_some() {
                let result = envelope.result.filter(|_| envelope.error.is_none());
                return Ok(Self::Response(ClientResponse { id, result }));
            }
            return Err(wrong(RpcError::invalid_request("`method` is missing")));
        };
        let method = text_of(method)
            .ok_or_else(|| wrong(RpcError::invalid_request("`method` must be a string")))?;
        let Some(id) = id else {
            return Ok(Self::Notification);
        };
        let params = match envelope.params {
            ParamsMember::Nothing => RequestParams::default(),
            ParamsMember::Object(params) => params,
            ParamsMember::Other => {
                return Err(wrong(RpcError::invalid_params(
                    "`params` must be an object",
                )));
            }
        };
        Ok(Self::Request(JsonRpcRequest {
            id,
            method,
            params,
            text,
        }))
    }
}

/// Parses `text` as a JSON object. Everything that is parsed of a message goes through this function, which traces the size.
pub fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    tracing::trace!({ names::JSON_READ } = text.len());
    parse_object(text)
}

/// Returns the id, as written, of the request that the notification `text` cancels, or `None` if `text` cancels none.
pub fn cancelled_request_id(text: &str) -> Option<&str> {
    #[derive(Deserialize)]
    struct CancelledNotification<'a> {
        method: Cow<'a, str>,
        #[serde(borrow)]
        params: &'a RawValue,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct CancelledParams<'a> {
        #[serde(borrow)]
        request_id: &'a RawValue,
    }
    let message: CancelledNotification<'_> = object(text)?;
    let params: CancelledParams<'_> = object(message.params.get())?;
    (message.method == "notifications/cancelled").then_some(params.request_id.get())
}

/// Returns a canonical spelling of a JSON-RPC id: equal ids have equal spellings, whichever escapes their strings use.
pub fn spelt_alike(id: &str) -> String {
    match serde_json::from_str(id) {
        Ok(text @ serde_json::Value::String(_)) => text.to_string(),
        _ => id.to_owned(),
    }
}

/// Returns whether `raw` is a valid id: a string, or an integer without fraction or exponent (MCP: "Request IDs").
pub(crate) fn is_id(raw: &RawValue) -> bool {
    match raw.get().as_bytes() {
        [b'"', ..] => true,
        digits => digits
            .iter()
            .all(|byte| byte.is_ascii_digit() || *byte == b'-'),
    }
}

/// Returns the string that `raw` contains, or `None` if it is not a string.
pub fn text_of(raw: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str::<Text<'_>>(raw.get())
        .ok()
        .map(|text| text.0)
}

/// Returns the members of a JSON object without its braces.
pub fn inner(object: &str) -> &str {
    object
        .trim_start_matches('{')
        .trim_end()
        .strip_suffix('}')
        .unwrap_or(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> JsonRpcRequest<'_> {
        match JsonRpcMessage::parse(text) {
            Ok(JsonRpcMessage::Request(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_request_is_read_by_reference_byte_for_byte() {
        let text = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x","arguments":{ "a" : 1.10 }}}"#;
        let request = request(text);
        assert_eq!(request.id.get(), "7");
        assert!(matches!(request.method, Cow::Borrowed("tools/call")));
        assert_eq!(request.params.arguments.unwrap().get(), r#"{ "a" : 1.10 }"#);
        let whole = r#"{"name":"x","arguments":{ "a" : 1.10 }}"#;
        assert_eq!(request.raw_params().unwrap().get(), whole);
    }

    #[test]
    fn an_escaped_method_is_the_method_it_spells() {
        let text = r#"{"jsonrpc":"2.0","id":"a","method":"tools\/call"}"#;
        assert_eq!(request(text).method, "tools/call");
    }

    #[test]
    fn bad_envelopes_are_refused_by_name() {
        let cases = [
            ("7", "JSON object"),
            ("[]", "JSON object"),
            (r#"["2.0",1,"ping"]"#, "JSON object"),
            (r#"{"id":1,"method":"ping"}"#, "`jsonrpc`"),
            (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, "`jsonrpc`"),
            (r#"{"jsonrpc":2.0,"id":1,"method":"ping"}"#, "`jsonrpc`"),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, "`id`"),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, "`id`"),
            (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, "`id`"),
            (r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#, "`id`"),
            (r#"{"jsonrpc":"2.0","id":1}"#, "`method` is missing"),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, "`method` must"),
            (
                r#"{"jsonrpc":"2.0","id":1,"Method":"ping"}"#,
                "`method` is missing",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#,
                "`params`",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":null}"#,
                "`params`",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":"{}"}"#,
                "`params`",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":-1}"#,
                "`params`",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":1e2}"#,
                "`params`",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":true}"#,
                "`params`",
            ),
        ];
        for (text, expected) in cases {
            let (_, error) = JsonRpcMessage::parse(text).unwrap_err();
            assert!(
                error.message().contains(expected),
                "{text}: {}",
                error.message()
            );
        }
    }

    #[test]
    fn notifications_and_responses_are_told_apart() {
        let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        assert!(matches!(
            JsonRpcMessage::parse(notification),
            Ok(JsonRpcMessage::Notification)
        ));
        let response = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        assert!(matches!(
            JsonRpcMessage::parse(response),
            Ok(JsonRpcMessage::Response(ClientResponse {
                result: Some(_),
                ..
            }))
        ));
    }
}
