//! One HTTP exchange carried to an upstream MCP server, as the tool-runner's callers see it.

use std::time::Duration;

use bytes::Bytes;
use wardgate_domain::{CallId, Caller, InvalidMessage, SignedPermit, ToolName};
use wardgate_proto::common::v1::OfferKind;
use wardgate_proto::toolrunner::v1 as pb;

use super::ResultFacts;

/// One exchange to carry.
#[derive(Debug, Clone)]
pub struct Relay<'a> {
    /// Its id.
    pub call_id: CallId,
    /// Who asks.
    pub caller: &'a Caller,
    /// Name of the source, an MCP server behind a URL.
    pub source: &'a str,
    /// What the exchange is for.
    pub offer: Offer<'a>,
    /// The right to it.
    pub permit: &'a SignedPermit,
    /// The arguments the permit was decided on, byte for byte.
    pub arguments: Bytes,
    /// What the client sent.
    pub exchange: Exchange,
    /// Protocol version the client speaks; none with `initialize`.
    pub protocol_version: Option<&'a str>,
    /// The server's own session id, with a legacy session.
    pub session: Option<&'a str>,
    /// The server's own event id, where a broken stream is taken up again.
    pub last_event_id: Option<&'a str>,
    /// `Mcp-Param-*` as the client sent them.
    pub headers: &'a [(String, String)],
    /// Where a stream is taken up again: the JSON-RPC id, as the client wrote it, of the request whose answer the
    /// permit governs. A message other than of [`Offer::Connect`] says itself which that is.
    pub governed_id: Option<&'a str>,
}

/// What an exchange is for, as the policy knows it.
#[derive(Debug, Clone, Copy)]
pub enum Offer<'a> {
    /// A call of this tool, by its canonical name.
    Tool(&'a ToolName),
    /// The route to the server itself: handshake, lists, listening.
    Connect,
    /// The server's resources.
    Resources,
    /// The server's prompts.
    Prompts,
}

/// What the client sent.
#[derive(Debug, Clone)]
pub enum Exchange {
    /// One JSON-RPC message, which reaches the server byte for byte.
    Post(Bytes),
    /// It listens.
    Get,
    /// It ends its session.
    Delete,
}

/// A part of what came back. First a head, then what that announces; or a failure, before or after it.
#[derive(Debug, Clone)]
pub enum Relayed {
    /// The server answers.
    Head(RelayHead),
    /// One event of a stream.
    Event(RelayEvent),
    /// A whole answer.
    Body(RelayBody),
    /// The last part: the server gave no answer, or none that may be passed on.
    Failed(RelayFailure),
}

/// The beginning of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayHead {
    /// HTTP status.
    pub status: u16,
    /// The session id the server gave.
    pub session: Option<String>,
    /// What follows.
    pub content: RelayContent,
}

/// What follows a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayContent {
    /// Nothing.
    Nothing,
    /// One body.
    Json,
    /// Events, until the server ends the stream.
    Events,
}

/// One server-sent event.
#[derive(Debug, Clone)]
pub struct RelayEvent {
    /// The server's own id, where the event has one.
    pub id: Option<String>,
    /// How long to wait before a reconnection, where the event says so.
    pub retry: Option<Duration>,
    /// One JSON-RPC message; empty where the event only has an id or says when to come back.
    pub message: Bytes,
    /// Only with the governed answer.
    pub result: Option<ResultFacts>,
}

/// A whole answer.
#[derive(Debug, Clone)]
pub struct RelayBody {
    /// One JSON-RPC message.
    pub message: Bytes,
    /// Only with the governed answer.
    pub result: Option<ResultFacts>,
}

/// Why there is no answer.
#[derive(Debug, Clone)]
pub struct RelayFailure {
    /// For the client to read.
    pub text: String,
    /// For the record.
    pub facts: ResultFacts,
}

impl From<Relay<'_>> for pb::RelayRequest {
    fn from(relay: Relay<'_>) -> Self {
        let (kind, tool) = match relay.offer {
            Offer::Tool(tool) => (OfferKind::Tool, tool.to_string()),
            Offer::Connect => (OfferKind::Connect, String::new()),
            Offer::Resources => (OfferKind::Resources, String::new()),
            Offer::Prompts => (OfferKind::Prompts, String::new()),
        };
        let (method, message) = match relay.exchange {
            Exchange::Post(message) => (pb::RelayMethod::Post, message),
            Exchange::Get => (pb::RelayMethod::Get, Bytes::new()),
            Exchange::Delete => (pb::RelayMethod::Delete, Bytes::new()),
        };
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        let header = |(name, value): &(String, String)| pb::RelayHeader {
            name: name.clone(),
            value: value.clone(),
        };
        Self {
            call_id: relay.call_id.to_string(),
            caller: Some(relay.caller.into()),
            source: relay.source.to_owned(),
            permit: Some(relay.permit.into()),
            kind: kind.into(),
            tool,
            arguments_json: relay.arguments,
            method: method.into(),
            message,
            protocol_version: text(relay.protocol_version),
            session: text(relay.session),
            last_event_id: text(relay.last_event_id),
            headers: relay.headers.iter().map(header).collect(),
            governed_id: text(relay.governed_id),
        }
    }
}

impl TryFrom<pb::RelayResponse> for Relayed {
    type Error = InvalidMessage;

    fn try_from(response: pb::RelayResponse) -> Result<Self, Self::Error> {
        use pb::relay_response::Part;
        let facts = |facts: Option<pb::ResultFacts>| facts.map(TryInto::try_into).transpose();
        let part = response.part;
        Ok(
            match part.ok_or_else(|| InvalidMessage::field("part", "is missing"))? {
                Part::Head(head) => Self::Head(head.try_into()?),
                Part::Event(event) => Self::Event(RelayEvent {
                    id: event.id,
                    retry: event.retry_ms.map(Duration::from_millis),
                    message: event.message,
                    result: facts(event.result)?,
                }),
                Part::Body(body) => Self::Body(RelayBody {
                    message: body.message,
                    result: facts(body.result)?,
                }),
                Part::Failure(failure) => Self::Failed(RelayFailure {
                    text: failure.text,
                    facts: facts(failure.facts)?
                        .ok_or_else(|| InvalidMessage::field("failure.facts", "is missing"))?,
                }),
            },
        )
    }
}

impl TryFrom<pb::RelayHead> for RelayHead {
    type Error = InvalidMessage;

    fn try_from(head: pb::RelayHead) -> Result<Self, Self::Error> {
        use pb::RelayContent as Wire;
        let content = match head.content() {
            Wire::Unspecified => {
                return Err(InvalidMessage::field("head.content", "is unspecified"));
            }
            Wire::None => RelayContent::Nothing,
            Wire::Json => RelayContent::Json,
            Wire::Events => RelayContent::Events,
        };
        let status = u16::try_from(head.status).ok();
        Ok(Self {
            status: status
                .filter(|status| (100..1000).contains(status))
                .ok_or_else(|| InvalidMessage::field("head.status", "is no HTTP status"))?,
            session: Some(head.session).filter(|session| !session.is_empty()),
            content,
        })
    }
}
