//! What is to be carried, as it comes over the wire, its fields checked.

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use serde_json::value::RawValue;
use wardgate_domain::{CallId, Caller, InvalidId, InvalidMessage, OfferKind, SignedPermit};
use wardgate_proto::toolrunner::v1 as pb;

/// Headers that repeat arguments, in one exchange.
const MAX_PARAMS: usize = 128;

/// One exchange of a client.
pub(crate) struct RelayCall {
    pub(super) id: CallId,
    pub(super) caller: Caller,
    pub(super) source: String,
    pub(super) offer: Offer,
    pub(super) permit: Option<SignedPermit>,
    /// What the policy decided on; empty with a message that calls a tool, whose arguments are its own.
    pub(super) arguments: Bytes,
    pub(super) method: Method,
    pub(super) version: Option<HeaderValue>,
    pub(super) session: Option<HeaderValue>,
    pub(super) last_event: Option<HeaderValue>,
    /// `Mcp-Param-*`.
    pub(super) params: Vec<(HeaderName, HeaderValue)>,
    pub(super) governed_id: Option<Box<RawValue>>,
    /// What the caller called with, where credentials are made of it.
    pub(super) caller_token: Option<String>,
}

/// What it is for.
pub(super) enum Offer {
    /// A call of the tool with this canonical name.
    Tool(String),
    /// Something else that the source offers.
    Of(OfferKind),
}

pub(super) enum Method {
    /// With one message.
    Post(Bytes),
    Get,
    Delete,
}

impl TryFrom<pb::RelayRequest> for RelayCall {
    type Error = InvalidMessage;

    fn try_from(request: pb::RelayRequest) -> Result<Self, Self::Error> {
        use pb::RelayMethod as Wire;
        let id = request.call_id.parse();
        let method = match request.method() {
            Wire::Unspecified => return Err(InvalidMessage::field("method", "is unspecified")),
            Wire::Post => Method::Post(request.message.clone()),
            Wire::Get => Method::Get,
            Wire::Delete => Method::Delete,
        };
        let offer = match request.kind().into() {
            OfferKind::Tool => Offer::Tool(request.tool),
            kind => Offer::Of(kind),
        };
        if matches!((&offer, &method), (Offer::Tool(_), Method::Post(_)))
            && !request.arguments_json.is_empty()
        {
            return Err(InvalidMessage::field("arguments_json", "are the message's"));
        }
        if request.headers.len() > MAX_PARAMS {
            return Err(InvalidMessage::field("headers", "are too many"));
        }
        let governed_id = Some(request.governed_id).filter(|id| !id.is_empty());
        let caller = request.caller;
        Ok(Self {
            id: id
                .map_err(|error: InvalidId| InvalidMessage::field("call_id", error.to_string()))?,
            caller: caller
                .ok_or_else(|| InvalidMessage::field("caller", "is missing"))?
                .try_into()?,
            source: request.source,
            offer,
            // An empty permit is none.
            permit: request.permit.and_then(|permit| permit.try_into().ok()),
            arguments: request.arguments_json,
            method,
            version: header(&request.protocol_version, "protocol_version")?,
            session: header(&request.session, "session")?.map(|mut session| {
                session.set_sensitive(true);
                session
            }),
            last_event: header(&request.last_event_id, "last_event_id")?,
            params: request
                .headers
                .iter()
                .map(param)
                .collect::<Result<_, _>>()?,
            governed_id: governed_id
                .map(RawValue::from_string)
                .transpose()
                .map_err(|_| InvalidMessage::field("governed_id", "is no JSON-RPC id"))?,
            caller_token: Some(request.caller_token).filter(|token| !token.is_empty()),
        })
    }
}

/// The value of a header that is sent unless it is empty.
fn header(text: &str, field: &'static str) -> Result<Option<HeaderValue>, InvalidMessage> {
    if text.is_empty() {
        return Ok(None);
    }
    HeaderValue::from_bytes(text.as_bytes())
        .map(Some)
        .map_err(|_| InvalidMessage::field(field, "cannot be sent as a header"))
}

/// Any other header of a client's is none of the server's business.
fn param(header: &pb::RelayHeader) -> Result<(HeaderName, HeaderValue), InvalidMessage> {
    let name = HeaderName::try_from(&header.name).ok();
    let name = name.filter(|name| name.as_str().starts_with("mcp-param-"));
    name.zip(HeaderValue::from_bytes(header.value.as_bytes()).ok())
        .ok_or_else(|| InvalidMessage::field("headers", "hold another than a legal `Mcp-Param-*`"))
}
