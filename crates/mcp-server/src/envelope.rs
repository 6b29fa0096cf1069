//! The JSON-RPC envelope, by reference into the body: nothing below it is parsed here.

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
    /// A message that wants an answer.
    Request(JsonRpcRequest<'a>),
    /// A message without id; MCP answers it with 202 and nothing else.
    Notification,
    /// An answer to a request of the gateway's.
    Response(ClientResponse<'a>),
}

/// What a client answered.
#[derive(Debug)]
pub struct ClientResponse<'a> {
    /// The id of the request that it answers.
    pub id: Option<&'a RawValue>,
    /// None for an error.
    pub result: Option<&'a RawValue>,
}

/// One request.
#[derive(Debug)]
pub struct JsonRpcRequest<'a> {
    /// A string or an integer, as written.
    pub id: &'a RawValue,
    /// The name of the method.
    pub method: Cow<'a, str>,
    /// The members of its parameters.
    pub params: RequestParams<'a>,
    /// The message it was read from.
    text: &'a str,
}

impl<'a> JsonRpcRequest<'a> {
    /// All of `params`, an object as written: for the few methods that take more of them than [`RequestParams`] has.
    pub fn raw_params(&self) -> Option<&'a RawValue> {
        #[derive(Deserialize)]
        struct ParamsOnly<'a> {
            #[serde(borrow)]
            params: Option<&'a RawValue>,
        }
        object::<ParamsOnly<'_>>(self.text)?.params
    }
}

/// The members of `params` that the gateway reads; each still raw.
#[derive(Debug, Default, Deserialize)]
pub struct RequestParams<'a> {
    /// `_meta`.
    #[serde(borrow, default, rename = "_meta", deserialize_with = "present")]
    pub meta: Option<&'a RawValue>,
    /// The name of a tool or prompt.
    #[serde(borrow, default, deserialize_with = "present")]
    pub name: Option<&'a RawValue>,
    /// The arguments of a tool or prompt.
    #[serde(borrow, default, deserialize_with = "present")]
    pub arguments: Option<&'a RawValue>,
    /// The place from which a list goes on.
    #[serde(borrow, default, deserialize_with = "present")]
    pub cursor: Option<&'a RawValue>,
    /// The URI of a resource.
    #[serde(borrow, default, deserialize_with = "present")]
    pub uri: Option<&'a RawValue>,
    /// The id of a task.
    #[serde(borrow, default, rename = "taskId", deserialize_with = "present")]
    pub task_id: Option<&'a RawValue>,
    /// The state that an `input_required` result gave the client.
    #[serde(borrow, default, rename = "requestState", deserialize_with = "present")]
    pub request_state: Option<&'a RawValue>,
    /// The responses to the requests of that result, by key.
    #[serde(
        borrow,
        default,
        rename = "inputResponses",
        deserialize_with = "present"
    )]
    pub input_responses: Option<&'a RawValue>,
    /// What `subscriptions/listen` is to send.
    #[serde(borrow, default, deserialize_with = "present")]
    pub notifications: Option<&'a RawValue>,
    /// The version that `initialize` proposes.
    #[serde(
        borrow,
        default,
        rename = "protocolVersion",
        deserialize_with = "present"
    )]
    pub protocol_version: Option<&'a RawValue>,
    /// Present when it is no object but a number: `serde_json` hands those on that no 64 bits hold as the one member
    /// of a map (its feature `arbitrary_precision`).
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

/// The member `params`, read in the same pass as what stands around it: arguments can be large.
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

/// True for a member of any value.
fn is_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| true)
}

impl<'a> JsonRpcMessage<'a> {
    /// Reads a scanned body. On an error the id comes along when it is usable, so that the answer can
    /// carry it.
    pub fn parse(text: &'a str) -> Result<Self, (Option<&'a RawValue>, RpcError)> {
        let no_id = |what: &str| (None, RpcError::invalid_request(what));
        let envelope: Envelope<'a> =
            object(text).ok_or_else(|| no_id("a message is a JSON object"))?;
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

/// The object that `text` is. Whatever is read of a message is read here.
pub fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    tracing::trace!({ names::JSON_READ } = text.len());
    parse_object(text)
}

/// The id, as written, of the request that `text` cancels.
pub fn cancelled(text: &str) -> Option<&str> {
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

/// The same for a JSON-RPC id however it is spelt.
pub fn spelt_alike(id: &str) -> String {
    match serde_json::from_str(id) {
        Ok(text @ serde_json::Value::String(_)) => text.to_string(),
        _ => id.to_owned(),
    }
}

/// A string, or an integer without fraction or exponent (MCP: "Request IDs").
pub(crate) fn is_id(raw: &RawValue) -> bool {
    match raw.get().as_bytes() {
        [b'"', ..] => true,
        digits => digits
            .iter()
            .all(|byte| byte.is_ascii_digit() || *byte == b'-'),
    }
}

/// The string that `raw` is.
pub fn text_of(raw: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str::<Text<'_>>(raw.get())
        .ok()
        .map(|text| text.0)
}

/// The members of a JSON object, without its braces.
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
