//! One HTTP exchange carried to an upstream MCP server, as the tool-runner's callers see it.

use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, TryStreamExt, stream};
use tonic::Status;
use wardgate_domain::{CallId, Caller, InvalidMessage, SignedPermit, ToolName};
use wardgate_proto::common::v1::OfferKind;
use wardgate_proto::toolrunner::v1 as pb;

use super::{CallError, ResultFacts, read_out};

/// Bytes of a message: the largest taken from a server, and room for what is around it.
const MAX_MESSAGE: u64 = 17 << 20;

/// One exchange to carry.
/// It is no `Debug`: it can hold the caller's token.
#[derive(Clone)]
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
    /// The arguments the permit was decided on, byte for byte. Empty with a message that calls a tool: they are its own.
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
    /// permit governs. A message says itself which that is.
    pub governed_id: Option<&'a str>,
    /// The caller's bearer token, only for a source that needs it.
    pub caller_token: Option<&'a str>,
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
    /// The last part: a whole answer.
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
    /// `Retry-After` as the server gave it: seconds, or an HTTP date.
    pub retry_after: Option<String>,
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
    pub message: Vec<u8>,
    /// Only with the answer to the request.
    pub result: Option<ResultFacts>,
}

/// A whole answer.
#[derive(Debug, Clone)]
pub struct RelayBody {
    /// One JSON-RPC message.
    pub message: Vec<u8>,
    /// Only with the answer to the request.
    pub result: Option<ResultFacts>,
}

/// Why there is no answer.
#[derive(Debug, Clone)]
pub struct RelayFailure {
    /// For the client to read.
    pub text: String,
    /// For the record.
    pub facts: ResultFacts,
    /// The server did nothing, and the same can be asked for in other ways than carrying it.
    pub uncarried: bool,
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
            caller_token: text(relay.caller_token),
        }
    }
}

/// The parts that come, each message of them whole.
pub(super) fn whole(
    parts: impl Stream<Item = Result<pb::RelayResponse, Status>> + Unpin + Send + 'static,
) -> impl Stream<Item = Result<Relayed, CallError>> {
    stream::try_unfold(Some(parts), async |parts| {
        let Some(mut parts) = parts else {
            return Ok(None);
        };
        let Some(response) = parts.try_next().await? else {
            return Ok(None);
        };
        let (mut part, more) = begun(response)?;
        if let Some(message) = part.message() {
            let whole = message.len() as u64 + more;
            if whole > MAX_MESSAGE {
                return Err(InvalidMessage::field("more", "is too much").into());
            }
            // What grows by and by is held twice.
            message.reserve_exact(usize::try_from(more).unwrap_or(usize::MAX));
            while (message.len() as u64) < whole {
                message.extend_from_slice(&piece(parts.try_next().await?)?);
            }
            if message.len() as u64 > whole {
                return Err(InvalidMessage::field("piece", "is too long").into());
            }
        }
        if part.is_last() {
            read_out(parts);
            return Ok(Some((part, None)));
        }
        Ok(Some((part, Some(parts))))
    })
}

/// A part, and how much of its message is still to come.
fn begun(response: pb::RelayResponse) -> Result<(Relayed, u64), InvalidMessage> {
    use pb::relay_response::Part;
    let facts = |facts: Option<pb::ResultFacts>| facts.map(TryInto::try_into).transpose();
    let part = response.part;
    Ok(
        match part.ok_or_else(|| InvalidMessage::field("part", "is missing"))? {
            Part::Head(head) => (Relayed::Head(head.try_into()?), 0),
            Part::Event(event) => {
                let begun = Relayed::Event(RelayEvent {
                    id: event.id,
                    retry: event.retry_ms.map(Duration::from_millis),
                    message: event.message.into(),
                    result: facts(event.result)?,
                });
                (begun, event.more)
            }
            Part::Body(body) => {
                let begun = Relayed::Body(RelayBody {
                    message: body.message.into(),
                    result: facts(body.result)?,
                });
                (begun, body.more)
            }
            Part::Failure(failure) => {
                let facts = facts(failure.facts)?;
                let failed = Relayed::Failed(RelayFailure {
                    text: failure.text,
                    uncarried: failure.uncarried,
                    facts: facts
                        .ok_or_else(|| InvalidMessage::field("failure.facts", "is missing"))?,
                });
                (failed, 0)
            }
            Part::Piece(_) => return Err(InvalidMessage::field("piece", "follows nothing")),
        },
    )
}

fn piece(response: Option<pb::RelayResponse>) -> Result<Bytes, InvalidMessage> {
    use pb::relay_response::Part;
    match response.and_then(|response| response.part) {
        Some(Part::Piece(piece)) if !piece.is_empty() => Ok(piece),
        _ => Err(InvalidMessage::field("piece", "is missing")),
    }
}

impl Relayed {
    /// Nothing follows.
    fn is_last(&self) -> bool {
        match self {
            Self::Head(head) => head.content == RelayContent::Nothing,
            Self::Event(_) => false,
            Self::Body(_) | Self::Failed(_) => true,
        }
    }

    /// The message that it holds.
    fn message(&mut self) -> Option<&mut Vec<u8>> {
        match self {
            Self::Event(event) => Some(&mut event.message),
            Self::Body(body) => Some(&mut body.message),
            Self::Head(_) | Self::Failed(_) => None,
        }
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
            retry_after: Some(head.retry_after).filter(|wait| !wait.is_empty()),
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use pb::relay_response::Part;

    use super::*;

    async fn told(parts: impl IntoIterator<Item = Part>) -> Vec<Result<Relayed, CallError>> {
        let parts = parts.into_iter();
        let parts = parts.map(|part| Ok(pb::RelayResponse { part: Some(part) }));
        let parts: Vec<_> = parts.collect();
        Box::pin(whole(stream::iter(parts))).collect().await
    }

    fn body(message: &'static str, more: u64) -> Part {
        Part::Body(pb::RelayBody {
            message: Bytes::from_static(message.as_bytes()),
            result: None,
            more,
        })
    }

    fn piece(bytes: &'static str) -> Part {
        Part::Piece(Bytes::from_static(bytes.as_bytes()))
    }

    #[tokio::test]
    async fn a_message_that_comes_in_pieces_is_one() {
        let event = Part::Event(pb::RelayEvent {
            message: Bytes::from_static(b"12"),
            more: 1,
            ..pb::RelayEvent::default()
        });
        let parts = [event, piece("3"), body("ab", 3), piece("c"), piece("de")];
        let mut told = told(parts).await.into_iter().map(Result::unwrap);
        let Some(Relayed::Event(event)) = told.next() else {
            panic!("an event comes first");
        };
        assert_eq!(event.message, b"123");
        let Some(Relayed::Body(body)) = told.next() else {
            panic!("then a body");
        };
        assert_eq!(
            (&*body.message, body.message.capacity()),
            (&b"abcde"[..], 5)
        );
        assert!(told.next().is_none());
    }

    #[tokio::test]
    async fn what_ends_the_stream_is_read_after_the_last_part() {
        let (ended, told_of_end) = tokio::sync::oneshot::channel();
        let part = pb::RelayResponse {
            part: Some(body("all", 0)),
        };
        let trailers = async move {
            ended.send(()).unwrap();
            Err(Status::ok("the end"))
        };
        let parts = stream::iter([Ok(part)]).chain(stream::once(trailers));
        let mut told = Box::pin(whole(Box::pin(parts)));
        assert!(matches!(told.next().await, Some(Ok(Relayed::Body(_)))));
        drop(told);
        told_of_end.await.unwrap();
    }

    #[tokio::test]
    async fn pieces_that_do_not_make_up_the_message_are_refused() {
        let cases: [Vec<Part>; 6] = [
            vec![piece("a")],
            vec![body("ab", 1)],
            vec![body("ab", 2), piece("cde")],
            vec![body("ab", 2), body("cd", 0)],
            vec![body("ab", 2), piece("")],
            vec![body("ab", MAX_MESSAGE)],
        ];
        for parts in cases {
            let told = told(parts).await;
            assert!(matches!(&*told, [Err(_)]), "{told:?}");
        }
    }
}
