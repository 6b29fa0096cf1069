//! The parts of messages that the bridge has to know. Messages are forwarded unchanged.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_json::parse_object;
use wardgate_mcp::message::Envelope;

/// The id of a request as JSON text. It is normalized, so that differently escaped forms of a string are equal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Id(String);

impl Id {
    fn from_json(raw: &RawValue) -> Option<Self> {
        match serde_json::from_str(raw.get()).ok()? {
            text @ Value::String(_) => Some(Self(text.to_string())),
            // A number is kept as it is written, so that even a very large number is returned unchanged.
            Value::Number(_) => Some(Self(raw.get().to_owned())),
            _ => None,
        }
    }

    pub(crate) fn as_json(&self) -> &str {
        &self.0
    }
}

/// A JSON-RPC message.
#[derive(Debug)]
pub(crate) enum ClientMessage {
    Request(ClientRequest),
    Notification {
        method: String,
        /// The request that `notifications/cancelled` refers to.
        cancels: Option<Id>,
    },
    /// A response to a request of the other side. It has no id if that request could not be parsed.
    Response {
        id: Option<Id>,
        /// The `error` member, if there is one.
        error: Option<Box<RawValue>>,
    },
}

/// A JSON-RPC request.
#[derive(Debug)]
pub(crate) struct ClientRequest {
    pub(crate) id: Id,
    pub(crate) method: String,
    /// The protocol version that a modern request states, or `None` for a legacy request.
    pub(crate) version: Option<String>,
    /// The name, URI or task id for the header `Mcp-Name`.
    pub(crate) subject: Option<String>,
    /// The arguments of a tool call.
    pub(crate) arguments: Option<Box<RawValue>>,
}

/// A line of the client, or the data of one event of the gateway.
#[derive(Debug)]
pub(crate) enum MessageLine {
    One(ClientMessage),
    /// A batch, which only MCP 2025-03-26 supports.
    Batch(Vec<ClientMessage>),
}

impl MessageLine {
    /// Parses a line. Returns `None` if it is not JSON-RPC.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        if !text.trim_start().starts_with('[') {
            return ClientMessage::parse(text).map(Self::One);
        }
        let messages: Vec<&RawValue> = serde_json::from_str(text).ok()?;
        let messages = messages
            .iter()
            .map(|message| ClientMessage::parse(message.get()));
        let messages: Vec<_> = messages.collect::<Option<_>>()?;
        (!messages.is_empty()).then_some(Self::Batch(messages))
    }

    pub(crate) fn messages(&self) -> &[ClientMessage] {
        match self {
            Self::One(message) => std::slice::from_ref(message),
            Self::Batch(messages) => messages,
        }
    }
}

#[derive(Default, Deserialize)]
struct MessageParams<'a> {
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    name: Option<&'a RawValue>,
    #[serde(borrow, default)]
    uri: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "taskId")]
    task: Option<&'a RawValue>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "requestId")]
    request_id: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct MessageMeta<'a> {
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<&'a RawValue>,
}

impl ClientMessage {
    fn parse(text: &str) -> Option<Self> {
        let envelope = Envelope::parse(text)?;
        let id = envelope.id.and_then(Id::from_json);
        let Some(method) = envelope.method.map(Cow::into_owned) else {
            let is_response = envelope.result.is_some() || envelope.error.is_some();
            return is_response.then(|| Self::Response {
                id,
                error: envelope.error.map(ToOwned::to_owned),
            });
        };
        let params = envelope.params.map(RawValue::get);
        // The gateway reports errors in the parameters.
        let params: MessageParams<'_> = params.and_then(parse_object).unwrap_or_default();
        let Some(id) = id else {
            let cancels = params
                .request_id
                .filter(|_| method == "notifications/cancelled");
            return Some(Self::Notification {
                cancels: cancels.and_then(Id::from_json),
                method,
            });
        };
        let meta: MessageMeta<'_> = params
            .meta
            .and_then(|meta| parse_object(meta.get()))
            .unwrap_or_default();
        let subject = match method.as_str() {
            "tools/call" | "prompts/get" => params.name,
            "resources/read" => params.uri,
            "tasks/get" | "tasks/update" | "tasks/cancel" => params.task,
            _ => None,
        };
        let arguments = params.arguments.filter(|_| method == "tools/call");
        Some(Self::Request(ClientRequest {
            version: meta.version.and_then(text_of),
            subject: subject.and_then(text_of),
            arguments: arguments.map(ToOwned::to_owned),
            id,
            method,
        }))
    }
}

fn text_of(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_one(text: &str) -> ClientMessage {
        match MessageLine::parse(text.as_bytes()) {
            Some(MessageLine::One(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_modern_request_says_its_version_and_what_it_is_about() {
        let ClientMessage::Request(request) = parse_one(
            r#"{"jsonrpc":"2.0","id":"\u0061","method":"tools/call","params":{"name":"x","arguments":{ "n":1.10 },"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
        ) else {
            panic!("no request")
        };
        assert_eq!(request.id.as_json(), r#""a""#);
        assert_eq!(request.version.as_deref(), Some("2026-07-28"));
        assert_eq!(request.subject.as_deref(), Some("x"));
        assert_eq!(request.arguments.unwrap().get(), r#"{ "n":1.10 }"#);
    }

    #[test]
    fn what_is_wrong_with_a_request_is_left_to_the_gateway() {
        for params in ["[]", "7", r#"{"_meta":[]}"#, r#"{"name":7}"#] {
            let text =
                format!(r#"{{"id":18446744073709551617,"method":"tools/call","params":{params}}}"#);
            let ClientMessage::Request(request) = parse_one(&text) else {
                panic!("no request")
            };
            assert_eq!(request.id.as_json(), "18446744073709551617");
            assert!(request.version.is_none() && request.subject.is_none());
        }
    }

    #[test]
    fn kinds_of_messages_are_told_apart() {
        assert!(matches!(
            parse_one(r#"{"method":"notifications/cancelled","params":{"requestId":7}}"#),
            ClientMessage::Notification { cancels: Some(id), .. } if id.as_json() == "7"
        ));
        assert!(matches!(
            parse_one(r#"{"method":"notifications/progress","params":{"requestId":7}}"#),
            ClientMessage::Notification { cancels: None, .. }
        ));
        assert!(matches!(
            parse_one(r#"{"id":1,"result":{}}"#),
            ClientMessage::Response {
                id: Some(_),
                error: None
            }
        ));
        assert!(matches!(
            parse_one(r#"{"id":null,"error":{"code":1,"message":""}}"#),
            ClientMessage::Response {
                id: None,
                error: Some(_)
            }
        ));
        assert!(MessageLine::parse(br#"[{"id":1,"method":"ping"},{"method":"n"}]"#).is_some());
        for bad in [
            "",
            "x",
            "7",
            "{}",
            r#"{"id":1}"#,
            "[7]",
            "[[]]",
            "\u{feff}{}",
        ] {
            assert!(MessageLine::parse(bad.as_bytes()).is_none(), "{bad}");
        }
    }
}
