//! The client's message: whether it asks for what its permit is for, and the headers that repeat parts of it.

use bytes::Bytes;
use serde_json::value::RawValue;
use wardgate_domain::OfferKind;
use wardgate_json::{Ambiguous, MessageMembers, is_strict};
use wardgate_mcp::meta;
use wardgate_telemetry::names;

use wardgate_mcp_client::{Content, repeated};

/// Why a message is not carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotCarried {
    /// It is no JSON-RPC message, or one that its readers could take for different ones.
    #[error("is not one JSON-RPC message; send one JSON object, with each member once")]
    NoMessage,
    /// The permit is for something else.
    #[error("asks for something else than its permit is for")]
    Uncovered,
    /// It is about a task, whose result would come past what its caller's permits restrict.
    #[error("is about a task, and its permit restricts results; call the tool without `task`")]
    Task,
    /// Nobody here knows what its answer can hold, and so what of it the permit lets out.
    #[error("asks for what no rule of its permit is about, and the permit restricts results")]
    Foreign,
}

impl From<Ambiguous> for NotCarried {
    fn from(_: Ambiguous) -> Self {
        Self::NoMessage
    }
}

/// What the permit is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Subject<'a> {
    /// A call of the tool that the server has under this name.
    Tool(&'a str),
    /// Something else that the server offers.
    Of(OfferKind),
}

/// What an exchange is after.
#[derive(Debug, Default)]
pub(super) struct RequestedExchange {
    /// Of the request that waits for an answer, as its client wrote it.
    pub(super) id: Option<Box<RawValue>>,
    /// Of a call of a tool: what was asked of the policy, byte for byte.
    pub(super) arguments: Option<Bytes>,
    /// What its progress is reported under.
    pub(super) progress_token: Option<Box<RawValue>>,
    /// It is of 2026-07-28.
    pub(super) is_modern: bool,
    /// Its answer comes when the server has nothing more to say.
    pub(super) listens: bool,
    /// Why a permit that restricts results is not enough for it.
    pub(super) unruled: Option<NotCarried>,
}

/// The members of a message, and of the objects in it that the relay looks into.
pub(super) fn parse_members(text: &str) -> Option<MessageMembers<'_>> {
    tracing::trace!({ names::JSON_READ } = text.len());
    MessageMembers::parse(text)
}

/// Reads `bytes`, and makes sure that they ask for nothing but what a permit for `subject` is for, with the `arguments`
/// that it was decided on. A call of a tool has its own.
pub(super) fn read(
    bytes: &Bytes,
    subject: Subject<'_>,
    arguments: &[u8],
) -> Result<(Content, RequestedExchange), NotCarried> {
    let text = std::str::from_utf8(bytes).map_err(|_| NotCarried::NoMessage)?;
    let envelope = parse_members(text).ok_or(NotCarried::NoMessage)?;
    let method = match envelope.get("method")? {
        Some(_) => envelope.text("method")?.ok_or(NotCarried::NoMessage)?,
        // An answer to a request of the server's.
        None if envelope.has("result")? || envelope.has("error")? => String::new(),
        None => return Err(NotCarried::NoMessage),
    };
    let none = MessageMembers::default();
    let params = if envelope.has("params")? {
        envelope.object("params")?.ok_or(NotCarried::NoMessage)?
    } else {
        &none
    };
    let meta = params.object("_meta")?;
    let is_modern = match meta {
        Some(meta) => meta.has(meta::PROTOCOL_VERSION)?,
        None => false,
    };
    if !covers(subject, arguments, &method, is_modern, params)? {
        return Err(NotCarried::Uncovered);
    }
    if let Some(wanted) = params.object("notifications")? {
        // Each of them was decided on.
        wanted.has("resourceSubscriptions")?;
    }
    let id = envelope.get("id")?.filter(|_| !method.is_empty());
    let mut asked = RequestedExchange {
        id: id.map(ToOwned::to_owned),
        arguments: match subject {
            Subject::Tool(_) => Some(called_with(bytes, params)?),
            Subject::Of(_) => None,
        },
        is_modern,
        listens: method == "subscriptions/listen",
        unruled: unruled(&method, params)?,
        ..RequestedExchange::default()
    };
    if let Some(meta) = meta {
        asked.progress_token = meta.get("progressToken")?.map(ToOwned::to_owned);
    }
    let named = match named_by(&method) {
        Some(member) => params.text(member)?,
        None => None,
    };
    let named = named.as_deref().map(repeated);
    let repeats = is_modern.then(|| (repeated(&method), named));
    let content = Content::Post {
        message: bytes.clone(),
        repeats,
    };
    Ok((content, asked))
}

/// Why nobody knows what of the answer a permit that restricts results would let out.
fn unruled(method: &str, params: &MessageMembers<'_>) -> Result<Option<NotCarried>, NotCarried> {
    Ok(if method.starts_with("tasks/") || params.has("task")? {
        Some(NotCarried::Task)
    } else if method.is_empty() || is_ruled(method) {
        None
    } else {
        Some(NotCarried::Foreign)
    })
}

/// Whether it is known what an answer to it can hold.
fn is_ruled(method: &str) -> bool {
    method.starts_with("notifications/")
        || matches!(
            method,
            "initialize"
                | "ping"
                | "server/discover"
                | "logging/setLevel"
                | "subscriptions/listen"
                | "tools/list"
                | "tools/call"
                | "prompts/list"
                | "prompts/get"
                | "resources/list"
                | "resources/templates/list"
                | "resources/read"
                | "resources/subscribe"
                | "resources/unsubscribe"
                | "completion/complete"
        )
}

/// The member of `params` that `Mcp-Name` repeats.
fn named_by(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// Whether a permit for `subject` and `arguments` lets a client ask for that.
fn covers(
    subject: Subject<'_>,
    arguments: &[u8],
    method: &str,
    is_modern: bool,
    params: &MessageMembers<'_>,
) -> Result<bool, NotCarried> {
    let is_decided = |member: &str, value: Option<String>| {
        let arguments = std::str::from_utf8(arguments).ok().and_then(parse_members);
        let decided = arguments.and_then(|arguments| arguments.text(member).ok().flatten());
        decided.is_some() && decided == value
    };
    Ok(match (subject, method) {
        (Subject::Tool(name), "tools/call") => params.text("name")?.as_deref() == Some(name),
        (Subject::Of(kind), "completion/complete") => {
            let (of, member) = match kind {
                OfferKind::Resources => ("ref/resource", "uri"),
                OfferKind::Prompts => ("ref/prompt", "name"),
                OfferKind::Tool | OfferKind::Connect => return Ok(false),
            };
            let reference = params.object("ref")?.ok_or(NotCarried::Uncovered)?;
            reference.text("type")?.as_deref() == Some(of)
                && is_decided(member, reference.text(member)?)
        }
        (
            Subject::Of(OfferKind::Resources),
            "resources/read" | "resources/subscribe" | "resources/unsubscribe",
        ) => is_decided("uri", params.text("uri")?),
        (Subject::Of(OfferKind::Prompts), "prompts/get") => {
            is_decided("name", params.text("name")?)
        }
        (Subject::Of(OfferKind::Connect), method) => match method {
            "tools/call" | "prompts/get" | "resources/read" => false,
            // In 2026-07-28 they are no methods, and the server says so.
            "resources/subscribe" | "resources/unsubscribe" => is_modern,
            _ => true,
        },
        _ => false,
    })
}

/// The arguments of a call, which every reader of JSON takes for the same. A call without any has `{}`.
fn called_with(message: &Bytes, params: &MessageMembers<'_>) -> Result<Bytes, NotCarried> {
    let Some(arguments) = params.get("arguments")? else {
        return Ok(Bytes::from_static(b"{}"));
    };
    let text = arguments.get();
    if !text.starts_with('{') || !is_strict(text) {
        return Err(NotCarried::Uncovered);
    }
    Ok(message.slice_ref(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const CONNECT: Subject<'static> = Subject::Of(OfferKind::Connect);
    const RESOURCES: Subject<'static> = Subject::Of(OfferKind::Resources);
    const PROMPTS: Subject<'static> = Subject::Of(OfferKind::Prompts);

    fn read(
        message: &str,
        subject: Subject<'_>,
        arguments: &str,
    ) -> Result<(Content, RequestedExchange), NotCarried> {
        let bytes = Bytes::copy_from_slice(message.as_bytes());
        super::read(&bytes, subject, arguments.as_bytes())
    }

    fn message(method: &str, params: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#)
    }

    const META: &str =
        r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":"p"}"#;

    const URI: &str = r#"{"uri":"memo://one"}"#;

    fn call(arguments: &str) -> String {
        let params = format!(r#"{{"name":"read","arguments":{arguments}}}"#);
        message("tools/call", &params)
    }

    fn complete(reference: &str) -> String {
        let params = format!(r#"{{"ref":{reference},"argument":{{"name":"n","value":"v"}}}}"#);
        message("completion/complete", &params)
    }

    #[test]
    fn a_permit_covers_what_it_was_decided_on() {
        let uri = URI;
        for (message, subject, arguments) in [
            (call(r#"{"a":1.10}"#), Subject::Tool("read"), ""),
            (
                message("tools/call", r#"{"name":"read"}"#),
                Subject::Tool("read"),
                "",
            ),
            (
                message("resources/read", uri),
                RESOURCES,
                r#"{ "uri": "memo:\/\/one" }"#,
            ),
            (message("resources/subscribe", uri), RESOURCES, uri),
            (
                complete(r#"{"type":"ref/resource","uri":"memo://one"}"#),
                RESOURCES,
                uri,
            ),
            (
                message("prompts/get", r#"{"name":"greet"}"#),
                PROMPTS,
                r#"{"name":"greet"}"#,
            ),
            (
                complete(r#"{"type":"ref/prompt","name":"greet"}"#),
                PROMPTS,
                r#"{"name":"greet"}"#,
            ),
            (message("tools/list", "{}"), CONNECT, "{}"),
            (
                message("resources/subscribe", &format!("{{{META}}}")),
                CONNECT,
                "{}",
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned(),
                CONNECT,
                "{}",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned(),
                CONNECT,
                "{}",
            ),
        ] {
            let read = read(&message, subject, arguments);
            assert!(read.is_ok(), "{message}");
        }
    }

    #[test]
    fn a_call_is_decided_on_its_own_arguments_byte_for_byte() {
        for (message, expected) in [
            (call(r#"{ "a" : 1.10 }"#), r#"{ "a" : 1.10 }"#),
            (message("tools/call", r#"{"name":"read"}"#), "{}"),
        ] {
            let asked = read(&message, Subject::Tool("read"), "").ok().unwrap().1;
            assert_eq!(asked.arguments.unwrap(), expected);
        }
    }

    #[test]
    fn a_permit_covers_nothing_else() {
        let uri = URI;
        for (message, subject, arguments) in [
            (call(r#"{"a":1.10}"#), Subject::Tool("write"), ""),
            (call(r#"{"a":1,"a":2}"#), Subject::Tool("read"), ""),
            (call(r#"{"a":{"b":"\u0000"}}"#), Subject::Tool("read"), ""),
            (call("[]"), Subject::Tool("read"), ""),
            (call("{}"), CONNECT, "{}"),
            (message("tools/list", "{}"), Subject::Tool("read"), "{}"),
            (
                message("resources/read", uri),
                RESOURCES,
                r#"{"uri":"memo://two"}"#,
            ),
            (message("resources/read", "{}"), RESOURCES, "{}"),
            (message("resources/read", uri), CONNECT, uri),
            (message("resources/subscribe", uri), CONNECT, uri),
            (message("resources/read", uri), PROMPTS, uri),
            (
                message("prompts/get", r#"{"name":"greet"}"#),
                RESOURCES,
                r#"{"name":"greet"}"#,
            ),
            (
                complete(r#"{"type":"ref/prompt","name":"greet","uri":"memo://one"}"#),
                RESOURCES,
                uri,
            ),
            (
                complete(r#"{"type":"ref/prompt","name":"greet"}"#),
                CONNECT,
                "{}",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#.to_owned(),
                Subject::Tool("read"),
                "{}",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned(),
                Subject::Tool("read"),
                "{}",
            ),
        ] {
            let refused = read(&message, subject, arguments).err();
            assert_eq!(refused, Some(NotCarried::Uncovered), "{message}");
        }
    }

    #[test]
    fn what_readers_could_take_for_something_else_is_no_message() {
        for message in [
            "",
            "7",
            r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{},"Params":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"ResourceSubscriptions":["memo://one"]}}}"#,
        ] {
            let refused = read(message, CONNECT, "{}").err();
            assert_eq!(refused, Some(NotCarried::NoMessage), "{message}");
        }
        let two_names = message("tools/call", r#"{"name":"read","Name":"write"}"#);
        let refused = read(&two_names, Subject::Tool("read"), "{}").err();
        assert_eq!(refused, Some(NotCarried::NoMessage));
    }

    #[test]
    fn only_a_modern_message_is_repeated_in_headers() {
        let meta = META;
        let repeats =
            |message: &str, subject, arguments: &str| match read(message, subject, arguments)
                .ok()
                .unwrap()
                .0
            {
                Content::Post {
                    message: sent,
                    repeats,
                } => {
                    assert_eq!(sent, message);
                    let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
                    repeats.map(|(method, name)| (text(&method), name.as_ref().map(text)))
                }
                Content::Get | Content::Delete => panic!("a message is posted"),
            };
        let uri = r#"{"uri":"memo://Zürich"}"#;
        let modern = message(
            "resources/read",
            &format!(r#"{{"uri":"memo://Zürich",{meta}}}"#),
        );
        let name = "=?base64?bWVtbzovL1rDvHJpY2g=?=".to_owned();
        assert_eq!(
            repeats(&modern, RESOURCES, uri),
            Some(("resources/read".to_owned(), Some(name)))
        );
        let modern = message("tasks/get", &format!(r#"{{"taskId":"t-1",{meta}}}"#));
        assert_eq!(
            repeats(&modern, CONNECT, "{}"),
            Some(("tasks/get".to_owned(), Some("t-1".to_owned())))
        );
        let modern = message("tools/list", &format!("{{{meta}}}"));
        assert_eq!(
            repeats(&modern, CONNECT, "{}"),
            Some(("tools/list".to_owned(), None))
        );
        let asked = read(&modern, CONNECT, "{}").ok().unwrap().1;
        assert_eq!(asked.id.unwrap().get(), "1");
        assert_eq!(asked.progress_token.unwrap().get(), r#""p""#);
        assert_eq!(repeats(&message("tools/list", "{}"), CONNECT, "{}"), None);
    }
}
